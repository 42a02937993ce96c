"""The operators where cuDNN's kernel is borrowed: plain code stands in for it, which takes and keeps what that does."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch._dynamo.testing import AotEagerAndRecordGraphs

pytest.importorskip("triton")

from regard import attend
from regard.engine.backends.fused import operators, work
from regard.mask import Causal
from tests.fused.against import DEVICE, draw
from tests.fused.grab import BACKWARD, FORWARD, RECORDS, Grab, compile_whole, detach
from tests.fused.lending import lend
from tests.tolerances import assert_all_close


def lend_plainly(monkeypatch):
    """Plain code in the place of cuDNN's, and what of it was called."""
    calls = []

    def score(query, key, scale):
        below = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device).tril()
        key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
        return (query @ key.mT * scale).masked_fill(~below, -torch.inf)

    def mix(weights, value):
        return weights @ value.repeat_interleave(weights.shape[1] // value.shape[1], 1)

    def run(query, key, value, scale, keeps):
        calls.append("forward")
        scores = score(query, key, scale)
        return mix(scores.softmax(-1), value), scores.logsumexp(-1, keepdim=True)

    def differentiate(grad, query, key, value, out, logsumexp, scale):
        calls.append("back")
        with (
            torch.enable_grad(),
            torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.AutogradFunctionality, False),
        ):
            rows = [x.detach().requires_grad_() for x in (query, key, value)]
            scores = score(rows[0], rows[1], scale)
            # by what was kept: its own gradient is in the second term
            weights = (scores - logsumexp).exp()
            kept = (grad * out).sum(-1, keepdim=True) * weights.detach() * scores
            whole = (mix(weights, rows[2]) * grad).sum() - kept.masked_fill(weights == 0, 0.0).sum()
            return torch.autograd.grad(whole, rows)

    lend(monkeypatch, run, differentiate)
    return calls


@RECORDS
@pytest.mark.parametrize("is_told", [True, False], ids=["told", "not told"])
@pytest.mark.parametrize("back", [True, False], ids=["cuDNN back", "ours back"])
@pytest.mark.parametrize("forth", [True, False], ids=["cuDNN", "ours"])
def test_what_is_kept_of_a_row_goes_both_ways(forth, back, is_told, monkeypatch):
    calls, may = lend_plainly(monkeypatch), [True]
    monkeypatch.setattr(torch.backends.cuda, "cudnn_sdp_enabled", lambda: may[0])
    monkeypatch.setattr(operators, "could_borrow", lambda *given, **_: is_told)
    leaves, seen = draw((1, 4, 17, 8), (1, 2, 17, 8), (1, 2, 17, 8)), AotEagerAndRecordGraphs()
    grad = torch.cos(torch.arange(544.0, device=DEVICE)).view(1, 4, 17, 8)
    compiled = compile_whole(partial(attend, mask=Causal()), seen)
    compiled(*leaves)
    calls.clear()
    may[0] = forth
    out = compiled(*leaves)
    may[0] = back
    grads = torch.autograd.grad(out, leaves, grad)
    assert calls == ["forward"] * forth + ["back"] * back
    # cuDNN's own where a graph may rely on it
    (asked,) = (node for node in seen.fw_graphs[0].graph.nodes if str(node.target) == "regard.attend_fused.default")
    assert asked.meta["val"][1].shape == ((1, 4, 17, 1) if is_told else (2, 1, 4, 17))
    may[0] = forth
    plain = attend(*leaves, mask=Causal())
    wanted = torch.autograd.grad(plain, leaves, grad)
    if forth == back == is_told:
        # nothing was made of it on the way
        assert all(torch.equal(*pair) for pair in zip([out, *grads], [plain, *wanted], strict=True))
    assert_all_close([out, *grads], [plain, *wanted], ["output", "dquery", "dkey", "dvalue"])


@pytest.mark.parametrize("name", ["attend_borrowed", "differentiate_borrowed"])
def test_rows_lie_as_they_were_said_to(name, monkeypatch):
    lend_plainly(monkeypatch)
    made = getattr(work, name)
    # in another order than any of ours
    turn = lambda x: x.permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0)  # noqa: E731
    monkeypatch.setattr(work, name, lambda *given: tuple(map(turn, made(*given))))
    leaves, grab = draw((2, 4, 9, 8), (2, 2, 9, 8), (2, 2, 9, 8)), Grab()
    with grab:
        out = attend(*leaves, mask=Causal())
        torch.autograd.grad(out.sum(), leaves)
    for op, args in (grab.calls[FORWARD], grab.calls[BACKWARD]):
        torch.library.opcheck(op, detach(args), test_utils=["test_faketensor"])


@pytest.mark.parametrize("how", ["sink", "named", "symbols", "switched off"])
def test_cudnn_is_relied_on_only_where_it_will_run(how, monkeypatch):
    monkeypatch.setattr(operators, "could_borrow", lambda *given, **_: True)
    monkeypatch.setattr(torch.backends.cuda, "cudnn_sdp_enabled", lambda: how != "switched off")
    words = how if how in ("sink", "named") else ""
    rows = [torch.zeros(1, 2, 8, 8, device="meta") for _ in range(3)]
    asked = operators.write("dot;softmax;;after;", [0] * 6, [0.5, 0.0, 1.0, 0.0], words, None)
    if how == "symbols":
        asked = asked._replace(symbols=[0] * 6)
    assert not operators._may_keep_one(asked, *rows)
    monkeypatch.setattr(torch.backends.cuda, "cudnn_sdp_enabled", lambda: True)
    assert operators._may_keep_one(asked._replace(text=asked.text.removesuffix(words), symbols=None), *rows)
