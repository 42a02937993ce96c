"""What cuDNN makes is healed by ours: here plain code stands in, which lets NaN through its mask as cuDNN does."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch._dynamo import compiled_autograd
from torch.autograd.graph import saved_tensors_hooks

from regard import attend, explain
from regard.core import RegardError
from regard.mask import Causal
from tests.fused.against import DEVICE, draw
from tests.fused.lending import lend
from tests.tolerances import assert_all_close

pytest.importorskip("triton")

from regard.engine.backends.fused import borrowed, kind, work
from regard.engine.backends.fused.recipe import Recipe

SHAPES = [(2, 4, 40, 8), (2, 2, 40, 8), (2, 2, 40, 8)]


def attend_plainly(query, key, value, scale, keeps):
    query, key, value = (x.detach() for x in (query, key, value))
    key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
    scores = (query @ key.mT * scale).masked_fill(~_below(query), -torch.inf)
    return scores.softmax(-1) @ value, scores.logsumexp(-1, keepdim=True)


def differentiate_plainly(grad, query, key, value, out, logsumexp, scale):
    groups = query.shape[1] // key.shape[1]
    keys, values = (x.repeat_interleave(groups, 1) for x in (key, value))
    weights = (query @ keys.mT * scale).masked_fill(~_below(query), -torch.inf).sub(logsumexp).exp()
    dscores = weights * (grad @ values.mT - (grad * out).sum(-1, keepdim=True)) * scale
    dkey, dvalue = (x.unflatten(1, (-1, groups)).sum(2) for x in (dscores.mT @ query, weights.mT @ grad))
    return dscores @ keys, dkey, dvalue


def _below(query):
    return torch.ones(query.shape[2], query.shape[2], dtype=torch.bool, device=query.device).tril()


@pytest.fixture
def lent(monkeypatch):
    """A plain kernel in the place of cuDNN's, and how often it was called."""
    calls = []
    run = lambda *x: calls.append("forward") or attend_plainly(*x)  # noqa: E731
    pull = lambda *x: calls.append("back") or differentiate_plainly(*x)  # noqa: E731
    lend(monkeypatch, run, pull)
    return calls


def run(rows, backend, cotangent, packs=False):
    rows = [x.detach().requires_grad_() for x in rows]
    # where somebody packs what is kept, a function of ours keeps it
    with saved_tensors_hooks(lambda x: x, lambda x: x) if packs else nullcontext():
        out = attend(*rows, mask=Causal(), backend=backend)
    return [out.detach(), *torch.autograd.grad(out, rows, cotangent.to(out.dtype))]


def draw_ill(ill):
    rows, cotangent = draw(*SHAPES, seed=3), torch.randn(2, 4, 40, 8, generator=torch.Generator().manual_seed(1))
    rows, cotangent = [x.detach().clone() for x in rows], cotangent.to(DEVICE)
    if ill is not None:
        # seen by the last three queries alone, which are the last block's
        dict(zip(("query", "key", "value"), rows, strict=True)).get(ill, cotangent)[1, 1, 37, 2] = torch.nan
    return rows, cotangent


def check_healed(found, rows, cotangent, ill):
    # a gradient's NaN spreads under the mask of plain code, and not in our own kernels
    oracle = (rows, "fused") if ill == "gradient" else ([x.double() for x in rows], "reference")
    wanted = run(*oracle, cotangent)
    assert any(x.isnan().any() for x in wanted) == (ill is not None)
    for one, other in zip(found, wanted, strict=True):
        assert torch.equal(one.isnan(), other.isnan())
    tame = [[x.nan_to_num(0.0).float() for x in y] for y in (found, wanted)]
    assert_all_close(*tame, ["output", "dquery", "dkey", "dvalue"])


@pytest.mark.parametrize("packs", [False, True], ids=["torch keeps", "ours keep"])
@pytest.mark.parametrize("ill", [None, "query", "key", "value", "gradient"])
def test_what_a_mask_hides_is_healed(lent, ill, packs):
    rows, cotangent = draw_ill(ill)
    found = run(rows, "auto", cotangent, packs)
    assert lent == ["forward", "back"]
    check_healed(found, rows, cotangent, ill)


def test_behind_torch_gradients_are_read_anywhere_and_differentiated(lent, monkeypatch):
    rows = [x.detach().requires_grad_() for x in draw(*SHAPES)]
    cotangent = torch.randn(2, 4, 8, 40, device=DEVICE).mT
    (wanted,) = torch.autograd.grad(attend(*rows, mask=Causal(), backend="fused"), rows[1], cotangent)
    out, (query, *_) = attend(*rows, mask=Causal()), rows
    assert type(out.grad_fn).__name__ == "NativeBackward"
    # one gradient alone, twice
    for _ in range(2):
        (found,) = torch.autograd.grad(out, rows[1], cotangent, retain_graph=True)
        assert_all_close([found], [wanted], ["dkey"])
    (pulled,) = torch.autograd.grad(out, query, cotangent, create_graph=True)
    (again,) = torch.autograd.grad(pulled.square().sum(), query)
    (other,) = torch.autograd.grad(attend(*rows, mask=Causal(), backend="tiled"), query, cotangent, create_graph=True)
    assert_all_close([again], torch.autograd.grad(other.square().sum(), query), ["curvature"])
    with pytest.raises(RegardError, match="is_grads_batched"):
        torch.autograd.grad(attend(*rows, mask=Causal()), query, torch.ones(2, *out.shape), is_grads_batched=True)
    # by then cuDNN is forbidden: ours take what it kept
    monkeypatch.setattr(work, "heal_borrowed", None)
    torch.use_deterministic_algorithms(True)
    try:
        (found,) = torch.autograd.grad(out, rows[1], cotangent)
    finally:
        torch.use_deterministic_algorithms(False)
    assert_all_close([found], [wanted], ["dkey"])


@pytest.mark.parametrize("is_forbidden", [False, True])
def test_behind_torch_a_gradient_may_be_the_negative_of_what_lies_there(lent, is_forbidden):
    rows, cotangent = draw_ill("value")
    found = []
    for grad in (torch._neg_view(cotangent), -cotangent):
        leaves = [x.detach().requires_grad_() for x in rows]
        out = attend(*leaves, mask=Causal())
        # autograd itself would write it out
        out.register_hook(lambda _, grad=grad: grad)
        torch.use_deterministic_algorithms(is_forbidden)
        try:
            found.append([x.nan_to_num(9.0) for x in torch.autograd.grad(out.sum(), leaves)])
        finally:
            torch.use_deterministic_algorithms(False)
    assert_all_close(*found, ["dquery", "dkey", "dvalue"])


def test_compiled_autograd_is_refused_where_it_does_not_show_what_torch_keeps(lent):
    rows = [x.detach().requires_grad_() for x in draw(*SHAPES)]
    out = attend(*rows, mask=Causal())
    with compiled_autograd._enable(lambda graph: graph), pytest.raises(RegardError, match="compiled autograd"):
        out.sum().backward()


def test_who_asks_by_name_or_for_the_same_bits_gets_our_own(lent):
    rows, cotangent = draw(*SHAPES), torch.ones(2, 4, 40, 8, device=DEVICE)
    run(rows, "fused", cotangent)
    assert lent == []
    torch.use_deterministic_algorithms(True)
    try:
        run(rows, "auto", cotangent)
    finally:
        torch.use_deterministic_algorithms(False)
    assert lent == []
    assert explain(*rows, mask=Causal()).backend == "fused"


def test_the_operator_keeps_what_either_kernel_reads(lent):
    rows, cotangent = draw(*SHAPES), torch.randn(2, 4, 40, 8, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    wanted = run(rows, "fused", cotangent)
    seen = torch._C._len_torch_dispatch_stack
    try:
        torch._C._len_torch_dispatch_stack = lambda: 1
        found = run(rows, "auto", cotangent)
    finally:
        torch._C._len_torch_dispatch_stack = seen
    assert lent == ["forward", "back"]
    assert_all_close(found, wanted, ["output", "dquery", "dkey", "dvalue"])


def test_both_ways_to_keep_a_row_say_the_same():
    logsumexp = torch.tensor([-300.0, -1.5, 0.0, 88.0, 3e4]).view(1, 1, 5, 1)
    assert torch.allclose(borrowed.as_logsumexp(borrowed.as_rows_are_kept(logsumexp)), logsumexp, rtol=1e-6)


CAUSAL = Recipe("dot", "softmax", 0.125, after=0)


@pytest.mark.parametrize(
    ("recipe", "shape"),
    [
        (Recipe("dot", "softmax", 0.125), (1, 2, 256, 64)),
        (Recipe("dot", "relu1", 0.125, after=0), (1, 2, 256, 64)),
        (Recipe("dot", "softmax", 0.125, after=1), (1, 2, 256, 64)),
        (Recipe("dot", "softmax", 0.125, after=0, before=9), (1, 2, 256, 64)),
        (Recipe("dot", "softmax", 0.125, after=0, cap=9.0), (1, 2, 256, 64)),
        (Recipe("dot", "softmax", 0.125, after=0, dropout=0.1), (1, 2, 256, 64)),
        (Recipe("dot", "softmax", 0.125, after=0, bias="slopes"), (1, 2, 256, 64)),
        (Recipe("dot", "softmax", 0.125, after=0, marks=("lengths",)), (1, 2, 256, 64)),
        (Recipe("dot", "softmax", -0.125, after=0), (1, 2, 256, 64)),
        (CAUSAL, (1, 2, 264, 64)),
        (CAUSAL, (1, 1, 256, 64)),
        (CAUSAL, (1, 2, 256, 60)),
        (CAUSAL, (1, 2, 256, 160)),
    ],
)
def test_what_it_gets_wrong_or_does_not_take_is_ours(recipe, shape, monkeypatch):
    monkeypatch.setattr(borrowed, "has_cudnn", lambda device: True)
    monkeypatch.setattr(borrowed, "LEAST_WORK", 2 * 256 * 256 * 60)

    class Rows(torch.Tensor):
        device = torch.device("cuda")

    def lie(shape, dtype=torch.bfloat16):
        return torch.zeros(shape, dtype=dtype).as_subclass(Rows)

    rows = [lie((1, 2, 256, 64)) for _ in range(3)]
    monkeypatch.setattr(borrowed.cuda, "SDPAParams", lambda *given: given)
    monkeypatch.setattr(borrowed.cuda, "can_use_cudnn_attention", lambda asked: False)
    others = [lie(shape) for _ in range(3)]
    for learns in (True, False):
        assert borrowed.can_borrow(CAUSAL, *rows, learns=learns)
        # blocks that are not full matter to gradients alone
        assert borrowed.can_borrow(recipe, *others, learns=learns) == (not learns and shape[2] == 264)
        assert not borrowed.can_borrow(CAUSAL, rows[0], lie((1, 2, 512, 64)), lie((1, 2, 512, 64)), learns=learns)
        assert not borrowed.can_borrow(CAUSAL, *(lie((1, 2, 256, 64), torch.float32) for _ in range(3)), learns=learns)
        assert not borrowed.can_borrow(CAUSAL, lie((1, 2, 256, 72))[..., 4:68], *rows[1:], learns=learns)
        assert not borrowed.can_borrow(CAUSAL, lie((1, 1, 256, 64)).expand(1, 2, 256, 64), *rows[1:], learns=learns)
    monkeypatch.setattr(borrowed.cuda, "can_use_cudnn_attention", lambda asked: not asked[0].requires_grad)
    assert [
        borrowed.can_borrow(CAUSAL, *(lie((1, 2, 256, 160)) for _ in range(3)), learns=x) for x in (False, True)
    ] == [1, 0]
    # torch asks whether gradients are on; what is found is kept for a call that learns, too
    monkeypatch.setattr(
        borrowed.cuda, "can_use_cudnn_attention", lambda asked: not (asked[0].requires_grad and torch.is_grad_enabled())
    )
    wide = [lie((1, 2, 256, 160)) for _ in range(3)]
    with torch.inference_mode():
        inferred = [lie((1, 2, 256, 160)) for _ in range(3)]
        assert not borrowed.can_borrow(CAUSAL, *wide, learns=True)
    with torch.no_grad():
        assert not any(borrowed.can_borrow(CAUSAL, *x, learns=True) for x in (wide, inferred))
    monkeypatch.setattr(borrowed, "WORK_TO_FILL", 2 * 264 * 264 * 64)
    assert borrowed.count_missing(recipe, *others) == (120 if shape[2] == 264 else 0)


@pytest.mark.parametrize("ill", [None, "query", "key", "value", "gradient"])
def test_rows_fill_the_blocks_of_cudnn(lent, ill, monkeypatch):
    monkeypatch.setattr(kind, "can_borrow", lambda recipe, query, *_, **__: query.shape[2] % 16 == 0)
    monkeypatch.setattr(kind, "count_missing", lambda recipe, query, *_: -query.shape[2] % 16)
    rows, cotangent = draw_ill(ill)
    torch.use_deterministic_algorithms(True)
    try:
        # of what is kept when it is forbidden nothing stays when it is not
        for _ in range(2):
            run(rows, "auto", cotangent)
    finally:
        torch.use_deterministic_algorithms(False)
    assert not lent
    found = run(rows, "auto", cotangent)
    assert lent == ["forward", "back"]
    check_healed(found, rows, cotangent, ill)
    if ill is None:
        curved = []
        for backend in ("auto", "tiled"):
            leaves = [x.requires_grad_() for x in rows]
            grads = torch.autograd.grad(
                attend(*leaves, mask=Causal(), backend=backend), leaves, cotangent, create_graph=True
            )
            curved.append(torch.autograd.grad(sum(x.square().sum() for x in grads), leaves))
        assert_all_close(*curved, ["query", "key", "value"])
