"""Any number of axes, any strides, any sizes down to zero: the same numbers, and gradients in the shapes given."""

import pytest
import torch

from regard import attend
from regard.bias import Alibi, Dense, Relative
from regard.mask import Allowed, Causal, Document, Edges, Full, Lengths, Window
from regard.score import Additive, Bilinear, Concat, Cosine, Custom, Dot, Feature, Gaussian
from regard.weigh import Entmax, Hard, Relu, Sigmoid, Softmax, Sparsemax, Sum
from tests.layouts import cut
from tests.primes import noise
from tests.terms import cotangent
from tests.tolerances import assert_all_close, assert_close

pytestmark = pytest.mark.thin(2)

BACKENDS = ["reference", "tiled", "sdpa"]
NAMES = ["output", "gradient of query", "gradient of key", "gradient of value"]
every_backend = pytest.mark.parametrize("backend", BACKENDS)


def run(query, key, value, backend="tiled", grad=None, **terms):
    rows = [x if x.requires_grad else x.detach().requires_grad_() for x in (query, key, value)]
    with cut(2, 2, 3, 4):
        out = attend(*rows, backend=backend, **terms)
        grads = torch.autograd.grad(out, rows, cotangent(out) if grad is None else grad)
    return out.detach(), *grads


@every_backend
def test_the_number_of_axes_changes_nothing(backend):
    query, key, value = noise(6, 5, 3, seed=1), noise(6, 7, 3, seed=2), noise(6, 7, 3, seed=3)
    expected = run(query, key, value, backend, mask=Causal())
    assert expected[0].shape == (6, 5, 3)
    for lead in ((6, 1), (1, 6), (2, 3), (2, 3, 1), (3, 1, 2), (1, 1, 2, 3)):
        rows = [x.view(*lead, *x.shape[1:]) for x in (query, key, value)]
        found = run(*rows, backend, mask=Causal())
        assert found[0].shape == (*lead, 5, 3)
        assert_all_close([x.reshape(y.shape) for x, y in zip(found, expected, strict=True)], expected, NAMES)
    # two axes: one sequence alone, under its own part of the cotangent
    part = cotangent(expected[0])[4]
    found = run(query[4], key[4], value[4], backend, grad=part, mask=Causal())
    assert_all_close(found, [x[4] for x in expected], NAMES)


@every_backend
@pytest.mark.parametrize(
    ("leads", "lead"),
    [
        (((2,), (1,), (1,)), (2,)), (((1,), (2,), (2,)), (2,)), (((1,), (2,), (1,)), (2,)),
        (((2, 1), (1, 3), (1, 1)), (2, 3)), (((1, 1), (2, 3), (2, 1)), (2, 3)),
    ],
    ids=str,
)  # fmt: skip
def test_leading_axes_broadcast(backend, leads, lead):
    rows = [noise(*lead, 2, n, 3, seed=n) for lead, n in zip(leads, (5, 7, 7), strict=True)]
    whole = [x.expand(*lead, *x.shape[-3:]).clone().requires_grad_() for x in rows]
    out, *grads = run(*rows, backend)
    expected, *wide = run(*whole, backend)
    assert_close(out, expected)
    for name, x, grad, full in zip(NAMES[1:], rows, grads, wide, strict=True):
        assert_close(grad, full.sum_to_size(x.shape), name)


@every_backend
@pytest.mark.parametrize("g", [1, 2, 3, 6])
def test_grouped_heads_are_repeated_heads(backend, g):
    query, key, value = noise(2, 6, 5, 3, seed=1), noise(2, g, 7, 3, seed=2), noise(2, g, 7, 3, seed=3)
    out, dquery, dkey, dvalue = run(query, key, value, backend, mask=Window(2, 2))
    repeated = [x.repeat_interleave(6 // g, 1) for x in (key, value)]
    expected, dq, dk, dv = run(query, *repeated, backend, mask=Window(2, 2))
    summed = [x.view(2, g, 6 // g, 7, 3).sum(2) for x in (dk, dv)]
    assert_all_close((out, dquery, dkey, dvalue), (expected, dq, *summed), NAMES)


@pytest.mark.parametrize("backend", ["reference", "tiled"])
@pytest.mark.parametrize(
    "score",
    [
        Bilinear(noise(11, 13, seed=4)),
        Bilinear(noise(2, 11, 13, seed=4)),
        Concat(noise(11, seed=4), noise(2, 13, seed=5)),
        lambda query, key: query[..., :5] @ key[..., 5:10].mT,
    ],
    ids=["Bilinear", "Bilinear by head", "Concat", "function"],
)
def test_query_and_key_may_differ_in_width(score, backend):
    query, key, value = noise(3, 2, 5, 11, seed=1), noise(3, 2, 7, 13, seed=2), noise(3, 2, 7, 17, seed=3)
    out, dquery, dkey, dvalue = run(query, key, value, backend, score=score)
    weights = torch.softmax(score(query, key), -1)
    assert_close(out, weights @ value)
    assert (dquery.shape, dkey.shape, dvalue.shape) == (query.shape, key.shape, value.shape)
    assert all(x.any() for x in (dquery, dkey, dvalue))


@pytest.mark.parametrize("backend", ["reference", "tiled"])
@pytest.mark.parametrize("e", [1, 2, 17, 64])
def test_the_value_width_is_free(backend, e):
    query, key, value = noise(2, 2, 5, 3, seed=1), noise(2, 2, 7, 3, seed=2), noise(2, 2, 7, e, seed=3)
    assert_close(run(query, key, value, backend)[0], torch.softmax(query @ key.mT / 3**0.5, -1) @ value)


# --- strides ---------------------------------------------------------------------------------------------------------


def strided(how, x):
    """The same numbers in another place of memory."""
    b, h, n, d = x.shape
    if how == "rows last":
        return x.transpose(-1, -2).contiguous().transpose(-1, -2)
    if how == "heads inside":
        return x.transpose(1, 2).contiguous().transpose(1, 2)
    if how == "sequences inside":
        return x.permute(1, 2, 3, 0).contiguous().permute(3, 0, 1, 2)
    if how == "every other row":
        return torch.stack([x, torch.full_like(x, torch.nan)], 3).view(b, h, 2 * n, d)[:, :, ::2]
    if how == "every other number":
        return torch.stack([x, torch.full_like(x, torch.nan)], 4).view(b, h, n, 2 * d)[..., ::2]
    if how == "an offset":
        return torch.cat([x.new_full((5,), torch.nan), x.flatten()])[5:].view(x.shape)
    if how == "packed with others":
        return torch.cat([torch.full_like(x, torch.nan), x, torch.full_like(x, torch.nan)], -1).chunk(3, -1)[1]
    raise NotImplementedError(how)


WAYS = [
    "rows last", "heads inside", "sequences inside", "every other row", "every other number", "an offset",
    "packed with others",
]  # fmt: skip


@every_backend
@pytest.mark.parametrize("how", WAYS)
def test_strides_change_nothing(how, backend):
    rows = [noise(3, 2, n, 3, seed=n) for n in (5, 7, 7)]
    expected = run(*rows, backend, mask=Causal())
    moved = [strided(how, x) for x in rows]
    assert all(torch.equal(a, b) for a, b in zip(moved, rows, strict=True))
    assert_all_close(run(*moved, backend, mask=Causal()), expected, NAMES)
    # a gradient that arrives with strides of its own
    grad = strided(how, cotangent(expected[0]))
    assert_all_close(run(*rows, backend, grad=grad, mask=Causal()), expected, NAMES)


@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize(
    "score",
    [Additive(noise(2, 3)), Additive(noise(3), "gelu"), Gaussian(noise(2, 3)), Concat(noise(3), noise(3)), Cosine()],
    ids=repr,
)
def test_strides_change_nothing_for_other_scores(how, score):
    rows = [noise(3, 2, n, 3, seed=n) for n in (5, 7, 7)]
    expected = run(*rows, score=score)
    assert_all_close(run(*(strided(how, x) for x in rows), score=score), expected, NAMES)


@every_backend
def test_one_tensor_may_be_all_three(backend):
    x = noise(2, 2, 5, 3).requires_grad_()
    with cut(1, 1, 3, 2):
        out = attend(x, x, x, backend=backend)
        (grad,) = torch.autograd.grad(out, x, cotangent(out))
    expected, *parts = run(x.detach().clone(), x.detach().clone(), x.detach().clone(), backend)
    assert_close(out, expected)
    assert_close(grad, sum(parts))


@every_backend
def test_an_expanded_key_is_read_not_written(backend):
    key, value = noise(1, 1, 7, 3, seed=2).expand(3, 2, 7, 3), noise(1, 1, 7, 3, seed=3).expand(3, 2, 7, 3)
    query = noise(3, 2, 5, 3, seed=1)
    assert_all_close(run(query, key, value, backend), run(query, key.clone(), value.clone(), backend), NAMES)


# --- nothing, and one ------------------------------------------------------------------------------------------------

SCORES = [
    Dot(), Dot(cap=2.0), Cosine(), Additive(noise(3)), Additive(noise(3), "silu"), Gaussian(), Feature(),
    Bilinear(noise(3, 3)), Concat(noise(3), noise(3)), Custom(lambda query, key: query @ key.mT),
]  # fmt: skip
WEIGHS = [
    Softmax(), Softmax(noise(1)), Sum(), Relu(), Sigmoid(), Entmax(), Entmax(1.3), Sparsemax(), Hard(),
    Hard("sample", seed=1),
]  # fmt: skip
EMPTY = {"b": (0, 2, 5, 7, 4), "n": (2, 2, 0, 7, 4), "m": (2, 2, 5, 0, 4), "e": (2, 2, 5, 7, 0), "h": (2, 0, 5, 7, 4)}


def zeros(*shape):
    return torch.zeros(shape, dtype=torch.long)


MASKS = {
    "Causal": lambda b, h, n, m, e: Causal(),
    "Causal by sequence": lambda b, h, n, m, e: Causal(zeros(b)),
    "Window": lambda b, h, n, m, e: Window(1, 1),
    "Lengths": lambda b, h, n, m, e: Lengths(zeros(b)),
    "Document": lambda b, h, n, m, e: Document(zeros(m), zeros(n)),
    "Edges": lambda b, h, n, m, e: Edges(zeros(0), zeros(0)),
    "Allowed": lambda b, h, n, m, e: Allowed(torch.ones(n, m, dtype=torch.bool)),
    "and": lambda b, h, n, m, e: Causal() & Lengths(zeros(b)),
    "not": lambda b, h, n, m, e: ~Causal(),
}
BIASES = {
    "Alibi": lambda b, h, n, m, e: Alibi(),
    "Dense": lambda b, h, n, m, e: Dense(noise(n, m)),
    "Relative": lambda b, h, n, m, e: Relative(noise(h, 4), max_distance=4),
}


def check_empty(b, h, n, m, e, d=3, **terms):
    rows = [noise(b, h, n, d), noise(b, h, m, d), noise(b, h, m, e)]
    out, *grads = run(*rows, **terms)
    assert out.shape == (b, h, n, e)
    # with no key to attend to there is nothing to return
    assert m > 0 or not out.any()
    for x, grad in zip(rows, grads, strict=True):
        assert grad.shape == x.shape
        assert grad.isfinite().all()


@pytest.mark.parametrize("backend", ["auto", "reference", "tiled"])
@pytest.mark.parametrize("empty", EMPTY)
@pytest.mark.parametrize("score", SCORES, ids=repr)
def test_an_axis_may_be_empty_for_every_score(score, empty, backend):
    check_empty(*EMPTY[empty], score=score, backend=backend)


@pytest.mark.parametrize("backend", ["auto", "reference", "tiled"])
@pytest.mark.parametrize("empty", EMPTY)
@pytest.mark.parametrize("weigh", WEIGHS, ids=repr)
def test_an_axis_may_be_empty_for_every_weigher(weigh, empty, backend):
    check_empty(*EMPTY[empty], weigh=weigh, backend=backend)


@pytest.mark.parametrize("backend", ["auto", "reference", "tiled"])
@pytest.mark.parametrize("empty", EMPTY)
@pytest.mark.parametrize("make", MASKS.values(), ids=MASKS)
def test_an_axis_may_be_empty_for_every_mask(make, empty, backend):
    check_empty(*EMPTY[empty], mask=make(*EMPTY[empty]), backend=backend)


@pytest.mark.parametrize("backend", ["auto", "reference", "tiled"])
@pytest.mark.parametrize("empty", EMPTY)
@pytest.mark.parametrize("make", BIASES.values(), ids=BIASES)
def test_an_axis_may_be_empty_for_every_bias(make, empty, backend):
    check_empty(*EMPTY[empty], bias=make(*EMPTY[empty]), backend=backend)


@pytest.mark.parametrize("backend", ["auto", "reference", "tiled"])
@pytest.mark.parametrize(
    "score",
    [Dot(), Cosine(), Gaussian(), Feature(), Additive(noise(0)), Bilinear(noise(0, 0)), Concat(noise(0), noise(0))],
    ids=repr,
)
def test_a_width_of_zero_scores_everything_alike(score, backend):
    value = noise(2, 2, 7, 4)
    out = attend(noise(2, 2, 5, 0), noise(2, 2, 7, 0), value, score=score, backend=backend)
    assert_close(out, value.mean(-2, keepdim=True).expand(2, 2, 5, 4))


@every_backend
@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (1, 1, 5, 1), (1, 1, 1, 7), (3, 1, 1, 1), (1, 2, 5, 7)], ids=str)
def test_an_axis_may_be_one(shape, backend):
    b, h, n, m = shape
    rows = noise(b, h, n, 3, seed=1), noise(b, h, m, 3, seed=2), noise(b, h, m, 3, seed=3)
    assert_close(run(*rows, backend)[0], torch.softmax(rows[0] @ rows[1].mT / 3**0.5, -1) @ rows[2])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_the_dtype_comes_back(dtype, backend):
    rows = [noise(2, 2, n, 3, seed=n).to(dtype) for n in (5, 7, 7)]
    found = run(*rows, backend, mask=Causal())
    assert {x.dtype for x in found} == {dtype}
    exact = run(*(x.double() for x in rows), "reference", grad=cotangent(found[0]).double(), mask=Causal())
    assert_all_close(found, [x.to(dtype) for x in exact], NAMES)


def test_full_is_the_default():
    rows = [noise(2, 2, 5, 3, seed=s) for s in range(3)]
    assert torch.equal(attend(*rows), attend(*rows, score=Dot(), weigh=Softmax(), mask=Full(), bias=None))
