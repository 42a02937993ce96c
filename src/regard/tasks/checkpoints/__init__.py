"""Folders of other people's models, opened with suspicion."""
