"""Sequential steps: the longest chain of operations that wait for each other, traced on the running layer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from regard.compare.kinds import KINDS, Kind
from regard.compare.measure.fits import fit_power
from regard.compare.measure.operations import Lengths, list_drawn, list_layers, list_lengths, name_sizes
from regard.compare.measure.threads import one_thread
from regard.compare.settings import Advance, Settings

# not all powers of two, so that a step at one shows
LENGTHS: Lengths = {True: (8, 16, 33), False: (8, 16, 33, 64, 128)}
WINDOWS: Lengths = {True: (32, 48), False: (32, 48, 64)}
# what takes a tensor for its shape alone, and what writes over one without a look at it
SHAPES = re.compile(r"^new_|_like$")
WRITES = {"copy_", "fill_", "zero_"}


@torch.no_grad()
def find_chain(layer: nn.Module, rows: Tensor) -> int:
    """How many operations, of those the layer runs on these rows, must run one after the other.

    >>> find_chain(nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Tanh()), torch.ones(3, 2))
    3

    A chain begins at the rows: what is made of parameters alone could be ready before. Each of torch's operators is one
    step, whatever happens in it; a view is none. What passes through a number of Python's is not followed.
    """
    trace = _Trace()
    with trace:
        trace.mark(rows)
        layer(rows)
    return trace.longest


class _Trace(TorchDispatchMode):
    """Writes down for each byte of memory how many operations it waited for, 1 being the rows and 0 no wait at all.

    By byte, since buffers are written slice by slice and used again, and what was there before must not count.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        # the storages are kept, so that no other comes to lie at their address
        self.depths: dict[int, tuple[torch.UntypedStorage, Tensor]] = {}
        self.longest = 0

    def mark(self, rows: Tensor) -> None:
        self._write(rows, 1)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        read, written = [], []
        for argument, value in _pair(func, args, kwargs):
            tensors = [x for x in tree_leaves(value) if isinstance(x, Tensor)]
            is_written = argument.alias_info is not None and argument.alias_info.is_write
            if is_written:
                written += tensors
            if not SHAPES.search(name) and not (is_written and (argument.is_out or name in WRITES)):
                read += tensors
        depth = max((self._read(x) for x in read), default=0)
        given = {x.untyped_storage()._cdata for x in [*read, *written]}
        out = func(*args, **kwargs)
        if torch.Tag.inplace_view in func.tags:
            return out
        # an output that lies where an input does is a view of it, whatever the schema says, unless it was written
        made = [x for x in tree_leaves(out) if isinstance(x, Tensor) and x.untyped_storage()._cdata not in given]
        for x in [*written, *made]:
            self._write(x, depth + 1 if depth else 0)
        if depth and (written or made):
            # the rows themselves count as 1
            self.longest = max(self.longest, depth)
        return out

    def _read(self, x: Tensor) -> int:
        found = self.depths.get(x.untyped_storage()._cdata)
        return int(_look(found[1], x).max()) if found and x.numel() else 0

    def _write(self, x: Tensor, depth: int) -> None:
        storage = x.untyped_storage()
        found = self.depths.get(storage._cdata)
        if found is None and not depth:
            return
        shadow = found[1] if found else torch.zeros(0, dtype=torch.int32)
        if (missing := storage.nbytes() - shadow.numel()) > 0:
            # new, or grown since
            shadow = torch.cat((shadow, shadow.new_zeros(missing)))
        self.depths[storage._cdata] = storage, shadow
        _look(shadow, x).fill_(depth)


def _look(shadow: Tensor, x: Tensor) -> Tensor:
    """The bytes of a tensor in the shadow of its storage."""
    item = x.element_size()
    strides = *(item * stride for stride in x.stride()), 1
    return shadow.as_strided((*x.shape, item), strides, item * x.storage_offset())


def _pair(func: Any, args: Any, kwargs: Any) -> Iterator[tuple[Any, Any]]:
    """Each argument of the operator's schema with what is given for it."""
    named = {argument.name: argument for argument in func._schema.arguments}
    yield from zip(func._schema.arguments, args, strict=False)
    yield from ((named[name], value) for name, value in kwargs.items())


@one_thread()
def measure_steps(settings: Settings, advance: Advance, kinds: Mapping[str, Kind] = KINDS) -> dict[str, Any]:
    """Chains over lengths, widths and kernels, and the line through them.

    Always on the CPU: elsewhere a recurrence is one operator, in which nobody sees the steps.
    """
    rows: list[dict[str, Any]] = []
    fits: list[dict[str, Any]] = []
    for at, kind in enumerate(kinds.values()):
        mine: list[dict[str, Any]] = []
        for dims, layer, n in list_layers(settings, kind, list_drawn(settings, kind, LENGTHS, WINDOWS)):
            mine.append({**name_sizes(kind, dims, n), "chain": find_chain(layer, torch.zeros(1, n, dims.width))})
        rows += mine
        lawful = list_lengths(settings, kind, LENGTHS, WINDOWS)
        line = fit_line([(row["n"], row["chain"]) for row in mine if row["n"] in lawful])
        fits.append({"kind": kind.name, **line, "textbook": kind.textbook[1], "from": lawful[0]})
        advance((at + 1) / len(kinds))
    return {"rows": rows, "fits": fits}


def fit_line(points: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Steps by length as a line, of whole numbers if they lie on one.

    >>> fit_line([(2, 7), (4, 13), (5, 16)])
    {'per_token': 3, 'constant': 1, 'is_exact': True, 'order': 'n'}
    """
    (short, fewest), (long, most) = min(points), max(points)
    per_token = (most - fewest) // max(long - short, 1)
    constant = fewest - per_token * short
    if all(chain == per_token * n + constant for n, chain in points):
        return {"per_token": per_token, "constant": constant, "is_exact": True, "order": "n" if per_token else "1"}
    lengths, chains = zip(*points, strict=True)
    slope, height = np.polyfit(lengths, chains, 1)
    power = fit_power(chains, n=lengths).exponents["n"]
    return {"per_token": float(slope), "constant": float(height), "is_exact": False, "order": f"n^{power:.2f}"}
