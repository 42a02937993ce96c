"""What parts measure with: sizes to walk, clocks, an account of memory, fits, and models that learn."""
