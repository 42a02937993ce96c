"""Gradients of `tiled` against differences of its own output, for every score × weigh × mask × bias."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradcheck

from regard import attend
from regard.mask import Full
from regard.score import Dot
from regard.weigh import Hard, Softmax, Sum
from tests.primes import IMAGE, Recipe, biases, list_cases, masks, scores, weighs
from tests.terms import (
    Combination,
    combine,
    cotangent,
    learned,
    list_classes,
    list_compositions,
    list_samples,
    make_inputs,
    own,
)
from tests.tolerances import DIFFERENCES
from tests.wide import ALL, is_taken

# masks × biases of tests/primes.py that fit one another, of which one in so many is taken with a score and a weigher
CASES, ONE_IN = 55, 12


def name(recipe: Recipe) -> str:
    return recipe.name


@pytest.mark.parametrize(
    ("room", "table"),
    [("score", scores()), ("weigh", weighs()), ("mask", masks(IMAGE)), ("bias", biases(IMAGE))],
    ids=["score", "weigh", "mask", "bias"],
)
def test_every_class_is_in_the_table(room, table):
    missing = [cls.__name__ for cls in list_classes(room) if cls not in table]
    assert not missing, f"add {', '.join(missing)} to {room}s() in tests/primes.py"


@pytest.mark.parametrize("weigh", weighs().values(), ids=name)
@pytest.mark.parametrize("score", scores().values(), ids=name)
def test_gradients_are_finite_differences(score, weigh, record_property):
    tested = 0
    for case in list_cases(score, weigh):
        if is_taken(str(case), ONE_IN):
            with case.layout():
                assert gradcheck(case.attend("tiled"), case.inputs, **DIFFERENCES), case
            tested += 1
    assert tested == CASES if ALL else tested >= 1
    record_property("combinations of classes under gradcheck", tested)


def list_singles() -> list[Combination]:
    """Every sample of every room, with the plainest terms of the other rooms."""
    plain = {"score": Dot(), "weigh": Softmax(), "mask": Full(), "bias": None}
    found = []
    for room in plain:
        for term in [*list_samples(room), *(list_compositions() if room == "mask" else [])]:
            combination = combine(**{**plain, room: term})
            assert isinstance(combination, Combination), combination
            found.append(combination)
    return found


@pytest.mark.parametrize("single", list_singles(), ids=str)
def test_gradients_of_every_sample(single):
    terms = [single.score, single.weigh, single.bias]

    def run(query, key, value, *tensors):
        rest = iter(tensors)
        score, weigh, bias = (
            term.with_tensors([next(rest) for _ in term.tensors]) if term is not None and term.tensors else term
            for term in terms
        )
        return attend(query, key, value, score=score, weigh=weigh, mask=single.mask, bias=bias, backend="tiled")

    # Sum wants scores of one sign: the dot products of positive rows
    inputs = make_inputs(single.sizes, seed=3, positive=isinstance(single.weigh, Sum))
    assert gradcheck(run, (*inputs, *learned(*map(own, terms))), **DIFFERENCES)


@pytest.mark.parametrize("backend", ["reference", "tiled"])
@pytest.mark.parametrize("weigh", Hard.samples(), ids=repr)
def test_hard_passes_gradients_to_values_alone(weigh, backend):
    for score in scores().values():
        for case in list_cases(score, Recipe.of(weigh)):
            if not is_taken(str(case), ONE_IN):
                continue
            inputs = case.inputs
            out = case.attend(backend)(*inputs)
            grads = torch.autograd.grad(out, inputs, cotangent(out), materialize_grads=True)
            for at, grad in enumerate(grads):
                # query and key come before the value, the terms' own tensors after
                assert bool(grad.any()) == (at == 2), case
