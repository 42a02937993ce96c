"""Tokenizers that are broken: one line with file, cause and fix, at once; text that is shown stays text."""

from __future__ import annotations

import json
import os
import pathlib
import random
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from regard.core import RegardError
from regard.data import Tokenizer, train_tokenizer
from tests.models.malformed import MORE, MOST_SECONDS, make_pickles, mutate

pytest.importorskip("tokenizers")

Breaking = Callable[[pathlib.Path], object]


@pytest.fixture(params=["bpe", "words"])
def file(request, tmp_path) -> pathlib.Path:
    path = tmp_path / "tokenizer.json"
    train_tokenizer(["a b", "b a"], request.param, vocab_size=262).save(path)
    return path


def refusal(file: pathlib.Path) -> str:
    start = time.perf_counter()
    with pytest.raises(RegardError) as error:
        Tokenizer.load(file)
    assert time.perf_counter() - start < MOST_SECONDS
    line = str(error.value)
    assert line.startswith(f"{file} ")
    # of a path of sixty characters
    assert len(line) - len(str(file)) <= 140
    assert line.isprintable()
    return line


def model(**changes: Any) -> Breaking:
    def make(file: pathlib.Path) -> None:
        content = json.loads(file.read_text())
        content["model"].update(changes)
        file.write_text(json.dumps(content))

    return make


def vocab(**changes: Any) -> Breaking:
    """The vocabulary with other ids; ... takes one out."""

    def make(file: pathlib.Path) -> None:
        found = {**json.loads(file.read_text())["model"]["vocab"], **changes}
        model(vocab={token: number for token, number in found.items() if number is not ...})(file)

    return make


def text(act: Callable[[str], str | bytes]) -> Breaking:
    def make(file: pathlib.Path) -> None:
        found = act(file.read_text())
        file.write_bytes(found if isinstance(found, bytes) else found.encode())

    return make


def grow(file: pathlib.Path) -> None:
    # a gigabyte that takes no place on the disk
    os.truncate(file, 2**30)


BROKEN: dict[str, tuple[str, Breaking]] = {
    "empty": (r"\(the file is empty\)", text(lambda whole: "")),
    "404": ("JSONDecodeError", text(lambda whole: "<!DOCTYPE html><title>404</title>")),
    "wrong type": ("TypeError", text(lambda whole: "[]")),
    "wrong type of vocab": (r"\(vocab must give each token an id\)", model(vocab=["a", "b"])),
    "wrong type of id": (r"\(vocab must give each token an id\)", vocab(**{"<bos>": True})),
    "merge of three": ("is not of two tokens", model(merges=[["a", "b", "ab"]])),
    "merge of one": ("is not of two tokens", model(merges=["a"])),
    "merges a number": ("the merge 7 is not of two tokens", model(merges=7)),
    "merge of two lines": (r"the merge 'a\\nb\\x1b\[2J' is not of two tokens", model(merges=["a\nb\x1b[2J"])),
    "duplicate ids": ("each once", vocab(a=5, b=5)),
    "duplicate keys": (
        r"\(the key '<pad>' stands there twice\)",
        text(lambda whole: whole.replace('"vocab": {', '"vocab": {"<pad>": 0,')),
    ),
    "gaps": ("each once", vocab(zz=9999)),
    "negative": ("each once", vocab(**{"<bos>": -1})),
    "large": ("each once", vocab(zz=2**70)),
    "missing special": ("each once|<eos> must have id 2, has None", vocab(**{"<eos>": ...})),
    "1 GB": ("larger than 67,108,864 bytes, too large for a tokenizer: check the name", grow),
    "NUL": ("JSONDecodeError", text(lambda whole: whole.replace('"model"', '"mo\0el"'))),
    "nothing but NUL": ("JSONDecodeError", text(lambda whole: "\0" * 100)),
    "UTF-16": ("is not UTF-8", text(lambda whole: whole.encode("utf-16"))),
    "half a character": (r"\(.*\)", vocab(**{"\ud800": 262})),
    "nested": ("RecursionError", text(lambda whole: '{"model":' * 100_000)),
    "folder": (" is not a file, so it is no tokenizer: check the name.$", MORE["folder"]),
    "pipe": (" is not a file, so it is no tokenizer: check the name.$", MORE["pipe"]),
    "link to nothing": ("cannot be read", MORE["link to nothing"]),
    "cut": ("JSONDecodeError", text(lambda whole: whole[:-20])),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files_are_named(file, case):
    cause, breaking = BROKEN[case]
    breaking(file)
    line = refusal(file)
    assert re.search(cause, line), line
    assert line.endswith((": restore it, or train again.", ": check the name."))


def test_pickles_stay_shut(file):
    canary = file.parent / "canary"
    for raw in make_pickles(canary).values():
        file.write_bytes(raw)
        refusal(file)
    assert not canary.exists()


def test_mutated_files_load_or_are_refused(file):
    whole, rng, lines = file.read_bytes(), random.Random(7), []
    count = int(os.environ.get("REGARD_MUTATIONS", "40"))
    for _ in range(count):
        file.write_bytes(mutate(whole, rng))
        start = time.perf_counter()
        try:
            tokenizer = Tokenizer.load(file)
            tokenizer.decode(tokenizer.encode("a b"))
        except RegardError as error:
            lines.append(str(error))
        assert time.perf_counter() - start < MOST_SECONDS
    assert len(lines) > count / 2
    assert all(line.isprintable() for line in lines)
