"""The calls that people train with, each beside the fastest that torch has for it: at known sizes, drawn, and small."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from benchmarks.gpu import peers, plain
from benchmarks.gpu.cases import (
    FLEX,
    NOTHING,
    Case,
    Place,
    Shape,
    Work,
    count_per_row,
    make_additive,
    make_entmax,
    make_relu,
    name_rows,
)
from benchmarks.gpu.goal import Goal
from regard.bias import Alibi
from regard.mask import Causal, Document, Lengths, Window
from regard.score import Dot

# beyond it, torch's attention would hold too much for a mask of n×n truths
MOST_TRUTHS = 8192
CAP, ALPHA = 30.0, 1.5
TINY, TINY_ROWS = Shape((2, 4), 37, 37, 8, key_heads=2, reach=5), Shape((2,), 19, 19, 8)
# milliseconds that a call may take of the host: of dot products, and of all else
HOST, HOST_ELSE = 0.06, 0.09


@dataclass(frozen=True)
class Call(Case):
    """A call measured forward, in training, and by the host's time alone: each may have its own goal."""

    goals: tuple[tuple[str, Goal], ...] = ()

    def describe(self, shape: Shape) -> str:
        # theirs lies to one side, and is of windows alone
        what = f"{self.what}, {shape.reach} keys back" if self.what == TITLES["window"] else self.what
        return Case.describe(replace(self, what=what), shape._replace(reach=0))


def _describe_kind(kind: str, place: Place, shape: Shape) -> tuple[dict[str, Any], plain.Mod | None, plain.Mod | None]:
    """The terms of a kind, and the same as functions of indices: which pairs meet, and what a score becomes."""
    noise, n, (batch, heads) = random.Random(shape.n), shape.n, shape.lead
    past = peers.near(None, 0)
    if kind == "causal":
        return {"mask": Causal()}, past, None
    if kind == "lengths":
        lens = torch.tensor([noise.randint(max(n // 4, 1), n) for _ in range(batch)], device=place.device)
        return {"mask": Lengths(lens)}, lambda b, h, i, j: j < lens[b], None
    if kind == "window":
        return {"mask": Window(shape.reach, 0)}, peers.near(shape.reach, 0), None
    if kind == "document":
        own = torch.tensor(sorted(noise.randrange(8) for _ in range(n)), device=place.device)
        return {"mask": Document(own) & Causal()}, lambda b, h, i, j: (own[i] == own[j]) & (j <= i), None
    if kind == "alibi":
        # the paper's, for any number of heads
        power = 2 ** (heads.bit_length() - 1)
        odd = [2 ** (-4 * k / power) for k in range(1, 2 * power, 2)]
        slopes = torch.tensor([2 ** (-8 * k / power) for k in range(1, power + 1)] + odd, device=place.device)
        far = lambda s, b, h, i, j: s + slopes[h].to(s.dtype) * (j - i)  # noqa: E731
        return {"mask": Causal(), "bias": Alibi()}, past, far
    if kind == "softcap":
        return {"mask": Causal(), "score": Dot(cap=CAP)}, past, lambda s, b, h, i, j: CAP * torch.tanh(s / CAP)
    return {}, None, None


def make_work(kind: str, place: Place, shape: Shape) -> Work:
    """Dot products of a kind, beside FlexAttention and, where it has such a call, torch's own."""
    rows = place.draw_rows(shape)
    terms, mask, change = _describe_kind(kind, place, shape)
    others = {}
    if kind in ("full", "causal"):
        others["sdpa"] = peers.sdpa(None, *rows, is_causal=kind == "causal")
    elif change is None and mask is not None and (kind == "lengths" or shape.n <= MOST_TRUTHS):
        truths = mask(*plain.index(slice(None), *rows[:2]))
        others["sdpa, mask of truths"] = peers.sdpa(None, *rows, bias=truths)
    others[FLEX] = peers.flex(*rows, mask=mask, change=change, by_batch=kind == "lengths", compiles=place.compiles)
    what = partial(plain.softmax, mask=mask, change=change)
    return Work(name_rows(*rows), terms, what, others, count_per_row(shape))


MAKES: dict[str, Callable[[Place, Shape], Work]] = {
    "additive": make_additive,
    "relu": make_relu,
    "entmax": partial(make_entmax, name="entmax15", alpha=ALPHA),
} | {
    kind: partial(make_work, kind)
    for kind in ("causal", "full", "lengths", "window", "alibi", "document", "softcap")
}  # fmt: skip
TITLES = {
    "causal": "causal", "full": "no mask", "lengths": "padded, by lengths", "window": "causal window",
    "alibi": "ALiBi, causal", "document": "documents, causal", "softcap": f"soft cap at {CAP:g}, causal",
    "additive": "additive score", "relu": "ReLU weights", "entmax": f"entmax with alpha {ALPHA:g}",
}  # fmt: skip


def _make_small(kind: str, place: Place, shape: Shape) -> Work:
    """A kind beside torch's causal call on the same rows, which is there for scale."""
    work = MAKES[kind](place, shape)
    query, key, value = (work.inputs[name] for name in ("query", "key", "value"))
    scale = "sdpa, causal"
    return replace(work, peers={scale: peers.sdpa(None, query, key, value, is_causal=True)}, rough=(scale,))


def _list(name: str, kind: str, shape: Shape, times: float, measures: str, **more: Any) -> Call:
    goal = Goal(times=times, bits=True)
    goals = tuple((x, NOTHING if x == "host" else goal) for x in measures.split())
    tiny = TINY if len(shape.lead) == 2 else TINY_ROWS
    return Call(name, TITLES[kind], shape, tiny, MAKES[kind], runs=3, goals=goals, **more)


ALL = "forward train host"
TABLE = [
    _list(name, kind, shape, 0.95, ALL)
    for name, kind, shape in (
        ("causal-grouped", "causal", Shape((2, 32), 4096, 4096, 128, key_heads=8)),
        ("causal-1k", "causal", Shape((8, 16), 1024, 1024)),
        ("causal-16k", "causal", Shape((1, 32), 16384, 16384)),
        ("lengths-bert", "lengths", Shape((32, 12), 512, 512)),
        ("additive-bahdanau", "additive", Shape((64,), 50, 50, 256)),
        ("additive-512", "additive", Shape((8,), 512, 512)),
        ("additive-1k", "additive", Shape((8,), 1024, 1024)),
        ("alibi", "alibi", Shape((2, 16), 4096, 4096)),
        ("document", "document", Shape((2, 16), 4096, 4096)),
        ("window-512", "window", Shape((2, 16), 4096, 4096, reach=512)),
        ("softcap", "softcap", Shape((1, 16), 8192, 8192, 128)),
    )
]


def _draw_sweep(count: int = 25) -> list[Call]:
    """Other shapes: every length and width in turn, all else by chance, no call longer than some milliseconds."""
    noise = random.Random(20)
    kinds = noise.sample(
        ("causal", "lengths", "window", "document", "full", "alibi"), counts=(8, 5, 3, 3, 4, 2), k=count
    )
    lengths = itertools.cycle(
        (16, 50, 97, 128, 200, 256, 384, 500, 768, 1000, 1536, 2048, 3000, 6000, 8192, 16384, 32768)
    )
    widths = itertools.cycle((32, 64, 80, 96, 128, 64, 192, 256, 128))
    dtypes = [torch.bfloat16] * (count - 5) + [torch.float16] * 3 + [torch.float32] * 2
    noise.shuffle(dtypes)
    found: dict[str, Call] = {}
    for kind, n, d, dtype in zip(kinds, lengths, widths, dtypes, strict=False):
        heads, batch = noise.choice((4, 8, 12, 16, 32)), noise.choice((1, 2, 4, 8, 16, 32, 64))
        # as much as 8 heads of 16,384 positions, and 2²⁸ numbers of a query, at most
        most = 2**28 // min(n * d, 2**28) if n < 4096 else 8 * 2**28 // n**2
        batch, heads = max(min(batch, most // heads), 1), max(min(heads, most), 2)
        shared = heads // 4 if noise.random() < 0.3 and heads % 4 == 0 else None
        shape = Shape(
            (batch, heads), n, n, d, shared, min(noise.choice((64, 256, 1024)), n // 2) if kind == "window" else 0
        )
        name = f"{kind}-{batch}x{heads}{f'on{shared}' if shared else ''}x{n}x{d}"
        trains = noise.random() < 0.6
        found[name] = _list(name, kind, shape, 0.9, "train" if trains else "forward", dtype=dtype)
    return list(found.values())


SWEEP = _draw_sweep()
_IS_DOT = ("causal", "full", "lengths", "window")
SMALL = [
    Call(
        f"small-{kind}", TITLES[kind], Shape((32, 12), 128, 128, reach=64), Shape((2, 3), 19, 19, 8, reach=5),
        partial(_make_small, kind), runs=3,
        # times of torch's causal call: 1.3 for the same, 2 for all else
        goals=(
            ("train", Goal(times=0.77 if kind == "causal" else 0.5, bits=True)),
            ("host", Goal(ms=HOST if kind in _IS_DOT else HOST_ELSE)),
        ),
    )
    for kind in TITLES
]  # fmt: skip
