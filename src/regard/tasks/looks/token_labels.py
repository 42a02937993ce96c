"""Token labels: of input text, generated tokens, image patches and graph nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from regard.core import RegardError
from regard.views.page import Labels, label_tokens

# tokens before one that show how it is joined to them
WINDOW = 16
# for whoever reads what was seen
UNKNOWN = "Parts of the text are unknown to this run."


@dataclass(frozen=True)
class Speaker:
    decode: Callable[[list[int]], str]
    special: Mapping[int, str]


def label_said(ids: Sequence[int], speaker: Speaker) -> Labels:
    """Labels of generated tokens: what each adds to the decoded text before it."""
    spans: list[tuple[int, int]] = []
    text, waiting = "", 0
    for k, number in enumerate(ids):
        piece = ""
        if number not in speaker.special:
            before = [x for x in ids[max(0, k - WINDOW) : k] if x not in speaker.special]
            old, new = (speaker.decode(x).rstrip("\ufffd") for x in (before, [*before, number]))
            piece = new.removeprefix(old) if new.startswith(old) else speaker.decode([number])
        waiting += 1
        spans.append((len(text), len(text)))
        if piece:
            # bytes that were no character yet belong to the one that is whole now
            spans[k - waiting + 1 :] = [(len(text), len(text) + len(piece))] * waiting
            text, waiting = text + piece, 0
        elif number in speaker.special:
            waiting = 0
    return label_tokens(text, spans, [speaker.special.get(number) for number in ids])


def label_names(names: Sequence[str], num_special: int = 0) -> Labels:
    """Labels that are names, of graph nodes or of one class; the first `num_special` are special tokens.

    >>> label_names(["[CLS]", "1,1"], num_special=1).special
    (True, False)
    """
    return Labels(tuple(names), tuple(k < num_special for k in range(len(names))), (False,) * len(names), False)


def label_patches(grid: tuple[int, int], skip: int = 0) -> Labels:
    """Labels of image patches by row and column, after `skip` special tokens such as [CLS].

    >>> label_patches((1, 2), 1).labels
    ('[CLS]', '1,1', '1,2')
    """
    rows, columns = grid
    names = ["[CLS]", *(f"[{k}]" for k in range(1, skip))][:skip]
    places = [f"{row + 1},{column + 1}" for row in range(rows) for column in range(columns)]
    return label_names([*names, *places], skip)


def end(labels: Labels) -> Labels:
    return Labels((*labels.labels, "<eos>"), (*labels.special, True), (*labels.marks, False), labels.joined)


def shift(labels: Labels, start: str) -> Labels:
    """The decoder's inputs, where `labels` are its outputs: shifted right by one, behind `start`."""
    return Labels((start, *labels.labels[:-1]), (True, *labels.special[:-1]), (False, *labels.marks[:-1]), False)


def clean(text: str, name: str = "text") -> str:
    """A text as the translator reads it: line breaks are spaces."""
    return " ".join(check_text(text, name).splitlines()).strip()


def check_text(text: str, name: str) -> str:
    if not text.strip():
        raise RegardError(f"look {name} is empty: give some words.")
    if any("\ud800" <= mark <= "\udfff" for mark in text):
        raise RegardError(f"look {name} is not unicode (half a surrogate pair): read it as UTF-8.")
    return text
