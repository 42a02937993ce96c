"""Sums over very many tiles are as exact as over one: none leaves its rounding in float32."""

import pytest
import torch

from regard import attend
from regard.bias import Relative
from regard.score import Additive
from regard.weigh import Sigmoid, Softmax, Sum
from tests.layouts import cut

N, M = 3, 6000
NOISE = torch.Generator().manual_seed(3)
# of one sign: what is rounded away adds up
ROWS = [torch.rand(1, 1, n, 4, generator=NOISE) for n in (N, M, M)]
WEIGHT, TABLE = torch.rand(4, generator=NOISE), torch.rand(1, 6, generator=NOISE)


def differentiate(weigh, dtype, backend):
    leaves = [x.to(dtype).requires_grad_() for x in (*ROWS, WEIGHT, TABLE)]
    query, key, value, weight, table = leaves
    out = attend(
        query, key, value, score=Additive(weight), weigh=weigh, bias=Relative(table, max_distance=4), backend=backend
    )
    grads = torch.autograd.grad(out.sum(), leaves)
    # of those that every pair adds to; a key has but its own
    return {"output": out.detach(), "query": grads[0], "weight": grads[3], "table": grads[4]}


@pytest.mark.parametrize("weigh", [Softmax(), Sum(), Sigmoid()], ids=repr)
def test_a_thousand_tiles_are_as_exact_as_one(weigh):
    exact = differentiate(weigh, torch.float64, "reference")
    with cut(1, 1, N, 6):
        found = differentiate(weigh, torch.float32, "tiled")
    whole = differentiate(weigh, torch.float32, "reference")
    if not isinstance(weigh, Sigmoid):
        # weights that add up to one have slopes that add up to nothing: what is left of most keys' is rounding
        del exact["table"]
    for name, right in exact.items():
        off, eager = ((x[name].double() - right).abs().max() / right.abs().max() for x in (found, whole))
        assert off <= 2 * eager + 2e-7, f"{name}: {off:.1e}, in one piece {eager:.1e}"
