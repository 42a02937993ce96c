"""Looks at every attention that a model runs, its outputs unchanged."""

from regard.watching.check import Check
from regard.watching.seen import Seen
from regard.watching.watch import watch

__all__ = ["Check", "Seen", "watch"]
