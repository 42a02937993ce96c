"""What backward reads again must be as it was: a change in between is an error, in torch's own words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from regard import attend
from regard.bias import Alibi, Dense, Quadratic, Relative
from regard.mask import Allowed, Causal, Document, Edges, Lengths, Window
from regard.score import Additive, Cosine, Gaussian
from regard.weigh import Softmax
from tests.primes import noise

ROWS = noise(2, 2, 6, 3, seed=1), noise(2, 2, 6, 3, seed=2), noise(2, 2, 6, 3, seed=3)


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


# a tensor, and terms that hold it
HOLDERS: dict[str, tuple[Callable[[], Tensor], Callable[[Tensor], dict[str, Any]]]] = {
    "mask": (lambda: torch.ones(6, 6, dtype=torch.bool).tril(), lambda x: {"mask": x}),
    "mask by sequence": (lambda: torch.ones(2, 1, 1, 6, dtype=torch.bool), lambda x: {"mask": Allowed(x)}),
    "lengths": (lambda: torch.tensor([4, 6]), lambda x: {"mask": Lengths(x)}),
    "segments": (lambda: torch.tensor([0, 0, 1, 1, 1, 2]), lambda x: {"mask": Document(x)}),
    "query segments": (
        lambda: torch.tensor([0, 0, 1, 1, 1, 2]),
        lambda x: {"mask": Document(torch.tensor([0, 0, 1, 1, 2, 2]), x)},
    ),
    "edges": (lambda: torch.tensor([0, 1, 2, 5]), lambda x: {"mask": Edges(x, torch.tensor([1, 1, 3, 5]))}),
    "part of a mask": (lambda: torch.tensor([4, 6]), lambda x: {"mask": Window(4, 4) & ~(~Lengths(x) | ~Causal())}),
    "dense bias": (lambda: noise(6, 6, seed=4), lambda x: {"bias": Dense(x)}),
    "slopes": (lambda: numbers(0.5, 0.1), lambda x: {"bias": Alibi(x)}),
    "table": (lambda: noise(2, 8, seed=5), lambda x: {"bias": Relative(x)}),
    "alpha": (lambda: numbers(0.3, 0.7), lambda x: {"bias": Quadratic(2, 3, x, torch.zeros(2, 2).double())}),
    "sink": (lambda: numbers(0.3, 0.7), lambda x: {"weigh": Softmax(x)}),
    "additive weight": (lambda: numbers(0.3, 0.7, 0.1), lambda x: {"score": Additive(x)}),
    "width": (lambda: numbers(0.3, 0.7, 0.1), lambda x: {"score": Gaussian(x)}),
    "scale": (lambda: numbers(0.3, 0.7), lambda x: {"score": Cosine(x)}),
    "constant of a function": (lambda: numbers(0.3), lambda x: {"score": lambda query, key: query @ key.mT * x}),
}  # fmt: skip


def differentiate(
    backend: str, terms: dict[str, Any], order: int, change: Callable[[], object] = lambda: None, before: int = 0
) -> list[Tensor] | None:
    """Gradients of all rows, of an order, with a change before one of them; None where torch notices it."""
    rows = [x.clone().requires_grad_() for x in ROWS]
    made: Any = attend(*rows, backend=backend, **terms).square().sum()
    for at in range(1, order + 1):
        if at == before:
            change()
        try:
            grads = torch.autograd.grad(made, rows, create_graph=at < order)
        except RuntimeError as error:
            if "modified by an inplace operation" not in str(error):
                raise
            return None
        made = sum(x.square().sum() for x in grads)
    return list(grads)


@pytest.mark.parametrize(("order", "before"), [(1, 1), (2, 1), (2, 2), (3, 3)])
@pytest.mark.parametrize("backend", ["tiled", "auto", "reference"])
@pytest.mark.parametrize("name", HOLDERS)
def test_a_change_before_backward_is_noticed(name, backend, order, before):
    make, hold = HOLDERS[name]
    expected, held = differentiate(backend, hold(make()), order), make()
    found = differentiate(backend, hold(held), order, held.zero_, before)
    # some keep a copy of their own, and `reference` all that it made: those are right all the same
    assert expected
    assert any(x.any() for x in expected), "zeros prove nothing"
    assert found is None or all(map(torch.equal, found, expected))


@pytest.mark.parametrize("name", ["mask", "lengths", "part of a mask", "segments", "edges", "constant of a function"])
def test_tiles_do_not_copy_what_they_watch(name):
    # a copy would be safe, too, and dear: masks have n×m bits
    make, hold = HOLDERS[name]
    held = make()
    assert differentiate("tiled", hold(held), 1, held.zero_, 1) is None


def test_edges_that_were_changed_are_seen_by_the_next_call():
    queries, keys = torch.tensor([0, 1]), torch.tensor([1, 2])
    mask = Edges(queries, keys)
    attend(*ROWS, mask=mask)
    keys.add_(1)
    assert torch.equal(attend(*ROWS, mask=mask), attend(*ROWS, mask=Edges(queries.clone(), keys.clone())))


def test_what_was_made_in_inference_mode_may_be_held():
    with torch.inference_mode():
        allowed, lengths = torch.ones(6, 6, dtype=torch.bool).tril(), torch.tensor([4, 6])
        edges = Edges(torch.tensor([0, 5]), torch.tensor([1, 2]))
    for mask in (Allowed(allowed), Lengths(lengths), edges):
        rows = [x.clone().requires_grad_() for x in ROWS]
        attend(*rows, mask=mask, backend="tiled").sum().backward()
        assert rows[2].grad is not None
