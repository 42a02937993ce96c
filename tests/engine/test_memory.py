"""Steps that share their keys give what a call of `attend` for each gives, and none of them looks at a number."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from regard import attend
from regard.core import Score
from regard.engine.memory import Memory
from regard.layers import DotProductAttention, LearnedAttention
from regard.mask import Full, Lengths
from regard.models.seq2seq import Seq2Seq, Seq2SeqAttentionDecoder, Seq2SeqEncoder
from regard.score import Additive, Bilinear, Dot, Gaussian
from regard.weigh import Entmax, Hard, Relu, Sigmoid, Softmax
from tests.primes import noise
from tests.tolerances import assert_all_close, assert_close

aten = torch.ops.aten
B, M, D, STEPS = 3, 7, 5, 4
LENS = torch.tensor([4, 0, 7])
TERMS = {
    "additive": (Additive(noise(D)), Softmax()), "sink": (Additive(noise(D)), Softmax(noise(1))),
    "dot": (Dot(), Softmax()), "entmax": (Bilinear(noise(D, D)), Entmax()), "hard": (Gaussian(), Hard()),
    "sigmoid": (Dot(), Sigmoid()), "relu": (Additive(noise(1, D), "silu"), Relu()),
}  # fmt: skip


def rows(dtype, bad=0.0):
    """Queries of all steps, keys and values; what no step may see is `bad`."""
    made = [noise(B, n, D, seed=n).to(dtype) for n in (STEPS, M, M)]
    unseen = (torch.arange(M) >= LENS[:, None])[..., None]
    return [made[0], *(x.masked_fill(unseen, bad) if bad else x for x in made[1:])]


def run(given, score, weigh, mask, dropout, shares):
    """The steps, with their gradients, and with those of the gradients."""
    score = score.with_tensors([x.to(given[0].dtype).clone().requires_grad_() for x in score.tensors])
    query, key, value = (x.clone().requires_grad_() for x in given)
    torch.manual_seed(3)
    steps = query.split(1, 1)
    if shares:
        memory = Memory(steps[0], key, value, score, weigh, mask, dropout)
        out = torch.cat([memory.attend(step) for step in steps], 1).to(query.dtype)
    else:
        terms = {"score": score, "weigh": weigh, "mask": mask, "dropout": dropout, "backend": "reference"}
        out = torch.cat([attend(step, key, value, **terms) for step in steps], 1)
    leaves = [query, key, value, *score.tensors]
    grads = torch.autograd.grad(out.square().sum(), leaves, create_graph=True)
    again = torch.autograd.grad(sum(x.square().sum() for x in grads), leaves, allow_unused=True)
    return [out, *grads, *(torch.zeros_like(x) if one is None else one for x, one in zip(leaves, again, strict=True))]


@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("mask", [Full(), Lengths(LENS)])
@pytest.mark.parametrize("name", TERMS)
def test_steps_are_calls(name, mask, dropout):
    given = rows(torch.float64)
    found, expected = (run(given, *TERMS[name], mask, dropout, shares) for shares in (True, False))
    assert_all_close(found, expected, [str(i) for i in range(len(found))])
    if type(mask) is Lengths:
        # of the empty sentence, and of hidden keys: zeros, not nearly
        assert not any(x[1].any() for x in found[:4])
        assert not any(x[0, 4:].any() for x in found[2:4])


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize("name", TERMS)
def test_what_is_hidden_changes_no_bit(name, bad):
    found, expected = (run(rows(torch.float64, x), *TERMS[name], Lengths(LENS), 0.0, True) for x in (bad, 0.0))
    assert all(torch.equal(x, y) for x, y in zip(found, expected, strict=True))


class Waits(TorchDispatchMode):
    """Counts looks at a number, for which the host waits on a GPU."""

    count = 0

    def __torch_dispatch__(self, called, types, args=(), kwargs=None):
        self.count += called in (aten._local_scalar_dense.default, aten.equal.default, aten.nonzero.default)
        return called(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", TERMS)
def test_no_step_waits(name):
    query, key, value = rows(torch.float32)
    score, weigh = (x.with_tensors([y.float() for y in x.tensors]) for x in TERMS[name])
    memory = Memory(query[:, :1], key, value, score, weigh, Lengths(LENS))
    with Waits() as waits:
        for step in query.split(1, 1):
            memory.attend(step)
    assert waits.count == 0
    with waits:
        attend(query, key, value, score=score, weigh=weigh, mask=Lengths(LENS), backend="reference")
    # else the test would see nothing
    assert waits.count


def test_half_precision_is_computed_in_float32():
    given = rows(torch.bfloat16)
    memory = Memory(given[0][:, :1], *given[1:], Additive(noise(D).bfloat16()), Softmax(), Lengths(LENS))
    exact = attend(*(x.double() for x in given), score=Additive(noise(D).bfloat16().double()), mask=Lengths(LENS))
    for i, step in enumerate(given[0].split(1, 1)):
        for is_cast in (False, True):
            with torch.autocast("cpu", torch.bfloat16, enabled=is_cast):
                assert_close(memory.attend(step), exact[:, i : i + 1].float())


def test_what_is_seen_shows():
    query, key, value = rows(torch.float32)
    value[0, 3, 2] = torch.nan
    key[2, 6] = torch.nan
    out = Memory(query[:, :1], key, value, Additive(noise(D).float()), Softmax(), Lengths(LENS)).attend(query[:, 1:2])
    assert out[0, 0].isnan().tolist() == [False, False, True, False, False]
    assert not out[1].any()
    assert out[2].isnan().all()


def test_a_row_that_scores_minus_infinity_alone_is_empty():
    query, key, value = rows(torch.float32)
    query, key[0, :4, 1] = query.abs(), -torch.inf
    out = Memory(query[:, :1], key, value, Dot(), Softmax(), Lengths(LENS)).attend(query[:, :1])
    assert not out[0].any()
    assert torch.equal(out, attend(query[:, :1], key, value, mask=Lengths(LENS), backend="reference"))


@dataclass(frozen=True, eq=False)
class Shorter(Score):
    """A score of one's own, infinite for a key of zeros."""

    weight: Tensor

    @classmethod
    def start(cls, heads, width):
        return {"weight": torch.ones(heads)}

    def __call__(self, query, key):
        return self.weight[0] * (query.sum(-1, keepdim=True) + 1 / key.square().sum(-1)[..., None, :])


def decode(attention):
    """The logits of a decoder, also for a source without a word."""
    torch.manual_seed(0)
    model = Seq2Seq(Seq2SeqEncoder(9, 4, D, 1), Seq2SeqAttentionDecoder(9, 4, D, 1, attention=attention))
    tokens = torch.ones(B, M, dtype=torch.int64)
    return model(tokens, LENS, tokens[:, :STEPS])


def test_scores_of_ones_own_see_hidden_keys_as_they_are():
    assert decode(LearnedAttention(Shorter, D)).isfinite().all()


def test_a_layer_that_attends_in_its_own_way_is_heard():
    class Louder(DotProductAttention):
        def _attend(self, *rows, **terms):
            return 2 * super()._attend(*rows, **terms)

    assert not torch.equal(decode(Louder()), decode(DotProductAttention()))
