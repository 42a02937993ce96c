"""What is not allowed is not read: NaN under a mask changes nothing, and shows where it is attended to."""

import pytest
import torch

from regard import attend
from regard.bias import Alibi
from regard.mask import Allowed, Causal, Document, Edges, Lengths, Window
from regard.score import Additive, Cosine, Dot, Feature, Gaussian
from regard.weigh import Entmax, Hard, Relu, Sigmoid, Softmax, Sum
from tests.layouts import cut
from tests.primes import noise
from tests.terms import cotangent
from tests.tolerances import assert_all_close, assert_close

NAMES = ["output", "gradient of query", "gradient of key", "gradient of value"]
N, M = 5, 7
# the last two keys are hidden from all queries, and the second query sees nothing
HIDDEN = torch.ones(N, M, dtype=torch.bool)
HIDDEN[:, 5:] = False
HIDDEN[1] = False

MASKS = {
    "written out": (Allowed(HIDDEN), [5, 6], [1]),
    "causal": (Causal(-1), [4, 5, 6], [0]),
    "lengths": (Lengths(torch.tensor([5, 3])), [5, 6], []),
    "window": (Window(0, 0, offset=5), [0, 1, 2, 3, 4], [2, 3, 4]),
    "edges": (Edges(torch.tensor([0, 2, 4]), torch.tensor([1, 3, 1])), [0, 2, 4, 5, 6], [1, 3]),
    "documents": (Document(torch.tensor([0, 0, 1, 1, 2, 8, 8]), torch.tensor([0, 9, 1, 2, 2])), [5, 6], [1]),
    "both": (Causal() & ~Window(0, 0), [6], []),
}
TERMS = {
    "softmax": {}, "sink": {"weigh": Softmax(noise(2))}, "sigmoid": {"weigh": Sigmoid()}, "relu": {"weigh": Relu(2)},
    "entmax": {"weigh": Entmax()}, "hard": {"weigh": Hard()}, "sum": {"score": Feature(), "weigh": Sum()},
    "additive": {"score": Additive(noise(3))}, "cosine": {"score": Cosine()},
    "gaussian": {"score": Gaussian(), "bias": Alibi()},
    "function": {"score": lambda q, k: torch.exp(q @ k.mT)},
}  # fmt: skip


def run(rows, backend, **terms):
    leaves = [x.clone().requires_grad_() for x in rows]
    with cut(1, 2, 3, 4):
        out = attend(*leaves, backend=backend, **terms)
        return out.detach(), *torch.autograd.grad(out, leaves, cotangent(out))


def rows():
    return [noise(2, 2, n, 3, seed=n) for n in (N, M, M)]


@pytest.mark.thin(4)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("backend", ["auto", "reference", "tiled"])
@pytest.mark.parametrize("kind", TERMS)
@pytest.mark.parametrize("name", MASKS)
def test_what_is_hidden_changes_nothing(name, kind, backend, bad):
    mask, keys, queries = MASKS[name]
    terms = {**TERMS[kind], "mask": mask}
    query, key, value = rows()
    clean = run([query, key, value], "reference", **terms)
    key[:, :, keys], value[:, :, keys], query[:, :, queries] = bad, bad, bad
    found = run([query, key, value], backend, **terms)
    assert all(x.isfinite().all() for x in clean)
    assert_all_close(found, clean, NAMES)


@pytest.mark.parametrize("backend", ["auto", "reference", "tiled"])
@pytest.mark.parametrize("kind", [k for k in TERMS if k not in ("hard", "relu")])
def test_what_is_attended_to_shows(kind, backend):
    # relu and the best key may drop NaN by rights: it is larger than nothing
    terms = {**TERMS[kind], "mask": Causal()}
    clean = run(rows(), "reference", **terms)[0]
    for at in range(3):
        poisoned = rows()
        poisoned[at][1, 0, 2] = torch.nan
        out = run(poisoned, backend, **terms)[0]
        # query 2 alone, or every query that sees key 2
        sees = torch.arange(N) == 2 if at == 0 else torch.arange(N) + 2 >= 2
        assert out[1, 0, sees].isnan().all()
        assert_close(out[0], clean[0])
        assert_close(out[1, 1], clean[1, 1])
        assert_close(out[1, 0, ~sees], clean[1, 0, ~sees])


@pytest.mark.parametrize("backend", ["reference", "tiled", "sdpa"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_a_query_with_nothing_returns_zeros(dtype, backend):
    found = run([x.to(dtype) for x in rows()], backend, mask=Allowed(HIDDEN))
    out, dquery, dkey, dvalue = found
    assert all(x.isfinite().all() for x in found)
    assert (out[:, :, 1] == 0).all()
    assert (dquery[:, :, 1] == 0).all()
    assert (dkey[:, :, 5:] == 0).all()
    assert (dvalue[:, :, 5:] == 0).all()
    assert (out[:, :, [0, 2, 3, 4]] != 0).any()


@pytest.mark.parametrize("backend", ["reference", "tiled", "sdpa"])
def test_huge_numbers_that_are_finite_are_no_poison(backend):
    # their sum overflows, they do not
    query, key, value = rows()
    value[:, :, 3] = 1e308
    found = run([query, key, value], backend, mask=Causal())
    assert_all_close(found[1:3], run([query, key, value], "reference", mask=Causal())[1:3], NAMES[1:3])
    assert found[0].isfinite().all()


def test_the_inputs_are_left_alone():
    query, key, value = rows()
    key[:, :, 6] = torch.nan
    copies = [x.clone() for x in (query, key, value)]
    attend(query, key, value, mask=Causal(-1), backend="tiled")
    for x, copy in zip((query, key, value), copies, strict=True):
        assert torch.equal(x, copy) or (x is key and torch.equal(x.nan_to_num(7.0), copy.nan_to_num(7.0)))


def test_gradients_pass_around_poison():
    # a row that shows NaN does not spoil the gradients of those that do not see it
    query, key, value = (x.requires_grad_() for x in rows())
    bad = value.detach().clone()
    bad[0, 0, 6] = torch.nan
    bad.requires_grad_()
    out = attend(query, key, bad, mask=Causal(), score=Dot(), backend="tiled")
    assert out[0, 0, 4].isnan().all()
    (grad,) = torch.autograd.grad(out[0, 0, :4].sum(), query)
    # the query that does see it has no gradient to speak of: zero times NaN
    grad[0, 0, 4] = 0
    assert grad.isfinite().all()
    assert grad[0, 0, :4].any()


@pytest.mark.parametrize("backend", ["sdpa", "tiled", "reference"])
def test_where_many_rows_see_poison_the_others_stay_exact(backend, monkeypatch):
    rows = [torch.randn(2, 3, 40, 8) for _ in range(3)]
    clean = attend(*rows, mask=Causal(), backend=backend)
    rows[1][:, :, 10] = torch.nan
    one_by_one = attend(*rows, mask=Causal(), backend=backend)
    monkeypatch.setattr("regard.engine.poison._NUMBERS", 0)
    at_once = attend(*rows, mask=Causal(), backend=backend)
    for out in (one_by_one, at_once):
        assert torch.equal(out[:, :, :10], clean[:, :, :10])
        assert out[:, :, 10:].isnan().all()
