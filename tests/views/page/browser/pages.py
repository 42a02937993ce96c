"""The pages that the browser tests open, each with the weights it must show, computed at once and whole."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard import mask, score
from regard.engine import find_weights
from regard.engine.look import Look, look
from regard.views.page import Labels, Page, label_tokens, page
from tests.views.page.payloads import PAYLOADS

TEXT = "The animal did not cross the street because it was too tired, and the street was much too wide."
SOURCE = "我 想 知道 从 北京 到 西安 有 多 远 。"
TARGET = "I would like to know how far it is ."


@dataclass(frozen=True, eq=False)
class Made:
    """A page and its weights: (layer, head, query, key) by the attention's name."""

    page: Page
    weights: Mapping[str, Tensor]
    labels: Any

    def head(self, layer: int, head: int) -> Tensor:
        return list(self.weights.values())[layer][head].double()

    def sort(self, key: Any) -> list[tuple[int, int]]:
        """(layer, head), ascending in `key` of the head's weights."""
        heads = [(k, h) for k, weights in enumerate(self.weights.values()) for h in range(len(weights))]
        return sorted(heads, key=lambda at: float(key(self.head(*at))))


class Model:
    """Attentions with random queries and keys."""

    def __init__(self) -> None:
        self.seen: dict[str, Look] = {}
        self.weights: dict[str, Tensor] = {}

    def add(self, name: str, heads: int, n: int, m: int, seed: int, sharp: float = 1.5, **terms: Any) -> Model:
        draw = torch.Generator().manual_seed(seed)
        query, key = torch.randn(heads, n, 8, generator=draw), torch.randn(heads, m, 8, generator=draw)
        # heads of unlike sharpness, so that no two have the same statistics
        query = query * sharp * (1 + torch.arange(heads)[:, None, None] / 2)
        self.seen[name] = look(query[None], key[None], keep=True, **terms)
        self.weights[name] = find_weights(query[None], key[None], **terms)[0]
        return self


def split(text: str, special: tuple[str, ...] = ()) -> Labels:
    """Labels of words, with special ones around them, that join to the text."""
    offsets, at = [], 0
    for word in text.split(" "):
        offsets.append((at, at + len(word)))
        at += len(word) + 1
    names: list[str | None] = [None] * len(offsets)
    if special:
        first, *rest = special
        offsets = [(0, 0), *offsets, *[(at - 1, at - 1)] * len(rest)]
        names = [first, *names, *rest]
    return label_tokens(text, offsets, names)


@functools.cache
def make(name: str) -> Made:
    return MAKERS[name]()


def _make_self() -> Made:
    labels = split(TEXT)
    model = Model()
    for k in range(3):
        model.add(f"encoder.layer.{k}", 4, len(labels), len(labels), 10 * k)
    return Made(page(model.seen, labels, None, title="Self-attention"), model.weights, labels)


def _make_long() -> Made:
    """More tokens than map cells: rows come from query and key."""
    labels = [f"w{k} " for k in range(300)]
    model = Model().add("decoder.0", 2, 300, 300, 1, mask=mask.Causal())
    return Made(page(model.seen, labels, None, title="Long"), model.weights, labels)


def _make_additive() -> Made:
    labels = [f"w{k} " for k in range(300)]
    model = Model().add("old.0", 2, 300, 300, 2, score=score.Additive(torch.linspace(-3, 3, 8)))
    return Made(page(model.seen, labels, None, title="Additive"), model.weights, labels)


def _make_translation() -> Made:
    source, target = split(SOURCE, ("<bos>", "<eos>", "<pad>", "<pad>")), split(TARGET, ("<bos>", "<eos>"))
    n, m = len(target), len(source)
    keep = torch.arange(m) < m - 2
    model = Model().add("encoder.0.self", 2, m, m, 3, mask=keep.expand(m, m))
    model.add("decoder.0.self", 2, n, n, 4, mask=mask.Causal())
    model.add("decoder.0.cross", 2, n, m, 5, mask=keep.expand(n, m))
    tokens = {"source": source, "target": target}
    return Made(page(model.seen, tokens, None, title="Translation", produced=True), model.weights, tokens)


def _make_models() -> Made:
    labels = split(TEXT)
    first, second = (Model().add("layer.0", 2, len(labels), len(labels), seed) for seed in (6, 7))
    shown = page(first.seen, labels, None, title="Two models", other=second.seen)
    return Made(shown, {"A": first.weights["layer.0"], "B": second.weights["layer.0"]}, labels)


def _make_image() -> Made:
    labels = ["[CLS]", *(f"{r},{c}" for r in range(4) for c in range(4))]
    model = Model().add("vit.0", 2, 17, 17, 8)
    picture = np.linspace(0, 1, 32 * 32 * 3).reshape(32, 32, 3)
    shown = page(model.seen, labels, None, title="Picture", image=picture, grid=(4, 4), skip=1)
    return Made(shown, model.weights, labels)


EDGES = torch.tensor([[0, 1, 2, 3, 4, 0, 2, 5], [1, 2, 3, 4, 0, 0, 5, 2]])


def _make_graph() -> Made:
    labels = [f"node {k}" for k in range(6)]
    model = Model().add("conv.0", 2, 6, 6, 9)
    return Made(page(model.seen, labels, None, title="Six nodes", graph=EDGES), model.weights, labels)


def _make_hostile() -> Made:
    """Every payload as a token, as a node, as the name of an attention or side, and some as the title."""
    labels = list(PAYLOADS)
    n = len(labels)
    model = Model()
    for k, payload in enumerate(PAYLOADS):
        model.add(payload or "empty", 1, n, n, k)
    edges = torch.stack([torch.arange(n), torch.arange(n).roll(1)])
    shown = page(model.seen, {PAYLOADS[1]: labels}, None, title=PAYLOADS[0], graph={"edges": edges, "nodes": labels})
    return Made(shown, model.weights, labels)


def _make_many() -> Made:
    """8,192 tokens, most of them never in the document at once."""
    draw = torch.Generator().manual_seed(11)
    query, key = torch.randn(1, 1, 8192, 8, generator=draw), torch.randn(1, 1, 8192, 8, generator=draw)
    seen = look(query, key, mask=mask.Window(64, 0), keep=True)
    labels = [f"tok{k} " for k in range(8192)]
    row = find_weights(query[:, :, 3936:4001], key[:, :, 3936:4001])[0, 0, 64]
    row = torch.nn.functional.pad(row, (3936, 8192 - 4001))
    return Made(page({"layer.0": seen}, labels, None, title="Many"), {"row": row}, labels)


def _make_scripts() -> Made:
    """Texts of many scripts, cut between characters and inside of words."""
    text = "你好，世界 👩‍👩‍👧 emoji 🇨🇳 · مرحبا بالعالم · שלום · ภาษาไทย · e\u0301 \t tab\nline"
    cuts = [*range(0, len(text), 3), len(text)]
    labels = label_tokens(text, list(pairwise(cuts)))
    n = len(labels)
    model = Model().add("layer.0", 1, n, n, 12)
    return Made(page(model.seen, labels, None, title="文字"), model.weights, text)


PERSIAN = "\u200c".join(["من می", "خواهم به کتابخانه بروم"])


def _make_persian() -> Made:
    """A text that runs from right to left, between special tokens that do not."""
    labels = split(PERSIAN, ("[CLS]", "[SEP]"))
    model = Model().add("layer.0", 2, len(labels), len(labels), 13)
    return Made(page(model.seen, labels, None, title="Persian"), model.weights, labels)


def _make_shifted() -> Made:
    """A decoder's own attention: the labels of its keys are those of its queries, one step late; and a shorter text."""
    inputs = label_tokens("the street was wide", [(0, 3), (4, 10), (11, 14), (15, 19)])
    target = ["the", " street", " was", " wide", "</s>"]
    tokens = {"source": ["it", " was"], "inputs": ["</s>", *inputs.labels], "target": target}
    model = Model().add("encoder.0", 2, 2, 2, 14).add("decoder.0", 2, 5, 5, 15, mask=mask.Causal())
    shown = page(model.seen, tokens, None, title="Shifted", sides={"decoder.0": ("target", "inputs")})
    # watched, a model tells that the attention is its own
    shown = replace(shown, html=shown.html.replace('"kind":"cross"', '"kind":"self"'))
    return Made(shown, model.weights, tokens)


def _make_broken() -> Made:
    """Row 4 of head 0 is NaN; head 1 is whole."""
    draw = torch.Generator().manual_seed(16)
    query, key = torch.randn(1, 2, 9, 8, generator=draw), torch.randn(1, 2, 9, 8, generator=draw)
    query[0, 0, 4] = torch.nan
    labels = [f"w{k} " for k in range(9)]
    shown = page({"layer.0": look(query, key, keep=True)}, labels, None, title="Broken")
    return Made(shown, {"layer.0": find_weights(query, key)[0]}, labels)


MAKERS = {
    "self": _make_self, "long": _make_long, "additive": _make_additive, "translation": _make_translation,
    "models": _make_models, "image": _make_image, "graph": _make_graph, "hostile": _make_hostile, "many": _make_many,
    "scripts": _make_scripts, "persian": _make_persian, "shifted": _make_shifted, "broken": _make_broken,
}  # fmt: skip
