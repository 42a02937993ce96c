"""A plan is kept for a kind of call, and for nothing that is another kind."""

from __future__ import annotations

import sys

import pytest
import torch

from regard import RegardError, attend
from regard.bias import Alibi, Relative
from regard.engine import known
from regard.mask import Causal, Lengths, Window
from regard.score import Additive, Dot, Gaussian
from regard.weigh import Entmax, Relu, Softmax
from tests.primes import noise

ROWS = noise(2, 4, 6, 3, seed=1), noise(2, 2, 7, 3, seed=2), noise(2, 2, 7, 3, seed=3)


@pytest.fixture
def plans(monkeypatch):
    kept: dict[object, object] = {}
    monkeypatch.setattr(known, "_known", kept)
    return kept


TERMS = {
    "plain": lambda: {},
    "scale": lambda: {"score": Dot(0.3)},
    "mask": lambda: {"mask": Causal()},
    "window": lambda: {"mask": Window(2, 1) & Causal()},
    "bias": lambda: {"bias": Alibi()},
    "learned": lambda: {"score": Additive(noise(3, seed=4)), "weigh": Softmax(noise(4, seed=5))},
    "table": lambda: {"bias": Relative(noise(4, 8, seed=6))},
    "weigher": lambda: {"weigh": Entmax(1.5)},
}


@pytest.mark.parametrize("name", TERMS)
def test_the_second_call_is_planned_no_more_and_gives_the_same(name, plans, monkeypatch):
    first, other = attend(*ROWS, **TERMS[name]()), [x.flip(2) for x in ROWS]
    wanted = attend(*other, **TERMS[name](), backend="reference")
    # by name it is another kind
    assert len(plans) == 2
    module = sys.modules["regard.engine.attend"]
    monkeypatch.setattr(module, "plan", None)
    monkeypatch.setattr(module, "check_call", None)
    assert torch.equal(attend(*ROWS, **TERMS[name]()), first)
    assert torch.allclose(attend(*other, **TERMS[name]()), wanted)


OTHERS = {
    "a number for a truth": lambda: {"mask": Window(1, 0)},
    "another scale": lambda: {"score": Dot(0.2)},
    "another power": lambda: {"weigh": Relu(2)},
    "another width": lambda: {"score": Gaussian(2.0)},
    "a mask of numbers": lambda: {"mask": Lengths(torch.tensor([3, 7]))},
    "a function": lambda: {"score": lambda query, key: query @ key.mT},
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_terms_are_another_kind(name, plans):
    attend(*ROWS, mask=Window(2, 0), score=Dot(0.3), weigh=Relu(1))
    found = attend(*ROWS, **OTHERS[name]())
    assert torch.allclose(found, attend(*ROWS, **OTHERS[name](), backend="reference"))


def test_what_changes_in_a_tensor_makes_another_kind(plans):
    query, key, value = (x.clone() for x in ROWS)
    attend(query, key, value)
    with torch.no_grad():
        attend(query, key, value)
    query.requires_grad_()
    assert attend(query, key, value).requires_grad
    key = key.mT.contiguous().mT
    attend(query, key, value)
    attend(query.float(), key.float(), value.float())
    assert len(plans) == 5


def test_errors_are_raised_again_and_are_not_kept(plans):
    attend(*ROWS, mask=Window(1, 0))
    for _ in range(2):
        with pytest.raises(RegardError, match=r"Window before must be an integer, got 1\.0"):
            attend(*ROWS, mask=Window(1.0, 0))
        with pytest.raises(RegardError, match="generator must be"):
            attend(*ROWS, mask=Window(1, 0), generator=3)
    assert len(plans) == 1


def test_lengths_that_change_in_place_are_looked_at(plans):
    lengths = torch.tensor([3, 7])
    attend(*ROWS, mask=Lengths(lengths))
    lengths += 1
    with pytest.raises(RegardError, match="lengths must be at most 7"):
        attend(*ROWS, mask=Lengths(lengths))


def test_each_call_draws_its_own_dropout(plans):
    generator = torch.Generator().manual_seed(1)
    one, other = (attend(*ROWS, dropout=0.5, generator=generator) for _ in range(2))
    assert not torch.equal(one, other)
    assert torch.equal(attend(*ROWS, dropout=0.5, generator=torch.Generator().manual_seed(1)), one)


def test_there_is_an_end_to_what_is_kept(plans, monkeypatch):
    monkeypatch.setattr(known, "MOST", 3)
    for n in range(1, 9):
        attend(*(torch.ones(1, n, 2) for _ in range(3)))
    assert 1 <= len(plans) <= 3
