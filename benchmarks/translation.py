"""Decoding on the CPU: many sentences at once beside one after the other, and a beam beside the likeliest token."""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from benchmarks.report import describe_machine, show_time, tell
from regard.models import seq2seq, transformer
from regard.models.decode import Decoded, decode_greedily, search_beam
from tools.arguments import Parser, read_count

EXAMPLES = """examples:
  python -m benchmarks.translation            both models, some minutes
  python -m benchmarks.translation --quick    few sentences, to see that all runs
The status is 1 where one at a time says something else than all at once.
"""
PAD, BOS, EOS = 0, 1, 2
# of a vocabulary as Multi30k's; no sentence is longer than LONGEST
VOCAB, LONGEST = 10000, 30
# what is to be reached: times as fast, at most as slow
FASTER, SLOWER = 5.0, 6.0


@dataclass(frozen=True, eq=False)
class Model:
    """How a model reads a batch, and what steps from its state."""

    name: str
    begin: Callable[[Tensor, Tensor], Any]
    step: Callable[[Tensor, Any], tuple[Tensor, Any]]


@dataclass
class Way:
    """One way to decode, seconds of each turn, and what it is to be multiplied by."""

    name: str
    run: Callable[[], list[list[int]]]
    times: float = 1.0
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds) * self.times


def make_models() -> list[Model]:
    """Both models in their smallest size, with weights as they start: no sentence ends before the longest may."""
    torch.manual_seed(0)
    one = transformer.Transformer(transformer.Config.preset("tiny", VOCAB)).eval()
    other = seq2seq.Seq2Seq.from_config(seq2seq.Config.preset("tiny", VOCAB, VOCAB)).eval()

    def begin(source: Tensor, lens: Tensor) -> Any:
        return one.init_state(one.encode(source, lens), lens)

    return [Model("Transformer", begin, one.decode), Model("Seq2Seq", other.encode, other.decoder)]


def draw_sentences(count: int) -> list[Tensor]:
    """Sentences of about as many tokens as Multi30k's, each with its end."""
    noise = torch.Generator().manual_seed(0)
    lens = (12 + 4 * torch.randn(count, generator=noise)).round().long().clamp(4, 40)
    return [torch.randint(3, VOCAB, (int(n),), generator=noise) for n in lens]


@torch.no_grad()
def translate(
    model: Model, sentences: Sequence[Tensor], size: int, decode: Callable[..., Decoded], **options: Any
) -> list[list[int]]:
    """Sentences of about one length together, `size` at a time, back in their own order."""
    order = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    said: dict[int, list[int]] = {}
    for start in range(0, len(order), size):
        chosen = order[start : start + size]
        lens = torch.tensor([len(sentences[i]) for i in chosen])
        source = torch.nn.utils.rnn.pad_sequence([sentences[i] for i in chosen], batch_first=True, padding_value=PAD)
        state = model.begin(source, lens)
        found = decode(model.step, state, bos=BOS, eos=EOS, pad=PAD, max_len=LONGEST, **options)
        said |= dict(zip(chosen, found.tolist(), strict=True))
    return [said[i] for i in range(len(sentences))]


def measure(model: Model, sentences: Sequence[Tensor], single: int, size: int, repeat: int) -> tuple[list[Way], float]:
    """All ways in turns, and how often one at a time says the same as all at once."""
    few = sentences[:single]
    ways = [
        Way("greedy, one at a time", lambda: translate(model, few, 1, decode_greedily), len(sentences) / single),
        Way(f"greedy, {size} at a time", lambda: translate(model, sentences, size, decode_greedily)),
        Way(f"beam of 5, {size} at a time", lambda: translate(model, sentences, size, search_beam, beam=5)),
    ]
    alone = translate(model, few, 1, decode_greedily)
    together = translate(model, sentences, size, decode_greedily)[:single]
    for turn in range(repeat):
        for way in ways if turn % 2 else reversed(ways):
            tell(model.name, f"{way.name}, {turn + 1} of {repeat}")
            gc.collect()
            start = time.perf_counter()
            way.run()
            way.seconds.append(time.perf_counter() - start)
    tell("", "\r")
    return ways, sum(a == b for a, b in zip(alone, together, strict=True)) / single


def show(model: Model, ways: Sequence[Way], same: float) -> str:
    alone, together, beam = (way.median for way in ways)
    lines = [f"{model.name}, tiny; one at a time says the same in {same:.0%} of sentences"]
    faster, slower = alone / together, beam / together
    words = {True: "reached", False: "not reached"}
    notes = (
        "",
        f"{faster:.1f} × as fast; target {FASTER:g} ×: {words[faster >= FASTER]}",
        f"{slower:.2f} × the time of greedy; target at most {SLOWER:g} ×: {words[slower <= SLOWER]}",
    )
    for way, note in zip(ways, notes, strict=True):
        lines.append(f"  {way.name:<28} {show_time(way.median):>9}  {note}".rstrip())
    return "\n".join(lines)


def read_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = Parser(
        prog="python -m benchmarks.translation", description=__doc__, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("--sentences", type=read_count, default=1000, metavar="N", help="how many (default 1000)")
    add("--single", type=read_count, default=50, metavar="N",
        help="how many of them are decoded one at a time, scaled up to all (default 50)")  # fmt: skip
    add("--batch", type=read_count, default=100, metavar="N", help="how many at a time (default 100)")
    add("--threads", type=read_count, default=2, metavar="N", help="threads of torch (default 2)")
    add("--repeat", type=read_count, metavar="N", help="turns of each way (default 3, quick 1)")
    add("--quick", action="store_true", help="few sentences: shows that all runs, not how fast")
    options = parser.parse_args(arguments)
    options.repeat = options.repeat or (1 if options.quick else 3)
    if options.quick:
        options.sentences, options.single, options.batch = 20, 4, 10
    if options.single > options.sentences:
        parser.error(f"argument --single: there are {options.sentences} sentences, got {options.single}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = read_options(arguments)
    torch.set_num_threads(options.threads)
    sentences = draw_sentences(options.sentences)
    print(
        f"{describe_machine(options.threads)}; float32\ndecoding {options.sentences} sentences of 4 to 40 tokens, each"
        f" to {LONGEST}, vocabulary {VOCAB}; one at a time measured on {options.single} and scaled up"
    )
    worst = 1.0
    for model in make_models():
        ways, same = measure(model, sentences, options.single, options.batch, options.repeat)
        print(show(model, ways, same), flush=True)
        worst = min(worst, same)
    # sums in another order may turn a near tie, and all that follows
    return 0 if worst >= 0.9 else 1


if __name__ == "__main__":
    sys.exit(main())
