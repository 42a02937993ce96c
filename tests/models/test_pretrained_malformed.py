"""Weights that are broken: one line with file, cause and fix, at once, and nothing of theirs is ever run."""

from __future__ import annotations

import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from regard import RegardError
from regard.models.files import name_fault
from regard.models.pretrained import load_pretrained
from tests.models.malformed import (
    KINDS,
    MORE,
    MOST_SECONDS,
    SAFETENSORS,
    Breaking,
    change,
    make_folder,
    make_pickles,
    mutate,
    refusal,
    set_last,
)

pytest.importorskip("safetensors")


@pytest.fixture(params=KINDS)
def folder(request, tmp_path) -> pathlib.Path:
    """A folder of each model, to be broken."""
    return make_folder(tmp_path / "run", request.param)


def last(act: Callable[[bytes], bytes]) -> Breaking:
    return lambda file: file.write_bytes(act(file.read_bytes()))


def extra(header: dict[str, Any], tensors: list[str]) -> None:
    end = header[tensors[-1]]["data_offsets"][1]
    header["surplus"] = {"dtype": "F32", "shape": [2], "data_offsets": [end, end + 8]}


def nan_last(file: pathlib.Path) -> None:
    # without the hash, which tells it too
    change(lambda header, tensors: None)(file)
    file.write_bytes(file.read_bytes()[:-4] + b"\x00\x00\xc0\x7f")


WEIGHTS: dict[str, Breaking] = {
    **SAFETENSORS,
    **MORE,
    "missing": lambda file: file.unlink(),
    "only shards": lambda file: file.rename(file.with_name("model-00001-of-00002.safetensors")),
    "extra tensor": change(extra, b"\0" * 8),
    "missing tensor": change(lambda header, tensors: header.pop(tensors[-1])),
    "wrong shape": set_last("shape", [1]),
    "wrong dtype": set_last("dtype", "I32"),
    "NaN": nan_last,
}


@pytest.mark.parametrize("case", WEIGHTS)
def test_broken_weights_are_named(folder, case):
    file = folder / "model.safetensors"
    WEIGHTS[case](file)
    line = refusal(folder)
    assert re.search(r"model\.safetensors (is|has|does|cannot) .*: .*\.$", line), line


def test_the_words_on_weights(folder):
    file = folder / "model.safetensors"
    again = "restore it, or save the model again."
    raw = file.read_bytes()

    def told(breaking: Breaking) -> str:
        shutil.rmtree(file) if file.is_dir() else file.unlink(missing_ok=True)
        file.write_bytes(raw)
        breaking(file)
        return refusal(folder).removeprefix(f"{file} ")

    assert told(SAFETENSORS["empty"]) == f"is not safetensors (0 bytes, a header of 0): {again}"
    assert told(SAFETENSORS["7 bytes"]).startswith("is not safetensors (7 bytes, a header of ")
    assert told(SAFETENSORS["keys twice"]) == f"is not safetensors (a key stands there twice): {again}"
    assert told(SAFETENSORS["header not UTF-8"]) == f"is not safetensors (not UTF-8): {again}"
    assert told(SAFETENSORS["header nested"]) == f"is not safetensors (nested too deep): {again}"
    assert told(MORE["header a list"]) == f"is not safetensors (the header is not an object of objects): {again}"
    assert told(MORE["flipped"]) == f"is not safetensors (damaged, its sha256 is another): {again}"
    assert re.fullmatch(r"has \d+ bytes of numbers where \d+ belong: .*", told(MORE["truncated"]))
    shards = "regard reads one file of this name, no shards and no pickles."
    assert told(lambda file: file.unlink()) == f"is not there: {shards}"
    assert told(MORE["pipe"]) == f"is not a file: {shards}"
    assert re.fullmatch(
        r"does not fit config\.json \(surplus is one too many\): restore the folder\.", told(WEIGHTS["extra tensor"])
    )
    assert re.search(r"config\.json \([\w.]+ is missing\)", told(WEIGHTS["missing tensor"]))
    assert re.search(r"config\.json \([\w.]+ has shape \[1\], not \[.*\]\)", told(WEIGHTS["wrong shape"]))
    assert re.search(r"config\.json \([\w.]+ has dtype I32, not F32\)", told(WEIGHTS["wrong dtype"]))
    assert re.fullmatch(r"has a [\w.]+ that is not finite: take an earlier one\.", told(WEIGHTS["NaN"]))


def test_pickles_stay_shut(folder):
    canary = folder.parent / "canary"
    whole = {name: (folder / name).read_bytes() for name in ("config.json", "model.safetensors")}
    for raw in make_pickles(canary).values():
        for name in whole:
            (folder / name).write_bytes(raw)
            assert name in refusal(folder)
            (folder / name).write_bytes(whole[name])
        # beside the model they mean nothing, and in its place neither
        (folder / "pytorch_model.bin").write_bytes(raw)
        load_pretrained(folder)
        (folder / "model.safetensors").unlink()
        assert refusal(folder).endswith("no shards and no pickles.")
        (folder / "model.safetensors").write_bytes(whole["model.safetensors"])
    assert not canary.exists()


# --- all at once ------------------------------------------------------------------------------------------------------

MEMORY = """
import pathlib, resource, sys
from tests.models.malformed import load_pretrained, make_folder
from tests.models.test_pretrained_config import CONFIG
from tests.models.test_pretrained_malformed import WEIGHTS
place = pathlib.Path(sys.argv[1])
load_pretrained(make_folder(place / "whole", "transformer"))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for name, cases in (("config.json", {k: x[1] for k, x in CONFIG.items()}), ("model.safetensors", WEIGHTS)):
    for number, breaking in enumerate(cases.values()):
        folder = make_folder(place / f"{name} {number}", "transformer")
        breaking(folder / name)
        try:
            load_pretrained(folder)
        except ValueError:
            pass
print(before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_no_broken_file_takes_memory(tmp_path):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", MEMORY, str(tmp_path)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    before, after = map(int, done.stdout.split())
    # in KiB; breaking the files is in it
    assert after - before < 100 * 1024


def test_mutated_folders_load_or_are_refused(folder):
    whole = {name: (folder / name).read_bytes() for name in ("config.json", "model.safetensors")}
    rng, lines = random.Random(5), []
    for number in range(int(os.environ.get("REGARD_MUTATIONS", "75"))):
        name = ("config.json", "model.safetensors")[number % 2]
        (folder / name).write_bytes(mutate(whole[name], rng))
        start = time.perf_counter()
        try:
            load_pretrained(folder)
        except RegardError as error:
            lines.append(str(error))
        assert time.perf_counter() - start < MOST_SECONDS
        (folder / name).write_bytes(whole[name])
    assert len(lines) > number / 2
    assert all(len(line) <= 200 and line.isprintable() for line in lines)
    load_pretrained(folder)


def test_a_line_is_a_line():
    path = pathlib.Path("x" * 300, "config.json")
    for cause, detail in (("is not JSON", ""), ("is not JSON", "y" * 300), ("z" * 300, "y")):
        line = str(name_fault(path, cause, "restore it", detail))
        assert len(line) <= 200
        assert "config.json " in line
        assert detail or "(" not in line
    assert str(name_fault(pathlib.Path("a\x1b[2Jb"), "is\nnot", "restore it")) == "a?[2Jb is?not: restore it."
