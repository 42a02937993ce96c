"""Looks: the attention weights of a model on an input, with labels of its tokens."""
