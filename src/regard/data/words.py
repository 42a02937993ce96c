"""Word tokenization by rules, near to treebanks of English, and back to text; other scripts by characters or spaces."""

from __future__ import annotations

import re
from collections.abc import Sequence

# scripts that put no spaces between words: one letter is one word
HAN = "\u2e80-\u2fff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
APOSTROPHE = "['\u2019]"
# what comes off the end of an English word
ENDS = "s|re|ve|ll|d|m"
NEGATED = "ca|wo|sha|ai|do|does|did|is|are|was|were|has|have|had|would|could|should|might|must|need"
TITLES = "Mr|Mrs|Ms|Dr|Jr|Sr|St|Prof|Gen|Sen|Rep|Gov|Lt|Col|Capt|Inc|Corp|Ltd|Co|vs|etc"
MONTHS = "Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec"
PREFIXES = "anti|co|counter|e|ex|inter|mid|multi|non|post|pre|pro|re|semi|sub|un"
FILES = "com|org|net|edu|gov|uk|html?|pdf|docx?|xls|ppt|txt|zip|jpg|gif|exe|py|csv"
# accents and vowel signs belong to the letter before them
MARKS = "\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff\u0e31-\u0e4e"
LETTER = rf"(?![{HAN}])(?:[^\W_]|[{MARKS}])"
# the first that fits is the word
KINDS = (
    # counts are bounded: else a text without an end to its words is walked again from each letter
    r"(?:https?://|www\.)[^\s<>\"]{0,999}[^\s<>()\".,;:!?'\]]",
    r"[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64}){0,9}",
    rf"\w[\w-]{{0,64}}(?:\.\w{{1,64}}){{0,9}}\.(?i:{FILES})\b(?:/[^\s<>\"]{{0,999}}[^\s<>()\".,;:!?'\]])?",
    # n't is a word of its own, and so is what stands before it
    rf"(?i:{NEGATED})(?=n{APOSTROPHE}t\b)|(?i:n{APOSTROPHE}t|(?<=\w){APOSTROPHE}(?:{ENDS}))\b",
    r"(?i:\bcan(?=not\b)|(?<=\bcan)not\b|\b(?:gon|wan)(?=na\b)|(?<=\b(?:gon|wan))na\b|\bgot(?=ta\b)|(?<=\bgot)ta\b)",
    # U.S., a.m., Mr., Jan. 5, J. Smith
    r"(?:[^\W\d_]\.){2,}",
    rf"\b(?:{TITLES})\.(?=[\s,;)])|\b(?:{MONTHS})\.(?=\s\d)|\b[A-Z]\.(?=\s[A-Z])",
    # 1,000.50, 10:30, 1/2/2003, 555-0100
    r"\d{1,64}(?:[.,:/]\d{1,64}){1,9}(?!\w)|\d{3}-(?:\d{3}-)?\d{4}(?!\w)",
    rf"\b(?i:{PREFIXES})-[^\W\d_]+",
    # ..., --, ?!
    r"([.*_~$#+<>])\1+|[-=]{2,}|[!?]{2,}",
    r"[:;]-?[()DPp](?!\w)",
    rf"[{HAN}]",
    rf"(?:{LETTER})+(?:{APOSTROPHE}(?!(?i:{ENDS})\b)(?:{LETTER})+)*",
    r"\S",
)
WORD = re.compile("|".join(KINDS))

Word = tuple[str, int, int]


def cut_words(text: str) -> list[Word]:
    """Split a text into words, each with where it starts and stops.

    >>> [word for word, _, _ in cut_words("I can't stop, it's 10:30.")]
    ['I', 'ca', "n't", 'stop', ',', 'it', "'s", '10:30', '.']
    >>> cut_words("介绍 Xi'an")
    [('介', 0, 1), ('绍', 1, 2), ("Xi'an", 3, 8)]

    Every character but white space is in one word. Chinese and Japanese are cut into letters, as their words are not
    marked.
    """
    return [(found.group(), *found.span()) for found in WORD.finditer(text)]


# no space before these, none behind those
CLOSING = re.compile(rf"[,.;:!?%)\]}}\u2026\u2019\u201d]+|(?i:n{APOSTROPHE}t|{APOSTROPHE}(?:{ENDS})?)|-|/")
OPENING = re.compile(r"[(\[{$\u00a3\u20ac#\u2018\u201c]|-|/")
# full width has its space within
WIDE = re.compile(rf"[{HAN}\u3001-\u3003\u3008-\u301f\uff00-\uffef]")


def join_words(words: Sequence[str]) -> str:
    """Join words to a text (detokenize): spaces between, but none before a comma or behind a bracket.

    >>> join_words(["I", "ca", "n't", "stop", "(", "it", "'s", '"', "fun", '"', ")", "."])
    'I can\\'t stop (it\\'s "fun").'
    """
    text, is_quoted, stuck = "", False, True
    for word in words:
        closes = CLOSING.fullmatch(word) is not None
        opens = OPENING.fullmatch(word) is not None
        if word == '"':
            closes, opens, is_quoted = is_quoted, not is_quoted, not is_quoted
        wide = bool(text and WIDE.fullmatch(text[-1]) and WIDE.match(word))
        text += word if stuck or closes or wide else f" {word}"
        # what the text begins with is no hyphen
        stuck = opens and not (word == text and word in "-/")
    return text
