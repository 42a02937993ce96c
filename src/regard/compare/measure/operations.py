"""Operations: those of the running layer, as torch counts them, and the powers of n, d and k they grow with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from regard.compare.kinds import KINDS, Dimensions, Kind
from regard.compare.measure.fits import fit_power
from regard.compare.measure.threads import one_thread
from regard.compare.settings import Advance, Settings
from regard.core import RegardError

# by whether it is to be quick
Lengths = Mapping[bool, tuple[int, ...]]
LENGTHS: Lengths = {True: (32, 128, 1024), False: (32, 64, 128, 256, 512, 1024)}
# of a window, in widths of it: so long, it is cut into tiles. Where it is not, torch's own kernel meets all pairs, and
# there would be two laws in one fit; and the longer the sequence, the less of a tile sticks out at its ends
WINDOWS: Lengths = {True: (32, 40, 48), False: (32, 64, 128, 256)}
LEAST_WINDOW = 32
LONGEST = 16_384
# how operators are called that multiply matrices, those included that torch's counter does not know
PRODUCT = re.compile(r"attention|rnn|gru|lstm|conv|linear|matmul|dot|mv|mm$")


@dataclass(frozen=True)
class Count:
    """Floating point operations, a multiply and an add being two: of all products, and of all but linear layers."""

    whole: int
    mixing: int


@torch.no_grad()
def count_operations(layer: nn.Module, rows: Tensor) -> Count:
    """The operations of the layer on these rows, counted while it runs.

    >>> count_operations(KINDS["attention"].build(Dimensions(width=8, heads=2)), torch.ones(1, 5, 8))
    Count(whole=3360, mixing=800)

    Only products count, as torch counts them, not sums or exponentials. What a linear layer does is done to each token
    by itself, and is not in `mixing`; all the rest is, so that a recurrence is taken whole, as in the textbooks.
    Attention by torch's kernels counts all pairs, masked or not: they meet all.
    """
    counter = FlopCounterMode(display=False, custom_mapping=_list_missing())
    # the guard is around the counter, so that it sees what the counter takes apart
    with _Guard(counter), counter:
        layer(rows)
    counts = {name: sum(by_operator.values()) for name, by_operator in counter.get_flop_counts().items()}
    root = type(layer).__name__
    alone = 0
    for name, part in layer.named_modules(prefix=root):
        if isinstance(part, nn.Linear):
            if name not in counts:
                raise RegardError(f"count_operations cannot tell the products of {name} apart: call it as a module.")
            alone += counts[name]
    whole = counts.get("Global", 0)
    return Count(whole, whole - alone)


def _list_missing() -> dict[Any, Any]:
    """Formulas of attention kernels that torch's counter would pass over, as of 2.13."""

    def count(query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> int:
        return int(sdpa_flop_count(query, key, value))

    return {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: count}


class _Guard(TorchDispatchMode):
    """Refuses products that the counter would count as nothing."""

    def __init__(self, counter: FlopCounterMode) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.known = counter.flop_registry

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if PRODUCT.search(name) and func.overloadpacket not in self.known:
            raise RegardError(f"count_operations does not know what {name} costs: torch's flop counter has no formula.")
        return func(*args, **(kwargs or {}))


def list_lengths(settings: Settings, kind: Kind, lengths: Lengths = LENGTHS, windows: Lengths = WINDOWS) -> list[int]:
    """The lengths at which one law holds for a kind, of few or of many."""
    if kind.mixing is not None:
        return list(lengths[settings.is_quick])
    window, times = max(settings.dims.window, LEAST_WINDOW), windows[settings.is_quick]
    # a very wide one is counted at fewer widths of it: what has to be run grows with all of them
    return sorted({max(window * each // -(-window * times[-1] // LONGEST), 2) for each in times})


def list_drawn(settings: Settings, kind: Kind, lengths: Lengths = LENGTHS, windows: Lengths = WINDOWS) -> list[int]:
    """The lengths at which a kind is looked at: those of its law, and those at which all others are."""
    return sorted({*lengths[settings.is_quick], *list_lengths(settings, kind, lengths, windows)})


def list_sizes(settings: Settings, kind: Kind) -> Iterator[Dimensions]:
    """Every width, and of a convolution every kernel."""
    for width in settings.widths:
        for kernel in settings.kernels if "k" in kind.powers else (settings.dims.kernel,):
            yield replace(settings.dims, width=width, kernel=kernel)


def list_layers(settings: Settings, kind: Kind, lengths: Sequence[int]) -> Iterator[tuple[Dimensions, nn.Module, int]]:
    """A layer of every size, with each of the lengths; the caller's generator is not drawn from."""
    for dims in list_sizes(settings, kind):
        with torch.random.fork_rng(devices=[]):
            layer = kind.build(dims)
        yield from ((dims, layer, n) for n in lengths)


def name_sizes(kind: Kind, dims: Dimensions, n: int) -> dict[str, Any]:
    """How a row says what it was measured at."""
    return {"kind": kind.name, "n": n, "d": dims.width, "k": dims.kernel if "k" in kind.powers else None}


@one_thread()
def measure_operations(settings: Settings, advance: Advance, kinds: Mapping[str, Kind] = KINDS) -> dict[str, Any]:
    """Counts over lengths, widths and kernels, and the power law through them.

    Always on the CPU: what a layer computes does not depend on where, but elsewhere a recurrence is one operator that
    nobody can look into.
    """
    rows: list[dict[str, Any]] = []
    fits: list[dict[str, Any]] = []
    for at, kind in enumerate(kinds.values()):
        mine: list[dict[str, Any]] = []
        for dims, layer, n in list_layers(settings, kind, list_drawn(settings, kind)):
            count = count_operations(layer, torch.zeros(1, n, dims.width))
            formula = kind.mixing(dims, n) if kind.mixing else None
            counted = {"operations": count.whole, "mixing": count.mixing, "formula": formula}
            mine.append({**name_sizes(kind, dims, n), **counted})
        rows += mine
        lawful = [row for row in mine if row["n"] in list_lengths(settings, kind)]
        fits += [_fit(kind, lawful, of, column) for of, column in (("mixing", "mixing"), ("whole", "operations"))]
        advance((at + 1) / len(kinds))
    return {"rows": rows, "fits": fits}


def _fit(kind: Kind, rows: list[dict[str, Any]], of: str, column: str) -> dict[str, Any]:
    if not all(row[column] for row in rows):
        raise RegardError(
            f"kind {kind.name!r} has no products that torch counts, and no power to fit: leave operations out."
        )
    axes = {axis: [row[axis] for row in rows] for axis in kind.powers}
    # one width or one kernel has no exponent
    fit = fit_power([row[column] for row in rows], **{axis: x for axis, x in axes.items() if len(set(x)) > 1})
    return {
        "kind": kind.name,
        "of": of,
        "exponents": fit.exponents,
        "intervals": fit.intervals,
        "textbook": dict(kind.powers),
        "points": fit.points,
        "from": min(row["n"] for row in rows),
    }
