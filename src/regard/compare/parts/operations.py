"""Operations: those of the running layer, as torch counts them, and the powers of n, d and k they grow with."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from regard.compare.kinds import KINDS, Kind
from regard.compare.meters.curves import fit_power
from regard.compare.meters.sizes import Lengths, build, count_sizes
from regard.compare.part import Column, Part
from regard.compare.report.cells import name_each, name_kind, show_count, show_list, show_powers, show_share
from regard.compare.report.figures import Sheet, look_up, part_laws, size_mark
from regard.compare.rows import Numbers, choose_sizes, group, take
from regard.compare.settings import Advance, Dimensions, Settings
from regard.core import RegardError

LENGTHS: Lengths = {True: (32, 128, 1024), False: (32, 64, 128, 256, 512, 1024)}
# of a window, in widths of it: so long, it is cut into tiles. Where it is not, torch's own kernel meets all pairs, and
# there would be two laws in one fit; and the longer the sequence, the less of a tile sticks out at its ends
WINDOWS: Lengths = {True: (32, 40, 48), False: (32, 64, 128, 256)}
# how operators are called that multiply matrices, those included that torch's counter does not know
PRODUCT = re.compile(r"attention|rnn|gru|lstm|conv|linear|matmul|dot|mv|mm$")
# formulas of attention kernels that torch's counter would pass over, as of 2.13
MISSING = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: lambda query, key, value, *args, **kwargs: (
        sdpa_flop_count(query, key, value)
    )
}
# exponents nearer to the textbooks' than this are the textbooks'
CLOSE = 0.02


@dataclass(frozen=True)
class Count:
    """Floating point operations, a multiply and an add being two: of all products, and of all but linear layers."""

    whole: int
    mixing: int


@torch.no_grad()
def count_operations(layer: nn.Module, rows: Tensor) -> Count:
    """The products of the layer on these rows, counted while it runs; attention by torch's kernels meets all pairs.

    >>> count_operations(KINDS["attention"].build(Dimensions(width=8, heads=2)), torch.ones(1, 5, 8))
    Count(whole=3360, mixing=800)

    What a linear layer does is done to each token by itself, and is not in `mixing`; all the rest is, so that a
    recurrence is taken whole, as in the textbooks.
    """
    counter = FlopCounterMode(display=False, custom_mapping=MISSING)
    # the guard is around the counter, so that it sees what the counter takes apart
    with _Guard(counter), counter:
        layer(rows)
    counts = {name: sum(by_operator.values()) for name, by_operator in counter.get_flop_counts().items()}
    alone = 0
    for name, part in layer.named_modules(prefix=type(layer).__name__):
        if isinstance(part, nn.Linear):
            if name not in counts:
                raise RegardError(f"count_operations cannot tell the products of {name} apart: call it as a module.")
            alone += counts[name]
    whole = counts.get("Global", 0)
    return Count(whole, whole - alone)


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


def measure_operations(settings: Settings, advance: Advance, kinds: Mapping[str, Kind] = KINDS) -> dict[str, Any]:
    """Counts over lengths, widths and kernels, and the power law through them.

    Always on the CPU: what a layer computes does not depend on where, but elsewhere a recurrence is one operator that
    nobody can look into.
    """
    rows, fits = list[dict[str, Any]](), list[dict[str, Any]]()
    for kind, mine, lawful in count_sizes(settings, kinds, advance, _count, LENGTHS, WINDOWS):
        rows += mine
        fits += [_fit(kind, lawful, of, column) for of, column in (("mixing", "mixing"), ("whole", "operations"))]
    return {"rows": rows, "fits": fits}


def _count(kind: Kind, dims: Dimensions, n: int) -> dict[str, Any]:
    found = count_operations(build(kind, dims), torch.zeros(1, n, dims.width))
    return {"operations": found.whole, "mixing": found.mixing, "formula": kind.mixing and kind.mixing(dims, n)}


def _fit(kind: Kind, rows: list[dict[str, Any]], of: str, column: str) -> dict[str, Any]:
    if not all(row[column] for row in rows):
        raise RegardError(
            f"kind {kind.name!r} has no products that torch counts, and no power to fit: leave operations out."
        )
    axes = {axis: [row[axis] for row in rows] for axis in kind.powers}
    # one width or one kernel has no exponent
    fit = fit_power([row[column] for row in rows], **{axis: x for axis, x in axes.items() if len(set(x)) > 1})
    named = {"kind": kind.name, "of": of, "textbook": dict(kind.powers), "from": min(row["n"] for row in rows)}
    return {**named, **asdict(fit)}


# --- what is told of it -----------------------------------------------------------------------------------------------


def list_columns(part: Numbers) -> Iterator[Column]:
    """The products in which tokens meet, which are what the textbooks count."""
    cells, fits = {}, take(part["fits"], of="mixing")
    for fit in fits:
        kind = fit["kind"]
        book = KINDS[kind].textbook[0] if kind in KINDS else show_powers(fit["textbook"], digits=0)
        cells[kind] = f"O({book})\n{show_powers(fit['exponents'])}"
    kernels = [fit for fit in fits if "k" in fit["exponents"]]
    grows = show_list(name_each(kernels, lambda fit: f"(k^{fit['exponents']['k']:.2f})"))
    claim = f"the operations that grow with the kernel are those of {grows}" if grows else ""
    yield Column("operations", cells, claim=claim)


def read_operations(part: Numbers, settings: Numbers) -> Iterator[str]:
    """What grows how, and whether that is what the textbooks say."""
    fits = take(part["fits"], of="mixing")
    yield "Counted is what the textbooks count: of attention the products in which tokens meet, of the others all of"
    yield f"them. They grow as follows: {'; '.join(name_each(fits, lambda fit: show_powers(fit['exponents'])))}."
    # where there was one width or one kernel, there is no exponent of it
    found = [(fit, axis, power) for fit in fits for axis, power in fit["exponents"].items()]
    off = [
        f"of {axis} in {name_kind(fit['kind'])} ({power:.2f}, not {fit['textbook'][axis]})"
        for fit, axis, power in found
        if abs(power - fit["textbook"][axis]) > CLOSE
    ]
    if off:
        yield f"Of {len(found)} exponents {len(off)} differ from the textbooks' by more than {CLOSE}: {show_list(off)}."
    else:
        yield f"All {len(found)} exponents are within {CLOSE} of the textbooks'."
    if known := [row for row in part["rows"] if row["formula"] is not None]:
        exact = sum(row["mixing"] == row["formula"] for row in known)
        yield f"{exact} of {len(known)} counts are exactly the formula's."
    if tiled := [row["n"] for row in take(part["rows"], kind="windowed")]:
        start = next((fit["from"] for fit in take(fits, kind="windowed") if "from" in fit), min(tiled))
        yield f"Windowed attention's powers are those from n = {start:,} on, where it is cut into tiles; in short"
        yield "sequences torch's own kernel is quicker, and meets all pairs."
    yield from _read_projections(part, settings)


def _read_projections(part: Numbers, settings: Numbers) -> Iterator[str]:
    """What self-attention does besides, and what that does to where it is the cheapest."""
    row = min(choose_sizes(take(part["rows"], kind="attention"), settings), key=lambda row: int(row["n"]), default=None)
    if row is None:
        return
    n, d, rest = row["n"], row["d"], row["operations"] - row["mixing"]
    yield f"The textbooks leave out the projections of self-attention: {rest:,} more operations at n = {n}, d = {d}"
    yield f"({rest / (n * d * d):.3g}·n·d²), {show_share(rest / row['operations'])} of the layer."
    layers = "whole layers of one width" if settings.get("has_equal_parameters") else "whole layers"
    for other in take(choose_sizes(part["rows"], settings), n=n):
        if other["kind"] in ("conv", "rnn"):
            # products grow with n², all else of both layers with n
            book, whole = (n * count / row["mixing"] for count in (other["mixing"], other["operations"] - rest))
            crossed = f"at n = {whole:.0f}" if whole >= 1 else "never: it is always dearer"
            yield f"By those products alone it meets {name_kind(other['kind'])} at n = {book:.0f}, {layers} {crossed}."


def draw_operations(sheet: Sheet, part: Numbers, settings: Numbers) -> None:
    """Operations against the number of tokens, both axes logarithmic. Points are counted; the lines on the left are the
    formulas, those on the right join the points. Beside each line stands its fitted power. A window meets all pairs
    until it is cut into tiles; its power is from there on.
    """
    rows = choose_sizes(part["rows"], settings)
    d, k = (next((row[axis] for row in rows if row[axis] is not None), None) for axis in "dk")
    sizes = f"d = {d}" + (f", k = {k}" if k is not None else "")
    left, right = sheet.begin(5.4, 3.9, across=2)[0]
    for axes, of, title in ((left, "mixing", "where tokens meet"), (right, "whole", "the whole layer")):
        ends = []
        for number, (kind, own) in enumerate(group(rows, "kind").items()):
            x, y = [row["n"] for row in own], [row["operations" if of == "whole" else of] for row in own]
            mark: dict[str, Any] = {"linestyle": "none", "markersize": size_mark(number), "zorder": 3 + number}
            sheet.plot(axes, kind, x, y, **mark)
            fit: Numbers = next(iter(take(part["fits"], kind=kind, of=of)), {})
            law = [row["formula"] for row in own] if of == "mixing" else y
            if None not in law:
                sheet.plot_law(axes, kind, *part_laws(x, law, fit))
            if "n" in fit.get("exponents", {}):
                ends.append((y[-1], f"n^{fit['exponents']['n']:.2f}", look_up(kind)[0]))
        sheet.name(axes, f"{title} ({sizes})", "n, tokens", "operations")
        sheet.scale(axes, [row["n"] for row in rows], show_count)
        if ends:
            _note_ends(axes, ends)
    sheet.explain()


def _note_ends(axes: Any, ends: list[tuple[float, str, str]]) -> None:
    """Texts right of the panel in colours, each at the height of its line's end or as near as there is room."""
    low, high = map(math.log, axes.get_ylim())
    last = -1.0
    for value, text, colour in sorted(ends):
        last = max((math.log(value) - low) / (high - low), last + 0.055)
        axes.text(1.01, last, text, transform=axes.transAxes, va="center", fontsize=8, color=colour)


OPERATIONS = Part(
    "operations", title="Operations", counts="operations", share=3, quick_share=15,
    measure=measure_operations,
    lists={"rows": "kind n# d# k? operations# mixing# formula?", "fits": "kind of exponents intervals textbook points"},
    columns=list_columns,
    read=read_operations,
    pictures=(draw_operations,),
)  # fmt: skip
