"""Plain functions in the place of cuDNN's kernels, where torch has none."""

from __future__ import annotations

from collections.abc import Callable

import torch

from regard.engine import known
from regard.engine.backends import fused, sdpa
from regard.engine.backends.fused import kind, ops, work
from regard.engine.backends.fused.borrowed import align


class Native(torch.autograd.Function):
    """Them as a node of torch's own, with what it keeps under the names that those of C++ have."""

    @staticmethod
    def forward(ctx, query, key, value, scale, run, pull):
        out, logsumexp = run(query.detach(), key.detach(), value.detach(), scale, True)
        ctx._saved_query, ctx._saved_key, ctx._saved_value = query, key, value
        ctx._saved_output, ctx._saved_logsumexp, ctx.scale, ctx.pull = out, logsumexp, scale, pull
        # what keeps an output that it gives is never freed
        return out.view_as(out), logsumexp

    @staticmethod
    def backward(ctx, grad, _):
        assert align(grad) is grad, "cuDNN would fault"
        rows = (x.detach() for x in (ctx._saved_query, ctx._saved_key, ctx._saved_value))
        with torch.no_grad():
            return *ctx.pull(grad.detach(), *rows, ctx._saved_output, ctx._saved_logsumexp, ctx.scale), None, None, None


def lend(monkeypatch, run: Callable, pull: Callable) -> None:
    """Let `auto` borrow `run` and, for its gradient, `pull`, which are called as cuDNN's kernels are."""

    def attend(query, key, value, scale, keeps):
        # within an operator autograd sees nothing
        within = torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.AutogradCPU)
        if within or not (keeps and torch.is_grad_enabled()):
            return run(query, key, value, scale, keeps)
        return Native.apply(query, key, value, scale, run, pull)

    for room in (kind, ops):
        monkeypatch.setattr(room, "can_borrow", lambda *given, **_: True)
    # what was kept of calls before is not asked again
    monkeypatch.setattr(kind, "_kinds", {})
    monkeypatch.setattr(known, "_known", {})
    monkeypatch.setattr(work, "attend_borrowed", attend)
    monkeypatch.setattr(work, "differentiate_borrowed", pull)
    monkeypatch.setattr(fused, "decline", lambda call: None)
    monkeypatch.setattr(sdpa, "refuse", lambda call: "not here")
