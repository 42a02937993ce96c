"""Configs that are broken, or of others: one line with file, cause and fix; no key of theirs is acted upon."""

from __future__ import annotations

import json
import pathlib
import re
from typing import Any

import pytest

from regard import RegardError
from regard.models.pretrained import load_pretrained
from regard.models.seq2seq import Seq2Seq
from regard.models.transformer import Transformer
from tests.models.malformed import KINDS, MORE, Breaking, make_folder, refusal

pytest.importorskip("safetensors")


@pytest.fixture(params=KINDS)
def folder(request, tmp_path) -> pathlib.Path:
    """A folder of each model, to be broken."""
    return make_folder(tmp_path / "run", request.param)


def write(content: str | bytes) -> Breaking:
    return lambda file: file.write_bytes(content.encode() if isinstance(content, str) else content)


def entry(**changes: Any) -> Breaking:
    """The config with other entries; ... takes one out."""

    def make(file: pathlib.Path) -> None:
        entries = {**json.loads(file.read_text()), **changes}
        file.write_text(json.dumps({key: x for key, x in entries.items() if x is not ...}))

    return make


LOADS = "regard loads regard-encoder, regard-seq2seq, regard-transformer."
AGAIN = "restore it, or save the model again."
CONFIG: dict[str, tuple[str, Breaking]] = {
    "missing": ("is not there: name a folder that a run or save_pretrained wrote.", lambda file: file.unlink()),
    "folder": ("is not a file: name a folder that a run or save_pretrained wrote.", MORE["folder"]),
    "pipe": ("is not a file: name a folder that a run or save_pretrained wrote.", MORE["pipe"]),
    "link to itself": (
        "cannot be read (Too many levels of symbolic links): check its rights.", MORE["link to itself"],
    ),
    "too long": (
        "has more than 1,048,576 bytes: name a folder that a run or save_pretrained wrote.", write(" " * 2**21),
    ),
    "empty": (f"is not JSON (Expecting value: line 1 column 1 (char 0)): {AGAIN}", write("")),
    "404": (f"is not JSON (Expecting value: line 1 column 1 (char 0)): {AGAIN}", write("<!DOCTYPE html>")),
    "not UTF-8": (f"is not JSON (not UTF-8): {AGAIN}", write('{"a": "é"}'.encode("latin-1"))),
    "nested": (f"is not JSON (nested too deep): {AGAIN}", write("[" * 100_000)),
    "twice": (f"is not JSON (a key stands there twice): {AGAIN}", write('{"a": 1, "a": 2}')),
    "NaN": (f"is not JSON (NaN is not JSON): {AGAIN}", entry(dropout=float("nan"))),
    "list": (f"is a list, not an object of keys: {AGAIN}", write("[1]")),
    "foreign": (
        f"has the model_type 'marian': {LOADS[:-1]}; install the package of another.",
        write('{"model_type": "marian"}'),
    ),
    "bert": (
        "has the model_type 'bert', a folder of Hugging Face's: write hf:FOLDER.", write('{"model_type": "bert"}'),
    ),
    "transformers": (
        "has the model_type 'x', a folder of Hugging Face's: write hf:FOLDER.",
        write('{"model_type": "x", "transformers_version": "5.0"}'),
    ),
    "no type": (f"has the model_type None: {LOADS}", write("{}")),
    "odd type": (
        f"has the model_type ['x']: {LOADS}", entry(model_type=["x"]),
    ),
    "newer": ("has regard_format 3, this regard reads up to 2: install a newer regard.", entry(regard_format=3)),
    "no format": (f"has no regard_format that counts from 1, but None: {AGAIN}", entry(regard_format=...)),
    "true format": (f"has no regard_format that counts from 1, but True: {AGAIN}", entry(regard_format=True)),
    "dtype": (f"needs a dtype of float32, bfloat16, float16, float64, has 'int8': {AGAIN}", entry(dtype="int8")),
    "training": (f"has a training that is not an object of keys: {AGAIN}", entry(training=[1])),
    "unknown key": ("has the key 'num_head', which no {} of regard has: take it out.", entry(num_head=2)),
    **{
        name: (f"has the key '{name}', which no {{}} of regard has: take it out.", entry(**{name: value}))
        for name, value in {
            "auto_map": {"AutoModel": "evil.Model"}, "_attn_implementation": "x/y", "torch_dtype": "float16",
            "_attn_implementation_internal": "x/y", "trust_remote_code": True, "transformers_version": "5.0",
        }.items()
    },
    "dropout": (r"makes no model \(.* must lie in \[0, 1\), got 1\.5\): correct it\.", entry(dropout=1.5)),
}  # fmt: skip
OF_TRANSFORMER: dict[str, tuple[str, Breaking]] = {
    "missing field": (f"has no num_heads: {AGAIN}", entry(num_heads=...)),
    "wrong type": ("makes no model (Config num_hiddens must be int, got '4'): correct it.", entry(num_hiddens="4")),
    "negative heads": (
        "makes no model (Config num_heads must be at least 1, got -2): correct it.", entry(num_heads=-2),
    ),
    "d % H": (
        "makes no model (Config num_hiddens=4 must be a multiple of num_heads=3): correct it.", entry(num_heads=3),
    ),
    "huge max_len": (
        "makes no model (Config max_len must be at most 1048576, got 100000000000): correct it.", entry(max_len=10**11),
    ),
    "huge width": (
        "has num_hiddens=400, too large for its weights: correct it.", entry(num_hiddens=400, num_heads=400),
    ),
    "huge vocabulary": (
        "has vocab_size=10000000000000000000, too large for its weights: correct it.", entry(vocab_size=10**19),
    ),
    "line ends": (
        r"has the key 'a\nb', which no Transformer of regard has: take it out.", entry(**{"a\nb": 1}),
    ),
    "half a character": (
        r"has the key '\ud800', which no Transformer of regard has: take it out.", entry(**{"\ud800": 1}),
    ),
}  # fmt: skip
OF_SEQ2SEQ: dict[str, tuple[str, Breaking]] = {
    "missing field": (f"has no attention: {AGAIN}", entry(attention=...)),
    "wrong type": (
        "makes no model (Config embed_size must be int, got 1.5): correct it.", entry(embed_size=1.5),
    ),
    "negative": (
        "makes no model (Config num_layers must be at least 1, got -1): correct it.", entry(num_layers=-1),
    ),
    "odd": (
        "makes no model (Config num_hiddens must be even for a GRU in both directions, got 7): correct it.",
        entry(is_bidirectional=True, num_hiddens=7),
    ),
}  # fmt: skip


def check_config(folder: pathlib.Path, expected: str, breaking: Breaking) -> None:
    file = folder / "config.json"
    name = {"seq2seq": "Seq2Seq", "transformer": "Transformer"}[json.loads(file.read_text())["model_type"][7:]]
    breaking(file)
    line = refusal(folder)
    if len(str(file)) + len(expected) < 190:
        assert line.startswith(f"{file} ")
        rest = line.removeprefix(f"{file} ")
        assert rest == expected.replace("{}", name) or re.fullmatch(expected, rest), rest
    else:
        # a long path is shown by its end
        assert "config.json " in line


@pytest.mark.parametrize("case", CONFIG)
def test_broken_configs_are_named(folder, case):
    check_config(folder, *CONFIG[case])


@pytest.mark.parametrize("folder", ["transformer"], indirect=True)
@pytest.mark.parametrize("case", OF_TRANSFORMER)
def test_a_config_that_is_of_no_transformer(folder, case):
    check_config(folder, *OF_TRANSFORMER[case])


@pytest.mark.parametrize("folder", ["seq2seq"], indirect=True)
@pytest.mark.parametrize("case", OF_SEQ2SEQ)
def test_a_config_that_is_of_no_seq2seq(folder, case):
    check_config(folder, *OF_SEQ2SEQ[case])


def test_an_unknown_score_is_named_with_those_there_are(folder):
    entry(**{"score" if "score" in (folder / "config.json").read_text() else "attention": "telepathy"})(
        folder / "config.json"
    )
    assert re.search(r"config\.json makes no model \(.* must be one of 'additive'|'dot'", refusal(folder))


def test_layers_without_end_are_not_built(folder):
    for name in re.findall(r"num_\w*layers", (folder / "config.json").read_text()):
        entry(**{name: 10**11})(folder / "config.json")
        assert refusal(folder).endswith(f"config.json has {name}=100000000000, too large for its weights: correct it.")
        entry(**{name: 1})(folder / "config.json")
    load_pretrained(folder)


def test_a_file_without_rights(folder, monkeypatch):
    def refuse(*args: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(RegardError) as error:
        load_pretrained(folder)
    assert str(error.value) == f"{folder / 'config.json'} cannot be read (Permission denied): check its rights."


def test_the_wrong_class_is_told_the_right_one(folder):
    kind, other = (
        (Transformer, Seq2Seq) if "seq2seq" in (folder / "config.json").read_text() else (Seq2Seq, Transformer)
    )
    name, right = kind.__name__, other.__name__
    line = refusal(folder, kind.from_pretrained)
    assert line == f"{folder / 'config.json'} is of a {right}, not of a {name}: use {right}.from_pretrained."


def test_a_name_is_not_looked_up(tmp_path, monkeypatch):
    monkeypatch.setattr("socket.socket", None)
    monkeypatch.chdir(tmp_path)
    fetched = "name one that a run or save_pretrained wrote; nothing is fetched."
    assert refusal(pathlib.Path("bert-base-uncased")) == f"bert-base-uncased is not a folder on this machine: {fetched}"
    (tmp_path / "file").write_text("")
    assert refusal(tmp_path / "file") == f"{tmp_path / 'file'} is a file, not a folder: {fetched}"
