"""Token labels that, one after the other, are the text: in any script, from any tokenizer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

from regard.core import RegardError

BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


@dataclass(frozen=True)
class Labels:
    """The label of each token. Joined, the labels that are neither special nor marks are the text.

    >>> Labels(("[CLS]", "to", " be"), (True, False, False), (False,) * 3, True).text
    'to be'
    """

    labels: tuple[str, ...]
    special: tuple[bool, ...]
    # pieces without text of their own: later bytes of a character
    marks: tuple[bool, ...]
    # whether the labels join to the text
    joined: bool

    @property
    def text(self) -> str:
        rows = zip(self.labels, self.special, self.marks, strict=True)
        return "".join(label for label, special, mark in rows if not special and not mark)

    def __len__(self) -> int:
        return len(self.labels)

    def tail(self, n: int) -> Self:
        """The last n labels."""
        at = len(self) - n
        return type(self)(self.labels[at:], self.special[at:], self.marks[at:], False)

    @classmethod
    def read(cls, name: str, labels: Labels | Sequence[str]) -> Labels:
        """Labels as they are, or plain strings as labels."""
        if isinstance(labels, Labels):
            return labels
        listed = tuple(labels) if isinstance(labels, Iterable) and not isinstance(labels, str) else (None,)
        texts = tuple(label for label in listed if isinstance(label, str))
        if len(texts) != len(listed):
            raise RegardError(f"page tokens[{str(name)[:40]!r}] must be a list of strings, one per token: give labels.")
        return cls(texts, (False,) * len(texts), (False,) * len(texts), False)


def label_tokens(
    text: str,
    offsets: Sequence[tuple[int, int]],
    special: Sequence[str | None] | None = None,
    pieces: Sequence[str] | None = None,
) -> Labels:
    """Labels from the character offsets of tokens, so that they join to the text.

    >>> label_tokens("to  be", [(0, 2), (4, 6)]).labels
    ('to', '  be')
    >>> label_tokens("é!", [(0, 0), (0, 1), (0, 1), (1, 2)], special=["<s>", None, None, None]).labels
    ('<s>', 'é', '⟨2/2⟩', '!')

    What lies between two tokens goes to the later one, what follows the last to the last. A token whose characters were
    all shown before (the later bytes of a character) is a mark. `special` names the tokens that are none of the text;
    `pieces` are the vocabulary's own strings, shown for tokens that cover nothing.
    """
    names = list(special) if special is not None else [None] * len(offsets)
    if len(names) != len(offsets) or (pieces is not None and len(pieces) != len(offsets)):
        raise RegardError(
            f"label_tokens special and pieces must have one entry for each of the {len(offsets)} offsets."
        )
    labels: list[str] = []
    marks: list[bool] = []
    at, last = 0, -1
    for k, (start, stop) in enumerate(offsets):
        if not 0 <= start <= stop <= len(text):
            raise RegardError(f"label_tokens offsets[{k}] is {start, stop}, outside the text's {len(text)} characters.")
        name = names[k]
        if name is not None:
            labels.append(name)
            marks.append(False)
        elif stop > at:
            labels.append(text[at:stop])
            marks.append(False)
            at, last = stop, k
        elif start == stop:
            labels.append(_name_piece(pieces[k]) if pieces else "∅")
            marks.append(True)
        else:
            labels.append("")
            marks.append(True)
    if last >= 0:
        labels[last] += text[at:]
        at = len(text)
    _number(labels, marks)
    return Labels(tuple(labels), tuple(name is not None for name in names), tuple(marks), at == len(text))


def label_encoding(text: str | tuple[str, str], encoding: Any) -> Labels:
    """Labels of `tokenizer.encode(text)` of the package `tokenizers`; a pair of texts for an encoded pair.

    >>> from types import SimpleNamespace
    >>> encoding = SimpleNamespace(offsets=[(0, 0), (0, 2)], tokens=["[CLS]", "hi"], special_tokens_mask=[1, 0],
    ...                            sequence_ids=[None, 0], overflowing=[])
    >>> label_encoding("Hi", encoding).labels
    ('[CLS]', 'Hi')

    Of a text that was cut short, the labels show what was kept.
    """
    texts = (text,) if isinstance(text, str) else text
    owners = [0 if owner is None else owner for owner in encoding.sequence_ids]
    special = [name if mask else None for name, mask in zip(encoding.tokens, encoding.special_tokens_mask, strict=True)]
    parts = []
    for owner, whole in enumerate(texts):
        chosen = [k for k, other in enumerate(owners) if other == owner]
        offsets = [encoding.offsets[k] for k in chosen]
        end = max((stop for _, stop in offsets), default=0) if encoding.overflowing else len(whole)
        names = [special[k] for k in chosen]
        # a special token covers nothing, whatever its offsets say
        pieces = [encoding.tokens[k] for k in chosen]
        spans = [
            (0, 0) if name is not None or _is_put_before(piece, whole[start:stop]) else (start, stop)
            for name, piece, (start, stop) in zip(names, pieces, offsets, strict=True)
        ]
        parts.append((chosen, label_tokens(whole[:end], spans, names, pieces)))
    order = sorted((k, part, at) for part, (chosen, _) in enumerate(parts) for at, k in enumerate(chosen))
    if len(order) != len(owners):
        raise RegardError(f"label_encoding text must be a pair: the encoding has {max(owners) + 1} texts, got 1.")
    found = [parts[part][1] for part in range(len(parts))]
    return Labels(
        tuple(found[part].labels[at] for _, part, at in order),
        tuple(found[part].special[at] for _, part, at in order),
        tuple(found[part].marks[at] for _, part, at in order),
        all(labels.joined for labels in found),
    )


def _is_put_before(piece: str, covered: str) -> bool:
    """SentencePiece's dummy prefix: a sign of a space where the text has none, over the first character."""
    return not piece.strip("▁") and not any(c.isspace() or c == "▁" for c in covered)


def _number(labels: list[str], marks: list[bool]) -> None:
    """The pieces of a character after its first: which one of how many."""
    runs = [k for k, label in enumerate(labels) if label or not marks[k]] + [len(labels)]
    for start, stop in pairwise(runs):
        for k in range(start + 1, stop):
            labels[k] = f"⟨{k - start + 1}/{stop - start}⟩"


def _name_piece(piece: str) -> str:
    found = BYTE.fullmatch(piece)
    return f"⟨{found[1].upper()}⟩" if found else piece or "∅"
