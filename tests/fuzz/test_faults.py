"""Faults planted in the library, one at a time: the fuzz must see each of them within a few calls."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from regard.core import Bias, bits
from regard.engine.backends import sdpa
from regard.engine.tiles import steps
from regard.engine.tiles.layout import Layout
from regard.mask import Causal, Lengths
from regard.score import Dot, Gaussian
from regard.weigh import Entmax, Hard, Relu, Softmax, Sum
from tests.fuzz.draw import Draw
from tests.fuzz.test_harness import catches

# the module: the package exports the function of the same name
engine = importlib.import_module("regard.engine.run")
Change = Callable[[Callable[..., Any]], Callable[..., Any]]


def after(change: Callable[[Any], Any]) -> Change:
    """The result of a function, changed."""
    return lambda function: lambda *args, **named: change(function(*args, **named))


def before(change: Callable[..., tuple[Any, ...]]) -> Change:
    """The arguments of a function, changed."""
    return lambda function: lambda *args: function(*change(*args))


def no_mask_in_backward(weigh, scores, value, allowed, *rest):
    return (weigh, scores, value, None, *rest)


def no_dropout_in_backward(weigh, scores, value, allowed, keep, *rest):
    return (weigh, scores, value, allowed, None, *rest)


def lose_a_key(tiles):
    for tile in tiles:
        yield tile.keys(tile.j[:-1]) if len(tile.j) > 1 else tile


def heads_in_another_order(lifted):
    call, *rows = lifted
    return call, *(x.roll(1, 1) if call.sizes.g < call.sizes.h else x for x in rows)


def own_place(seed, tile, *salt):
    # as if every tile began at the first key
    return (seed, tile.keys(range(len(tile.j))), *salt)


def is_softmax(d: Draw) -> bool:
    return d.weigh == "softmax" and d.dtype in ("float32", "float64") and d.family == "normal"


# what is broken, where, how, and which calls could show it
FAULTS: dict[str, tuple[object, str, Change, Callable[[Draw], bool]]] = {
    "mask forgotten in backward": (
        steps, "gradients", before(no_mask_in_backward), lambda d: d.mask == "allowed" and d.weigh == "sigmoid"
    ),
    "dropout forgotten in backward": (steps, "gradients", before(no_dropout_in_backward), lambda d: d.dropout > 0),
    "bias without gradient": (
        Bias, "add_gradients", lambda f: lambda *a: None, lambda d: d.bias == "relative" and d.learn_bias
    ),
    "a tile loses its last key": (Layout, "tiles", after(lose_a_key), is_softmax),
    "earlier tiles keep their old peak": (
        Softmax, "step", after(lambda r: (r[0], r[1], None)), lambda d: is_softmax(d) and d.budget < 1000
    ),
    "statistic off by a thousandth": (Softmax, "finish", after(lambda stat: stat + 1e-3), is_softmax),
    "sink without gradient": (
        Softmax, "tensor_gradients", after(lambda parts: tuple(p * 0 for p in parts)),
        lambda d: d.weigh == "softmax sink",
    ),
    "scale off by a hundred-thousandth": (
        Dot, "_scale", after(lambda s: s * (1 + 1e-5)), lambda d: d.score == "dot" and d.dtype == "float32"
    ),
    "causal sees one ahead": (Causal, "_reach", after(lambda reach: (None, 1)), lambda d: d.mask == "causal"),
    "one length too many": (
        Lengths, "settle", after(lambda mask: replace(mask, lengths=mask.lengths + 1)), lambda d: d.mask == "lengths"
    ),
    "key heads in another order": (
        engine, "lift_terms", after(heads_in_another_order), lambda d: d.ndim > 3 and d.score == "dot"
    ),
    "random bits by tile": (
        bits, "uniform", before(own_place), lambda d: d.dropout > 0 and d.budget < 1000 and min(d.sizes) > 30
    ),
    "sum without its mean": (
        Sum, "gradient", lambda f: lambda self, weights, grad, mean, stat: grad / stat, lambda d: d.weigh == "sum"
    ),
    "entmax with sparsemax's gradient": (
        Entmax, "gradient", lambda f: lambda self, *parts: f(Entmax(2.0), *parts), lambda d: d.weigh == "entmax"
    ),
    "the second best": (
        Hard, "solve", lambda f: lambda self, scores, tile: f(self, scores.neg(), tile), lambda d: d.weigh == "hard"
    ),
    "relu of the wrong power": (
        Relu, "derivative", after(lambda part: part * 2), lambda d: d.weigh == "relu squared" and d.dtype == "float32"
    ),
    "a width counted twice": (
        Gaussian, "prepare", lambda f: lambda self, q, k: f(self, q * 1.0001, k), lambda d: d.score == "gaussian"
    ),
    "torch's mask the wrong way round": (
        sdpa, "_write_out", after(lambda mask: ~mask if mask is not None and mask.dtype == torch.bool else mask),
        # beside a bias, torch's mask is numbers
        lambda d: d.score == "dot" and d.weigh == "softmax" and d.mask != "full" and d.bias == "none",
    ),
    "output rounded to half": (
        engine, "unfold", lambda f: lambda out, sizes: f(out.half().to(out.dtype), sizes),
        lambda d: d.dtype == "float32" and d.score == "dot",
    ),
    "gradient of one row doubled": (
        steps, "gradients", after(lambda r: (r[0], torch.cat([r[1][:, :, :1] * 2, r[1][:, :, 1:]], 2))), is_softmax
    ),
}  # fmt: skip


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_seen(name, monkeypatch):
    owner, attribute, change, wanted = FAULTS[name]
    # without the fault the same calls are good: they are among those of test_fuzz.py
    monkeypatch.setattr(owner, attribute, change(getattr(owner, attribute)))
    assert catches(wanted)
