"""torch's scaled_dot_product_attention, where a call is softmax of a dot product and its kernels are right."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from regard.core import Tile
from regard.core.terms import rowless
from regard.engine.backends.sdpa_cuda import attend_on_cuda, has_flash
from regard.engine.call import Call, Cost, show_bytes
from regard.engine.double_backward import Again, differentiate_by
from regard.engine.poison import are_finite
from regard.mask import Causal, Full
from regard.score import Dot
from regard.weigh import Softmax

# torch's kernels take half precision and grouped heads as they come; NaN under a mask is `attend`'s to remove
LIFTS, HANDLES_NAN, TWICE_DIFFERENTIABLE, AUTOCASTS, TRACEABLE = False, False, False, True, False
# a mask or bias written out for torch may take this much; beyond it `tiled` needs less
MASK_LIMIT = 32 * 2**20
# scores up to which the rounding of torch's backward stays within the dtype's own
REACH = {torch.float64: 500.0, torch.float32: 500.0, torch.bfloat16: 2e4, torch.float16: 2e4}
HALF = (torch.bfloat16, torch.float16)
# sequences, and heads, that a launch on CUDA can count: pytorch#146704
MOST_BLOCKS = 65535
# numbers that the flash kernel's backward can count, rows and widths rounded up to its blocks
MOST_NUMBERS = 2**31


def refuse(call: Call) -> str | None:
    s = call.sizes
    if s.device.type not in ("cpu", "cuda"):
        return f"torch's kernels on {s.device.type} are not vetted yet."
    if not call.score.is_dot:
        return f"{type(call.score).__name__} is not a dot product."
    if s.dtype in HALF and not call.score.keeps_range:
        # e^12 is no float16, and what a matrix makes of a row has no bound either
        return f"torch's kernels would round what {type(call.score).__name__} makes of rows to half precision."
    if type(call.weigh) is not Softmax:
        return f"{type(call.weigh).__name__} is not softmax."
    if call.weigh.sink is not None:
        return "torch's kernels have no sink."
    if call.dropout:
        return "torch draws other random bits for dropout than the other backends."
    if 0 in (s.b, s.h, s.n, s.m, s.d, s.e):
        return "torch's kernels take no empty axis."
    if s.e != _width(call):
        return f"torch's fused kernels need one width: scores have {_width(call)}, values {s.e}."
    if call.bias is not None and any(t.requires_grad for t in call.bias.tensors):
        return "torch computes the gradient of a bias by n×m."
    return refuse_on_cuda(call) if s.device.type == "cuda" else None


def refuse_on_cuda(call: Call) -> str | None:
    """Why neither the flash kernel nor cuDNN takes the call and gets it right; torch has no other that is as fast."""
    s, width = call.sizes, _width(call)
    if s.dtype not in HALF:
        return f"torch's flash kernel takes float16 and bfloat16, got {str(s.dtype).removeprefix('torch.')}."
    if type(call.mask) is not Full:
        return "torch's kernels on cuda let NaN through a mask, and cuDNN fills rows with no allowed key."
    if call.bias is not None:
        return "torch's flash kernel has no bias."
    if width % 8 or width > 256:
        return f"torch's flash kernel needs a width that is a multiple of 8, at most 256, got {width}."
    if call.needs_grad and 192 < width <= 224:
        # on compute capability 8.6, 8.9 and 12
        return f"torch's flash kernel has no backward for widths from 193 to 224 on some devices, got {width}."
    if max(s.b, s.h) > MOST_BLOCKS:
        return f"torch's flash kernel takes at most {MOST_BLOCKS} sequences and heads, got {s.b} and {s.h}."
    if call.needs_grad and s.b * s.h * -(-s.n // 128) * 128 * max(width, 32) > MOST_NUMBERS:
        return f"torch's flash kernel counts at most {MOST_NUMBERS} numbers of the query in its backward."
    return None if has_flash(s.device) else f"torch has no flash kernel for {s.device}."


def decline(call: Call) -> str | None:
    held = _held(call)
    if held > MASK_LIMIT:
        return f"torch needs mask and bias written out, {show_bytes(held)}."
    s = call.sizes
    if held and s.n >= 512:
        # one query from the middle tells how much of a row the mask leaves
        row = Tile(range(s.b), range(s.h), range(s.n // 2, s.n // 2 + 1), range(s.m), s.device)
        left = len(call.mask.span(row))
        if 4 * left <= s.m:
            return f"torch computes all {s.m} keys of a row, the mask leaves about {left}."
    if call.bias is not None and call.needs_grad:
        return "torch scales and adds a bias in one rounding forward, in two backward."
    return None


def estimate(call: Call) -> Cost:
    s = call.sizes
    pairs = s.b * s.h * s.n * s.m * (0.5 if _is_square_causal(call) else 1.0)
    ends = s.b * (s.h * s.n * (s.d + s.e) + s.g * s.m * (s.c + s.e)) * s.dtype.itemsize
    passes = 3.5 if call.needs_grad else 1.0
    return Cost(2.0 * pairs * (s.d + s.e) * passes, ends, _held(call) + s.b * s.h * s.n * 4)


def run(call: Call, query: Tensor, key: Tensor, value: Tensor, again: Again | None = None) -> Tensor:
    if call.sizes.device.type == "cuda" and type(call.score) is Dot:
        run = partial(_run_plain, call, again)
        # for the next call that has the same terms
        call.kept["again"] = call.mask, run
        return run(query, key, value)
    out = _run(call, query, key, value)
    if again is None:
        return out
    return differentiate_by(again, out, (query, key, value, *call.tensors), call.constants)


def _run_plain(call: Call, again: Again | None, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """A call of plain dot products on CUDA."""
    query, key, scale = _rows(call, query, key)
    return attend_on_cuda(call, query, key, value, scale, again)


def _run(call: Call, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    query, key, scale = _rows(call, query, key)
    if call.sizes.device.type == "cuda":
        return attend_on_cuda(call, query, key, value, scale, None)
    query, key, value = (x if x.stride(-1) == 1 else x.contiguous() for x in (query, key, value))
    causal = _is_square_causal(call)
    return functional.scaled_dot_product_attention(
        query, key, value, attn_mask=None if causal else _write_out(call, query.dtype), is_causal=causal, scale=scale,
        enable_gqa=call.sizes.g != call.sizes.h,
    )  # fmt: skip


def errs(call: Call, query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether torch's kernels would be wrong for these numbers: `tiled` takes such a call, named or not."""
    if call.sizes.device.type == "cuda":
        # those show NaN, and a look for large scores would wait for the device: only half precision is taken there,
        # whose own rounding is the coarser one up to `REACH`; beyond it neighbouring scores lie 64 and more apart
        return False
    if call.needs_grad and overreaches(call, query, key):
        return True
    # a row of NaN scores comes out as zeros where keys are few; under a mask NaN was taken out before, and
    # what `overreaches` lets pass has none in query and key
    return type(call.mask) is Full and not are_finite(call, *((value,) if call.needs_grad else (query, key, value)))


def overreaches(call: Call, query: Tensor, key: Tensor) -> bool:
    """Whether torch's backward would be less exact than the dtype, or see a number that is not finite.

    It keeps the logsumexp of a row, max + log(sum), and recomputes the weights from it: a large max swallows the sum.
    And beside a bias it rounds a score once forward and twice backward.
    """
    if call.bias is not None:
        return True
    with torch.no_grad():
        query, key, scale = _rows(call, query, key)
        reach = abs(scale)
        for x in (query, key):
            reach *= torch.linalg.vector_norm(x, dim=-1, dtype=call.compute_dtype).max().item()
    # NaN compares as not smaller
    return not reach <= REACH[call.sizes.dtype]


def _rows(call: Call, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor, float]:
    """Rows whose dot product is the score; half precision is transformed in float32 and rounded once."""
    is_plain, dtype, wide = type(call.score) is Dot, query.dtype, call.compute_dtype
    if is_plain:
        # nothing to transform
        rows = call.score.as_dot(query, key)
    else:
        score = call.score.with_tensors([t.to(wide) for t in call.score.tensors])
        rows = score.as_dot(query.to(wide), key.to(wide))
    if rows is None:
        raise rowless(call.score)
    return rows if is_plain else (rows[0].to(dtype), rows[1].to(dtype), rows[2])


def _width(call: Call) -> int:
    # a bilinear score moves the query to the key's width
    return call.sizes.c


def _is_square_causal(call: Call) -> bool:
    mask = call.mask
    aligned = type(mask) is Causal and isinstance(mask.offset, int) and mask.offset == 0
    return aligned and call.bias is None and call.sizes.n == call.sizes.m


def _held(call: Call) -> float:
    """Bytes of mask and bias as torch wants them: broadcast axes stay one."""
    if (type(call.mask) is Full and call.bias is None) or _is_square_causal(call):
        return 0.0
    s = call.sizes
    # one row tells which axes the mask and the bias really have
    probe = Tile(range(min(s.b, 2)), range(min(s.h, 2)), range(min(s.n, 2)), range(min(s.m, 2)), s.device)
    # the rule itself: `tile` may leave out a part of a composed mask that covers the probe
    rule = None if type(call.mask) is Full else call.mask(*probe.index())
    parts = (rule, None if call.bias is None else call.bias.tile(probe))
    # not by torch.broadcast_shapes, whose first call loads sympy
    shapes = [(1,) * (4 - x.ndim) + tuple(x.shape) for x in parts if x is not None]
    shape, full = map(max, *shapes, (1,) * 4), (s.b, s.h, s.n, s.m)
    count = 1
    for size, whole in zip(shape, full, strict=True):
        count *= whole if size > 1 else 1
    # torch turns a bool mask into numbers
    return float(count * (s.dtype.itemsize + 1))


def _write_out(call: Call, dtype: torch.dtype) -> Tensor | None:
    unmasked = type(call.mask) is Full
    if unmasked and call.bias is None:
        return None
    tile = call.sizes.whole()
    allowed = None if unmasked else call.mask.tile(tile)
    if call.bias is None:
        return None if allowed is None else _four(allowed)
    bias = call.bias.tile(tile).to(dtype)
    return _four(bias if allowed is None else bias.masked_fill(~allowed, -torch.inf))


def _four(x: Tensor) -> Tensor:
    return x.view(*(1,) * (4 - x.ndim), *x.shape)
