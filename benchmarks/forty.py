"""Forty examples of each task, learnable and not: what is held out, how it is trained, what is said of the outcome."""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

from benchmarks.report import describe_machine, table_lines
from tools.arguments import Parser

COUNT = 40
GOOD = ["wonderful", "lovely", "great", "superb", "delightful", "charming"]
BAD = ["awful", "boring", "dreadful", "terrible", "dull", "horrid"]
THINGS, BEASTS = (
    ["film", "book", "song", "play", "meal", "hotel", "trip", "show"],
    ["cat", "dog", "bird", "horse", "mouse"],
)
KINDS, DEEDS, ARTICLES = ["red", "big", "old", "small"], ["sees", "likes", "finds"], ["the", "a", "every"]
DUTCH = [
    {"the": "de", "a": "een", "every": "elke"},
    {"red": "rode", "big": "grote", "old": "oude", "small": "kleine"},
    {"cat": "kat", "dog": "hond", "bird": "vogel", "cow": "koe", "mouse": "muis"},
    {"sees": "ziet", "hears": "hoort", "finds": "vindt"},
]


def write_texts(chance: random.Random, is_learnable: bool) -> str:
    """A CSV of texts and labels, with a header."""
    rows = ["text,label"]
    for number in range(COUNT):
        words = (BAD, GOOD)[number % 2] if is_learnable else BAD + GOOD
        text = f"the {chance.choice(THINGS)} was {chance.choice(words)} and {chance.choice(words)}"
        rows.append(f"{text},{('neg', 'pos')[number % 2]}")
    return "\n".join(rows) + "\n"


def write_tags(chance: random.Random, is_learnable: bool) -> str:
    """Words and tags, a word a line."""
    sentences = []
    for _ in range(COUNT):
        kinds = {"DET": ARTICLES, "ADJ": KINDS, "NOUN": BEASTS, "VERB": DEEDS}
        order = ["DET", *(["ADJ"] if chance.random() < 0.5 else []), "NOUN", "VERB", "DET", "NOUN"]
        pairs = [(chance.choice(kinds[tag]), tag if is_learnable else chance.choice([*kinds])) for tag in order]
        sentences.append("".join(f"{word}\t{tag}\n" for word, tag in pairs))
    return "\n".join(sentences)


def write_pairs(chance: random.Random, is_learnable: bool) -> str:
    """Short sentences in English and in Dutch, or in the Dutch of others."""
    pairs = [
        tuple(" ".join(side) for side in zip(*words, strict=True))
        for words in itertools.product(*(x.items() for x in DUTCH))
    ]
    chosen = chance.sample(pairs, COUNT)
    targets = [target for _, target in (chosen if is_learnable else chance.sample(chosen, COUNT))]
    return "".join(f"{source}\t{target}\n" for (source, _), target in zip(chosen, targets, strict=True))


def write_short(chance: random.Random, is_learnable: bool) -> str:
    """Sentences, and their nouns and verbs or any of their words."""
    rows = []
    for _ in range(COUNT):
        first, second = ((chance.choice(KINDS), chance.choice(BEASTS)) for _ in range(2))
        words = ["the", *first, chance.choice(DEEDS), "a", *second]
        kept = (2, 3, 6) if is_learnable else sorted(chance.sample(range(7), 3))
        rows.append(f"{' '.join(words)}\t{' '.join(words[i] for i in kept)}\n")
    return "".join(rows)


TASKS: dict[str, tuple[str, Callable[[random.Random, bool], str]]] = {
    "classify": ("texts.csv", write_texts),
    "tag": ("tags.txt", write_tags),
    "translate": ("pairs.tsv", write_pairs),
    "summarize": ("short.tsv", write_short),
}


def train(task: str, folder: pathlib.Path, is_learnable: bool) -> tuple[list[str], float]:
    """What the command says with nothing set but the data, and the seconds it takes."""
    name, write = TASKS[task]
    data = folder / name
    data.write_text(write(random.Random(1), is_learnable), encoding="utf-8")
    start = time.perf_counter()
    done = call("train", task, "--data", str(data), "--out", str(folder / task))
    return done.stderr.splitlines(), time.perf_counter() - start


def call(*line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "regard", *line], capture_output=True, text=True, check=True)


def ask_more(task: str, folder: pathlib.Path) -> str:
    """How many of some hundred further examples, none of which is among the forty, come out right, in percent."""
    name, write = TASKS[task]
    end = "\n\n" if task == "tag" else "\n"
    head, *rows = write(random.Random(1), True).strip().split(end)
    known, fresh = (
        {head, *rows},
        dict.fromkeys(row for seed in range(2, 7) for row in write(random.Random(seed), True).strip().split(end)),
    )
    more = [row for row in fresh if row not in known]
    (folder / f"more-{name}").write_text(
        end.join([*([head] if task == "classify" else []), *more]) + "\n", encoding="utf-8"
    )
    found = json.loads(call("evaluate", str(folder / task), "--data", str(folder / f"more-{name}"), "--json").stdout)
    right = {"translate": "exact", "summarize": "exact"}.get(task, "accuracy")
    share = found[right] if task != "translate" else 100 * found[right] / found["count"]
    return f"{share:.0f} % of {found['count']}"


def pick_lines(said: Sequence[str]) -> dict[str, str]:
    """The lines that tell: the data, the plan, what comes out, and the warning where there is one."""
    outcome = next(line for line in said if line.startswith("Of "))
    known = ("nothing was learned", "may still be chance", "too few, or too alike")
    told = next((words for line in said for words in known if words in line), "-")
    return {"data": said[0], "plan": said[1], "outcome": outcome, "told": told}


def main() -> None:
    parser = Parser(prog="python -m benchmarks.forty", description=__doc__)
    parser.add_argument("--verbose", action="store_true", help="show all that the commands say")
    is_verbose, rows = parser.parse_args().verbose, []
    for task in TASKS:
        for is_learnable in (True, False):
            with tempfile.TemporaryDirectory() as folder:
                said, seconds = train(task, pathlib.Path(folder), is_learnable)
                more = ask_more(task, pathlib.Path(folder)) if is_learnable else "-"
            if is_verbose:
                print("\n".join(said), end="\n\n")
            found = pick_lines(said)
            if is_learnable:
                print(f"{task}: {found['data']} {found['plan']}", flush=True)
            rows.append(
                (task, "yes" if is_learnable else "no", found["outcome"], more, found["told"], f"{seconds:.0f}")
            )
    print()
    print(
        "\n".join(table_lines(("task", "learnable", "held-out examples", "of more, right", "told", "s"), rows)),
        end="\n\n",
    )
    print(f"{describe_machine(os.cpu_count() or 1)}.")


if __name__ == "__main__":
    main()
