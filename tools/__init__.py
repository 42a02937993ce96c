"""Tools for those who work on the library; nothing here is installed with it."""
