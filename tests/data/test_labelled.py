"""Readers of labelled texts: what they give, and what they say about files that are wrong."""

import csv
import gzip
import json
import pathlib
import random
import zipfile
from collections import Counter

import pytest

from regard.core import RegardError
from regard.data import read_labelled
from regard.data.lines import MOST_BYTES

ROWS = [("Good, and cheap.", "1"), ('A "quiet"\nroom', "0"), ("安静", "1")]


def write(path: pathlib.Path, text: str | bytes) -> pathlib.Path:
    raw = text.encode() if isinstance(text, str) else text
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


def write_csv(path: pathlib.Path, rows: list[tuple[str, ...]]) -> pathlib.Path:
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows(rows)
    return path


@pytest.mark.parametrize(
    ("first", "options"),
    [
        (("text", "label"), {}),
        ((" Review ", "SENTIMENT"), {}),
        (("a", "b"), {"columns": ("a", "b")}),
        (("a", "b"), {"columns": ("a", 1)}),
        (("a", "b"), {"columns": (0, 1), "header": True}),
        (("a", "b"), {"header": True}),
        (None, {}),
        (None, {"columns": [0, 1]}),
    ],
)
def test_csv(tmp_path, first, options):
    file = write_csv(tmp_path / "a.csv", [*([first] if first else []), *ROWS])
    assert list(read_labelled(file, **options)) == ROWS


@pytest.mark.parametrize("columns", [None, ("review", "label"), ("review", 0), (1, 0)])
def test_the_label_may_stand_first(tmp_path, columns):
    file = write_csv(tmp_path / "a.csv", [("label", "review"), *(row[::-1] for row in ROWS)])
    assert list(read_labelled(file, columns=columns, header=columns == (1, 0))) == ROWS


def test_the_first_row_is_data_unless_it_names_both(tmp_path):
    # a text may say "text"; only with a label beside it is it a heading
    assert list(read_labelled(write(tmp_path / "a.tsv", "text\t1\n"))) == [("text", "1")]
    assert list(read_labelled(write(tmp_path / "a.tsv", "good\tlabel\n"))) == [("good", "label")]
    # where columns are counted, these very cells must be names
    file = write(tmp_path / "a.tsv", "label\tReview \ttext\n1\tyes\tno\n")
    assert list(read_labelled(file, columns=(1, 0))) == [("yes", "1")]
    assert list(read_labelled(file, columns=(0, 1))) == [("label", "Review"), ("1", "yes")]
    assert list(read_labelled(file, columns=(0, 1), header=True)) == [("1", "yes")]
    # of two names for the same, the likelier
    file = write(tmp_path / "a.tsv", "id\tclass\tcomment\tlabel\ttext\n7\tx\tno\t1\tyes\n")
    assert list(read_labelled(file)) == [("yes", "1")]


@pytest.mark.parametrize("name", ["a.tsv", "a.txt", "a.tab", "a.tsv.gz"])
def test_tsv(tmp_path, name):
    # quotes are text
    pairs = read_labelled(write(tmp_path / name, '\ufeffa "b\t1\r\n\r\ncafe\u0301, c \t 0 \r\n\t1\r\n'))
    assert list(pairs) == [('a "b', "1"), ("café, c", "0")]
    assert pairs.blank == 2
    assert repr(pairs) == f"Pairs({tmp_path / name})"


def test_random_csv_as_the_library_reads_it(tmp_path):
    rng = random.Random(0)
    rows = [
        tuple("x" + "".join(rng.choices('ab",;\n\t 西', k=rng.randrange(12))) + "x" for _ in range(3))
        for _ in range(200)
    ]
    file = write_csv(tmp_path / "a.csv", rows)
    assert list(read_labelled(file, columns=(2, 0))) == [(c, " ".join(a.split())) for a, _, c in rows]


def test_a_field_may_be_longer_than_the_library_lets_it(tmp_path):
    before, long = csv.field_size_limit(1000), "x" * 500_000
    try:
        assert list(read_labelled(write(tmp_path / "a.csv", f"{long},1\n"))) == [(long, "1")]
        # the limit is for all in the process, who may want theirs
        assert csv.field_size_limit() == 1000
    finally:
        csv.field_size_limit(before)


def test_jsonl(tmp_path):
    rows = [
        ("a", "x", "x"),
        ("b", 1, "1"),
        ("c", True, "true"),
        ("d", False, "false"),
        ("e", -2, "-2"),
        ("f", " y ", "y"),
        ("g", "a\n\tb", "a b"),
    ]
    text = "".join(json.dumps({"text": a, "label": b}) + "\n" for a, b, _ in rows)
    pairs = read_labelled(write(tmp_path / "a.jsonl", text + "\n"))
    assert list(pairs) == [(a, c) for a, _, c in rows]
    assert pairs.blank == 1
    other = write(tmp_path / "b.ndjson.gz", text.replace("text", "review"))
    assert list(read_labelled(other, keys=("review", "label"))) == [(a, c) for a, _, c in rows]


def test_a_folder(tmp_path):
    for name, text in {
        "pos/b.txt": "good\n\n  film\t!\n",
        "pos/a.txt.gz": "fine",
        "neg/1.TXT": "bad",
        "neg/2.txt": " \n",
        "neg/.hidden.txt": "no",
        "neg/notes.md": "no",
        ".git/a.txt": "no",
        "__MACOSX/a.txt": "no",
        "README": "no",
    }.items():
        write(tmp_path / name, text)
    pairs = read_labelled(tmp_path)
    assert list(pairs) == [("bad", "neg"), ("fine", "pos"), ("good film !", "pos")]
    assert pairs.blank == 1


def test_a_member_of_a_zip(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.csv", "text,label\na,1\n")
        archive.writestr("b.csv", "text,label\nb,1\n")
    assert list(read_labelled(tmp_path / "a.zip", member="b.csv")) == [("b", "1")]


MESSAGES = {
    "{}/a.csv has no labelled texts (1 blank lines): name a file that has some.": ("a.csv", "text,label\n\n", {}),
    "{}/a.xml must end in .tsv, .txt, .tab, .csv, .jsonl or .ndjson (then .gz), or .zip: save it as one of these.": (
        "a.xml",
        "",
        {},
    ),
    "{}/a.csv, line 3 must have at least 2 columns between commas, has 1: mend the line, or name other columns.": (
        "a.csv",
        '"a\nb",1\nc\n',
        {},
    ),
    "{}/a.tsv, line 1 must have at least 2 columns between tabs, has 1: mend the line, or name other columns.": (
        "a.tsv",
        "a,1\n",
        {},
    ),
    "{}/a.csv, line 1 names no column 'x' (it has 'text', 'label'): name one of these, or its number.": (
        "a.csv",
        "text,label\n",
        {"columns": ("x", "label")},
    ),
    "{}/a.csv, line 2 is not CSV (unexpected end of data): mend it; a quote inside quotes is written twice.": (
        "a.csv",
        'a,1\n"b,1\nc,0\n',
        {},
    ),
    "{}/a.csv, line 1 is not CSV (',' expected after '\"'): mend it; a quote inside quotes is written twice.": (
        "a.csv",
        '"a"b,1\n',
        {},
    ),
    "{}/a.csv, line 1 is not CSV (field larger than field limit (1000000)): mend it; a quote inside quotes is written"
    " twice.": ("a.csv", '"' + f"{'x' * 999}\n" * 1001 + '",1\n', {}),
    "columns must be 2 names of the first row, or positions counted from 0, got (0, -1).": (
        "a.csv",
        "",
        {"columns": (0, -1)},
    ),
    "columns must be 2 names of the first row, or positions counted from 0, got (1,).": (
        "a.csv",
        "",
        {"columns": (1,)},
    ),
    "{}/a.jsonl, line 1: 'label' must be text, a whole number, true or false, is a float: mend the line.": (
        "a.jsonl",
        '{"text": "a", "label": 0.5}',
        {},
    ),
    "{}/f/pos/a.txt is longer than 1,000,000 characters: one text a file.": (
        "f/pos/a.txt",
        f"{'x' * (MOST_BYTES // 2)}\n" * 3,
        {"path": "f"},
    ),
    "{}/f has no folders: put a folder of .txt files in it for each label.": ("f/a.txt", "a", {"path": "f"}),
    "{}/f/pos has no .txt files: put the texts of this label in it, or remove it.": ("f/pos/a.md", "a", {"path": "f"}),
    "{}/f is a folder, which has no columns, header or member: leave them out.": (
        "f/pos/a.txt",
        "a",
        {"path": "f", "header": True},
    ),
}


@pytest.mark.parametrize("message", MESSAGES)
def test_the_message_is_pinned(tmp_path, message):
    name, text, options = MESSAGES[message]
    write(tmp_path / name, text)
    with pytest.raises(RegardError) as error:
        list(read_labelled(tmp_path / options.pop("path", name), **options))
    assert str(error.value) == message.replace("{}", str(tmp_path))
    assert len(message) <= 200


def test_a_folder_that_may_not_be_read_is_named(tmp_path, monkeypatch):
    def refuse(name: str) -> list[str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.listdir", refuse)
    with pytest.raises(RegardError) as error:
        list(read_labelled(tmp_path))
    assert str(error.value) == f"{tmp_path} cannot be read (Permission denied): check its permissions."


@pytest.mark.parametrize(
    ("file", "counts", "blank"),
    [
        ("sst2/train.tsv", {"1": 3610, "0": 3310}, 0),
        ("sst2/dev.tsv", {"1": 444, "0": 428}, 0),
        ("chnsenticorp/ChnSentiCorp_htl_all.csv.gz", {"1": 5322, "0": 2443}, 1),
    ],
)
def test_reviews(data, file, counts, blank):
    pairs = read_labelled(data / file)
    assert Counter(label for _, label in pairs) == counts
    assert pairs.blank == blank
