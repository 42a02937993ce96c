"""A reader of texts without labels."""

import gzip
import pathlib

import pytest

from regard.core import RegardError
from regard.data import read_texts


def write(path: pathlib.Path, text: str) -> pathlib.Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize(
    ("name", "text", "options", "texts"),
    [
        ("a.txt", "\ufeff\n a\tb \r\n\r\n \r\ncafe\u0301\r\n\r\n", {}, ["a\tb", "", "café"]),
        ("a.text.gz", "a\nb", {}, ["a", "b"]),
        ("a.tsv", "a\t1\nb\t0\n", {}, ["a", "b"]),
        ("a.tab.gz", "1\ta\n0\tb\n", {"column": 1}, ["a", "b"]),
        ("a.csv", 'label,review\n1,"a, b"\n0,c\n', {}, ["a, b", "c"]),
        ("a.csv", "id,Text\n1,a\n", {}, ["a"]),
        ("a.csv", "a\nb\n", {}, ["a", "b"]),
        ("a.csv", "id,prose\n1,a\n", {"column": "prose"}, ["a"]),
        ("a.jsonl", '{"text": "a"}\n\n{"text": "b", "label": 1}\n', {}, ["a", "", "b"]),
        ("a.jsonl.gz", '{"body": "a"}\n', {"key": "body"}, ["a"]),
        ("a.conllu", "# x\n1\ta\t_\t_\t_\t_\t_\t_\t_\t_\n2\tb\t_\t_\t_\t_\t_\t_\t_\t_\n", {}, ["a b"]),
    ],
)
def test_texts(tmp_path, name, text, options, texts):
    found = read_texts(write(tmp_path / name, text), **options)
    assert list(found) == list(found) == texts
    assert repr(found) == f"Texts({tmp_path / name})"


def test_a_folder_is_its_files(tmp_path):
    for name, text in {"b.txt": "one\ntwo\n", "a/1.txt.gz": "first", "a/.x.txt": "no", "c.md": "no"}.items():
        write(tmp_path / name, text)
    assert list(read_texts(tmp_path)) == ["first", "", "one", "two"]


MESSAGES = {
    "{}/a.txt has no text: name a file that has some.": ("a.txt", "\n \n", {}),
    "{}/a.md must end in .txt, .text, .tsv, .tab, .csv, .jsonl, .ndjson, .conllu or .conll (then .gz), or .zip: save it"
    " as one of these.": ("a.md", "", {}),
    "{}/f is a folder, which has no columns and no member: leave them out.": (
        "f/a.txt",
        "a",
        {"path": "f", "column": 0},
    ),
    "{}/f has no text: name a file that has some.": ("f/a.md", "a", {"path": "f"}),
    "columns must be 1 names of the first row, or positions counted from 0, got (-1,).": ("a.csv", "", {"column": -1}),
}


@pytest.mark.parametrize("message", MESSAGES)
def test_the_message_is_pinned(tmp_path, message):
    name, text, options = MESSAGES[message]
    write(tmp_path / name, text)
    with pytest.raises(RegardError) as error:
        list(read_texts(tmp_path / options.pop("path", name), **options))
    assert str(error.value) == message.replace("{}", str(tmp_path))
    assert len(message) <= 200


def test_real_texts(data):
    assert sum(1 for _ in read_texts(data / "sst2" / "dev.tsv")) == 872
    assert sum(1 for _ in read_texts(data / "ud_english_ewt" / "en_ewt-ud-dev.conllu.gz")) == 2001
