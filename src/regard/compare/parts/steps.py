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
from regard.compare.meters.curves import fit_power
from regard.compare.meters.sizes import Lengths, build, count_sizes
from regard.compare.part import Column, Part
from regard.compare.report.cells import name_each, name_kind, show_count, show_list
from regard.compare.report.figures import Sheet, part_laws, size_mark
from regard.compare.rows import Numbers, choose_sizes, group
from regard.compare.settings import Advance, Dimensions, Settings

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
    with _Trace() as trace:
        # the rows themselves count as 1
        trace.write(rows, 1)
        layer(rows)
    return int(trace.longest)


class _Trace(TorchDispatchMode):
    """Writes down for each byte of memory how many operations it waited for, 1 being the rows and 0 no wait at all.

    By byte, since buffers are written slice by slice and used again, and what was there before must not count.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        # the storages are kept, so that no other comes to lie at their address
        self.depths: dict[int, tuple[torch.UntypedStorage, Tensor]] = {}
        self.longest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        read, written = [], []
        schema = {argument.name: argument for argument in func._schema.arguments}
        for key, value in {**dict(zip(schema, args, strict=False)), **kwargs}.items():
            argument, tensors = schema[key], [x for x in tree_leaves(value) if isinstance(x, Tensor)]
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
            self.write(x, depth + 1 if depth else 0)
        if written or made:
            self.longest = max(self.longest, depth)
        return out

    def _read(self, x: Tensor) -> int:
        found = self.depths.get(x.untyped_storage()._cdata)
        return int(_look(found[1], x).max()) if found and x.numel() else 0

    def write(self, x: Tensor, depth: int) -> None:
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


def measure_steps(settings: Settings, advance: Advance, kinds: Mapping[str, Kind] = KINDS) -> dict[str, Any]:
    """Chains over lengths, widths and kernels, and the line through them.

    Always on the CPU: elsewhere a recurrence is one operator, in which nobody sees the steps.
    """
    rows, fits = list[dict[str, Any]](), list[dict[str, Any]]()
    for kind, mine, lawful in count_sizes(settings, kinds, advance, _count, LENGTHS, WINDOWS):
        rows += mine
        line = fit_line([(row["n"], row["chain"]) for row in lawful])
        fits.append({"kind": kind.name, **line, "textbook": kind.textbook[1], "from": lawful[0]["n"]})
    return {"rows": rows, "fits": fits}


def _count(kind: Kind, dims: Dimensions, n: int) -> dict[str, Any]:
    return {"chain": find_chain(build(kind, dims), torch.zeros(1, n, dims.width))}


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


# --- what is told of it -----------------------------------------------------------------------------------------------


def list_columns(part: Numbers) -> Iterator[Column]:
    """How many steps for n tokens."""
    cells = {fit["kind"]: f"O({fit['textbook']})\n{show_steps(fit)}" for fit in part["fits"]}
    waits = show_list(name_kind(fit["kind"]) for fit in part["fits"] if fit["order"] != "1")
    claim = f"the chain of steps that grows with n is that of {waits}" if waits else "no chain grows with n"
    yield Column("steps", cells, claim=claim if cells else "")


def read_steps(part: Numbers, settings: Numbers) -> Iterator[str]:
    """How long each chain is, and whether it is of the textbooks' order."""
    fits = part["fits"]
    yield "The longest chain of operations that wait for one another, in the traced graph for n tokens:"
    yield f"{'; '.join(name_each(fits, show_steps))}."
    if loose := show_list(name_kind(fit["kind"]) for fit in fits if not fit["is_exact"]):
        yield f"For {loose} this is a fit, not exact."
    else:
        # a window has one law from where it is cut into tiles
        starts = {fit["kind"]: fit.get("from", 0) for fit in fits}
        short = sum(row["n"] < starts.get(row["kind"], 0) for row in part["rows"])
        windows = f", and {short} of windows in sequences too short to be cut into tiles" if short else ""
        yield f"Each is exact for all that was traced ({len(part['rows']) - short} graphs{windows})."
    other = [fit for fit in fits if fit["order"] != fit["textbook"]]
    if said := show_list(name_each(other, lambda fit: f"O({fit['order']}), not O({fit['textbook']})")):
        yield f"It is not what the textbooks say of {said}."
    else:
        yield "Each is of the order that the textbooks say; how long a step is, they leave out."


def show_steps(fit: Numbers) -> str:
    """
    >>> show_steps({"per_token": 3, "constant": 1, "is_exact": True})
    '3n + 1'
    >>> show_steps({"per_token": 0.5, "constant": 2.25, "is_exact": False})
    '≈ 0.5n + 2.25'
    """
    slope, constant = fit["per_token"], fit["constant"]
    text = "" if slope == 0 else "n" if slope == 1 else f"{slope:.3g}n"
    if constant or not text:
        sign = f" {'−' if constant < 0 else '+'} " if text else "−" if constant < 0 else ""
        text += f"{sign}{abs(constant):.3g}"
    return text if fit["is_exact"] else f"≈ {text}"


def draw_steps(sheet: Sheet, part: Numbers, settings: Numbers) -> None:
    """The longest chain of dependent operations against the number of tokens, both axes logarithmic."""
    rows = choose_sizes(part["rows"], settings)
    axes = sheet.begin(7.2, 3.9)[0, 0]
    fits = {fit["kind"]: fit for fit in part["fits"]}
    for number, (kind, own) in enumerate(group(rows, "kind").items()):
        label = name_kind(kind) + (f": {show_steps(fits[kind])}" if kind in fits else "")
        x, y = part_laws([row["n"] for row in own], [row["chain"] for row in own], fits.get(kind, {}))
        sheet.plot(axes, kind, x, y, label, markersize=size_mark(number))
    sheet.name(axes, "operations that wait for one another", "n, tokens", "longest chain")
    sheet.scale(axes, [row["n"] for row in rows], show_count)
    sheet.explain(columns=3)


STEPS = Part(
    "steps", title="Sequential steps", counts="sequential steps", share=3, quick_share=3,
    measure=measure_steps,
    lists={"rows": "kind d# k? n# chain#", "fits": "kind per_token# constant# is_exact order textbook"},
    columns=list_columns,
    read=read_steps,
    pictures=(draw_steps,),
)  # fmt: skip
