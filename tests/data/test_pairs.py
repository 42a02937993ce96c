"""Readers of sentence pairs: what they give, and what they say about files that are wrong."""

import gzip
import io
import json
import pathlib
import random
import tracemalloc
import unicodedata
import zipfile
from collections.abc import Callable
from typing import Any

import pytest

from regard.core import RegardError
from regard.data import read_aligned, read_pairs
from regard.data.pairs import MOST_BYTES

LINES = [("Hi.", "嗨。"), ("Run.", "你用跑的。"), ("Wait!", "等等。")]
TSV = "".join(f"{a}\t{b}\tby {n}\n" for n, (a, b) in enumerate(LINES))
JSONL = "".join(
    json.dumps({"source": a, "target": b}, ensure_ascii=n % 2 == 0) + "\n" for n, (a, b) in enumerate(LINES)
)


def write(path: pathlib.Path, text: str | bytes) -> pathlib.Path:
    raw = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


def pack(path: pathlib.Path, **members: str) -> pathlib.Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in members.items():
            archive.writestr(name.replace("__", "."), text)
    return path


@pytest.mark.parametrize("name", ["a.tsv", "a.txt", "A.TSV", "a.tsv.gz"])
def test_tsv(tmp_path, name):
    assert list(read_pairs(write(tmp_path / name, TSV))) == LINES
    assert list(read_pairs(str(tmp_path / name), swap=True)) == [(b, a) for a, b in LINES]
    assert list(read_pairs(tmp_path / name, columns=(2, 0)))[1] == ("by 1", "Run.")


@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson.gz"])
def test_jsonl(tmp_path, name):
    assert list(read_pairs(write(tmp_path / name, JSONL))) == LINES
    assert list(read_pairs(write(tmp_path / name, JSONL.replace("source", "en")), keys=("target", "en"))) == [
        (b, a) for a, b in LINES
    ]


@pytest.mark.parametrize("names", [("a.en", "a.zh"), ("a.en.gz", "a.zh.gz"), ("a.en", "a.zh.gz")])
def test_aligned(tmp_path, names):
    files = [
        write(tmp_path / name, "\n".join(side)) for name, side in zip(names, zip(*LINES, strict=True), strict=True)
    ]
    assert list(read_aligned(*files)) == LINES


def test_a_zip_is_read_where_one_member_fits(tmp_path):
    file = pack(tmp_path / "a.zip", _about__txt="read me", cmn__txt=TSV, licence="free")
    assert list(read_pairs(file)) == LINES
    assert list(read_pairs(pack(tmp_path / "b.zip", a__tsv="no", b__jsonl=JSONL), member="b.jsonl")) == LINES


def test_text_is_nfc_without_byte_order_mark_and_line_ends(tmp_path):
    lines = [unicodedata.normalize("NFD", "Café\tcafé，\uff1f"), "", " \t ", "one\t", "two\t二\u2028三\u3000"]
    pairs = read_pairs(write(tmp_path / "a.tsv", "\ufeff" + "\r\n".join(lines)))
    # width is kept, and unicode's own line separators are no line ends
    assert list(pairs) == [("Café", "café，\uff1f"), ("two", "二\u2028三")]
    assert pairs.blank == 3
    # a second walk counts anew
    assert len(list(pairs)) == 2
    assert pairs.blank == 3


def test_blank_lines_keep_two_files_aligned(tmp_path):
    pairs = read_aligned(write(tmp_path / "a", "1\n\n3\n4\n"), write(tmp_path / "b", "a\nb\n\nd\n"))
    assert list(pairs) == [("1", "a"), ("4", "d")]
    assert pairs.blank == 2


def test_reading_streams(tmp_path):
    file = tmp_path / "long.tsv.gz"
    with gzip.open(file, "wt", compresslevel=1) as stream:
        for n in range(20):
            stream.write(f"{n}\t" + "x" * 500_000 + "\n")
    tracemalloc.start()
    assert sum(1 for _ in read_pairs(file)) == 20
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # the text is 10 MB
    assert peak < 5e6


def wrong(text: str | bytes, name: str = "a.tsv", **options: Any) -> Callable[[pathlib.Path], Any]:
    return lambda folder: list(read_pairs(write(folder / name, text), **options))


def aligned(first: str, second: str) -> Callable[[pathlib.Path], Any]:
    return lambda folder: list(read_aligned(write(folder / "a", first), write(folder / "b", second)))


def zipped(member: str | None = None, **members: str) -> Callable[[pathlib.Path], Any]:
    return lambda folder: list(read_pairs(pack(folder / "a.zip", **members), member=member))


def raw(data: bytes, name: str = "a.tsv.gz") -> Callable[[pathlib.Path], Any]:
    def call(folder: pathlib.Path) -> Any:
        (folder / name).write_bytes(data)
        return list(read_pairs(folder / name))

    return call


def broken_zip() -> bytes:
    """A zip whose table is whole and whose member is not."""
    store = io.BytesIO()
    with zipfile.ZipFile(store, "w") as archive:
        archive.writestr("a.tsv", TSV)
    return store.getvalue().replace(b"Run.", b"Ran.")


ENDED = "Compressed file ended before the end-of-stream marker was reached"
MESSAGES: dict[str, Callable[[pathlib.Path], Any]] = {
    "{}/no.tsv does not exist: check the name.": lambda folder: read_pairs(folder / "no.tsv"),
    "{}/no does not exist: check the name.": lambda folder: read_aligned(write(folder / "a", "1"), folder / "no"),
    "{} is a folder: name a file in it.": lambda folder: read_pairs(folder),
    "{}/a.tsv has no sentence pairs (0 blank lines): name a file that has some.": wrong(""),
    "{}/a.jsonl.gz has no sentence pairs (2 blank lines): name a file that has some.": wrong("\n \n", "a.jsonl.gz"),
    "{}/a with {}/b has no sentence pairs (0 blank lines): name a file that has some.": aligned("", ""),
    "columns must be two positions counted from 0, got (0, -1).": wrong(TSV, columns=(0, -1)),
    "member='x' names a file in a .zip, and {}/a.tsv is none: leave member out.": wrong(TSV, member="x"),
    "{}/a.csv must end in .tsv, .txt, .tab, .jsonl or .ndjson (then .gz), or .zip: save it as one of these, or give"
    " two files that are aligned line by line.": wrong(TSV, "a.csv"),
    "{}/a.tsv, line 4 must have at least 2 columns between tabs, has 1: mend the line, or name other columns.": wrong(
        TSV + "Go.\n"
    ),
    "{}/a.tsv, line 1 must have at least 6 columns between tabs, has 3: mend the line, or name other columns.": wrong(
        TSV, columns=(0, 5)
    ),
    "{}/a.tsv, line 2 is not UTF-8 (byte 0xe9 at 3): convert the file, for example with iconv -t UTF-8.": wrong(
        b"a\tb\ncaf\xe9\tcoffee\n"
    ),
    "{}/b.tsv, line 1 is not UTF-8 (byte 0xff at 0): convert the file, for example with iconv -t UTF-8.": wrong(
        TSV.encode("utf-16"), "b.tsv"
    ),
    "{}/a.tsv, line 2 has a NUL byte, so this is no text: name another file.": wrong("a\tb\nc\0\td\n"),
    "{}/a.tsv, line 2 is longer than 1,000,000 bytes: one pair a line.": wrong("a\tb\n" + "c" * MOST_BYTES + "\td\n"),
    "{}/a and {}/b must have as many lines: {}/a ends after line 2, {}/b goes on.": aligned("1\n2\n", "1\n2\n3\n4\n"),
    "{}/a and {}/b must have as many lines: {}/b ends after line 0, {}/a goes on.": aligned("1\n2\n", ""),
    "{}/a.jsonl, line 4 is not JSON (Expecting ',' delimiter): mend or remove the line.": wrong(
        JSONL + '{"source": "a" "target": "b"}', "a.jsonl"
    ),
    "{}/a.jsonl, line 1 must be a JSON object, is a list: mend the line.": wrong("[1]", "a.jsonl"),
    "{}/a.jsonl, line 1 has no key 'target' (it has 'source', 'zh'): mend it, or name other keys.": wrong(
        '{"source": "a", "zh": "b"}', "a.jsonl"
    ),
    "{}/a.jsonl, line 1: 'target' must be text, is a NoneType: mend the line.": wrong(
        '{"source": "a", "target": null}', "a.jsonl"
    ),
    "{}/a.jsonl, line 1: 'source' has half a surrogate pair: mend the line.": wrong(
        r'{"source": "\ud83d", "target": "b"}', "a.jsonl"
    ),
    "{}/a.tsv.gz is damaged after line 0 (Not a gzipped file (b'Hi')): fetch it again, or pack it again.": raw(
        TSV.encode()
    ),
    f"{{}}/a.tsv.gz is damaged after line 0 ({ENDED}): fetch it again, or pack it again.": raw(
        gzip.compress(TSV.encode())[:-9]
    ),
    "{}/a.zip is damaged after line 0 (Bad CRC-32 for file 'a.tsv'): fetch it again, or pack it again.": raw(
        broken_zip(), "a.zip"
    ),
    "{}/a.zip is not a whole zip file (File is not a zip file): fetch it again.": raw(broken_zip()[:-30], "a.zip"),
    "{}/a.zip must hold one .tsv, .txt or .jsonl file, holds 2 (a.tsv, b.tsv): name the member to read.": zipped(
        a__tsv="", b__tsv=""
    ),
    "{}/a.zip must hold one .tsv, .txt or .jsonl file, holds 0 (a.csv): name the member to read.": zipped(a__csv=""),
    "{}/a.zip has no member 'x.tsv', it has a.tsv: name one of these.": zipped("x.tsv", a__tsv=""),
}


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message[:60])
def test_the_message_is_pinned(tmp_path, message):
    with pytest.raises(RegardError) as error:
        MESSAGES[message](tmp_path)
    assert str(error.value) == message.replace("{}", str(tmp_path))
    assert "\n" not in message
    # apart from the folder, short enough for a terminal
    assert len(message) <= 200


@pytest.mark.parametrize("name", ["a.tsv", "a.zip"])
def test_a_file_that_may_not_be_read_is_named(tmp_path, monkeypatch, name):
    # root may read everything, so the refusal is staged
    file = write(tmp_path / name, TSV)

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    monkeypatch.setattr("io.open", refuse)
    with pytest.raises(RegardError) as error:
        list(read_pairs(file))
    assert str(error.value) == f"{file} cannot be read (Permission denied): check its permissions."


def test_deep_and_long_json_is_refused(tmp_path):
    for text in ("[" * 100_000, '{"source": ' + "9" * 5000 + "}"):
        with pytest.raises(RegardError, match=r"line 1 is not JSON"):
            wrong(text, "a.jsonl")(tmp_path)


@pytest.mark.parametrize("name", ["a.tsv", "a.jsonl", "a.tsv.gz", "a.zip"])
def test_mutated_files_are_read_or_refused(tmp_path, name):
    rng = random.Random(name)
    file = (
        pack(tmp_path / name, a__tsv=TSV) if name == "a.zip" else write(tmp_path / name, JSONL if "js" in name else TSV)
    )
    whole, refused = file.read_bytes(), []
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        file.write_bytes(data[: rng.randrange(len(data))] if rng.random() < 0.2 else data)
        try:
            list(read_pairs(file))
        except RegardError as error:
            refused.append(str(error))
    assert len(refused) > 30
    assert not any("\n" in line for line in refused)


def test_tatoeba(data):
    pairs = read_pairs(data / "tatoeba" / "cmn-eng.zip")
    found = list(pairs)
    assert (len(found), found[0], pairs.blank) == (29_155, ("Hi.", "嗨。"), 0)
    assert sum(1 for _ in read_pairs(data / "tatoeba" / "fra-eng.zip")) == 167_130


def test_multi30k(data):
    found = list(read_aligned(data / "multi30k" / "train.en.gz", data / "multi30k" / "train.de.gz"))
    assert len(found) == 29_000
    assert found[1][1] == "Mehrere Männer mit Schutzhelmen bedienen ein Antriebsradsystem."
