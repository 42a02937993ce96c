"""Scores against loops over pairs, and every faster form of a score against its definition."""

import math

import pytest
import torch

from regard.core import Sizes
from regard.score import Additive, Bilinear, Concat, Cosine, Custom, Dot, Feature, Gaussian
from tests.primes import noise
from tests.terms import cotangent, list_samples
from tests.tolerances import assert_all_close, assert_close

QUERY, KEY = noise(3, 2, 5, 11, seed=1), noise(3, 2, 7, 11, seed=2)
WIDE_KEY = noise(3, 2, 7, 13, seed=3)
VECTOR, BY_HEAD, WIDE = noise(11, seed=4), noise(2, 11, seed=5), noise(13, seed=6)
MATRIX, MATRICES = noise(11, 13, seed=7), noise(2, 11, 13, seed=8)


def dot(q, k):
    return math.fsum(a * b for a, b in zip(q, k, strict=True))


def weighted(weight, act):
    return lambda h, q, k: math.fsum(w * act(a + b) for w, a, b in zip(weight(h), q, k, strict=True))


def joined(act):
    return lambda h, q, k: act(dot(BY_HEAD[h].tolist(), q) + dot(WIDE.tolist(), k))


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def leaky(x):
    return x if x > 0 else 0.2 * x


def unit(x):
    return [a / math.sqrt(dot(x, x)) for a in x]


def elu1(x):
    return [a + 1 if a > 0 else math.exp(a) for a in x]


def between(weight):
    return lambda h, q, k: -0.5 * math.fsum(((a - b) * w) ** 2 for a, b, w in zip(q, k, weight(h), strict=True))


ACTS = {
    "tanh": math.tanh,
    "relu": lambda x: max(x, 0.0),
    "sigmoid": sigmoid,
    "gelu": lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))),
    "silu": lambda x: x * sigmoid(x),
    "leaky_relu": leaky,
}

# each score, the key it takes, and its formula for head h and one pair
FORMULAS = [
    (Dot(), KEY, lambda h, q, k: dot(q, k) / math.sqrt(11)),
    (Dot(scale=2), KEY, lambda h, q, k: 2 * dot(q, k)),
    (Dot(cap=1.5), KEY, lambda h, q, k: 1.5 * math.tanh(dot(q, k) / math.sqrt(11) / 1.5)),
    (Dot(scale=0.5, cap=30), KEY, lambda h, q, k: 30 * math.tanh(dot(q, k) / 60)),
    (Cosine(), KEY, lambda h, q, k: dot(unit(q), unit(k))),
    (Cosine(scale=torch.tensor([2.0, 5.0])), KEY, lambda h, q, k: (2, 5)[h] * dot(unit(q), unit(k))),
    (Cosine(scale=torch.tensor([3.0])), KEY, lambda h, q, k: 3 * dot(unit(q), unit(k))),
    (Cosine(scale=torch.tensor(3.0)), KEY, lambda h, q, k: 3 * dot(unit(q), unit(k))),
    (Bilinear(MATRIX), WIDE_KEY, lambda h, q, k: dot(q, [dot(row, k) for row in MATRIX.tolist()])),
    (Bilinear(MATRICES), WIDE_KEY, lambda h, q, k: dot(q, [dot(row, k) for row in MATRICES[h].tolist()])),
    *((Additive(VECTOR, name), KEY, weighted(lambda h: VECTOR.tolist(), act)) for name, act in ACTS.items()),
    *((Additive(BY_HEAD, name), KEY, weighted(lambda h: BY_HEAD[h].tolist(), act)) for name, act in ACTS.items()),
    *((Concat(BY_HEAD, WIDE, name), WIDE_KEY, joined(act)) for name, act in ACTS.items()),
    (Gaussian(), KEY, between(lambda h: [1] * 11)),
    (Gaussian(0.3), KEY, between(lambda h: [0.3] * 11)),
    (Gaussian(torch.tensor([0.25])), KEY, between(lambda h: [0.25] * 11)),
    (Gaussian(VECTOR), KEY, between(lambda h: VECTOR.tolist())),
    (Gaussian(BY_HEAD), KEY, between(lambda h: BY_HEAD[h].tolist())),
    (Feature(), KEY, lambda h, q, k: dot(elu1(q), elu1(k))),
    (Feature("relu"), KEY, lambda h, q, k: dot([max(a, 0) for a in q], [max(a, 0) for a in k])),
    (Feature("exp"), KEY, lambda h, q, k: dot(map(math.exp, q), map(math.exp, k))),
    (Feature("identity"), KEY, lambda h, q, k: dot(q, k)),
    (Feature(torch.sin), KEY, lambda h, q, k: dot(map(math.sin, q), map(math.sin, k))),
    (Custom(lambda q, k: (q @ k.mT).cos()), KEY, lambda h, q, k: math.cos(dot(q, k))),
]  # fmt: skip
IDS = [repr(score) for score, _, _ in FORMULAS]
each_formula = pytest.mark.parametrize(("score", "key", "formula"), FORMULAS, ids=IDS)


@each_formula
def test_a_score_is_its_formula(score, key, formula):
    b, h, n, m = 3, 2, QUERY.shape[-2], key.shape[-2]
    assert score.misfit(Sizes((b,), h, h, n, m, QUERY.shape[-1], key.shape[-1], 1)) is None
    rows, columns = QUERY.tolist(), key.tolist()
    expected = [
        [[[formula(t, rows[s][t][i], columns[s][t][j]) for j in range(m)] for i in range(n)] for t in range(h)]
        for s in range(b)
    ]
    assert_close(score(QUERY, key), torch.tensor(expected, dtype=torch.float64))


def as_double(score):
    return score.with_tensors([t.double() for t in score.tensors]) if score.tensors else score


@each_formula
def test_every_form_of_a_score_is_its_definition(score, key, formula):
    score = as_double(score)
    expected = score(QUERY, key)
    query, keys, pair = score.prepare(QUERY, key)
    for form in (pair, pair.fill, pair.expression, lambda *x: pair.vjp(*x)[0]):
        assert_close(form(query, keys, *pair.tensors), expected)
    if (rows := score.as_dot(QUERY, key)) is not None:
        assert score.is_dot
        assert_close(rows[0] @ rows[1].mT * rows[2], expected, "as_dot")
    else:
        assert not score.is_dot


@each_formula
def test_every_gradient_of_a_score_is_autograds(score, key, formula):
    query, keys, pair = as_double(score).prepare(QUERY, key)
    leaves = [x.detach().requires_grad_() for x in (query, keys, *pair.tensors)]
    scores = pair(*leaves)
    grad = cotangent(scores)
    expected = torch.autograd.grad(scores, leaves, grad)
    names = ["query", "key", *(f"tensor {at}" for at in range(len(pair.tensors)))]
    rows = (query, keys, *(t.detach() for t in pair.tensors))
    assert_all_close(pair.vjp(*rows)[1](grad), expected, names)
    assert_all_close(pair.gradients(query, keys, grad, *rows[2:]), expected, names)


@pytest.mark.parametrize("score", list_samples("score"), ids=repr)
def test_a_tile_is_a_part_of_the_whole(score):
    # what an engine relies on: cutting rows before scoring or after is the same
    query, key = noise(2, 2, 5, 3, seed=1), noise(2, 2, 7, 3, seed=2)
    query, key, pair = score.prepare(query, key)
    whole = pair.fill(query, key, *pair.tensors)
    part = pair.fill(query[:, :, 1:4], key[:, :, 2:7], *pair.tensors)
    assert_close(part, whole[:, :, 1:4, 2:7])


def test_a_vector_of_zeros_has_no_direction():
    query, key = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True), noise(4, 3)
    scores = Cosine()(query, key)
    assert scores.tolist() == [[0, 0, 0, 0]]
    (grad,) = torch.autograd.grad(scores.sum(), query)
    assert grad.isfinite().all()


@pytest.mark.parametrize("length", [1e-300, 1e-160, 1e160, 1e300])
def test_cosine_leaves_length_out(length):
    query, key = noise(3, 4, seed=1), noise(5, 4, seed=2)
    assert_close(Cosine()(query * length, key * length), Cosine()(query, key))


def test_nearby_points_stay_apart():
    # ‖q‖² − 2q·k + ‖k‖² would lose all digits here
    query = torch.full((1, 1, 1, 1), 1e8, dtype=torch.float64)
    key = query + 1e-3
    step = (query - key).item()
    pair = Gaussian(2.0).prepare(query, key)[2]
    for scores in (Gaussian(2.0)(query, key), pair.fill(query, key, *pair.tensors)):
        assert scores.item() == pytest.approx(-2 * step**2, rel=1e-12)


def test_features_far_below_zero_are_powers_of_e():
    far = torch.tensor([[-30.0], [-50.0]])
    torch.testing.assert_close(Feature()(far, torch.zeros(1, 1)), far.exp(), rtol=1e-6, atol=0.0)
