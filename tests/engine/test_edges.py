"""Attention along edges, beside `tiled`, which looks at every pair."""

from __future__ import annotations

import pytest
import torch

from regard import attend, explain
from regard.bias import Alibi
from regard.mask import Causal, Edges, Lengths
from regard.score import Additive, Concat, Cosine, Dot, Gaussian
from regard.weigh import Entmax, Hard, Relu, Softmax, Sparsemax
from tests.primes import noise
from tests.tolerances import assert_all_close, assert_close

# queries of 1, 2, 3, 5 and 40 neighbours, out of order, some twice; the rest have none
N, M, D = 43, 47, 5
KEYS = [[7], [3, 3, 4], [0, 46, 9], [5, 1, 2, 8, 6], [*range(46, 6, -1)]]
QUERIES = torch.tensor([i for i, keys in zip((2, 40, 0, 11, 17), KEYS, strict=True) for _ in keys])
EDGES = Edges(QUERIES, torch.tensor([j for keys in KEYS for j in keys]))
CASES = {
    "dot": {}, "sink": {"weigh": Softmax(noise(4))}, "cap": {"score": Dot(cap=2.0)},
    "gat": {"score": Concat(noise(4, D), noise(4, D, seed=2)), "dropout": 0.4},
    "gatv2": {"score": Additive(noise(4, D), "leaky_relu"), "weigh": Sparsemax()},
    "distance": {"score": Gaussian(), "weigh": Entmax(1.3), "bias": Alibi(offset=0)},
    "cosine": {"score": Cosine(), "weigh": Relu()}, "drawn": {"weigh": Hard("sample", seed=3)},
    "own": {"score": lambda query, key: -(query[..., None, :] - key[..., None, :, :]).square().add(1).sqrt().sum(-1)},
    "and": {"mask": Causal(2) & EDGES & Lengths(torch.tensor([47, 9]))},
}  # fmt: skip


def make(dtype=torch.float64):
    shapes = (2, 4, N, D), (2, 2, M, D), (2, 2, M, 3)
    return [noise(*shape, seed=at).to(dtype).requires_grad_() for at, shape in enumerate(shapes)]


def run(name, backend, dtype=torch.float64):
    rows, terms = make(dtype), {"mask": EDGES, **CASES[name]}
    score = terms.get("score", Dot())
    if not callable(score) or hasattr(score, "tensors"):
        score = score.with_tensors([x.to(dtype).clone().requires_grad_() for x in score.tensors])
        terms["score"] = score
    out = attend(*rows, **terms, generator=torch.Generator().manual_seed(1), backend=backend)
    leaves = [*rows, *getattr(score, "tensors", ())]
    grads = torch.autograd.grad(out.square().sum(), leaves, create_graph=True, allow_unused=True)
    grads = [torch.zeros_like(x) if one is None else one for x, one in zip(leaves, grads, strict=True)]
    again = torch.autograd.grad(sum(x.square().sum() for x in grads), leaves, allow_unused=True)
    return [out, *grads, *(torch.zeros_like(x) if one is None else one for x, one in zip(leaves, again, strict=True))]


@pytest.mark.parametrize("name", CASES)
def test_edges_are_tiles_to_the_second_derivative(name):
    found, wanted = (run(name, backend) for backend in ("edges", "tiled"))
    assert_all_close(found, wanted, [str(at) for at in range(len(found))])
    alone = [i for i in range(N) if i not in QUERIES]
    assert not found[0][:, :, alone].any()
    assert not found[1][:, :, alone].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_precisions_and_the_same_bits_each_time(dtype):
    found, again, wanted = (run("gat", backend, dtype)[:4] for backend in ("edges", "edges", "tiled"))
    assert all(map(torch.equal, found, again))
    assert_all_close(found, wanted, ["output", "query", "key", "value"])


def test_nan_is_seen_along_edges_alone():
    query, key, value = (x.detach() for x in make())
    clean = attend(query, key, value, mask=EDGES, backend="edges")
    key[0, 0, 4] = value[1, 1, 46, 1] = torch.nan
    found = attend(query, key, value, mask=EDGES, backend="edges")
    assert_close(found.nan_to_num(7.0), attend(query, key, value, mask=EDGES, backend="tiled").nan_to_num(7.0))
    assert found[0, 0, 40].isnan().all()
    assert torch.equal(found[:, :, 2], clean[:, :, 2])


def test_an_empty_graph_gives_zeros_and_zero_gradients():
    none = torch.zeros(0, dtype=torch.long)
    rows = make()
    out = attend(*rows, mask=Edges(none, none), backend="edges")
    assert out.shape == (2, 4, N, 3)
    assert not any(x.any() for x in (out, *torch.autograd.grad(out.sum(), rows)))


def test_what_fills_neighbourhoods_may_be_more_than_all_pairs():
    # three of three keys, each with one place more
    rows = [noise(1, 1, 3, 4, seed=at).requires_grad_() for at in range(3)]
    mask = Edges(torch.arange(3).repeat_interleave(3), torch.arange(3).repeat(3))
    found, wanted = (attend(*rows, mask=mask, backend=backend) for backend in ("edges", "tiled"))
    assert_close(found, wanted)
    assert_all_close(*(torch.autograd.grad(x.square().sum(), rows) for x in (found, wanted)), ["query", "key", "value"])


def test_edges_that_change_are_sorted_again():
    queries, keys = torch.tensor([0, 1, 1]), torch.tensor([2, 0, 2])
    mask, rows = Edges(queries, keys), [x.detach() for x in make()]
    before = attend(*rows, mask=mask, backend="edges")
    graph = mask.made
    assert torch.equal(attend(*rows, mask=mask, backend="edges"), before)
    assert mask.made is graph
    keys[1] = 5
    assert_close(attend(*rows, mask=mask, backend="edges"), attend(*rows, mask=mask, backend="tiled"))


def test_what_is_kept_of_edges_serves_inference_and_training():
    mask = Edges(EDGES.queries.clone(), EDGES.keys.clone())
    with torch.inference_mode():
        attend(*make(), mask=mask, backend="edges")
    rows = make()
    attend(*rows, mask=mask, backend="edges", score=CASES["gat"]["score"]).sum().backward()
    assert rows[2].grad.any()


def test_auto_goes_along_edges_where_they_are_few():
    x = torch.zeros(1, 2, 600, 4)
    score = Concat(torch.ones(4), torch.ones(4))

    def choose(share, **terms):
        ends = torch.nonzero(torch.arange(600 * 600).view(600, 600) % round(1 / share) == 0).T
        return explain(x, x, x, mask=Edges(*ends), **terms).backend

    assert [choose(share) for share in (0.01, 0.09, 0.2)] == ["edges", "edges", "sdpa"]
    assert [choose(share, score=score) for share in (0.01, 0.2, 0.5)] == ["edges", "edges", "tiled"]
    small = x[:, :, :300]
    one = Edges(torch.tensor([0]), torch.tensor([1]))
    assert explain(small, small, small, mask=one).backend == "sdpa"
    assert explain(small, small, small, mask=one, weigh=Softmax(torch.zeros(2))).backend == "edges"
    assert explain(x, x, x, mask=one | Causal()).backend != "edges"
    assert "extra memory" in str(explain(x, x, x, mask=one, backend="edges"))


def test_a_graph_of_many_nodes_holds_no_square_of_them():
    # 4 · 10¹⁰ pairs
    n = 200_000
    queries = torch.arange(n).repeat(2)
    mask = Edges(queries, (queries * 7 + torch.arange(2).repeat_interleave(n)) % n)
    x = torch.randn(1, 1, n, 4, requires_grad=True)
    out = attend(x, x, x, mask=mask)
    out.sum().backward()
    rows = x.detach()[0, 0]
    near = rows[(torch.arange(n)[:, None] * 7 + torch.arange(2)) % n]
    weights = (near @ rows[..., None] / 2).softmax(1)
    assert torch.allclose(out[0, 0], (weights * near).sum(1), atol=1e-5)
