"""The one exception of the library."""


class RegardError(ValueError):
    """Wrong input; its message says the rule, both facts in the caller's own names and numbers, and the way out.

    >>> raise RegardError("mask must be bool (True = attend), got float32.")
    Traceback (most recent call last):
    regard.core.errors.RegardError: mask must be bool (True = attend), got float32.
    """


def plain(text: str) -> str:
    """A text without line ends and terminal control codes.

    >>> plain("a\\x1b[2Jb")
    'a?[2Jb'
    """
    return "".join(x if x.isprintable() else "?" for x in text)
