"""The base classes of terms: `Term`, `Score`, and `Weigh` in its three kinds `Online`, `Pointwise` and `Row`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from regard.core.closures import Closure
from regard.core.errors import RegardError
from regard.core.kinds import Field, list_fields, misfit_kind
from regard.core.pairs import Pair
from regard.core.sizes import Sizes, Tile


@dataclass(frozen=True, repr=False)
class Term:
    """A part of an attention call, such as a score or a mask: a small frozen dataclass with a readable repr."""

    # whether its tensors are numbers that could be learned; masks hold indices
    learns: ClassVar[bool] = True

    def __repr__(self) -> str:
        shown = [(f.name, getattr(self, f.name), f.default) for f in fields(self) if f.repr]
        return f"{type(self).__name__}({', '.join(f'{n}={_show(v)}' for n, v, default in shown if v is not default)})"

    @classmethod
    def samples(cls) -> Sequence[Self]:
        """Tiny instances for the conformance suite: 2 heads, widths 3, at most 2 sequences, 5 queries, 7 keys."""
        return [cls()]

    # what `_fields` found, each class its own: every call asks for it
    _read: ClassVar[tuple[Field, ...] | None] = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._read = None

    @property
    def _fields(self) -> tuple[Field, ...]:
        cls = type(self)
        if cls._read is not None:
            return cls._read
        if torch.compiler.is_compiling():
            # annotations cannot be evaluated here; `read_fields` has done so for all terms of the library
            return tuple(Field(f.name, (object,), frozenset()) for f in fields(self))
        cls._read = list_fields(cls)
        return cls._read

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The floating-point tensors among the fields: what gradients flow to."""
        values = [getattr(self, field.name) for field in self._fields]
        return tuple(v for v in values if isinstance(v, Tensor) and v.is_floating_point())

    def with_tensors(self, tensors: Iterable[Tensor]) -> Self:
        """The same term holding other tensors, in the order of `tensors`."""
        rest = iter(tensors)
        values = {field.name: getattr(self, field.name) for field in self._fields}
        return replace(
            self, **{n: next(rest) for n, v in values.items() if isinstance(v, Tensor) and v.is_floating_point()}
        )

    @property
    def all_tensors(self) -> tuple[Tensor, ...]:
        """Every tensor of the term and its parts, also of integers: what must not change before backward."""
        return tuple(part for field in self._fields for part in _list_tensors(getattr(self, field.name)))

    def with_all_tensors(self, tensors: Iterable[Tensor]) -> Self:
        """The same term holding other tensors, in the order of `all_tensors`."""
        rest = iter(tensors)
        values = {field.name: getattr(self, field.name) for field in self._fields}
        return replace(self, **{name: _refill(value, rest) for name, value in values.items() if _list_tensors(value)})

    def find_misfit(self, sizes: Sizes) -> str | None:
        """The error message, which `check` raises, if the types of fields or `misfit` forbid a call, else None."""
        for name, kinds, plain in self._fields:
            value = getattr(self, name)
            if type(value) in plain:
                continue
            if problem := misfit_kind(f"{type(self).__name__} {name}", value, kinds):
                return problem
            if self.learns and isinstance(value, Tensor):
                if not value.is_floating_point():
                    kind = str(value.dtype).removeprefix("torch.")
                    return f"{type(self).__name__} {name} must be floating point, got {kind}."
                if value.device != sizes.device:
                    return f"{self} must hold tensors on the query's device {sizes.device}, got one on {value.device}."
        return self.misfit(sizes)

    def misfit(self, sizes: Sizes) -> str | None:
        """The error message if this term cannot serve a call of these sizes, else None; types were checked before."""
        return None

    def settle(self, sizes: Sizes) -> Self:
        """The same term with what depends on the call filled in: alignment, shapes, random seeds."""
        return self


def unsettled(term: Term, field: str) -> RegardError:
    """The error about a term that is called before `settle` filled in a field."""
    return RegardError(f"{term} has no {field} before a call is known: give it, or call {term}.settle(sizes).")


def rowless(score: Score) -> RegardError:
    """The error about a score that says it is a dot product, and gives no rows for it."""
    return RegardError(f"{score} must have rows from as_dot(), since its is_dot says so: got None.")


def read_fields(cls: type[Term]) -> None:
    """Read the fields of a class and its subclasses, before a compiler asks for them."""
    cls._read = list_fields(cls)
    for heir in cls.__subclasses__():
        read_fields(heir)


def _list_tensors(value: object) -> tuple[Tensor, ...]:
    return (value,) if isinstance(value, Tensor) else value.all_tensors if isinstance(value, Term) else ()


def _refill(value: object, tensors: Iterator[Tensor]) -> object:
    return value.with_all_tensors(tensors) if isinstance(value, Term) else next(tensors)


def _show(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    return getattr(value, "__name__", None) or repr(value)


@dataclass(frozen=True, repr=False)
class Score(Term):
    """A score of query i and key j: `(…, i, d) × (…, j, d) -> (…, i, j)` on whole tensors or tiles."""

    # whether query and key may differ in width
    any_widths: ClassVar[bool] = False
    # whether it wants query and key in the caller's dtype, where others compute half precision in float32
    keeps_dtype: ClassVar[bool] = False
    # whether half precision holds the rows of `as_dot` where it holds query and key
    keeps_range: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # the faster ways that it inherits are those of another definition
        for name in ("prepare", "as_dot", "is_dot") if "__call__" in vars(cls) else ():
            if name not in vars(cls) and getattr(cls, name) is not vars(Score)[name]:
                setattr(cls, name, vars(Score)[name])

    @classmethod
    def start(cls, heads: int, width: int) -> dict[str, Tensor]:
        """Initial values of the learned tensors, by field, for a layer of so many heads of this width."""
        return {}

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        raise NotImplementedError

    def prepare(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, Pair]:
        """Query and key after what can be done once per position, and the `Pair` for what is left per pair of them."""
        return query, key, Closure(self, self.called, query, key)

    @property
    def called(self) -> str:
        """Its name in error messages."""
        return type(self).__name__

    def as_dot(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float] | None:
        """A query, a key and a scale whose scaled dot product equals this score, or None."""
        return None

    @property
    def is_dot(self) -> bool:
        """Whether it equals a scaled dot product, that of `as_dot`."""
        return type(self).as_dot is not Score.as_dot


@dataclass(frozen=True, repr=False)
class Weigh(Term):
    """A normaliser: how a row of scores becomes a row of weights. One of three kinds, which picks the algorithm."""

    # whether a weight may be below zero; False is a promise, by which looks take a row's sum for that of its magnitudes
    has_signs: ClassVar[bool] = True

    def __call__(self, scores: Tensor, allowed: Tensor | None = None, tile: Tile | None = None) -> Tensor:
        """The definition on whole rows: differentiable, zeros where masked and in rows with no allowed key."""
        raise NotImplementedError


@dataclass(frozen=True, repr=False)
class Online(Weigh):
    """Weights by running statistics of a row, as in online softmax: `mass(score) / total`."""

    # how many numbers a row's statistic has
    num_stats: ClassVar[int] = 1

    def begin(self, tile: Tile, like: Tensor) -> tuple[Tensor, Tensor]:
        """The running maximum (peak) and sum (total) before any key, shaped (…, i, 1)."""
        raise NotImplementedError

    def step(self, scores: Tensor, allowed: Tensor | None, peak: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """The unnormalised weights of a tile, the new peak, and the factor that rescales earlier sums (None: one)."""
        raise NotImplementedError

    def finish(self, peak: Tensor, total: Tensor) -> Tensor:
        """The row statistic from which `recompute` makes the weights, its total last; +inf for a row with no mass.

        Softmax keeps the running maximum and sum apart; logsumexp, which they make up, is peak + log(total).
        """
        raise NotImplementedError

    def recompute(self, scores: Tensor, stat: Tensor) -> Tensor:
        """The weights of a tile again, from its scores and the row statistic. May overwrite `scores`."""
        raise NotImplementedError

    def gradient(self, weights: Tensor, grad: Tensor, mean: Tensor, stat: Tensor) -> Tensor:
        """The gradient of the scores from that of the weights; `mean` is Σ weight·grad. May overwrite `grad`."""
        raise NotImplementedError

    def tensor_gradients(self, tile: Tile, mean: Tensor, stat: Tensor) -> tuple[Tensor, ...]:
        """The gradients of the term's own tensors from one block of queries."""
        return ()


@dataclass(frozen=True, repr=False)
class Pointwise(Weigh):
    """Elementwise weights: each is a function of its own score alone."""

    def weight(self, scores: Tensor) -> Tensor:
        raise NotImplementedError

    def derivative(self, scores: Tensor, weights: Tensor) -> Tensor:
        """The elementwise derivative of `weight`."""
        raise NotImplementedError

    def __call__(self, scores: Tensor, allowed: Tensor | None = None, tile: Tile | None = None) -> Tensor:
        if allowed is not None:
            # fill first: what lies under the mask may overflow, and 0 × inf would come back as a gradient
            scores = scores.masked_fill(~allowed, 0.0)
        weights = self.weight(scores)
        return weights if allowed is None else weights.masked_fill(~allowed, 0.0)


@dataclass(frozen=True, repr=False)
class Row(Weigh):
    """Weights that need the whole row of scores at once, as entmax does; masked scores arrive as -inf."""

    def solve(self, scores: Tensor, tile: Tile) -> Tensor:
        """The weights of complete rows."""
        raise NotImplementedError

    def gradient(self, weights: Tensor, grad: Tensor) -> Tensor:
        """The gradient of the scores from that of the weights, in differentiable torch."""
        raise NotImplementedError

    def __call__(self, scores: Tensor, allowed: Tensor | None = None, tile: Tile | None = None) -> Tensor:
        if allowed is not None:
            scores = scores.masked_fill(~allowed, -torch.inf)
        weights: Tensor = _Solve.apply(scores, self, tile or _whole(scores))  # type: ignore[no-untyped-call]
        return weights


class _Solve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, scores: Tensor, weigh: Row, tile: Tile) -> Tensor:
        weights = weigh.solve(scores, tile)
        ctx.save_for_backward(weights)
        ctx.weigh = weigh  # type: ignore[attr-defined]
        return weights

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> tuple[Tensor, None, None]:
        (weights,) = ctx.saved_tensors  # type: ignore[attr-defined]
        return ctx.weigh.gradient(weights, grad), None, None  # type: ignore[attr-defined]


def _whole(scores: Tensor) -> Tile:
    b, h, n, m = (1, 1, 1, 1, *scores.shape)[-4:]
    return Tile(range(b), range(h), range(n), range(m), scores.device)
