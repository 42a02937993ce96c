"""Speed and memory of `regard` beside the code a user would write without it: `python -m benchmarks`."""
