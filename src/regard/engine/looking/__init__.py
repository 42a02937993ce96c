"""Statistics of weights, block by block of rows."""
