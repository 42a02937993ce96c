"""torch's own attention: `nn.MultiheadAttention`, and the layers whose fast path goes around it.

Queries and keys are recomputed beside it from what the module was given: it computes what it always does, by its own
kernels. Hooks of a module would switch the fast path off; those of all modules together do not.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import module as hooks

from regard.bias import Dense
from regard.engine.call import Call
from regard.engine.check import check
from regard.score import Dot
from regard.watching.check import Rest
from regard.watching.masks import read_masks
from regard.watching.record import Recorder
from regard.watching.terms import simplify
from regard.weigh import Softmax

_SIGNATURE = inspect.signature(nn.MultiheadAttention.forward)
_LAYER_SIGNATURE = inspect.signature(nn.TransformerEncoderLayer.forward)


def attends(module: nn.Module) -> bool:
    """Whether a module is torch's attention."""
    return isinstance(module, nn.MultiheadAttention)


@contextmanager
def observe(names: Mapping[int, str], recorder: Recorder) -> Iterator[None]:
    """Record every call of `nn.MultiheadAttention`, and those that a layer's fast path makes in its place."""
    here = threading.local()

    def enter(module: nn.Module, args: Any) -> None:
        if isinstance(module, nn.TransformerEncoderLayer):
            here.ran = set()

    def leave(module: nn.Module, args: Any, options: Any, out: Any) -> None:
        if isinstance(module, nn.MultiheadAttention):
            here.__dict__.setdefault("ran", set()).add(id(module))
            see(module, module, read_module, nn.MultiheadAttention.forward, args, options, out)
        elif isinstance(module, nn.TransformerEncoderLayer):
            attention = module.self_attn
            if isinstance(attention, nn.MultiheadAttention) and id(attention) not in here.ran:
                see(module, attention, read_layer, nn.TransformerEncoderLayer.forward, args, options, out)

    def see(
        module: nn.Module, attention: nn.MultiheadAttention, read: Callable[..., Any], forward: Any, args: Any,
        options: Any, out: Any,
    ) -> None:  # fmt: skip
        name = names.get(id(attention))
        if name is None:
            return
        if type(module).forward is not forward:
            recorder.skip(name, f"{type(module).__name__[:40]} has a forward of its own")
            return

        learns = torch.is_grad_enabled()

        def take() -> None:
            found = read(module, args, options, out, learns)
            if isinstance(found, str):
                recorder.skip(name, found)
            else:
                recorder.take(name, *found)

        with torch.no_grad():
            reason = recorder.guard(name, take)
        if reason is not None:
            recorder.skip(name, reason)

    handles = [
        hooks.register_module_forward_pre_hook(enter),
        hooks.register_module_forward_hook(leave, with_kwargs=True),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
            # torch itself forgets this one
            hooks._global_forward_hooks_with_kwargs.pop(handle.id, None)


def read_module(
    module: nn.MultiheadAttention, args: Any, options: Any, out: Any, learns: bool = False
) -> tuple[Any, ...] | str:
    """What the recorder takes of a call of the module, or why there is nothing to take.

    `learns` says whether gradients were on.
    """
    if module.bias_k is not None or module.add_zero_attn:
        return "it attends to a key of its own beside those it is given (add_bias_kv, add_zero_attn)"
    given = _SIGNATURE.bind(module, *args, **options).arguments
    query, key, value = given["query"], given["key"], given["value"]
    padding, masked, out = given.get("key_padding_mask"), given.get("attn_mask"), out[0]
    kind = "self" if key is query else "cross"
    is_fast = query is key is value and _goes_fast(module, module, query, (module.out_proj,), learns)
    # there torch believes the hint, and never looks at the mask
    is_hinted = given.get("is_causal", False) and padding is None and not given.get("need_weights", True)
    valid = None
    if query.is_nested:
        query, valid = _pad(query)
        key = value = query
        out = _pad(out)[0]
    elif query.ndim == 2:
        query, key, value, out = (x.unsqueeze(0) for x in (query, key, value, out))
        padding = None if padding is None else padding.unsqueeze(0)
    elif not module.batch_first:
        query, key, value, out = (x.transpose(0, 1) for x in (query, key, value, out))
    if is_hinted and not is_fast:
        masked = torch.ones(query.shape[1], key.shape[1], dtype=torch.bool, device=query.device).triu(1)
    mix = _Cast(module.out_proj)

    def finish(row: Tensor, b: int, i: int) -> Tensor:
        return functional.linear(row.flatten(), *mix.to(row.dtype))

    *call, rows = _describe(module, query, key, value, padding, masked, valid)
    return kind, *call, out, Rest(finish, rows)


def read_layer(
    layer: nn.TransformerEncoderLayer, args: Any, options: Any, out: Tensor, learns: bool = False
) -> tuple[Any, ...] | str:
    """The same for a layer that took its fast path: its output comes after its norms and feed-forward network."""
    given = _LAYER_SIGNATURE.bind(layer, *args, **options).arguments
    rows, valid = given["src"], None
    if getattr(layer._sa_block, "__func__", None) is not nn.TransformerEncoderLayer._sa_block:
        # one of torch's would have run the attention, this one need not
        parts = layer.self_attn.out_proj, layer.norm1, layer.norm2, layer.linear1, layer.linear2
        is_known = layer.activation_relu_or_gelu and layer.norm1.eps == layer.norm2.eps
        is_hooked = any(part._forward_hooks or part._forward_pre_hooks for part in layer.modules())
        if not is_known or is_hooked or not _goes_fast(layer, layer.self_attn, rows, parts, learns):
            return f"{type(layer).__name__[:40]} attends in a way of its own, and did not call it"
    if rows.is_nested:
        rows, valid = _pad(rows)
        out = _pad(out)[0]
    # the kernel hides what is not zero, numbers too
    padding, masked = (
        None if mask is None else mask if mask.dtype == torch.bool else mask != 0
        for mask in (given.get("src_key_padding_mask"), given.get("src_mask"))
    )
    norms = [(norm, _Cast(norm)) for norm in (layer.norm1, layer.norm2)]
    linears = [_Cast(linear) for linear in (layer.self_attn.out_proj, layer.linear1, layer.linear2)]
    act = functional.gelu if layer.activation_relu_or_gelu == 2 else functional.relu

    def level(x: Tensor, at: int) -> Tensor:
        norm, held = norms[at]
        weight, bias = held.to(x.dtype)
        return functional.layer_norm(x, norm.normalized_shape, weight, bias, norm.eps)

    def finish(row: Tensor, b: int, i: int) -> Tensor:
        mix, widen, narrow = (held.to(row.dtype) for held in linears)

        def work(x: Tensor) -> Tensor:
            return functional.linear(act(functional.linear(x, *widen)), *narrow)

        x: Tensor = rows[b, i].to(row.dtype) + functional.linear(row.flatten(), *mix)
        if layer.norm_first:
            return x + work(level(x, 1))
        x = level(x, 0)
        return level(x + work(x), 1)

    query = level(rows, 0) if layer.norm_first else rows
    *call, places = _describe(layer.self_attn, query, query, query, padding, masked, valid)
    return "self", *call, out, Rest(finish, places)


def _goes_fast(
    module: nn.Module, attention: nn.MultiheadAttention, rows: Tensor, parts: Iterable[Any], learns: bool
) -> bool:
    """Whether torch takes a kernel that runs no module and reads no hint, by the conditions that it has."""
    tensors = [rows, attention.in_proj_weight, attention.in_proj_bias]
    tensors += [x for part in parts for x in (part.weight, part.bias)]
    if any(x is None for x in tensors) or torch.overrides.has_torch_function(tensors):
        return False
    is_apt = attention.batch_first and attention.num_heads % 2 == 0 and rows.device.type in ("cpu", "cuda", "xpu")
    is_off = module.training or torch.is_autocast_enabled() or not torch.backends.mha.get_fastpath_enabled()
    return rows.ndim == 3 and is_apt and not is_off and not (learns and any(x.requires_grad for x in tensors))


def _describe(
    module: nn.MultiheadAttention, query: Tensor, key: Tensor, value: Tensor, padding: Any, masked: Any,
    valid: Tensor | None,
) -> tuple[Call, Tensor, Tensor, Tensor, Tensor | None]:  # fmt: skip
    """The call in our terms, its rows (batch, heads, positions, width), and its queries that can be checked."""
    packed = module.in_proj_weight
    weights = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight) if packed is None else packed.chunk(3)
    biases = (None, None, None) if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    query, key, value = (
        functional.linear(x, weight, bias).unflatten(-1, (module.num_heads, -1)).transpose(1, 2)
        for x, weight, bias in zip((query, key, value), weights, biases, strict=True)
    )
    batch, heads, n, m = *query.shape[:3], key.shape[2]
    allowed, added = read_masks(type(module).__name__, (batch, heads, n, m), padding, masked)
    if valid is not None:
        # of sequences without padding there are no rows beyond their ends
        allowed = valid[:, None, :, None] & valid[:, None, None]
    sizes = check(query, key, value, Dot())
    mask = simplify(allowed, n, m)
    rate = module.dropout if module.training else 0.0
    call = Call(sizes, Dot(), Softmax(), mask, None if added is None else Dense(added), rate)
    return call, query, key, value, _list_rows(allowed, batch, n)


def _list_rows(allowed: Tensor | None, batch: int, n: int) -> Tensor | None:
    """Queries that have a key: of others, kernels say zeros or NaN."""
    if allowed is None:
        return None
    return allowed.any(-1).all(1).expand(batch, n).flatten().nonzero().flatten()


def _pad(nested: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of equal number, and which of them are of a sequence."""
    padded = nested.to_padded_tensor(0.0)
    lengths = torch.tensor([len(x) for x in nested.unbind()], device=padded.device)
    return padded, torch.arange(padded.shape[1], device=padded.device) < lengths[:, None]


class _Cast:
    """Weight and bias of a module in several dtypes, each made once."""

    def __init__(self, module: nn.Linear | nn.LayerNorm) -> None:
        self.module = module
        self._made: dict[torch.dtype, tuple[Tensor, Tensor | None]] = {}

    def to(self, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        if dtype not in self._made:
            weight, bias = self.module.weight, self.module.bias
            self._made[dtype] = weight.detach().to(dtype), None if bias is None else bias.detach().to(dtype)
        return self._made[dtype]
