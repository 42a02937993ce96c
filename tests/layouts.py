"""Tiles cut as a test wants them: at test sizes every call would fit into one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from regard.engine.tiles import layout, strips, work
from regard.engine.tiles.layout import Layout


@contextmanager
def cut(sequences: int, heads: int, queries: int, keys: int) -> Iterator[None]:
    """Within, tiles have at most this many sequences, heads, queries and keys."""
    real: Callable[..., Layout] = layout.lay_out

    def lay_out(*args: Any, **kwargs: Any) -> Layout:
        whole = real(*args, **kwargs)
        # two promises of the real one are kept: whole rows, and all heads for a user's function
        keeps_heads = any(getattr(x, "keeps_heads", False) for x in (*args, *kwargs.values()))
        return replace(
            whole,
            sequences=min(whole.sequences, sequences),
            heads=whole.heads if keeps_heads else min(whole.heads, heads),
            queries=min(whole.queries, queries),
            keys=None if whole.keys is None else min(whole.keys, keys),
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(work, "lay_out", lay_out)
        patch.setattr(strips, "lay_out", lay_out)
        yield
