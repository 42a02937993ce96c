"""Every reader of text files, with files that are none: one line that names the file, or what was asked."""

import gzip
import json
import pathlib
import random
import zipfile
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from regard.core import RegardError
from regard.data import read_labelled, read_pairs, read_tagged, read_texts
from regard.data.lines import MOST_BYTES

CONLLU = "# text = I see\n1\tI\tI\tPRON\tPRP\t_\t2\tnsubj\t_\t_\n2\tsee\tsee\tVERB\tVB\t_\t0\troot\t_\t_\n\n"
LABELLED = json.dumps({"text": "good", "label": 1}) + "\n" + json.dumps({"text": "bad", "label": 0}) + "\n"
# a reader, the name of a file for it, and what such a file holds
CASES: dict[str, tuple[Callable[[Any], Iterable[Any]], str, str]] = {
    "pairs of TSV": (read_pairs, "a.tsv", "Hi.\t嗨。\nRun.\t跑。\n"),
    "conllu": (read_tagged, "a.conllu", CONLLU * 3),
    "two columns": (read_tagged, "a.txt", "I PRON\nsee VERB\n\nGo VERB\n"),
    "labelled TSV": (read_labelled, "a.tsv", "good scene\t1\nbad film\t0\n"),
    "labelled CSV": (read_labelled, "a.csv", 'label,review\n1,"good, ""film"""\n0,"bad\nfilm"\n'),
    "labelled JSONL": (read_labelled, "a.jsonl", LABELLED),
    "plain text": (read_texts, "a.txt", "One.\nTwo.\n\nThree.\n"),
    "texts of TSV": (read_texts, "a.tsv", "One.\t1\nTwo.\t2\n"),
    "texts of CSV": (read_texts, "a.csv", 'text\n"One, two"\nthree\n'),
    "texts of JSONL": (read_texts, "a.jsonl", LABELLED),
    "texts of conllu": (read_texts, "a.conllu", CONLLU),
}
READERS = [pytest.param(*case, id=name) for name, case in CASES.items()]


def refuse(read: Callable[[Any], Iterable[Any]], file: pathlib.Path) -> str:
    """What the reader says, which is short, one line, and begins with the file."""
    with pytest.raises(RegardError) as error:
        list(read(file))
    message = str(error.value)
    assert "\n" not in message
    assert message.isprintable()
    assert str(file) in message
    # apart from the folder, short enough for a terminal
    assert len(message.replace(str(file.parent), "")) <= 200
    return message


@pytest.mark.parametrize(("read", "name", "text"), READERS)
def test_the_file_is_good_to_begin_with(tmp_path, read, name, text):
    for file, raw in ((tmp_path / name, text.encode()), (tmp_path / f"{name}.gz", gzip.compress(text.encode()))):
        file.write_bytes(raw)
        assert list(read(file))
        assert list(read(str(file)))


@pytest.mark.parametrize(("read", "name", "text"), READERS)
def test_no_file(tmp_path, read, name, text):
    assert "does not exist" in refuse(read, tmp_path / name)
    (tmp_path / f"{name}.d").mkdir()
    # labels may be folders, and a folder may hold texts: there are none here
    said = refuse(read, tmp_path / f"{name}.d")
    assert any(x in said for x in ("is a folder", "has no folders", "has no text"))
    (tmp_path / "a.exe").write_text(text, encoding="utf-8")
    assert "must end in" in refuse(read, tmp_path / "a.exe")


@pytest.mark.parametrize(("read", "name", "text"), READERS)
@pytest.mark.parametrize("nothing", ["", "\n\n \n", "\ufeff"])
def test_empty(tmp_path, read, name, text, nothing):
    (tmp_path / name).write_text(nothing, encoding="utf-8")
    assert " has no " in refuse(read, tmp_path / name)


@pytest.mark.parametrize(("read", "name", "text"), READERS)
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda raw: raw.replace(b"e", b"\xe9", 1), "is not UTF-8"),
        (lambda raw: raw.decode().encode("utf-16"), "is not UTF-8"),
        # half a surrogate pair, as UTF-8 has none
        (lambda raw: raw.replace(b"e", b"\xed\xa0\xbd", 1), "is not UTF-8"),
        (lambda raw: raw.replace(b"e", b"\0", 1), "has a NUL byte"),
        (lambda raw: raw.replace(b"e", b"e" * (MOST_BYTES + 1), 1), "is longer than 1,000,000 bytes"),
    ],
    ids=["latin", "utf-16", "surrogate", "nul", "long"],
)
def test_no_text(tmp_path, read, name, text, spoil, said):
    raw = spoil(text.replace("Hi", "He").encode())
    (tmp_path / name).write_bytes(raw)
    assert said in refuse(read, tmp_path / name)
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(raw, 1))
    assert said in refuse(read, tmp_path / f"{name}.gz")


@pytest.mark.parametrize(("read", "name", "text"), READERS)
def test_damaged_archives(tmp_path, read, name, text):
    packed = gzip.compress(text.encode())
    for raw in (packed[:-9], packed[:12], packed[:3], text.encode(), packed + b"more", packed[:-8] + b"12345678"):
        (tmp_path / f"{name}.gz").write_bytes(raw)
        assert "is damaged after line" in refuse(read, tmp_path / f"{name}.gz")
    (tmp_path / "a.zip").write_bytes(packed)
    assert "is not a whole zip file" in refuse(read, tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.exe", text)
    assert "must hold one" in refuse(read, tmp_path / "a.zip")


@pytest.mark.parametrize(
    ("case", "text", "said"),
    [
        ("conllu", CONLLU + "3\tx\n", "line 5 must have 10 columns"),
        ("conllu", CONLLU.replace("VERB", "_"), "line 3 has no tag"),
        ("two columns", "I PRON\nsee\n", "line 2 must have 2 columns"),
        ("two columns", CONLLU, "line 1 must have 2 columns"),
        ("labelled TSV", "good\t1\nbad\n", "line 2 must have at least 2 columns between tabs"),
        ("labelled CSV", "good,1\nbad\n", "line 2 must have at least 2 columns between commas"),
        ("labelled CSV", "label,review,more\n1\n", "line 2 must have at least 2 columns between commas"),
        ("labelled CSV", 'good,1\n"bad,0\n', "line 2 is not CSV"),
        ("labelled JSONL", LABELLED + "{", "line 3 is not JSON"),
        ("labelled JSONL", "[]\n", "line 1 must be a JSON object, is a list"),
        ("labelled JSONL", '{"text": "a"}', "line 1 has no key 'label'"),
        ("labelled JSONL", '{"text": 1, "label": 1}', "line 1: 'text' must be text, is a int"),
        ("labelled JSONL", '{"text": "a", "label": null}', "line 1: 'label' must be text, a whole number, true or"),
        ("labelled JSONL", '{"text": "a", "label": "\\ud83d"}', "line 1: 'label' has half a surrogate pair"),
        ("labelled JSONL", '{"text": "\\ud83d", "label": 1}', "line 1: 'text' has half a surrogate pair"),
        ("labelled JSONL", '{"text": "a", "label": ' + "9" * 5000 + "}", "line 1 is not JSON"),
        ("texts of CSV", 'text\n"a', "line 2 is not CSV"),
        ("texts of CSV", "id,text\n1\n", "line 2 must have at least 2 columns between commas"),
        ("texts of JSONL", '{"label": 1}', "line 1 has no key 'text'"),
        ("texts of JSONL", '{"text": "\\ud83d"}', "line 1: 'text' has half a surrogate pair"),
        ("texts of JSONL", "[" * 100_000, "line 1 is not JSON"),
        ("texts of conllu", "1\ta\n", "line 1 must have 10 columns"),
    ],
)
def test_wrong_lines(tmp_path, case, text, said):
    read, name, _ = CASES[case]
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert said in refuse(read, tmp_path / name)


def test_a_text_in_a_folder_is_named(tmp_path):
    for label in ("neg", "pos"):
        (tmp_path / label).mkdir()
        (tmp_path / label / "a.txt").write_text("fine", encoding="utf-8")
    (tmp_path / "pos" / "b.txt").write_bytes(b"na\xefve")
    for read in (read_labelled, read_texts):
        with pytest.raises(RegardError) as error:
            list(read(tmp_path))
        assert str(error.value).startswith(f"{tmp_path}/pos/b.txt, line 1 is not UTF-8")


@pytest.mark.parametrize(("read", "name", "text"), READERS)
@pytest.mark.parametrize("end", ["", ".gz"])
def test_mutated_files_are_read_or_refused(tmp_path, read, name, text, end):
    rng = random.Random(name + end)
    file, refused = tmp_path / (name + end), []
    whole = gzip.compress(text.encode()) if end else text.encode()
    for _ in range(100):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        file.write_bytes(data[: rng.randrange(len(data))] if rng.random() < 0.2 else data)
        try:
            list(read(file))
        except RegardError as error:
            refused.append(str(error))
    assert len(refused) > 10
    assert all(message.isprintable() and len(message) <= 200 + len(str(tmp_path)) for message in refused), refused
