"""N15: no queries, no keys, no sequences, and empty sequences among others, forward and backward.

Fixed one by one in flash-attention (c65b5106, db2f8069, 26d7d92f, #2515, #2421).
"""

import pytest
import torch

from regard import attend, explain
from regard.bias import Alibi, Relative
from regard.mask import Allowed, Causal, Document, Edges, Full, Lengths, Window
from regard.score import Additive, Concat, Cosine, Dot, Gaussian
from tests.incidents.plain import BACKENDS, WEIGHERS, assert_all_near, assert_near, cosines, make, run, split
from tests.terms import move

pytestmark = pytest.mark.thin(3)

# sequences, queries, keys
SIZES = [(0, 3, 5), (2, 0, 5), (2, 3, 0), (2, 0, 0), (0, 0, 0)]


def long(*shape):
    return torch.zeros(shape, dtype=torch.long)


MASKS = {
    "full": lambda b, n, m: Full(),
    "causal": lambda b, n, m: Causal(),
    "causal by sequence": lambda b, n, m: Causal(long(b)),
    "window": lambda b, n, m: Window(1, 1),
    "window by sequence": lambda b, n, m: Window(1, 1, offset=long(b)),
    "lengths": lambda b, n, m: Lengths(long(b)),
    "lengths by query": lambda b, n, m: Lengths(long(b, n)),
    "document": lambda b, n, m: Document(long(m), long(n)),
    "document by sequence": lambda b, n, m: Document(long(b, m), long(b, n)),
    "edges": lambda b, n, m: Edges(long(0), long(0)),
    "allowed": lambda b, n, m: Allowed(torch.ones(n, m, dtype=torch.bool)),
    "and": lambda b, n, m: Causal() & Lengths(long(b)),
    "or": lambda b, n, m: Window(0, 0) | Edges(long(0), long(0)),
    "not": lambda b, n, m: ~Document(long(m), long(n)),
}
SCORES = {
    "dot": Dot(),
    "capped": Dot(cap=2.0),
    "cosine": Cosine(),
    "additive": Additive(torch.ones(4)),
    "silu": Additive(torch.ones(4), activation="silu"),
    "concat": Concat(torch.ones(4), torch.ones(4)),
    "gaussian": Gaussian(torch.ones(4)),
    "function": lambda query, key: torch.sin(query @ key.mT),
}


def check(sizes, **options):
    b, n, m = sizes
    query, key, value = make((b, 2, n, 4), (b, 2, m, 4), (b, 2, m, 4))
    out, *grads = run(query, key, value, **options)
    assert out.shape == (b, 2, n, 4)
    assert [g.shape for g in grads] == [x.shape for x in (query, key, value)]
    assert not any(x.any() for x in (out, *grads))
    options["backend"], device = split(options["backend"])
    options = {at: move(x, device) for at, x in options.items() if at != "generator"}
    assert str(explain(*(x.to(device) for x in (query, key, value)), **options))


@pytest.mark.parametrize("backend", ["reference", "tiled", "auto"])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_an_empty_axis_under_every_mask(sizes, mask, backend):
    check(sizes, mask=MASKS[mask](*sizes), backend=backend)


@pytest.mark.parametrize("backend", ["reference", "tiled", "auto"])
@pytest.mark.parametrize("weigh", WEIGHERS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_an_empty_axis_with_every_weigher(sizes, weigh, backend):
    check(sizes, weigh=WEIGHERS[weigh], mask=Causal(), backend=backend)
    check(sizes, weigh=WEIGHERS[weigh], backend=backend)


@pytest.mark.parametrize("backend", ["reference", "tiled"])
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_an_empty_axis_with_every_score(sizes, score, backend):
    check(sizes, score=SCORES[score], backend=backend)


@pytest.mark.parametrize("backend", ["reference", "tiled"])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_an_empty_axis_with_bias_and_dropout(sizes, backend):
    biases = (Alibi(), Relative(torch.ones(2, 8), max_distance=9), torch.zeros(sizes[1:]), torch.zeros(2, 1, 1))
    for bias in biases:
        check(sizes, bias=bias, dropout=0.5, backend=backend)


@pytest.mark.parametrize("backend", ["reference", "tiled", "auto"])
def test_no_heads_no_width_no_value(backend):
    check_no_heads_no_width_no_value(backend)


def check_no_heads_no_width_no_value(backend):
    for h, d, e in ((0, 4, 4), (2, 0, 4), (2, 4, 0), (0, 0, 0)):
        query, key, value = make((2, h, 3, d), (2, h, 5, d), (2, h, 5, e))
        out, *grads = run(query, key, value, mask=Causal(), backend=backend)
        assert out.shape == (2, h, 3, e)
        assert all(g.isfinite().all() for g in grads)
        if d == 0 and h:
            # nothing to tell keys apart by: every query takes the mean of what it sees
            assert_near(out[:, :, -1], value.mean(-2))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("weigh", ["softmax", "entmax", "sigmoid", "hard", "sum"])
@pytest.mark.parametrize("empty", [0, 1, 2], ids=["first", "middle", "last"])
def test_an_empty_sequence_among_others(empty, weigh, backend):
    check_empty_sequence(empty, weigh, backend)


def check_empty_sequence(empty, weigh, backend):
    lengths = [4, 6, 3]
    lengths[empty] = 0
    query, key, value = make((3, 2, 5, 4), (3, 2, 6, 4), (3, 2, 6, 4))
    options = {"weigh": WEIGHERS[weigh], "backend": backend}
    got = run(query, key, value, mask=Lengths(torch.tensor(lengths)), **options)
    assert not any(x[empty].any() for x in got)
    grad = cosines(got[0])
    for s, length in enumerate(lengths):
        alone = [x.detach()[s : s + 1].clone() for x in (query, key, value)]
        alone = [alone[0].requires_grad_(), *(x[:, :, :length].clone().requires_grad_() for x in alone[1:])]
        options = {"weigh": WEIGHERS[weigh], "backend": "reference"}
        expected = run(*alone, grad[s : s + 1], **options)
        assert_near(got[0][s : s + 1], expected[0])
        for one, two in zip(got[1:], expected[1:], strict=True):
            assert_near(one[s : s + 1, :, : two.shape[2]], two, what="gradient")
            assert not one[s, :, two.shape[2] :].any()


@pytest.mark.parametrize("backend", ["reference", "tiled", "auto"])
@pytest.mark.parametrize("missing", [0, 1, 2], ids=["first", "middle", "last"])
def test_a_document_without_keys_among_others(missing, backend):
    # three documents packed into one sequence; the queries of one find no key of theirs
    keys = torch.tensor([k for k in (0, 0, 1, 1, 1, 2) if k != missing])
    queries = torch.tensor([0, 1, 1, 2, 2])
    query, key, value = make((1, 2, 5, 4), (1, 2, len(keys), 4), (1, 2, len(keys), 4))
    got = run(query, key, value, mask=Document(keys, queries), backend=backend)
    assert not got[0][:, :, queries == missing].any()
    for document in {0, 1, 2} - {missing}:
        part = attend(query[:, :, queries == document], key[:, :, keys == document], value[:, :, keys == document],
                      backend="reference")  # fmt: skip
        assert_near(got[0][:, :, queries == document], part)
    edges = (queries[:, None] == keys).nonzero()
    same = run(query, key, value, mask=Edges(edges[:, 0], edges[:, 1]), backend=backend)
    assert_all_near(got, same)
