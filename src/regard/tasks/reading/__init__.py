"""How text is read, and what tasks of text share."""
