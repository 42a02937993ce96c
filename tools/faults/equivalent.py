"""Drawn faults that nobody could see, each with the reason; they are not counted."""

EQUIVALENT: dict[str, str] = {}
