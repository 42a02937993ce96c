"""N17 of the GPU: within torch.compile a call gives the numbers that it gives outside."""

import pytest
import torch

from regard import attend
from regard.bias import Alibi, Dense
from regard.mask import Causal, Lengths
from regard.score import Additive, Dot
from regard.weigh import Entmax, Softmax
from tests.incidents.plain import ON_GPU, assert_all_near, cosines, make, split
from tests.terms import move

pytestmark = pytest.mark.gpu
BACKEND, DEVICE = split(ON_GPU[0])
TERMS = {
    "plain": {},
    "causal": {"mask": Causal()},
    "lengths, slopes": {"mask": Lengths(torch.tensor([40, 7])), "bias": Alibi()},
    "bias, sink, cap": {
        "score": Dot(cap=2.0), "weigh": Softmax(torch.tensor([0.3, -1.0])), "bias": Dense(torch.ones(65))
    },
    "additive, entmax": {"score": Additive(torch.ones(8)), "weigh": Entmax(), "mask": torch.arange(65) % 3 == 0},
}  # fmt: skip


def run(function, rows):
    out = function(*rows)
    return [out.detach(), *torch.autograd.grad(out, rows, cosines(out))]


def check(terms, dtype, sizes):
    terms = {at: move(term, DEVICE) for at, term in terms.items()}

    def layer(query, key, value):
        # something before and after, as in a model
        return torch.tanh(attend(query * 2, key, value + 1, **terms, backend=BACKEND))

    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True)
    for n, m in sizes:
        rows = [move(x, DEVICE) for x in make((2, 2, n, 8), (2, 2, m, 8), (2, 2, m, 8), dtype=dtype)]
        assert_all_near(run(compiled, rows), run(layer, rows), units=4, where=f" at {n}×{m}")


@pytest.mark.parametrize("name", TERMS)
def test_compiled_with_no_break_in_the_graph(name):
    check(TERMS[name], torch.float32, [(33, 65)])


def test_in_half_precision():
    check({"mask": Causal()}, torch.bfloat16, [(33, 65)])


def test_with_lengths_that_change():
    check({"mask": Causal()}, torch.float32, [(33, 65), (64, 64), (17, 40), (1, 40), (128, 200)])


def test_dropout_in_a_compiled_function_drops():
    query, key, value = (move(x.detach(), DEVICE) for x in make(*[(2, 2, 33, 8)] * 3))

    @torch.compile(backend="aot_eager")
    def layer(query, key, value, dropout):
        return attend(query, key, value, dropout=dropout, backend=BACKEND)

    torch.manual_seed(5)
    dropped, other, whole = (layer(query, key, value, dropout) for dropout in (0.5, 0.5, 0.0))
    assert not torch.equal(dropped, other)
    assert not torch.equal(dropped, whole)
