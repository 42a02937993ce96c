"""Files that are broken in every way we know of, made from whole ones; and mutations of any file."""

from __future__ import annotations

import functools
import io
import json
import os
import pathlib
import pickle
import random
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch

from regard import RegardError
from regard.models.pretrained import load_pretrained
from regard.models.seq2seq import Config as Seq2SeqConfig
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import Config, Transformer

Breaking = Callable[[pathlib.Path], object]


def split(raw: bytes) -> tuple[dict[str, Any], bytes]:
    """A file of safetensors as its header, without the hash that would tell any change, and its numbers."""
    start = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:start])
    header["__metadata__"].pop("sha256", None)
    return header, raw[start:]


def join(header: dict[str, Any] | str | bytes, numbers: bytes) -> bytes:
    text = json.dumps(header) if isinstance(header, dict) else header
    raw = text.encode() if isinstance(text, str) else text
    return len(raw).to_bytes(8, "little") + raw + numbers


def names(header: dict[str, Any]) -> list[str]:
    """The tensors in the order of their numbers."""
    found = [name for name in header if name != "__metadata__"]
    return sorted(found, key=lambda name: header[name]["data_offsets"])


def content(raw: bytes) -> Breaking:
    return lambda file: file.write_bytes(raw)


def change(act: Callable[[dict[str, Any], list[str]], object], extra: bytes = b"") -> Breaking:
    """A change of the header alone; `extra` are numbers more."""

    def make(file: pathlib.Path) -> None:
        header, numbers = split(file.read_bytes())
        act(header, names(header))
        file.write_bytes(join(header, numbers + extra))

    return make


def header_text(act: Callable[[str], str | bytes]) -> Breaking:
    def make(file: pathlib.Path) -> None:
        header, numbers = split(file.read_bytes())
        file.write_bytes(join(act(json.dumps(header)), numbers))

    return make


def say_long(length: int, size: int = 0) -> Breaking:
    def make(file: pathlib.Path) -> None:
        raw = file.read_bytes()
        with open(file, "wb") as opened:
            opened.write(length.to_bytes(8, "little") + raw[8:])
            # zeros that take no place on the disk
            opened.truncate(max(size, len(raw)))

    return make


def twice(text: str) -> str:
    # the same entry again: to take the last is to see nothing
    header = json.loads(text)
    name = names(header)[0]
    return f'{text[:-1]}, "{name}": {json.dumps(header[name])}}}'


def overlap(header: dict[str, Any], tensors: list[str]) -> None:
    # two tensors of one size, the later at the place of the earlier
    for one, other in ((a, b) for a in tensors for b in tensors if a != b):
        if header[one]["shape"] == header[other]["shape"]:
            header[other]["data_offsets"] = header[one]["data_offsets"]
            return
    raise AssertionError("no two tensors of one shape")


def hole(header: dict[str, Any], tensors: list[str]) -> None:
    header[tensors[-1]]["data_offsets"] = [at + 8 for at in header[tensors[-1]]["data_offsets"]]


def set_last(key: str, value: Any) -> Breaking:
    return change(lambda header, tensors: header[tensors[-1]].update({key: value}))


SAFETENSORS: dict[str, Breaking] = {
    "empty": content(b""),
    "7 bytes": content(b"\x01" * 7),
    "header of 2^63": say_long(2**63),
    "header of 200 MB": say_long(200 * 2**20, 200 * 2**20 + 8),
    "header not UTF-8": header_text(lambda text: text.encode().replace(b"__metadata__", b"__metadat\xff__")),
    "header not JSON": header_text(lambda text: text[:-1]),
    "header nested": header_text(lambda text: '{"a":' * 100_000 + "1" + "}" * 100_000),
    "keys twice": header_text(twice),
    "overlap": change(overlap),
    "hole": change(hole, b"\0" * 8),
    "past the end": change(hole),
    "negative": set_last("data_offsets", [-8, 8]),
    "size is not shape": set_last("shape", [1, 1, 3]),
    "shape overflows": set_last("shape", [2**40, 2**40]),
}
MORE: dict[str, Breaking] = {
    "404": content(b"<!DOCTYPE html><title>404</title>"),
    "truncated": lambda file: file.write_bytes(file.read_bytes()[:-5]),
    "too long": lambda file: file.write_bytes(file.read_bytes() + b"\0" * 8),
    "flipped": lambda file: file.write_bytes(file.read_bytes()[:-1] + bytes([file.read_bytes()[-1] ^ 1])),
    "header a list": header_text(lambda text: "[]"),
    "entries no objects": header_text(lambda text: '{"a": 1}'),
    "metadata no texts": change(lambda header, tensors: header.update(__metadata__={"format": 3})),
    "dtype unknown": set_last("dtype", "F7"),
    "shape a text": set_last("shape", "abc"),
    "folder": lambda file: (file.unlink(), file.mkdir()),
    "pipe": lambda file: (file.unlink(), os.mkfifo(file)),
    "link to nothing": lambda file: (file.unlink(), file.symlink_to(file.parent / "nothing")),
    "link to itself": lambda file: (file.unlink(), file.symlink_to(file)),
}


class Trap:
    """What touches a file when it is unpickled."""

    def __init__(self, canary: pathlib.Path) -> None:
        self.canary = canary

    def __reduce__(self) -> Any:
        return pathlib.Path.touch, (self.canary,)


def make_pickles(canary: pathlib.Path) -> dict[str, bytes]:
    """Traps in every format that others read: plain, of several protocols, torch's zip, numpy's objects."""
    zipped, array = io.BytesIO(), io.BytesIO()
    torch.save(Trap(canary), zipped)
    numpy.save(array, numpy.array([Trap(canary)], dtype=object), allow_pickle=True)
    plain = {f"pickle {n}": pickle.dumps(Trap(canary), protocol=n) for n in (0, 2, 5)}
    return {**plain, "pt": zipped.getvalue(), "npy": array.getvalue()}


def mutate(raw: bytes, rng: random.Random) -> bytes:
    """The bytes with one to four of them, or runs of them, flipped, cut, put in, doubled or swapped for figures."""
    data = bytearray(raw)
    # most of a file is numbers; what decides is at its front
    reach = len(data) if rng.random() < 0.4 else min(len(data), 4000)
    for _ in range(rng.randint(1, 4)):
        at, length = rng.randrange(max(reach, 1)), rng.choice((1, 1, 1, 2, 8, 100))
        kind = rng.randrange(6)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[at : at + length]
        elif kind == 2:
            data[at:at] = rng.randbytes(length)
        elif kind == 3:
            data[at:at] = data[at : at + length]
        elif kind == 4 and at < len(data):
            data[at] = rng.choice(b'0123456789{}[]",:-.eEtrue \n\0\xff')
        elif rng.random() < 0.1:
            del data[at:]
    return bytes(data)


TINY = Config(7, None, num_hiddens=4, ffn_num_hiddens=6, num_heads=2, num_encoder_layers=1, num_decoder_layers=1)
KINDS = ("transformer", "seq2seq")
# tests may run on many cores at once
MOST_SECONDS = 2.0


@functools.cache
def make_files(kind: str) -> dict[str, bytes]:
    """The files of a model with nothing wrong."""
    torch.manual_seed(0)
    model = Transformer(TINY) if kind == "transformer" else Seq2Seq.from_config(Seq2SeqConfig(7, 9, 4, 6, 1))
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, {"note": "西安"})
        return {file.name: file.read_bytes() for file in pathlib.Path(folder).iterdir()}


def make_folder(folder: pathlib.Path, kind: str) -> pathlib.Path:
    folder.mkdir()
    for name, raw in make_files(kind).items():
        (folder / name).write_bytes(raw)
    return folder


def refusal(folder: pathlib.Path, load: Callable[[Any], Any] = load_pretrained) -> str:
    """The line that a folder is refused with, in time and leaving nothing behind."""
    before = sorted(folder.parent.rglob("*"))
    start = time.perf_counter()
    with pytest.raises(RegardError) as error:
        load(folder)
    assert time.perf_counter() - start < MOST_SECONDS
    assert sorted(folder.parent.rglob("*")) == before
    line = str(error.value)
    assert len(line) <= 200
    assert line.isprintable()
    return line
