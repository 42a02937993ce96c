"""Messages of backends that cannot take a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from regard.bias import Alibi, Quadratic
from regard.core import Sizes, Weigh
from regard.engine.call import Call
from regard.engine.plan import plan
from regard.mask import Causal, Full
from regard.score import Additive, Custom, Dot, Feature, Gaussian
from regard.weigh import Sigmoid, Softmax, Sparsemax
from tests.engine.messages import KEY, META, ONES, QUERY, VALUE, rows, terms

SDPA = "backend='sdpa' cannot take this call: {} Use backend='auto', or see explain(...)."
FUSED, EDGES = SDPA.replace("sdpa", "fused"), SDPA.replace("sdpa", "edges")


def on_cuda(n: int = 5, d: int = 8, lead: int = 2, backend: str = "sdpa", **given: Any) -> Callable[[], Any]:
    """A call on CUDA, planned only: no device is needed to be refused."""
    dtype = given.pop("dtype", torch.bfloat16)
    sizes = Sizes((lead,), 2, 2, n, 7, d, d, d, dtype, torch.device("cuda", 0))
    terms = {"score": Dot(), "weigh": Softmax(), "mask": Full(), **given}
    return lambda: plan(Call(sizes, **terms), backend)


MESSAGES: list[tuple[str, Callable[[], Any]]] = [
    (
        "backend must be one of 'auto', 'edges', 'sdpa', 'fused', 'tiled', 'compiled', 'reference', got 'flash'.",
        terms(backend="flash"),
    ),
    (
        SDPA.format("torch's kernels on meta are not vetted yet."),
        rows(QUERY.to(META), KEY.to(META), VALUE.to(META), backend="sdpa"),
    ),
    (
        FUSED.format("its kernels run on CUDA devices, not on meta."),
        rows(QUERY.to(META), KEY.to(META), VALUE.to(META), backend="fused"),
    ),
    (FUSED.format("its kernels compute in float32, not float64."), on_cuda(backend="fused", dtype=torch.float64)),
    (FUSED.format("its kernels take no empty axis."), on_cuda(n=0, backend="fused")),
    (FUSED.format("its kernels take widths up to 512, got 520."), on_cuda(d=520, backend="fused")),
    (
        FUSED.format("its gradients of features take widths up to 256, got 264."),
        on_cuda(d=264, backend="fused", score=Gaussian(), needs_grad=True),
    ),
    (
        FUSED.format("its kernels count positions times features up to 2**29, got 134217728 × 8."),
        on_cuda(n=2**27, backend="fused", score=Gaussian()),
    ),
    (EDGES.format("it runs on the CPU, not on cuda:0."), on_cuda(backend="edges")),
    (EDGES.format("its mask must be Edges, or Edges & others."), terms(backend="edges")),
    (FUSED.format("Custom has no kernel."), on_cuda(backend="fused", score=Custom(torch.add))),
    (FUSED.format("Weigh has no kernel."), on_cuda(backend="fused", weigh=Weigh())),
    (
        FUSED.format("Quadratic has no kernel."),
        on_cuda(backend="fused", bias=Quadratic(1, 5, ONES(2), ONES(2, 2))),
    ),
    (SDPA.format("Additive is not a dot product."), terms(score=Additive(ONES(3)), backend="sdpa")),
    (
        SDPA.format("torch's kernels would round what Feature makes of rows to half precision."),
        rows(QUERY.half(), KEY.half(), VALUE.half(), score=Feature(), backend="sdpa"),
    ),
    (SDPA.format("Dot is not a dot product."), terms(score=Dot(cap=5), backend="sdpa")),
    (SDPA.format("Sparsemax is not softmax."), terms(weigh=Sparsemax(), backend="sdpa")),
    (SDPA.format("Sigmoid is not softmax."), terms(weigh=Sigmoid(), backend="sdpa")),
    (SDPA.format("torch's kernels have no sink."), terms(weigh=Softmax(ONES(2)), backend="sdpa")),
    (
        SDPA.format("torch draws other random bits for dropout than the other backends."),
        terms(dropout=0.5, backend="sdpa"),
    ),
    (SDPA.format("torch's kernels take no empty axis."), rows(query=ONES(2, 2, 0, 3), backend="sdpa")),
    (
        SDPA.format("torch's fused kernels need one width: scores have 3, values 4."),
        rows(value=ONES(2, 2, 7, 4), backend="sdpa"),
    ),
    (
        SDPA.format("torch computes the gradient of a bias by n×m."),
        terms(bias=ONES(5, 7).requires_grad_(), backend="sdpa"),
    ),
    # --- torch's kernels on CUDA
    (SDPA.format("torch's flash kernel takes float16 and bfloat16, got float32."), on_cuda(dtype=torch.float32)),
    (
        SDPA.format("torch's kernels on cuda let NaN through a mask, and cuDNN fills rows with no allowed key."),
        on_cuda(mask=Causal(0)),
    ),
    (SDPA.format("torch's flash kernel has no bias."), on_cuda(bias=Alibi(ONES(2), offset=0))),
    (
        SDPA.format("torch's flash kernel needs a width that is a multiple of 8, at most 256, got 12."),
        on_cuda(d=12),
    ),
    (
        SDPA.format("torch's flash kernel needs a width that is a multiple of 8, at most 256, got 264."),
        on_cuda(d=264),
    ),
    (
        SDPA.format("torch's flash kernel has no backward for widths from 193 to 224 on some devices, got 200."),
        on_cuda(d=200, needs_grad=True),
    ),
    (
        SDPA.format("torch's flash kernel takes at most 65535 sequences and heads, got 65536 and 2."),
        on_cuda(lead=65536),
    ),
    (
        SDPA.format("torch's flash kernel counts at most 2147483648 numbers of the query in its backward."),
        on_cuda(n=2**24 + 1, d=32, needs_grad=True),
    ),
]
