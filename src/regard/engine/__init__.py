"""The one function, and how it is carried out."""

from regard.engine.attend import attend, explain

__all__ = ["attend", "explain"]
