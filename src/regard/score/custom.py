"""Any function of two tiles as a score, with gradients also for the tensors it closes over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from regard.core import Pair, RegardError, Score
from regard.core.terms import Pull


class _Captured(TorchFunctionMode):
    """Notes every tensor that wants a gradient and was neither handed in nor made inside."""

    def __init__(self, known: Sequence[Tensor]) -> None:
        super().__init__()
        # keep the tensors themselves: an id alone may be reused once its tensor is gone
        self.known = {id(t): t for t in known}
        self.found: dict[int, Tensor] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        for value in _tensors((*args, *kwargs.values())):
            if value.requires_grad and id(value) not in self.known:
                self.found[id(value)] = value
        result = func(*args, **kwargs)
        self.known.update((id(t), t) for t in _tensors((result,)))
        return result


def _tensors(values: Sequence[Any]) -> list[Tensor]:
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found.extend(_tensors(value))
    return found


def _untangle(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The tensors, or the leaves they are made of where one is made of another: its gradient would count twice."""
    made = [t for t in tensors if t.grad_fn is not None]
    if not made or len(tensors) == 1:
        return tensors
    leaves: dict[int, Tensor] = {id(t): t for t in tensors if t.grad_fn is None}
    own, own_leaves = {t.grad_fn for t in made}, set(leaves)
    tangled = False
    for tensor in made:
        assert tensor.grad_fn is not None
        todo, seen = [tensor.grad_fn], {tensor.grad_fn}
        while todo:
            for node, _ in todo.pop().next_functions:
                if node is None or node in seen:
                    continue
                seen.add(node)
                todo.append(node)
                leaf = getattr(node, "variable", None)
                tangled |= node in own or id(leaf) in own_leaves
                if leaf is not None:
                    leaves.setdefault(id(leaf), leaf)
    return tuple(leaves.values()) if tangled else tensors


class Call(Pair):
    """A tile scored by the user's function. All heads at once: what it closes over may be laid out by head."""

    keeps_heads = True

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor], query: Tensor, key: Tensor) -> None:
        self.function = function
        # nobody knows what a function makes inside: assume a vector per pair
        self.footprint = self.depth = max(query.shape[-1], 1)
        rows = [x[..., :1, :].detach() for x in (query, key)]
        with torch.enable_grad(), _Captured(rows) as seen:
            scores = function(*rows)
        _check_scores(scores, *rows)
        self.captured = tuple(seen.found.values())
        self.tensors = _untangle(self.captured)
        self.closes_over = bool(self.tensors)

    def __call__(self, query: Tensor, key: Tensor, *tensors: Tensor) -> Tensor:
        scores = self.function(query, key)
        _check_scores(scores, query, key)
        return scores

    def fill(self, query: Tensor, key: Tensor, *tensors: Tensor) -> Tensor:
        # a tile is written over, but what the function returns may be a view of something of its own
        return self(query, key).clone()

    def expression(self, query: Tensor, key: Tensor, *tensors: Tensor) -> Tensor:
        return self(query, key).clone()

    def pull(self, query: Tensor, key: Tensor, *tensors: Tensor) -> tuple[Tensor, Pull]:
        query, key = query.detach().requires_grad_(), key.detach().requires_grad_()
        with torch.enable_grad(), _Captured((query, key, *self.captured)) as seen:
            scores = self(query, key)
        if seen.found:
            raise RegardError(
                f"score function {_name(self.function)} used a tensor on one tile that it did not use on the first"
                " row: its gradient would be lost. Let it use the same tensors on every tile."
            )

        def back(grad: Tensor) -> tuple[Tensor | None, ...]:
            inputs = (query, key, *self.tensors)
            if not scores.requires_grad:
                return (None,) * len(inputs)
            # the closed-over tensors' own history is shared by all tiles
            return torch.autograd.grad(scores, inputs, grad, allow_unused=True, retain_graph=True)

        return scores.detach(), back


def _check_scores(scores: object, query: Tensor, key: Tensor) -> None:
    shape = (*query.shape[:-1], key.shape[-2])
    if not isinstance(scores, Tensor) or tuple(scores.shape) != shape:
        got = f"shape {tuple(scores.shape)}" if isinstance(scores, Tensor) else type(scores).__name__
        raise RegardError(
            f"a score function must return (…, i, j) for tiles (…, i, d) and (…, j, d): for query"
            f" {tuple(query.shape)} and key {tuple(key.shape)} that is {shape}, got {got}."
        )
    if not scores.is_floating_point():
        kind = str(scores.dtype).removeprefix("torch.")
        raise RegardError(f"a score function must return floating point, got {kind}.")


def _name(function: object) -> str:
    return getattr(function, "__name__", None) or type(function).__name__


def _sample(query: Tensor, key: Tensor) -> Tensor:
    return torch.sin(query @ key.transpose(-1, -2)) - (query.unsqueeze(-2) - key.unsqueeze(-3)).pow(2).mean(-1)


@dataclass(frozen=True, repr=False)
class Custom(Score):
    """A score of your own: a function or module of two tiles. `attend(score=function)` does the same.

    >>> Custom(lambda query, key: query @ key.mT)(torch.ones(1, 2), torch.ones(3, 2))
    tensor([[2., 2., 2.]])

    It must treat pairs independently, since it sees one tile at a time.
    """

    function: Callable[[Tensor, Tensor], Tensor]
    any_widths = True
    # it may hold weights in that dtype
    keeps_dtype = True

    @classmethod
    def samples(cls) -> Sequence[Self]:
        return [cls(_sample)]

    def __call__(self, query: Tensor, key: Tensor) -> Tensor:
        scores = self.function(query, key)
        _check_scores(scores, query, key)
        return scores

    def prepare(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, Pair]:
        return query, key, Call(self.function, query, key)
