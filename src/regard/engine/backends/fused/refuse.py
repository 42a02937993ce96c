"""Why there is no kernel for a call, and what it would hold."""

from __future__ import annotations

import torch

from regard.bias import Alibi, Dense, Relative
from regard.engine.backends.fused.masks import count_bytes, take_apart
from regard.engine.call import Call
from regard.score import Additive, Concat, Dot, Gaussian
from regard.weigh import Entmax, Hard, Relu, Sigmoid, Softmax, Sparsemax, Sum

WIDEST = 512
# beyond it, a block of keys with its gradients of features does not fit into the shared memory of a Hopper
WIDEST_FEATURES = 256
# what has a kernel; a class that inherits may mean another thing
SCORES = (Dot, Additive, Concat, Gaussian)
WEIGHS = (Softmax, Sum, Sigmoid, Relu, Entmax, Sparsemax, Hard)
BIASES = (Dense, Alibi, Relative)
# indices, and products of a width and a number of positions, are 32 bits wide
MOST = 2**29


def refuse_terms(call: Call) -> str | None:
    """What has no kernel: the first part of a call that is found."""
    s = call.sizes
    if s.dtype == torch.float64:
        return "its kernels compute in float32, not float64."
    if 0 in (s.b, s.h, s.n, s.m, s.d, s.c, s.e):
        return "its kernels take no empty axis."
    if max(s.d, s.c, s.e) > WIDEST:
        return f"its kernels take widths up to {WIDEST}, got {max(s.d, s.c, s.e)}."
    if call.needs_grad and not call.score.is_dot and max(s.d, s.c, s.e) > WIDEST_FEATURES:
        return f"its gradients of features take widths up to {WIDEST_FEATURES}, got {max(s.d, s.c, s.e)}."
    if max(s.n, s.m) * (1 if call.score.is_dot else s.d) >= MOST:
        return f"its kernels count positions times features up to 2**29, got {max(s.n, s.m)} × {s.d}."
    if not (call.score.is_dot or type(call.score) in SCORES):
        return f"{type(call.score).__name__} has no kernel."
    if type(call.weigh) not in WEIGHS:
        return f"{type(call.weigh).__name__} has no kernel."
    if isinstance(call.weigh, Entmax) and call.weigh.alpha > 2:
        return f"beyond an alpha of 2, float32 cannot tell weights near the threshold apart, got {call.weigh.alpha}."
    if call.bias is not None and type(call.bias) not in BIASES:
        return f"{type(call.bias).__name__} has no kernel."
    return None


def name_weigh(call: Call) -> str:
    """What the kernels call the weigher of a call."""
    weigh = call.weigh
    if isinstance(weigh, Softmax):
        return "softmax"
    if isinstance(weigh, Sum):
        return "sum"
    if isinstance(weigh, Sigmoid):
        return "sigmoid"
    if isinstance(weigh, Relu):
        return f"relu{weigh.power}"
    if isinstance(weigh, Entmax):
        return {1.5: "entmax1.5", 2.0: "entmax2"}.get(weigh.alpha, "entmax")
    return "hard"


def count_mask(call: Call) -> int:
    """Bytes of bits that the mask will be packed into."""
    return count_bytes(take_apart(call.mask).bits, call.sizes)
