"""Edges of a graph, in the forms that a caller may give them, for every view."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from regard.core import RegardError
from regard.views.reading import to_numbers

# a node beyond this is no node: numbers of nodes are whole in every kind of number
LARGEST_NODE = 2**31


def read_pairs(pairs: Any, name: str) -> npt.NDArray[np.int64]:
    """Edges as (count, 2): of a tensor or an array (2, count), from and to, or of a list of pairs.

    >>> read_pairs(np.array([[0, 1], [2, 3]]), "pairs").tolist(), read_pairs([(0, 1), (2, 3)], "pairs").tolist()
    ([[0, 2], [1, 3]], [[0, 1], [2, 3]])
    """
    is_list = isinstance(pairs, list | tuple)
    # two tensors in a list are from and to, and two pairs are not: neither is guessed at
    is_list_of_pairs = is_list and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs)
    got = type(pairs).__name__
    try:
        ends = np.zeros((0, 2)) if is_list and not pairs else to_numbers(pairs)
        fits = is_list_of_pairs if is_list else ends.ndim == 2 and ends.shape[0] == 2
        got = got if is_list or not ends.ndim or not hasattr(pairs, "shape") else f"shape {ends.shape}"
    except (TypeError, ValueError, RuntimeError, OverflowError):
        fits, ends = False, np.zeros((0, 2))
    if not fits or ends.ndim != 2:
        raise RegardError(
            f"{name} must be an array (2, count) of from and to, or a list of pairs (from, to), got {got}."
        )
    ends = ends if is_list else ends.T
    wrong = ends[~((ends >= 0) & (ends < LARGEST_NODE) & (ends == np.floor(ends)))]
    if wrong.size:
        raise RegardError(f"{name} must be whole numbers of nodes, 0 or more, got {wrong[0]:g}.")
    return ends.astype(np.int64)
