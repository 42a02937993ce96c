"""A draw made into numbers: sizes, the nine families of data, strides, and the plain data of every term."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from tests.fuzz import pairs, settings
from tests.fuzz.draw import Draw

# logits that broke other libraries, one per query; none is zero, since a cosine needs a direction
LADDER = (-1e4, -1e3, -200.0, -100.0, -88.8, -10.0, 1.0)
# pairs of positions, and features of pairs, that a call may have: what keeps 2,000 calls short
MOST_PAIRS, MOST_FEATURES = (400_000, 8_000_000) if settings.ON_GPU else (26_000, 160_000)


@dataclass
class Case:
    """A call as plain data. `leaves` hold float64 numbers that the call's dtype can hold, in the caller's shapes."""

    draw: Draw
    dtype: torch.dtype
    lead: tuple[int, ...]
    h: int
    g: int
    n: int
    m: int
    d: int
    c: int
    e: int
    score: str = ""
    weigh: str = ""
    bias: str = "none"
    facts: dict[str, Any] = field(default_factory=dict)
    leaves: dict[str, Tensor] = field(default_factory=dict)
    mask: pairs.Spec = ("full",)
    allowed: Tensor = field(default_factory=lambda: torch.empty(0))
    keep: Tensor | None = None
    gumbel: Tensor | None = None
    grad: Tensor = field(default_factory=lambda: torch.empty(0))
    # which axis of the caller's query, key and value repeats one row, where the layout wants that
    repeats: dict[str, int] = field(default_factory=dict)

    @property
    def b(self) -> int:
        count = 1
        for size in self.lead:
            count *= size
        return count

    @property
    def has_heads(self) -> bool:
        return self.draw.ndim > 3

    @property
    def pairs(self) -> tuple[int, ...]:
        return (*self.lead, *((self.h,) if self.has_heads else ()), self.n, self.m)

    @property
    def budget(self) -> int:
        """The tile budget: the draw's, but never so small that the call falls into hundreds of tiles."""
        features = self.d if self.score in ("additive", "gaussian", "callable") else 1
        return max(self.draw.budget, self.b * self.h * self.n * self.m * features // 48)

    @property
    def learned(self) -> list[str]:
        """The leaves that gradients are asked of."""
        return [at for at in self.leaves if self.draw.learn_bias or not at.startswith("bias")]

    def canonical(self, at: str, x: Tensor) -> Tensor:
        """Query, key and value as (b, heads, length, width); other leaves as they are."""
        if at not in ("query", "key", "value"):
            return x
        x = x if self.has_heads else x.unsqueeze(-3)
        rest = x.shape[-3:]
        return x.expand(*self.lead, *rest).reshape(self.b, *rest)


def make_case(draw: Draw) -> Case:
    dice = random.Random(draw.seed)
    noise = torch.Generator().manual_seed(draw.seed)
    # what calls of one kind share; a call of no kind throws one set of dice for all
    fixed = dice if draw.kind is None else random.Random(draw.kind)
    case = _make_sizes(draw, fixed)
    _make_rows(case, dice, fixed, noise)
    _make_score(case, fixed, noise)
    _make_weigh(case, fixed, noise)
    _make_bias(case, fixed, noise)
    case.mask = _make_mask(draw.mask, case, dice, fixed, noise)
    case.allowed = pairs.write_mask(case.mask, case.b, case.h, case.n, case.m)
    case.grad = _round(torch.randn(*case.pairs[:-1], case.e, generator=noise, dtype=torch.float64), case.dtype)
    if draw.grad == "expanded":
        case.grad = case.grad[..., :1].expand(case.grad.shape)
    if draw.dropout:
        seed = int(torch.randint(0, 2**31, (), generator=torch.Generator().manual_seed(draw.seed)))
        drawn = pairs.write_uniform(seed, (case.b, case.h, case.n, case.m), salt=0)
        case.keep = (drawn >= draw.dropout).double() / (1 - draw.dropout)
    return _move(case, settings.ORACLE)


def _move(case: Case, device: str) -> Case:
    """The case with all that the oracle computes with on a device; the mask as plain data stays."""
    if device == "cpu":
        return case
    move = lambda x: x.to(device) if isinstance(x, Tensor) else x  # noqa: E731
    leaves, facts = ({at: move(x) for at, x in there.items()} for there in (case.leaves, case.facts))
    tensors = {at: move(getattr(case, at)) for at in ("allowed", "keep", "gumbel", "grad")}
    return replace(case, leaves=leaves, facts=facts, **tensors)


def _round(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype).double()


def _make_sizes(draw: Draw, dice: random.Random) -> Case:
    n, m = draw.sizes
    lead = {2: (), 3: (dice.randint(1, 4),), 4: (dice.randint(1, 3),), 5: (dice.randint(1, 2), dice.randint(1, 3))}
    h, g = dice.choice(((1, 1), (2, 2), (4, 2), (3, 1), (6, 3), (5, 5))) if draw.ndim > 3 else (1, 1)
    d = dice.choice((1, 2, 3, 5, 8, 13, 16, 17, 32, 33, 64))
    e = d if draw.weigh == "softmax" and dice.random() < 0.7 else dice.choice((1, 2, 3, 5, 8, 16, 17, 32))
    c = dice.choice((1, 3, 8, 11)) if draw.score in ("bilinear", "concat") and dice.random() < 0.3 else d
    case = Case(draw, getattr(torch, draw.dtype), tuple(lead[draw.ndim]), h, g, n, m, d, c, e)
    if draw.kind is not None:
        _shorten(case)
        return case
    while case.b * case.h * n * m > MOST_PAIRS and (case.b > 1 or case.h > 1):
        case.lead, case.h, case.g = (1,) * len(case.lead), max(1, case.h // 2), 1
    while case.b * case.h * n * m * case.d > MOST_FEATURES and case.d > 1:
        # c and e follow where they were equal
        case.c, case.e = (case.d // 2 if x == case.d else x for x in (case.c, case.e))
        case.d //= 2
    if draw.layout == "packed" and (case.c, case.e) != (case.d, case.d) and dice.random() < 0.5:
        case.c = case.e = case.d
    return case


def _shorten(case: Case) -> None:
    """Fewer sequences, then fewer positions, by sixteens: heads and widths stay what kernels were compiled for."""
    for most, each in ((MOST_PAIRS, 1), (MOST_FEATURES, case.d)):
        if case.b * case.h * case.n * case.m * each > most:
            case.lead = (1,) * len(case.lead)
        while case.h * case.n * case.m * each > most and max(case.n, case.m) > 16 and not case.draw.is_picture:
            case.n, case.m = (x - 16 if x == max(case.n, case.m) and x > 16 else x for x in (case.n, case.m))


def _make_rows(case: Case, dice: random.Random, fixed: random.Random, noise: torch.Generator) -> None:
    family = case.draw.family
    heads = {"query": case.h, "key": case.g, "value": case.g}
    shapes = {"query": (case.n, case.d), "key": (case.m, case.c), "value": (case.m, case.e)}
    broadcast = fixed.random() < 0.1 and case.draw.layout != "packed"
    for at, shape in shapes.items():
        lead = (1,) * len(case.lead) if broadcast and at != "query" else case.lead
        shape = (*lead, *((heads[at],) if case.has_heads else ()), *shape)
        # a value in the family's own extremes in one call of three: the scores are what most families are about
        kind = family if at != "value" or dice.random() < 1 / 3 else "normal"
        x = _fill(kind, at, shape, case, noise)
        if case.draw.layout == "expanded" and x.numel():
            case.repeats[at] = axis = fixed.randrange(x.ndim - 1)
            x = x.narrow(axis, 0, 1).expand(x.shape)
        case.leaves[at] = _round(x, case.dtype)


def _fill(family: str, at: str, shape: tuple[int, ...], case: Case, noise: torch.Generator) -> Tensor:
    x = torch.randn(shape, generator=noise, dtype=torch.float64)
    width = shape[-1]
    if family == "uniform":
        x = torch.rand(shape, generator=noise, dtype=torch.float64)
    elif family in ("x30", "x1e3"):
        # a user's function computes in the call's own dtype: float16 must not overflow in it
        x *= 10.0 if case.draw.score == "callable" and case.dtype == torch.float16 else float(family[1:])
    elif family == "ladder" and at == "query":
        rungs = torch.tensor(LADDER, dtype=torch.float64)[torch.arange(shape[-2]) % len(LADDER)]
        # float16 ends at 65,504, and a user's function computes in it
        x[..., 0] = (rungs * width**0.5).clamp(min=-6e4 if case.draw.score != "callable" else -600)
    elif family == "ladder" and at == "key":
        x[..., 0] = 1.0
    elif family == "ties":
        few = torch.tensor([-1.0, -0.5, 0.5, 1.0], dtype=torch.float64)
        rows = few[torch.randint(0, 4, (3, width), generator=noise)]
        x = rows[torch.randint(0, 3, shape[:-1], generator=noise)]
    elif family == "sink":
        x += 2.0
        if at == "key" and x.numel():
            x[..., 0, :] = 8.0
    elif family == "massive" and x.numel():
        x[..., width // 2] *= 10 if case.draw.score == "callable" else 100
    elif family == "denormal":
        tiny = torch.finfo(case.dtype).smallest_normal / 4
        if case.draw.score.startswith("cosine") or case.draw.weigh == "sum":
            # gradients that are one over these, or over their squares: small, but not beyond what one over it can be
            tiny = {torch.float16: 1e-3, torch.float64: 1e-60}.get(case.dtype, 1e-8)
        x *= tiny
        # no row of nothing but zeros: it has no direction
        x = torch.where(_round(x, case.dtype) == 0, tiny, x)
    if case.draw.score == "feature" and case.draw.weigh == "sum" and at != "value":
        # likewise: e^x of these must have a sum that can be divided by
        x = x.clamp(min=-40.0)
    return x


def _random(*shape: int, noise: torch.Generator, case: Case, scale: float = 1.0) -> Tensor:
    return _round(torch.randn(shape, generator=noise, dtype=torch.float64) * scale, case.dtype)


def _make_score(case: Case, dice: random.Random, noise: torch.Generator) -> None:
    case.score, _, option = case.draw.score.partition(" ")
    facts, leaves, d, h = case.facts, case.leaves, case.d, case.h
    if case.score == "dot":
        facts["given scale"] = dice.choice((None, 0.3, 1.0))
        facts["scale"] = d**-0.5 if facts["given scale"] is None else facts["given scale"]
        facts["cap"] = 20.0 if option == "cap" else None
    elif case.score == "bilinear":
        shape = dice.choice(((d, case.c), (h, d, case.c)))
        leaves["score.0"] = _random(*shape, noise=noise, case=case, scale=d**-0.5)
    elif case.score == "cosine":
        facts["scale"] = 3.0
        if option == "learned":
            leaves["score.0"] = _round(_random(h, noise=noise, case=case).abs() + 1, case.dtype)
    elif case.score == "additive":
        facts["activation"] = "silu" if option == "silu" else "tanh"
        leaves["score.0"] = _random(*((h, d) if option == "heads" else (d,)), noise=noise, case=case)
    elif case.score == "concat":
        facts["activation"] = "tanh" if option == "tanh" else "leaky_relu"
        for at, width in enumerate((d, case.c)):
            shape = (h, width) if option != "tanh" else (width,)
            leaves[f"score.{at}"] = _random(*shape, noise=noise, case=case, scale=width**-0.5)
    elif case.score == "gaussian":
        facts["width"] = 0.7
        if option == "learned":
            shape = dice.choice(((), (d,), (h, d)))
            leaves["score.0"] = _round(_random(*shape, noise=noise, case=case).abs() + 0.3, case.dtype)
    elif case.score == "callable":
        leaves["score.0"] = _random(d, noise=noise, case=case)


def _make_weigh(case: Case, dice: random.Random, noise: torch.Generator) -> None:
    case.weigh, _, option = case.draw.weigh.partition(" ")
    facts = case.facts
    if case.weigh == "softmax" and option == "sink":
        case.leaves["weigh.0"] = _random(*dice.choice(((), (case.h,))), noise=noise, case=case)
    elif case.weigh == "relu":
        facts["power"], facts["weigh scale"] = (2, 0.25) if option else (1, dice.choice((1.0, 0.125)))
    elif case.weigh == "sigmoid":
        facts["shift"] = dice.choice((0.0, -1.5))
    elif case.weigh in ("entmax", "sparsemax"):
        facts["alpha"] = 2.0 if case.weigh == "sparsemax" else float(option or 1.5)
        case.weigh = "entmax"
    elif case.weigh == "hard" and option == "sample":
        facts["seed"] = dice.randrange(2**31)
        chance = pairs.write_uniform(facts["seed"], (case.b, case.h, case.n, case.m), salt=1)
        case.gumbel = -torch.log(-torch.log(chance))


def _make_bias(case: Case, dice: random.Random, noise: torch.Generator) -> None:
    case.bias, _, option = case.draw.bias.partition(" ")
    facts, leaves, h = case.facts, case.leaves, case.h
    facts["offset"] = case.m - case.n
    if case.bias == "dense":
        facts["pairs"], facts["bh"] = case.pairs, (case.b, h)
        shape = (case.m,) if option else dice.choice((case.pairs, case.pairs[-2:], (*case.pairs[-3:-1], 1)))
        leaves["bias.0"] = _random(*shape, noise=noise, case=case)
    elif case.bias == "alibi":
        facts["given"] = bool(option)
        if option:
            facts["offset"] = dice.randint(-2, 2)
            leaves["bias.0"] = _round(_random(h, noise=noise, case=case).abs(), case.dtype)
        else:
            facts["slopes"] = torch.tensor(pairs.list_slopes(h), dtype=torch.float64)
    elif case.bias == "relative":
        facts["buckets"] = {"buckets": 8 if option else 12, "most": 20, "two_sided": not option}
        facts["bucket"] = pairs.write_buckets(case.n, case.m, facts["offset"], **facts["buckets"])
        leaves["bias.0"] = _random(h, facts["buckets"]["buckets"], noise=noise, case=case)
    elif case.bias == "quadratic":
        facts["offset"], facts["height"], facts["width"] = 0, *case.draw.cells
        leaves["bias.0"] = _round(_random(h, noise=noise, case=case).abs() * 0.3, case.dtype)
        leaves["bias.1"] = _random(h, 2, noise=noise, case=case)


def _draw_segments(dice: random.Random, b: int, length: int) -> list[list[int]]:
    """For all sequences together, or for each."""
    return [sorted(dice.randrange(4) for _ in range(length)) for _ in range(dice.choice((1, b)))]


def _make_mask(name: str, case: Case, dice: random.Random, fixed: random.Random, noise: torch.Generator) -> pairs.Spec:
    b, n, m = case.b, case.n, case.m
    again = functools.partial(_make_mask, case=case, dice=dice, fixed=fixed, noise=noise)
    makers: dict[str, Callable[[], pairs.Spec]] = {
        "full": lambda: ("full",),
        "lengths": lambda: ("lengths", [dice.randint(0, m) for _ in range(b)]),
        "lengths by query": lambda: ("lengths", [[dice.randint(0, m) for _ in range(n)] for _ in range(b)]),
        "causal": lambda: ("diagonal", None, 0, None),
        "causal offset": lambda: ("diagonal", None, 0, fixed.randint(-3, m)),
        "causal by sequence": lambda: ("diagonal", None, 0, [dice.randint(-3, m) for _ in range(b)]),
        "window": lambda: ("diagonal", fixed.randint(0, 20), fixed.randint(0, 5), fixed.choice((None, 0, 1))),
        "window by sequence": lambda: ("diagonal", 3, fixed.randint(0, 9), [dice.randint(-3, m) for _ in range(b)]),
        "document": lambda: ("document", _draw_segments(dice, b, m), _draw_segments(dice, b, n)),
        "edges": lambda: (
            "edges", [(dice.randrange(n), dice.randrange(m)) for _ in range(3 * max(n, m))] if n and m else []
        ),
        "grid": lambda: ("grid", case.draw.cells[1], (fixed.randint(0, 2), fixed.randint(0, 3))),
        "allowed": lambda: ("allowed", torch.rand(case.pairs, generator=noise) < 0.6, case.pairs),
        "allowed by key": lambda: ("allowed", torch.rand(*case.pairs[:-2], 1, m, generator=noise) < 0.6, case.pairs),
        "and": lambda: ("and", again("causal"), again("lengths")),
        "or": lambda: ("or", again("window"), again("edges")),
        "not": lambda: ("not", again(fixed.choice(("window", "document")))),
    }  # fmt: skip
    return makers[name]()
