"""The tasks of text, and their use."""
