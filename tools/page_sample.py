"""Writes sample pages to look at: `python -m tools.page_sample FOLDER`, with --long for many tokens."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Iterator

import numpy as np
import torch

from regard import mask, score
from regard.engine.look import Look, look
from regard.views.page import Page, label_tokens, page
from tools.arguments import Parser

TEXT = "The animal did not cross the street because it was too tired , and the street was much too wide ."
ENGLISH = "I would like to know how far it is from Beijing to Xi'an <eos>"
CHINESE = "我 想 知道 从 北京 到 西安 有 多 远 ， 坐 火车 要 几 个 小时 。"


def main() -> None:
    parser = Parser(prog="python -m tools.page_sample", description=__doc__)
    parser.add_argument("folder", type=pathlib.Path, help="where the pages go")
    parser.add_argument("--long", action="store_true", help="also pages of 8,192 and 32,768 tokens")
    arguments = parser.parse_args()
    for name, shown, seconds in [*make_samples(), *(make_long() if arguments.long else ())]:
        path = shown.save(arguments.folder / f"{name}.html")
        print(f"{path}: {len(shown.html.encode()) / 1e6:.2f} MB, {seconds:.1f} s")


def make_samples() -> Iterator[tuple[str, Page, float]]:
    """Each with its name and the seconds that the page took."""
    words = TEXT.split()
    labels = label_tokens(TEXT, list(_spans(words)))
    yield _time("small", lambda: page(_model(4, 4, len(words)), labels, None, title="Small: 4 layers, 4 heads"))
    many = (words * 20)[:300]
    yield _time("causal", lambda: page(_model(2, 4, 300, mask=mask.Causal()), many, None, title="Causal, 300 tokens"))
    source, target = CHINESE.split(), ENGLISH.split()
    n, m = len(target), len(source)
    seen = {f"encoder.{k}.self": _look(4, m, m, 10 + k) for k in range(2)}
    seen |= {f"decoder.{k}.self": _look(4, n, n, 20 + k, mask=mask.Causal()) for k in range(2)}
    seen |= {f"decoder.{k}.cross": _look(4, n, m, 30 + k) for k in range(2)}
    sides = {"source": source, "target": target}
    yield _time("translation", lambda: page(seen, sides, None, title="Translation: 中文 → English"))
    joined = label_tokens(CHINESE, list(_spans(CHINESE.split())))
    yield _time("chinese", lambda: page(_model(3, 4, m), joined, None, title="中文", lang="zh"))
    additive = {f"layer.{k}": _look(2, 20, 20, 40 + k, score=score.Additive(torch.randn(16))) for k in range(2)}
    yield _time("additive", lambda: page(additive, words[:20], None, title="Additive score: no exact tiles"))
    pair = _model(3, 4, 20, 0), _model(3, 4, 20, 500)
    yield _time("compare", lambda: page(pair[0], words[:20], None, title="Two models", other=pair[1]))
    picture = _draw_picture(224)
    patches = ["[CLS]", *(f"{r},{c}" for r in range(14) for c in range(14))]
    vision = _model(2, 4, 197, 60)
    yield _time("image", lambda: page(vision, patches, None, title="Picture", image=picture, grid=(14, 14), skip=1))
    edges = torch.randint(0, 34, (2, 78), generator=torch.Generator().manual_seed(7))
    edges = torch.cat([edges, edges.flip(0), torch.arange(34).expand(2, -1)], 1).unique(dim=1)
    allowed = torch.zeros(34, 34, dtype=torch.bool)
    allowed[edges[1], edges[0]] = True
    graph = {f"conv{k}": _look(4, 34, 34, 70 + k, mask=allowed) for k in range(2)}
    nodes = [f"member {k}" for k in range(34)]
    yield _time("graph", lambda: page(graph, nodes, None, title="Graph of 34 nodes", graph=edges))


def make_long() -> Iterator[tuple[str, Page, float]]:
    words = TEXT.split()
    for n, layers, heads in ((8192, 2, 4), (32768, 1, 4)):
        tokens = [f"{word} " for word in words * (n // len(words) + 1)][:n]
        seen = _model(layers, heads, n, 80, width=64, mask=mask.Causal())
        yield _time(f"long-{n}", lambda seen=seen, tokens=tokens: page(seen, tokens, None, title="Long"))  # type: ignore[misc]


def _model(layers: int, heads: int, n: int, seed: int = 0, width: int = 16, **terms: object) -> dict[str, Look]:
    return {f"encoder.layer.{k}": _look(heads, n, n, seed + k, width, **terms) for k in range(layers)}


def _look(heads: int, n: int, m: int, seed: int, width: int = 16, **terms: object) -> Look:
    """Heads of different kinds: a sink, a diagonal, and two that choose."""
    draw = torch.Generator().manual_seed(seed)
    query, key = torch.randn(heads, n, width, generator=draw), torch.randn(heads, m, width, generator=draw)
    at = torch.arange(max(n, m), dtype=torch.float32)
    turn = torch.cat([torch.cos(at[:, None] * 0.6 ** torch.arange(width // 2)),
                      torch.sin(at[:, None] * 0.6 ** torch.arange(width // 2))], -1)  # fmt: skip
    for h in range(heads):
        if h % 4 == 0:
            key[h, 0] += 2 * query[h].mean(0) + 0.5
            query[h] += 1.0
        if h % 4 == 1:
            query[h], key[h] = query[h] * 0.3 + 2 * turn[:n], key[h] * 0.3 + 2 * turn[:m]
        if h % 4 == 2:
            query[h] *= 2
    return look(query[None], key[None], keep=True, **terms)  # type: ignore[arg-type]


def _spans(words: list[str]) -> Iterator[tuple[int, int]]:
    at = 0
    for word in words:
        yield at, at + len(word)
        at += len(word) + 1


def _draw_picture(size: int) -> np.ndarray:
    y, x = np.mgrid[0:size, 0:size] / size
    disc = (x - 0.6) ** 2 + (y - 0.4) ** 2 < 0.05
    return np.stack([np.where(disc, 0.9, x), np.where(disc, 0.7, 0.4 + 0 * x), np.where(disc, 0.2, y)], -1)


def _time(name: str, make: object) -> tuple[str, Page, float]:
    start = time.perf_counter()
    shown = make()  # type: ignore[operator]
    return name, shown, time.perf_counter() - start


if __name__ == "__main__":
    main()
