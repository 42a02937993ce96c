"""Tokens as visible labels: spaces and control characters are shown, nothing is read as markup."""

from __future__ import annotations

import unicodedata

# what has no ink, by a sign that has
SIGNS = {" ": "␣", "\t": "⇥", "\n": "↵", "\r": "↵", "\u3000": "␣"}
# a mark that stands on the letter before it needs one to stand on
SEAT = "◌"


def show_token(token: str, longest: int = 24) -> str:
    """A token as a label: spaces and control characters visible, one line, not too long.

    >>> show_token(" new\\n"), show_token(""), show_token("\\u200b"), show_token("<eos>")
    ('␣new↵', '∅', 'U+200B', '<eos>')
    """
    if len(token) > longest:
        token = token[: longest - 1] + "…"
    if not token:
        return "∅"
    if unicodedata.combining(token[0]):
        token = SEAT + token
    return "".join(map(_show, token))


def show_line(text: str) -> str:
    """A title as a label: as a token, but its spaces stay, and it may be long.

    >>> show_line("to be\\tor")
    'to be⇥or'
    """
    return "".join(c if c == " " else _show(c) for c in text)


def wrap(text: str, width: float) -> str:
    """Wrap a text into lines of at most `width` ems, at spaces where there are some.

    >>> wrap("how far is it", 5)
    'how far\\nis it'
    """
    lines, line = [], ""
    for c in text:
        line += c
        if measure(line) > width and len(line) > 1:
            head, space, tail = line.rpartition(" ")
            if not (space and head):
                head, tail = line[:-1], c
            lines.append(head.rstrip())
            line = tail
    return "\n".join([*lines, line])


def measure(text: str) -> float:
    """The approximate width of a text, in ems.

    >>> measure("西安"), round(measure("xian"), 1)
    (2.0, 2.4)
    """
    return sum(1.0 if unicodedata.east_asian_width(c) in "WF" else 0.6 for c in text)


def _show(c: str) -> str:
    if c in SIGNS:
        return SIGNS[c]
    # controls, invisible formats (among them those that turn text around), halves of a character, spaces of any width;
    # the joiners of Persian and of emoji shape their neighbours and stay
    if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zs", "Zl", "Zp", "Co", "Cn") and c not in "\u200c\u200d":
        return f"U+{ord(c):04X}"
    return c
