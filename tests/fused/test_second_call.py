"""The second call of a kind, and what is asked of it later: what the first call left behind must fit it, too."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from regard import attend
from regard.core import Tile
from regard.core.bits import uniform
from regard.engine.backends import fused, sdpa
from regard.engine.backends.fused import backward, kind, ops, start, tune, work
from regard.engine.backends.fused.kind import find_kind
from regard.engine.backends.fused.read import Order
from regard.engine.backends.fused.recipe import Recipe
from regard.engine.backends.fused.start import Spot, hand_over
from regard.engine.backends.fused.terms import make_draws, make_noise
from regard.engine.native_gradient import align
from regard.mask import Causal
from regard.score import Additive, Gaussian
from regard.weigh import Hard, Relu, Sum
from tests.fused.against import DEVICE, draw
from tests.fused.lending import lend
from tests.tolerances import assert_all_close


@pytest.mark.parametrize("weigh", [Relu(), Sum()], ids=str)
def test_weights_without_a_bound_leave_float16_each_time(weigh):
    rows = [torch.full((1, 1, 4, 16), x, dtype=torch.float16, device=DEVICE) for x in (200.0, 200.0, 0.001)]
    first, *others = [attend(*rows, weigh=weigh, backend="fused") for _ in range(4)]
    assert first.isfinite().all()
    assert all(torch.equal(first, x) for x in others)


def test_the_gradient_of_a_gaussian_of_a_number_is_differentiated(monkeypatch):
    # as on a GPU
    monkeypatch.setattr(fused, "decline", lambda call: None)
    monkeypatch.setattr(sdpa, "refuse", lambda call: "not asked.")

    def pull(backend: str) -> torch.Tensor:
        rows = draw((1, 2, 4, 5), (1, 2, 6, 5), (1, 2, 6, 3))
        out = attend(*rows, score=Gaussian(0.7), backend=backend)
        grads = torch.autograd.grad(out.square().sum(), rows, create_graph=True)
        return torch.autograd.grad(sum(x.square().sum() for x in grads), rows)

    assert_all_close(pull("auto"), pull("tiled"), ["query", "key", "value"])


def test_negatives_of_what_lies_in_memory_are_read_as_they_are():
    query, key, value = draw((1, 2, 4, 5), (1, 2, 6, 5), (1, 2, 6, 3))
    turned = torch.complex(query, -query.detach()).conj().imag
    assert turned.is_neg()
    assert_all_close([attend(turned, key, value, backend="fused")], [attend(query, key, value, backend="fused")], ["o"])
    out = attend(query, key, value, backend="fused")
    grad = torch.complex(out, -out).detach().conj().imag
    expected = torch.autograd.grad(out, value, grad.resolve_neg(), retain_graph=True)
    assert_all_close(torch.autograd.grad(out, value, grad), expected, ["value"])


def test_rows_that_come_back_in_another_order_get_kernels_of_their_own(monkeypatch):
    seen = []
    run = ops.run_backward

    def look(kind, held, *given):
        seen.append((kind, held["query"].stride()))
        return run(kind, held, *given)

    monkeypatch.setattr(ops, "run_backward", look)
    rows = [x.detach().mT.contiguous().mT.requires_grad_() for x in draw((1, 2, 4, 5), (1, 2, 4, 5), (1, 2, 4, 5))]

    def pull() -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(attend(*rows, mask=Causal(), backend="fused").square().sum(), rows)

    usual = pull()
    with torch.autograd.graph.saved_tensors_hooks(torch.Tensor.contiguous, lambda x: x):
        assert_all_close(pull(), usual, ["query", "key", "value"])
    (one, strides), (other, others) = seen
    assert strides != others
    assert one is other
    assert len(one.backward) == 2


@pytest.mark.parametrize("seed", [1, 16, 2**31 + 5, 2**63 - 1])
def test_no_seed_needs_another_kernel(seed):
    recipe = Recipe("dot", "hard", draws=True, dropout=0.5)
    random = find_kind(Order(recipe, *draw(*[(1, 1, 3, 5)] * 3), None, None, None, {}))

    def hand(*seeds: int) -> tuple[Any, ...]:
        words = work.as_words(random, seeds)
        spots = {name: Spot(at, words[at]) for at, name in enumerate(("seed", "draw_seed"))}
        return hand_over((make_noise(recipe, spots), make_draws(recipe, spots)), lambda spot: spot.held)

    for one, given, usual in zip((seed, 9), hand(seed, 9), hand(5, 7), strict=True):
        assert start._sort(given) == start._sort(usual)
        assert start._generalise(given) == start._generalise(usual)
        # the bits are those of the whole seed
        tile = Tile(range(2), range(1), range(3), range(3), torch.device("cpu"))
        assert torch.equal(uniform(given.seed, tile), uniform(one, tile))
    plain = find_kind(Order(Recipe("dot", "hard"), *draw(*[(1, 1, 3, 5)] * 3), None, None, None, {}))
    assert work.as_words(plain, (seed, 9)) == ()


def test_draws_by_large_seeds_are_those_of_other_backends():
    rows = draw((2, 1, 6, 5), (2, 1, 6, 5), (2, 1, 6, 5))
    for seed in (1, 2**31 + 5, 2**63 - 1):
        made = [attend(*rows, weigh=Hard("sample", seed=seed), backend=name) for name in ("fused", "tiled")]
        assert_all_close(made[:1], made[1:], ["output"])


def test_cudnn_gets_no_call_with_a_sink(monkeypatch):
    monkeypatch.setattr(kind, "can_borrow", lambda *given, **_: True)
    monkeypatch.setattr(kind, "_kinds", {})
    query, key, value = draw((1, 2, 4, 5), (1, 2, 4, 5), (1, 2, 4, 5))
    recipe = Recipe("dot", "softmax", after=0)
    for sink in (None, torch.zeros(2)):
        order = Order(recipe, query, key, value, None, sink, None, {})
        assert find_kind(order, True).may_borrow == (sink is None)


def test_cudnn_gets_no_call_where_it_is_switched_off(monkeypatch):
    monkeypatch.setattr(kind, "can_borrow", lambda *given, **_: True)
    monkeypatch.setattr(kind, "_kinds", {})
    order = Order(Recipe("dot", "softmax", after=0), *draw(*[(1, 2, 4, 5)] * 3), None, None, None, {})
    for on in (True, False, True):
        monkeypatch.setattr(torch.backends.cuda, "cudnn_sdp_enabled", lambda on=on: on)
        assert all(work.is_borrowed(find_kind(order, True), learns) == on for learns in (True, False))


@pytest.mark.parametrize("lie", ["expanded", "in between", "transposed", "aligned"])
def test_cudnn_reads_gradients_sixteen_bytes_at_a_time(lie):
    full = torch.randn(1, 2, 128, 64, dtype=torch.bfloat16)
    grad = {
        "expanded": full[:, :, :1, :1].expand(full.shape),
        "in between": torch.randn(full.numel() + 1, dtype=torch.bfloat16)[1:].view(full.shape),
        "transposed": full.mT.contiguous().mT,
        "aligned": full,
    }[lie]
    read = align(grad)
    assert read.is_contiguous()
    assert read.data_ptr() % 16 == 0
    assert torch.equal(read, grad)
    assert (read is grad) == (lie == "aligned")


def test_a_kernel_that_heals_alone_is_not_measured(monkeypatch):
    monkeypatch.setenv("REGARD_TUNE", "1")
    monkeypatch.setattr(tune, "recall", lambda device: {})
    monkeypatch.setattr(tune, "measure", lambda launch, shape: pytest.fail("measured"))
    borrow(monkeypatch)
    rows = draw((1, 2, 40, 16), (1, 2, 40, 16), (1, 2, 40, 16))
    attend(*rows, mask=Causal(), backend="auto").sum().backward()


# of 16 rows, which share what came through, the first query and the last key see least
ILL = {
    "nothing": (), "a row that sees least": (64, 63), "a unit": (slice(64, 80),), "a block": (slice(32, 64),),
    "all": (slice(None),),
}  # fmt: skip


@pytest.mark.parametrize("ill", ILL)
@pytest.mark.parametrize("heads", [1, 2])
def test_what_cudnn_spoils_is_healed(monkeypatch, ill, heads):
    spoilt = borrow(monkeypatch, *ILL[ill])
    shapes = (1, 2, 80, 16), (1, heads, 80, 16), (1, heads, 80, 16)
    made = []
    for backend in ("auto", "tiled"):
        rows = draw(*shapes)
        out = attend(*rows, mask=Causal(), backend=backend)
        made.append([out, *torch.autograd.grad(out.square().sum(), rows)])
    assert spoilt == ["forward", "backward"]
    assert_all_close(*made, ["output", "query", "key", "value"])


def borrow(monkeypatch, ill: slice | int = slice(0), ill_keys: int | None = None) -> list[str]:
    """Let torch stand in for cuDNN, and spoil these positions of what it makes, or others of keys."""
    asked = []

    def see(query, key, value, scale):
        repeats = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
        scores = (scale * query @ key.mT).masked_fill(
            ~torch.ones(query.shape[2], key.shape[2]).tril().bool(), -torch.inf
        )
        return scores.softmax(-1) @ value, scores.logsumexp(-1, keepdim=True)

    def forward(query, key, value, scale, keeps):
        asked.append("forward")
        return [spoil(x, ill) for x in see(query, key, value, scale)]

    def backward(grad, query, key, value, out, logsumexp, scale):
        asked.append("backward")
        # by hand: within an operator autograd sees nothing
        groups, repeats = key.shape[1], query.shape[1] // key.shape[1]
        wide_key, wide_value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
        reach = torch.ones(query.shape[2], key.shape[2]).tril().bool()
        weights = (scale * query @ wide_key.mT).masked_fill(~reach, -torch.inf).softmax(-1)
        far = grad @ wide_value.mT
        pull = scale * weights * (far - (weights * far).sum(-1, keepdim=True))
        made = [x.unflatten(1, (groups, repeats)).sum(2) for x in (pull.mT @ query, weights.mT @ grad)]
        return spoil(pull @ wide_key, ill), *(spoil(x, ill if ill_keys is None else ill_keys) for x in made)

    def spoil(x, at):
        x[:, :, at] = torch.nan
        return x

    lend(monkeypatch, forward, backward)
    return asked


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("form", ["tanh", "silu", "gaussian"])
def test_features_that_wait_are_those_that_a_backward_pass_makes(form, dtype, monkeypatch):
    """Few wait for it, in one piece of memory; of many it makes them again."""
    made = []
    lay_out = backward.list_features

    def look(*given):
        made.append(given)
        return lay_out(*given)

    monkeypatch.setattr(backward, "list_features", look)
    rows = [x.to(dtype).requires_grad_() for x in draw((2, 2, 37, 6), (2, 1, 19, 6), (2, 1, 19, 5))]
    weight = draw((2, 6))[0].to(dtype).requires_grad_()
    score = Gaussian(weight) if form == "gaussian" else Additive(weight, form)

    def pull():
        out = attend(*rows, score=score, mask=Causal(), backend="fused")
        return torch.autograd.grad(out.float().sin().sum(), [*rows, weight])

    kept = pull()
    assert not made
    # who packs what is kept may do so in fewer bits, which features would not survive
    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x):
        again = pull()
    assert len(made) == 1
    assert all(torch.equal(x, y) for x, y in zip(kept, again, strict=True))
    made.clear()
    monkeypatch.setattr(work, "_FEW", 0)
    again = pull()
    assert made
    assert all(x.abs().max() > 0 and torch.equal(x, y) for x, y in zip(kept, again, strict=True))
