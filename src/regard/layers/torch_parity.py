"""Conversion from and to `nn.MultiheadAttention`: the same weights under other names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from regard.core import RegardError, Term
from regard.score import Dot
from regard.weigh import Softmax

if TYPE_CHECKING:
    from regard.layers.multihead import MultiHeadAttention


def check_torch(called: str, module: nn.MultiheadAttention) -> None:
    """Raise for options of the module that our layer has no counterpart of."""
    if not isinstance(module, nn.MultiheadAttention):
        raise RegardError(f"{called}.from_torch takes an nn.MultiheadAttention, got {type(module).__name__}.")
    if module.bias_k is not None or module.bias_v is not None:
        raise RegardError(f"{called}.from_torch has no counterpart of add_bias_kv=True: a learned key and value.")
    if module.add_zero_attn:
        raise RegardError(
            f"{called}.from_torch has no counterpart of add_zero_attn=True: clear the flag of the module, and give the"
            " layer weigh=Softmax(sink=torch.zeros(1)), which does the same."
        )


def check_one_width(called: str, module: nn.MultiheadAttention) -> None:
    """Raise unless queries, keys and values are equally wide."""
    if not module.embed_dim == module.kdim == module.vdim:
        raise RegardError(
            f"{called}.from_torch needs one width for all: got embed_dim={module.embed_dim}, kdim={module.kdim},"
            f" vdim={module.vdim}. MultiHeadAttention.from_torch takes any."
        )


def take_weights(layer: MultiHeadAttention, module: nn.MultiheadAttention) -> None:
    """Give the layer copies of the module's parameters, on their device and in their dtype."""
    packed = module.in_proj_weight
    weights = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight) if packed is None else packed.chunk(3)
    biases = (None, None, None) if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    rows = zip((layer.W_q, layer.W_k, layer.W_v), weights, biases, strict=True)
    for linear, weight, bias in (*rows, (layer.W_o, module.out_proj.weight, module.out_proj.bias)):
        linear.weight = _own(weight)
        linear.bias = None if bias is None else _own(bias)


def make_torch(layer: MultiHeadAttention) -> nn.MultiheadAttention:
    """An `nn.MultiheadAttention` with copies of the layer's parameters."""
    _check_layer(layer)
    has_bias = any(linear.bias is not None for linear in (layer.W_q, layer.W_k, layer.W_v, layer.W_o))
    module = nn.MultiheadAttention(
        layer.num_hiddens, layer.num_heads, layer.dropout, has_bias,
        kdim=layer.key_size, vdim=layer.value_size, batch_first=layer.batch_first, device="meta",
    )  # fmt: skip
    repeats = layer.num_heads // layer.num_key_heads
    rows = [(layer.W_q, 1), (layer.W_k, repeats), (layer.W_v, repeats)]
    weights = [_repeat(linear.weight, layer.head_width, count) for linear, count in rows]
    if module.in_proj_weight is not None:
        module.in_proj_weight = _own(torch.cat(weights))
    else:
        module.q_proj_weight, module.k_proj_weight, module.v_proj_weight = (_own(weight) for weight in weights)
    module.out_proj.weight = _own(layer.W_o.weight)
    if has_bias:
        biases = [_repeat(_bias(linear), layer.head_width, count) for linear, count in rows]
        module.in_proj_bias = _own(torch.cat(biases))
        module.out_proj.bias = _own(_bias(layer.W_o))
    return module.train(layer.training)


def _check_layer(layer: MultiHeadAttention) -> None:
    called = type(layer).__name__
    if layer.query_size != layer.num_hiddens:
        raise RegardError(
            f"{called}.to_torch needs query_size and num_hiddens to be equal, since nn.MultiheadAttention has one width"
            f" for both: got {layer.query_size} and {layer.num_hiddens}."
        )
    score, weigh = layer.score, layer.weigh
    is_dot = score in (None, "dot") or (
        type(score) is Dot and score.cap is None and score.scale in (None, layer.head_width**-0.5)
    )
    is_softmax = type(weigh) is Softmax and weigh.sink is None
    for name, value, is_theirs in (
        ("score", score, is_dot),
        ("weigh", weigh, is_softmax),
        ("position", layer.position, layer.position is None),
    ):
        if not is_theirs:
            shown = value if isinstance(value, str | Term) else type(value).__name__
            raise RegardError(
                f"{called}.to_torch has no counterpart of {name}={shown}: nn.MultiheadAttention is a scaled dot product"
                " under softmax."
            )


def rename_weights(state: dict[str, Tensor], prefix: str) -> None:
    """Give what a file has of the module's parameters the names of ours, in place."""
    names = [f"{prefix}W_{name}" for name in "qkv"]
    for kind in ("weight", "bias"):
        if (packed := state.pop(f"{prefix}in_proj_{kind}", None)) is not None:
            state |= {f"{name}.{kind}": part for name, part in zip(names, packed.tensor_split(3), strict=True)}
        if (mixing := state.pop(f"{prefix}out_proj.{kind}", None)) is not None:
            state[f"{prefix}W_o.{kind}"] = mixing
    for letter, name in zip("qkv", names, strict=True):
        if (weight := state.pop(f"{prefix}{letter}_proj_weight", None)) is not None:
            state[f"{name}.weight"] = weight


def join_biases(*linears: nn.Linear) -> Tensor:
    """The biases of linear layers, concatenated; zeros where there are none."""
    return torch.cat([_bias(linear) for linear in linears])


def _own(source: Tensor) -> nn.Parameter:
    return nn.Parameter(source.detach().clone(), source.requires_grad)


def _bias(linear: nn.Linear) -> Tensor:
    """Its bias; zeros where only its neighbours have one, since the module has all or none."""
    return linear.weight.new_zeros(linear.out_features) if linear.bias is None else linear.bias


def _repeat(rows: Tensor, width: int, count: int) -> Tensor:
    """Each key head's rows, once for every query head it serves."""
    return rows if count == 1 else rows.unflatten(0, (-1, width)).repeat_interleave(count, 0).flatten(0, 1)
