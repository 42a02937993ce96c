"""The gallery: formula, call and heat map of every term and encoding. `python -m tools.gallery` makes it."""
