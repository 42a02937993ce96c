"""Every task with data and sizes small enough to be trained in any test."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from regard.data.grammar import list_tagged, split_polite, split_short
from regard.tasks.reading.labelling import LabelTask
from regard.tasks.text.pretrain import PretrainTask
from regard.tasks.text.translate import TranslateTask
from tests.cli.small import PAIRS

GRU = ("--set", "num_hiddens=8", "--set", "embed_size=6", "--tokens", "words")
ENCODER = ("--set", "num_hiddens=8", "--set", "num_heads=2", "--set", "ffn_num_hiddens=8", "--set", "num_layers=1",
           "--set", "num_grams=50")  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """A task: the command that trains it, its data, its options, and the class that `fit` has."""

    command: str
    file: str
    data: bytes = field(repr=False)
    options: tuple[str, ...] = ENCODER
    task: type = LabelTask
    # settings without which chance has no part in it
    steady: tuple[str, ...] = tuple(f"--set={name}dropout=0.0" for name in ("", "embed_", "attention_", "word_"))
    # how it is used
    use: str = ""

    @property
    def arguments(self) -> tuple[str, ...]:
        """All of a command line but the data and the folder."""
        shared = ("--limit", "80", "--batch-size", "16", "--accelerator", "cpu")
        return ("train", self.command, *self.options, *shared)


def write_tabs(pairs: Iterable[tuple[str, str]]) -> bytes:
    return "".join(f"{one}\t{two}\n" for one, two in pairs).encode()


def write_words() -> bytes:
    rows = (zip(*sentence, strict=True) for sentence in list_tagged()[:6000:50])
    return "\n".join("".join(f"{word}\t{tag}\n" for word, tag in row) for row in rows).encode()


SHORT = write_tabs(split_short()[0][:4000:33])
USE_SHORT = 'summarize {} "a sentence that could be shorter"'
KINDS = {
    "translate": Kind(
        "translate", "a.tsv", write_tabs(PAIRS[:120]), GRU, TranslateTask, ("--set", "dropout=0.0"),
        'translate {} "a sentence"',
    ),
    "tag": Kind("tag", "a.txt", write_words(), use='tag {} "a sentence"'),
    "classify": Kind(
        "classify", "a.tsv", write_tabs(split_polite()[0][:4000:33]), use='classify {} "a sentence"'
    ),
    "pretrain": Kind(
        "pretrain", "a.txt", "".join(f"{pair[1]}\n" for pair in PAIRS[:120]).encode(), task=PretrainTask,
        use='fill {} "a ___ with a blank"',
    ),
    "summarize": Kind("summarize", "a.tsv", SHORT, use=USE_SHORT),
    "rewrite": Kind(
        "summarize", "a.tsv", SHORT, (*GRU, "--how", "rewrite"), TranslateTask, ("--set", "dropout=0.0"), USE_SHORT
    ),
}  # fmt: skip
