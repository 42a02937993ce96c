"""What is in the gallery: a picture each, of 24 positions on a smooth path (a 4 × 6 image where a term wants one)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from regard.bias import Alibi, Dense, Quadratic, Relative
from regard.core import Term
from regard.core.masks import And, Not, Or
from regard.engine import find_weights
from regard.layers.biases import AlibiBias, RelativeBias
from regard.layers.floater import Floater
from regard.layers.positional import LearnedPositionalEncoding, PositionalEncoding
from regard.layers.rotary import Rotary
from regard.mask import Allowed, Causal, Document, Edges, Full, Grid, Lengths, Window
from regard.score import Additive, Bilinear, Concat, Cosine, Custom, Dot, Feature, Gaussian
from regard.weigh import Entmax, Hard, Relu, Sigmoid, Softmax, Sparsemax, Sum

COUNT, WIDTH = 24, 8


@dataclass(frozen=True)
class Entry:
    """A name, what it computes, how it is called, and the (queries, keys) weights to show."""

    name: str
    formula: str
    call: str
    draw: Callable[[], Tensor]

    @property
    def file(self) -> str:
        """The name of its picture."""
        return self.name.lower().replace(" ", "-") + ".png"


def _walk() -> Tensor:
    """Positions on a path that comes near itself again: (1, 24, 8)."""
    t = torch.linspace(0, 4 * torch.pi, COUNT)[:, None]
    turns = torch.arange(1, WIDTH // 2 + 1) / 2
    return 1.5 * torch.cat([torch.sin(t * turns), torch.cos(t * turns)], 1)[None]


def _noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(3))


def _entry(name: str, formula: str, room: str, term: Any, flat: bool = False, **rest: Any) -> Entry:
    """A term beside the defaults; `flat` where all scores shall be equal, so that it shows alone."""
    shown = {room: term, **rest}
    words = ", ".join(f"{key}={_write(value)}" for key, value in shown.items())
    rows = torch.zeros(1, COUNT, WIDTH) if flat else _walk()
    return Entry(name, formula, f"attend(query, key, value, {words})", lambda: find_weights(rows, rows, **shown)[0])


def _write(term: Any) -> str:
    """The term as one would type it, tensors and functions by the names of their fields."""
    if isinstance(term, And | Or):
        return f"{_write(term.one)} {'&' if isinstance(term, And) else '|'} {_write(term.other)}"
    if isinstance(term, Not):
        return f"~{_write(term.one)}"
    parts = []
    for field in fields(term):
        value = getattr(term, field.name)
        if isinstance(value, Tensor) or callable(value):
            parts.append(field.name if field.default is MISSING else f"{field.name}={field.name}")
        elif field.default is MISSING:
            parts.append(repr(value))
        elif value != field.default and field.repr:
            parts.append(f"{field.name}={value!r}")
    return f"{type(term).__name__}({', '.join(parts)})"


def _score(formula: str, term: Any, name: str | None = None, **rest: Any) -> Entry:
    return _entry(name or type(term).__name__, formula, "score", term, **rest)


def _weigh(formula: str, term: Term, name: str | None = None) -> Entry:
    return _entry(name or type(term).__name__, formula, "weigh", term)


def _mask(formula: str, term: Any, name: str | None = None) -> Entry:
    return _entry(name or type(term).__name__, formula, "mask", term, flat=True)


def _bias(formula: str, term: Term) -> Entry:
    return _entry(type(term).__name__, formula, "bias", term, flat=True)


def _neighbours(query: Tensor, key: Tensor) -> Tensor:
    return -(query[..., :, None, :] - key[..., None, :, :]).abs().sum(-1)


def list_scores() -> list[Entry]:
    return [
        _score("q·k / √d", Dot()),
        _score("q·W·k", Bilinear(torch.eye(WIDTH).roll(1, 0))),
        _score("scale · cos ∠(q, k)", Cosine(scale=5.0)),
        _score("w·tanh(q + k)", Additive(_noise(WIDTH))),
        _score("act(a·q + b·k)", Concat(_noise(WIDTH), _noise(2 * WIDTH)[WIDTH:])),
        _score("−½ ‖(q − k)·w‖²", Gaussian(0.6)),
        _score("φ(q)·φ(k), with the weights φ(q)·φ(k) / Σ", Feature("exp"), weigh=Sum()),
        _score("any function of two tiles; here −Σ |q − k|", Custom(_neighbours)),
    ]


def list_weighers() -> list[Entry]:
    return [
        _weigh("e^s / Σ e^s", Softmax()),
        _weigh("e^s / (e^sink + Σ e^s): some weight may go nowhere", Softmax(torch.tensor(1.0)), "Softmax with a sink"),
        _weigh("max(s, 0)^power · scale", Relu(2, scale=0.2)),
        _weigh("1 / (1 + e^−(s + shift))", Sigmoid(shift=-2.0)),
        _weigh("the nearest point of the simplex: max(s − τ, 0)", Sparsemax()),
        _weigh("max((α − 1)s − τ, 0)^(1/(α − 1)), between softmax and sparsemax", Entmax()),
        _weigh("all weight on the best key", Hard()),
        _weigh("all weight on one key, drawn by softmax", Hard("sample", seed=5), "Hard drawn"),
        _entry("Sum", "s / Σ s, for scores that are not negative", "weigh", Sum(), score=Feature()),
    ]


def list_masks() -> list[Entry]:
    segments = torch.tensor([0] * 6 + [1] * 10 + [2] * 8)
    ring = torch.arange(COUNT)
    return [
        _mask("all pairs", Full()),
        _mask("j < length", Lengths(torch.tensor([15]))),
        _mask("j ≤ i", Causal()),
        _mask("i − before ≤ j ≤ i + after", Window(4, 1)),
        _mask("the same document", Document(segments)),
        _mask("near in an image", Grid(4, 6)),
        _mask("linked in a graph; here a ring", Edges(torch.cat([ring, ring]), torch.cat([ring, ring.roll(1)]))),
        _mask("any bool tensor", Allowed(_noise(COUNT, COUNT) > 0)),
        _mask("both", Causal() & Document(segments), "And"),
        _mask("either", Window(2, 2) | Lengths(torch.tensor([3])), "Or"),
        _mask("not", ~Window(3, 3), "Not"),
    ]


def list_biases() -> list[Entry]:
    return [
        _bias("any numbers b_ij", Dense(2 * _noise(COUNT, COUNT))),
        _bias("−slope · |i − j|", Alibi(torch.tensor([0.5]))),
        _bias("one number for each bucket of j − i", Relative(2 * _noise(1, 12), max_distance=16)),
        _bias("−α ‖δ − centre‖² in an image", Quadratic(4, 6, torch.tensor([0.7]), torch.tensor([[0.0, 1.0]]))),
    ]


def _encoding(layer: nn.Module, formula: str) -> Entry:
    """Attention by distance among words that are all the same: without an encoding all weights would be equal."""
    name = type(layer).__name__

    def draw() -> Tensor:
        with torch.no_grad():
            rows = layer(torch.zeros(1, COUNT, 32))
        return find_weights(rows, rows, score=Gaussian(1.0))[0]

    return Entry(name, formula, f"{name}(num_hiddens)(X)", draw)


def list_encodings() -> list[Entry]:
    learned, floater = LearnedPositionalEncoding(32, max_len=COUNT), Floater(32, spacing=0.05)
    with torch.no_grad():
        learned.P.copy_(_noise(1, COUNT, 32))
        for at, weight in enumerate(floater.parameters()):
            weight.copy_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(at)) / 3)
    turn, spread, slopes = Rotary(32), RelativeBias(1, 12, 16), AlibiBias(8)
    with torch.no_grad():
        spread.table.copy_(2 * _noise(1, 12))
    same = torch.ones(1, 1, COUNT, 32)
    flat = torch.zeros(1, 1, COUNT, WIDTH)
    return [
        _encoding(PositionalEncoding(32), "x_i + (sin(i/10000^(2j/d)), cos(i/10000^(2j/d)))"),
        _encoding(learned, "x_i + p_i, each p_i learned (here drawn)"),
        _encoding(floater, "x_i + p(t_i), where p solves dp/dt = flow(t, p) (here drawn)"),
        Entry("Rotary", "q and k turned by i/10000^(2j/d): scores know i − j alone", "Rotary(head_width)(x)",
              lambda: find_weights(turn(same), turn(same))[0, 0]),
        Entry("RelativeBias", "a learned number for each bucket of j − i", "attend(…, bias=RelativeBias(num_heads)())",
              lambda: find_weights(flat, flat, bias=spread())[0, 0]),
        Entry("AlibiBias", "−slope · |i − j|, a slope for each head", "attend(…, bias=AlibiBias(num_heads)())",
              lambda: find_weights(flat.expand(1, 8, -1, -1), flat.expand(1, 8, -1, -1), bias=slopes())[0, 0]),
    ]  # fmt: skip


def list_sections() -> dict[str, list[Entry]]:
    """Headings and what stands under them."""
    return {
        "Scores: how query i regards key j": list_scores(),
        "Weighers: how scores become weights": list_weighers(),
        "Masks: which pairs may meet": list_masks(),
        "Biases: what position adds to a score": list_biases(),
        "Encodings: how rows know their place": list_encodings(),
    }
