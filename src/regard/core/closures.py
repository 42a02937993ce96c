"""Scores given as a plain function: their tiles, with gradients for every tensor that it closes over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from regard.core.draws import Draws, Source, list_moved, list_sources
from regard.core.errors import RegardError
from regard.core.pairs import Pair, Vjp


class _Captured(TorchFunctionMode):
    """Notes every tensor that was neither handed in nor made inside, and every generator.

    `found` are those that want a gradient, `constants` those that do not.
    """

    def __init__(self, known: Sequence[Tensor]) -> None:
        super().__init__()
        # keep the tensors themselves: an id alone may be reused once its tensor is gone
        self.known = {id(t): t for t in known}
        self.found: dict[int, Tensor] = {}
        self.constants: dict[int, Tensor] = {}
        # each with its state when it was first seen
        self.generators: dict[torch.Generator, Tensor] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        for value in _tensors((*args, *kwargs.values())):
            if id(value) not in self.known:
                (self.found if value.requires_grad else self.constants)[id(value)] = value
        generator = kwargs.get("generator")
        if generator is not None and generator not in self.generators:
            self.generators[generator] = generator.get_state()
        result = func(*args, **kwargs)
        self.known.update((id(t), t) for t in _tensors((result,)))
        return result


def probe(
    function: Callable[[Tensor, Tensor], Tensor], query: Tensor, key: Tensor, *known: Tensor
) -> tuple[_Captured, list[Source]]:
    """The tensors that a function closes over, and the generators it draws from, by a call with one query and key."""
    rows = [x[..., :1, :] for x in (query, key)]
    seen = _Captured((query, key, *rows, *known))

    def run() -> None:
        with seen:
            check_scores(function(*rows), *rows)

    moved = list_moved(list_sources(query.device), run)
    for generator, state in seen.generators.items():
        generator.set_state(state)
    return seen, moved + [Source(generator.get_state, generator.set_state) for generator in seen.generators]


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


class Closure(Pair):
    """The `Pair` of a score that has only its definition, with gradients by autograd.

    It is given all heads at once, since what it holds or closes over may lead with a head axis.
    """

    keeps_heads = True

    def __init__(self, score: Callable[[Tensor, Tensor], Tensor], called: str, query: Tensor, key: Tensor) -> None:
        self.score = score
        # nobody knows what a function makes inside: assume a vector per pair
        self.footprint = self.depth = max(query.shape[-1], 1)
        with torch.enable_grad():
            seen, sources = probe(score, query.detach(), key.detach())
        self.captured = tuple(seen.found.values())
        self.tensors = _untangle(self.captured)
        self.closes_over = bool(self.tensors)
        self.constants = tuple(seen.constants.values())
        self.generators = tuple(seen.generators)
        self.draws = Draws(called, sources)

    def __call__(self, query: Tensor, key: Tensor, *tensors: Tensor) -> Tensor:
        scores = self.score(query, key)
        check_scores(scores, query, key)
        return scores

    def fill(self, query: Tensor, key: Tensor, *tensors: Tensor) -> Tensor:
        scores = self(query, key)
        self.draws.note(scores)
        # a tile is written over, but what the function returns may be a view of something of its own
        return scores.clone()

    def expression(self, query: Tensor, key: Tensor, *tensors: Tensor) -> Tensor:
        return self(query, key).clone()

    def vjp(self, query: Tensor, key: Tensor, *tensors: Tensor) -> tuple[Tensor, Vjp]:
        query, key = query.detach().requires_grad_(), key.detach().requires_grad_()
        with torch.enable_grad(), _Captured((query, key, *self.captured)) as seen:
            scores = self(query, key)
        self.draws.note(scores)
        if seen.found:
            raise RegardError(
                f"score function {self.draws.name} used a tensor on one tile that it did not use on the first"
                " row: its gradient would be lost. Let it use the same tensors on every tile."
            )
        if not seen.generators.keys() <= set(self.generators):
            raise RegardError(
                f"score function {self.draws.name} drew from a generator on one tile that it did not draw from on"
                " the first row. Let it use the same generators on every tile."
            )

        def backward(grad: Tensor) -> tuple[Tensor | None, ...]:
            inputs = (query, key, *self.tensors)
            if not scores.requires_grad:
                return (None,) * len(inputs)
            # the closed-over tensors' own history is shared by all tiles
            return torch.autograd.grad(scores, inputs, grad, allow_unused=True, retain_graph=True)

        return scores.detach(), backward


def check_scores(scores: object, query: Tensor, key: Tensor) -> None:
    """Raise unless a score function returned one number for each pair of a tile."""
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
