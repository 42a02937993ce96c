"""The initial view of a page: which view, which head, which query."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.views.page.heads import Head

# a letter or a digit of any script: what has none is punctuation, or nothing that is read
WORD = re.compile(r"[^\W_]")

Entries = Sequence[Mapping[str, Any]]


def find_start(
    entries: Entries, heads: Sequence[Head], sides: Entries, extra: Mapping[str, Any], is_pair: bool
) -> dict[str, Any]:
    """The initial view (image, graph, comparison, text, alignment or overview), and the head and query to show."""
    own = [k for k, entry in enumerate(entries) if entry["model"] == 0]
    cross = [k for k in own if entries[k]["kind"] == "cross"]
    best = max(cross or own, key=lambda k: heads[k].interest)
    entry = entries[best]
    # one query, as the label of a text has it, is a text with its weights
    is_text = entry["n"] == 1 if cross else len(own) == 1
    view = "compare" if is_pair else "text" if is_text else "align" if cross else "grid"
    start = {"view": next((name for name in ("image", "graph") if name in extra), view), "entry": best}
    row = None if extra else find_row(heads[best], sides[entry["queries"]], sides[entry["keys"]])
    return start if row is None else {**start, "query": row}


def find_row(head: Head, queries: Mapping[str, Any], keys: Mapping[str, Any]) -> int | None:
    """The most informative query of a head; None where none is of a word that attends to another.

    >>> from regard.engine.look import look
    >>> from regard.views.page.heads import measure, split
    >>> weights = torch.tensor([[0.9, 0.1, 0.0], [0.9, 0.0, 0.1], [0.0, 0.9, 0.1]])
    >>> head = measure(split(look(weights.clamp(min=1e-9).log()[None, None], 3**0.5 * torch.eye(3)[None, None]), 0)[0])
    >>> find_row(head, {"labels": ["it", "takes", "beijing"]}, {"labels": ["从", "京", "时"]})
    2

    A pair tells as much as its weight, times the share it is of all that the key receives: what half of the rows attend
    to says little of each. Special tokens and punctuation do not count, nor does a token for itself and its neighbours.
    """
    look = head.look
    at = look.top_keys.clamp(min=0)
    rows = torch.arange(len(at))
    worth = look.top_weights.double().nan_to_num(0.0, 0.0, 0.0).clamp(min=0)
    share = (worth / look.received.double()[at]).nan_to_num(0.0, 0.0, 0.0).clamp(0, 1)
    worth = worth * share * (look.top_keys >= 0) * _read_words(keys)[at] * _read_words(queries)[:, None]
    if head.is_own:
        worth = worth * ((at - rows[:, None] - (head.m - head.n)).abs() > 1)
    best = worth.amax(-1)
    return int(best.argmax()) if bool((best > 0).any()) else None


def _read_words(side: Mapping[str, Any]) -> Tensor:
    """Which tokens are words, or parts of words."""
    special = side.get("special") or [False] * len(side["labels"])
    marks = set(side.get("marks", ()))
    found = [
        bool(WORD.search(label)) and not is_special and k not in marks
        for k, (label, is_special) in enumerate(zip(side["labels"], special, strict=True))
    ]
    return torch.tensor(found, dtype=torch.bool)
