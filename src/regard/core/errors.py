"""The one exception of the library."""


class RegardError(ValueError):
    """Wrong input: the rule, both facts in the caller's own names and numbers, then the way out.

    >>> raise RegardError("mask must be bool (True = attend), got float32.")
    Traceback (most recent call last):
    regard.core.errors.RegardError: mask must be bool (True = attend), got float32.
    """
