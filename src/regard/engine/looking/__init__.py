"""Statistics of attention weights, one block of rows at a time."""
