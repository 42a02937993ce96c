"""The one exception of the library."""


class RegardError(ValueError):
    """Wrong input: the rule, both facts in the caller's own names and numbers, then the way out.

    >>> raise RegardError("mask must be bool (True = attend), got float32.")
    Traceback (most recent call last):
    regard.core.errors.RegardError: mask must be bool (True = attend), got float32.
    """


def plain(text: str) -> str:
    """Without line ends, and without codes that a terminal obeys.

    >>> plain("a\\x1b[2Jb")
    'a?[2Jb'
    """
    return "".join(x if x.isprintable() else "?" for x in text)
