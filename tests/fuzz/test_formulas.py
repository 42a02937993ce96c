"""The second oracle under test: against the first, against differences in long double, and by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.fuzz import draw, formulas, settings
from tests.fuzz.data import Case, make_case
from tests.fuzz.examine import examine
from tests.fuzz.formulas_weighers import weigh_entmax
from tests.fuzz.judge import evaluate, find_ill_posed, jumps

extended = pytest.mark.skipif(not formulas.IS_EXTENDED, reason="long double is float64 on this platform")


def name_small(count: int = 64) -> list[draw.Draw]:
    """Small calls with ordinary numbers, which have every name of a term between them."""
    small = []
    for at, drawn in enumerate(draw.draw_all(seed=11, calls=count)):
        # each axis turns at a pace of its own
        turns = {"score": at, "weigh": at, "mask": at, "bias": at + at // 16}
        names = {axis: draw.AXES[axis][turn % len(draw.AXES[axis])] for axis, turn in turns.items()}
        sizes = {"n": (1, 7, 16, 33)[at % 4], "m": (16, 33, 3, 7, 2)[at % 5], "cells": ((4, 4), (1, 7))[at % 2]}
        small.append(replace(drawn, **names, **sizes, dtype="float64", family=("normal", "uniform")[at // 4 % 2]))
    return small


SMALL = name_small()


def test_small_calls_have_every_name():
    for axis in ("score", "weigh", "mask", "bias"):
        assert {getattr(drawn, axis) for drawn in SMALL} == set(draw.AXES[axis])


@pytest.mark.parametrize("drawn", SMALL, ids=lambda d: f"{d.score}-{d.weigh}-{d.mask}-{d.bias}")
def test_two_oracles_agree(drawn):
    case = make_case(drawn)
    ill = find_ill_posed(case)
    case.grad = case.grad.masked_fill(ill.view(*case.grad.shape[:-1], 1), 0.0)
    one, two = evaluate(case, torch.float64), formulas.answer(case)
    assert one.keys() == two.keys()
    if jumps(case):
        one["output"], two["output"] = (x["output"].masked_fill(ill.view(*case.pairs[:-1], 1), 0.0) for x in (one, two))
    for at, x in one.items():
        assert two[at].shape == x.shape
        assert two[at].dtype == torch.float64
        # a gradient of nothing but zeros is rounding to the first: numbers here are about one
        size = max(1e-3, two[at].abs().max()) if x.numel() else 1.0
        # near its threshold an entmax above 2 is a root, of which the first oracle keeps half the digits
        close = 1e-7 if case.facts.get("alpha", 0) > 2 else 1e-10
        assert ((x - two[at]).abs() <= close * size).all(), at


def make_tiny(**names: str) -> Case:
    """Three queries and five keys of few features, with several heads that share keys."""
    plain = {"score": "dot", "weigh": "softmax", "mask": "full", "bias": "none"} | names
    drawn = replace(
        SMALL[0], **plain, family="normal", ndim=4, n=3, m=5, cells=(2, 2), dropout=0.3, layout="contiguous"
    )
    cases = (make_case(replace(drawn, seed=seed, grad="contiguous")) for seed in itertools.count())
    return next(case for case in cases if case.d in (2, 3, 5) and case.h > case.g)


def check_differences(case: Case) -> None:
    """Each gradient against central differences along a direction, in long double."""
    leaves = formulas.lift(case.leaves)
    found = formulas.compute(case, leaves)
    noise, step, grad = np.random.default_rng(5), formulas.LONG(1e-6), case.grad.numpy()
    for at, x in leaves.items():
        along = noise.standard_normal(x.shape)
        sides = (leaves | {at: x + sign * step * along} for sign in (1, -1))
        higher, lower = ((formulas.compute(case, side)["output"] * grad).sum() for side in sides)
        wanted, got = (higher - lower) / (2 * step), (found[at] * along).sum()
        assert found[at].shape == x.shape
        assert found[at].any() or (case.weigh == "hard" and at != "value")
        assert abs(got - wanted) <= 1e-9 * (1 + np.abs(found[at] * along).sum()), at


@extended
@pytest.mark.parametrize("score", draw.AXES["score"])
def test_gradients_of_scores_are_differences(score):
    check_differences(make_tiny(score=score))


@extended
@pytest.mark.parametrize("weigh", draw.AXES["weigh"])
def test_gradients_of_weighers_are_differences(weigh):
    # a sum of signed scores may be near zero
    check_differences(make_tiny(weigh=weigh, score="feature" if weigh == "sum" else "dot"))


@extended
@pytest.mark.parametrize("bias", draw.AXES["bias"])
def test_gradients_of_biases_are_differences(bias):
    # of the sigmoid, since softmax does not see what is the same for a whole row
    check_differences(make_tiny(weigh="sigmoid", bias=bias))


@extended
@pytest.mark.parametrize("alpha", [1.1, 1.7, 2.5, 4.0])
def test_gradients_of_other_entmaxes_are_differences(alpha):
    case = make_tiny(weigh="entmax")
    case.facts["alpha"] = alpha
    # near enough to one another that several have a weight
    case.leaves["query"] *= 0.2
    check_differences(case)


@extended
@pytest.mark.parametrize("alpha", [1.05, 1.3, 1.5, 1.8, 2.0, 2.5, 4.0, 7.0])
def test_entmax_finds_the_weights_that_the_scores_were_made_of(alpha):
    long = formulas.LONG
    # the last one's height above the threshold is far below rounding, where alpha is large: 1e-42 for 7
    weights = np.array([[0.5, 0.25, 0.25, 0.0, 0.0], [0.75, 0.0, 0.125, 0.1, 0.0]], long)
    weights[:, 4] = 1e-7
    weights[:, 0] -= weights.sum(-1) - 1
    scores = weights ** (long(alpha) - 1) / (long(alpha) - 1)
    # what has no weight is at the threshold, or anywhere below it
    scores[1, 1] -= 3
    found, _ = weigh_entmax(scores[None, None], np.ones((1, 1, 2, 5), bool), {}, {"alpha": alpha})
    assert np.abs(found[0, 0] - weights).max() <= 1e-17
    assert abs(found.sum(-1) - 1).max() <= 1e-17


def test_slopes_are_the_papers():
    assert formulas.list_slopes(8) == [2.0**-t for t in range(1, 9)]
    twelve = [float(x) for x in formulas.list_slopes(12)]
    assert twelve == pytest.approx([2.0**-t for t in range(1, 9)] + [2 ** -(t - 0.5) for t in range(1, 5)], rel=1e-15)
    assert [float(x) for x in formulas.list_slopes(3)] == [2**-4, 2**-8, 2**-2]


def test_buckets_are_t5s():
    distance = np.array([0, -1, 1, -7, 7, -8, -16, 16, -127, -1000, 1000])
    both = formulas.find_buckets(distance, buckets=32, most=128, two_sided=True)
    assert both.tolist() == [0, 1, 17, 7, 23, 8, 10, 26, 15, 15, 31]
    past = formulas.find_buckets(distance, buckets=32, most=128, two_sided=False)
    assert past.tolist() == [0, 1, 0, 7, 0, 8, 16, 0, 31, 31, 0]


def test_masks_written_by_hand():
    case = replace(make_tiny(), lead=(2,), h=1, g=1, n=2, m=4)

    def write(*spec: object) -> list[object]:
        return formulas.write_allowed(spec, case)[:, 0].astype(int).tolist()

    assert write("diagonal", None, 0, None)[0] == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert write("diagonal", 1, 0, [0, 2]) == [[[1, 0, 0, 0], [1, 1, 0, 0]], [[0, 1, 1, 0], [0, 0, 1, 1]]]
    assert write("lengths", [1, 0]) == [[[1, 0, 0, 0]] * 2, [[0, 0, 0, 0]] * 2]
    assert write("lengths", [[1, 0], [4, 2]])[1] == [[1, 1, 1, 1], [1, 1, 0, 0]]
    assert write("document", [[0, 1, 1, 2]], [[1, 3]])[0] == [[0, 1, 1, 0], [0, 0, 0, 0]]
    edges = ("edges", [(0, 3), (1, 0), (0, 3)])
    assert write("not", edges)[0] == [[1, 1, 1, 0], [0, 1, 1, 1]]
    assert write("and", edges, ("lengths", [4, 2]))[1] == [[0, 0, 0, 0], [1, 0, 0, 0]]
    case = replace(case, n=6, m=6)
    assert write("grid", 3, (1, 0))[0][4] == [0, 1, 0, 0, 1, 0]


@pytest.mark.parametrize("weigh", draw.AXES["weigh"])
def test_rows_that_see_nothing_are_zeros(weigh):
    case = make_tiny(weigh=weigh, bias="dense", score="feature")
    case.mask = ("lengths", [[0, 5, 5]] * case.b)
    bias = torch.ones(3, 5, dtype=torch.float64)
    bias[1], bias[2, 0] = -torch.inf, -torch.inf
    case.leaves["bias.0"] = bias
    found = formulas.answer(case)
    assert all(x.isfinite().all() for x in found.values())
    for at in ("output", "query"):
        assert not found[at][..., :2, :].any()
    assert found["output"][..., 2, :].any()


@pytest.mark.parametrize(("n", "m"), [(0, 3), (3, 0)])
def test_no_queries_or_no_keys_are_zeros(n, m):
    case = make_case(replace(SMALL[0], mask="full", bias="none", n=n, m=m))
    for at, x in formulas.answer(case).items():
        assert x.shape == (case.grad if at == "output" else case.leaves[at]).shape
        assert not x.any()


def test_the_environment_chooses_whose_answer_counts(monkeypatch):
    drawn = next(d for d in SMALL if d.weigh == "softmax" and d.mask == "full")
    answer = formulas.answer
    monkeypatch.setattr(formulas, "answer", lambda case: {at: 1.01 * x for at, x in answer(case).items()})
    monkeypatch.setattr(settings, "REFERENCE", "oracle")
    assert all(verdict.is_good for _, verdict in examine(drawn, ["tiled"]))
    monkeypatch.setattr(settings, "REFERENCE", "formulas")
    # eager is as far off as the backend: what tells is that the oracles differ
    assert {backend for backend, verdict in examine(drawn, ["tiled"]) if not verdict.is_good} == {"oracle"}
    monkeypatch.setattr(formulas, "answer", answer)
    assert all(verdict.is_good for _, verdict in examine(drawn, ["tiled"]))
    with pytest.raises(ValueError, match="is auto, oracle or formulas, got oracles"):
        settings.read_reference("oracles")
