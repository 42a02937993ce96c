"""Tokenizers: nothing lost, nothing read as a special token, the same every time, and files that are wrong."""

import errno
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest

from regard.core import RegardError
from regard.data import BOS, EOS, PAD, UNK, Tokenizer, read_aligned, read_pairs, train_tokenizer
from regard.data import tokens as room
from regard.extras import install
from tests.wide import wide

pytest.importorskip("tokenizers")

ENGLISH = ["introduce xi'an", "introduce beijing", "Excuse me, where is the bank?", "it's  two\u2019s  company", "é É"]
CHINESE = ["介绍一下西安", "介绍一下北京", "请问，银行在哪里", "从西安到北京有火车吗"]
KINDS = ["bpe", "words", "spaces", "characters"]


def draw_texts(seed: int, count: int) -> list[str]:
    """Random unicode: all planes, whitespace and combining marks in plenty, what the tokenizers themselves use."""
    rng = random.Random(seed)
    common = [
        *" \t\n\r\x0b\u00a0\u3000\u2028\u200b\u200d\ufeff",
        *"aZß'\u2019.,<>_-▁Ġ",
        "<eos>",
        "<unk>",
        "\u0301",
        "한",
        "西",
        "👩‍👩‍👧",
        "\0",
    ]
    texts = []
    for _ in range(count):
        marks = [chr(rng.choice([rng.randrange(0x3000), rng.randrange(0x110000)])) for _ in range(rng.randrange(12))]
        marks = [mark for mark in marks if not "\ud800" <= mark <= "\udfff"]
        text = [*marks, *rng.choices(common, k=rng.randrange(12))]
        rng.shuffle(text)
        texts.append("".join(text))
    return texts


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"lowercase": True}, {"form": "NFKC"}], ids=str)
def test_nothing_is_lost(kind, options):
    texts = draw_texts(7, 400)
    # BPE knows what it never saw; the others only what they did
    seen = ENGLISH if kind == "bpe" else texts
    tokenizer = train_tokenizer(seen, kind, vocab_size=100_000, **options)
    for text in texts:
        ids = tokenizer.encode(text)
        clean = tokenizer.normalise(text)
        assert tokenizer.decode(ids) == clean
        assert tokenizer.normalise(clean) == clean
        assert not {PAD, BOS, EOS, UNK} & set(ids)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", ["NFC", "NFKC"])
def test_text_is_normalised_as_python_does(kind, form):
    tokenizer = train_tokenizer(ENGLISH, kind, form=form)
    # HF's table of unicode is some versions behind Python's
    old = unicodedata.ucd_3_2_0
    texts = ["".join(x for x in text if old.category(x) != "Cn") for text in draw_texts(8, 400)]
    assert [tokenizer.normalise(text) for text in texts] == [unicodedata.normalize(form, text) for text in texts]
    assert tokenizer.encode("e\u0301") == tokenizer.encode("é")


def test_lower_case():
    tokenizer = train_tokenizer(ENGLISH, "words", lowercase=True)
    assert tokenizer.encode("INTRODUCE Xi'An") == tokenizer.encode("introduce xi'an")
    assert tokenizer.decode(tokenizer.encode("EXCUSE ME, É")) == "excuse me, é"


def test_words_are_cut_at_spaces_and_punctuation():
    tokenizer = train_tokenizer(ENGLISH, "words")
    ids = tokenizer.encode("where is xi'an, it's two\u2019s?")
    assert tokenizer.list_tokens(ids) == ["where", "is", "xi'an", ",", "it's", "two\u2019s", "?"]
    # a word is one token at the start and within
    assert tokenizer.encode("introduce")[0] in tokenizer.encode("is introduce")


def test_text_that_is_tokenised_stays_so():
    tokenizer = train_tokenizer(["ein hau@@ s .", "&apos;s"], "spaces")
    assert tokenizer.list_tokens(tokenizer.encode("ein hau@@ s . &apos;s")) == ["ein", "hau@@", "s", ".", "&apos;s"]


def test_characters_are_one_token_each():
    tokenizer = train_tokenizer(CHINESE, "characters")
    assert len(tokenizer.encode("介绍西安")) == 4
    assert tokenizer.vocab_size == 4 + len(set("".join(CHINESE)))


def test_the_vocabulary_is_counted_by_hand():
    tokenizer = train_tokenizer(["b a a c c c", "a d"], "words", vocab_size=7)
    # most frequent first, ties in order of the alphabet; b and d find no place
    assert [tokenizer.encode(word) for word in "acbd"] == [[4], [5], [6], [UNK]]
    assert train_tokenizer(["b a a c c c", "a d"], "words", min_count=2).vocab_size == 6


def test_bpe_merges_the_most_frequent_pair():
    tokenizer = train_tokenizer(["zqzq zqzq zqzq"], vocab_size=261)
    assert tokenizer.vocab_size == 261
    assert tokenizer.list_tokens(tokenizer.encode("zqxzq")) == ["", "zq", "x", "zq"]


def test_special_tokens():
    tokenizer = train_tokenizer(ENGLISH, "words")
    assert (PAD, BOS, EOS, UNK) == (0, 1, 2, 3)
    assert tokenizer.list_tokens(range(4)) == ["<pad>", "<bos>", "<eos>", "<unk>"]
    ids = tokenizer.encode("introduce the bank")
    assert tokenizer.decode([BOS, *ids, EOS, PAD, ids[0]]) == "introduce the bank"
    assert tokenizer.decode([ids[0], UNK, *ids[1:]]) == "introduce <unk> the bank"
    assert tokenizer.encode("") == []
    assert tokenizer.decode([]) == ""


def test_training_is_deterministic(tmp_path):
    texts = [*ENGLISH, *CHINESE, *draw_texts(9, 200)]
    (tmp_path / "texts").write_text(json.dumps(texts))
    script = (
        "import json; from regard.data import train_tokenizer; texts = json.load(open('texts'));"
        f"[train_tokenizer(texts, kind, vocab_size=700).save(f'{{kind}}.other') for kind in {KINDS}]"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "RAYON_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=env, check=True)
    for kind in KINDS:
        for n in range(3):
            train_tokenizer(texts, kind, vocab_size=700).save(tmp_path / f"{kind}.{n}")
        assert len({file.read_bytes() for file in tmp_path.glob(f"{kind}.*")}) == 1
        assert len(list(tmp_path.glob(f"{kind}.*"))) == 4


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_brings_the_same_tokenizer_back(kind, tmp_path):
    tokenizer = train_tokenizer([*ENGLISH, *CHINESE], kind, lowercase=True)
    tokenizer.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    texts = [*ENGLISH, *CHINESE, *draw_texts(10, 100)]
    assert again.encode_all(texts) == tokenizer.encode_all(texts) == [tokenizer.encode(text) for text in texts]
    assert [again.decode(ids) for ids in again.encode_all(texts)] == [
        tokenizer.decode(tokenizer.encode(x)) for x in texts
    ]
    assert again.vocab_size == tokenizer.vocab_size
    assert os.listdir(tmp_path) == ["tokenizer.json"]


def test_saving_is_all_or_nothing(tmp_path, monkeypatch):
    file = tmp_path / "tokenizer.json"
    train_tokenizer(ENGLISH, "words").save(file)
    before = file.read_bytes()

    def fail(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(RegardError) as error:
        train_tokenizer(CHINESE, "characters").save(file)
    message = f"{file} cannot be written (No space left on device): check the folder and its space."
    assert str(error.value) == message
    assert file.read_bytes() == before
    assert os.listdir(tmp_path) == ["tokenizer.json"]


def test_the_file_is_on_the_disk_before_its_name(tmp_path, monkeypatch):
    done = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (done.append("fsync"), fsync(handle)))
    monkeypatch.setattr(os, "replace", lambda *names: (done.append("replace"), replace(*names)))
    train_tokenizer(ENGLISH, "words").save(tmp_path / "tokenizer.json")
    assert done == ["fsync", "replace", "fsync"]


# --- errors -----------------------------------------------------------------------------------------------------------


def loaded(text: str | bytes) -> Callable[[pathlib.Path], Any]:
    def call(file: pathlib.Path) -> Any:
        file.write_bytes(text.encode() if isinstance(text, str) else text)
        return Tokenizer.load(file)

    return call


def changed(change: Callable[[Any], Any], kind: str = "words") -> Callable[[pathlib.Path], Any]:
    def call(file: pathlib.Path) -> Any:
        train_tokenizer(["a b", "a"], kind).save(file)
        content = json.loads(file.read_text())
        change(content)
        return loaded(json.dumps(content))(file)

    return call


def shift(content: Any) -> None:
    content["model"]["vocab"][" b"] = 9


def swap(content: Any) -> None:
    content["model"]["vocab"].update({"<pad>": 1, "<bos>": 0})


def trained(*args: Any, **options: Any) -> Callable[[pathlib.Path], Any]:
    return lambda file: train_tokenizer(*args, **options)


FAULTS: dict[str, Callable[[pathlib.Path], Any]] = {
    "the file is empty": loaded(""),
    "no JSON with model, vocab and type: JSONDecodeError": loaded("<!DOCTYPE html><title>404</title>"),
    "no JSON with model, vocab and type: TypeError": loaded("[1, 2]"),
    "no JSON with model, vocab and type: KeyError": loaded("{}"),
    "no JSON with model, vocab and type: RecursionError": loaded("[" * 100_000),
    "type must be BPE or WordLevel, is 'Unigram'": changed(lambda content: content["model"].update(type="Unigram")),
    "vocab must give each token an id": changed(lambda content: content["model"].update(vocab={"a": "b"})),
    "the ids of 6 tokens must be 0 to 5, each once": changed(shift),
    "<pad> must have id 0, has 1": changed(swap),
    "the merge ['a', 'nope'] is not of two tokens of the vocabulary": changed(
        lambda content: content["model"].update(merges=[["a", "nope"]]), "bpe"
    ),
}
MESSAGES: dict[str, Callable[[pathlib.Path], Any]] = {
    "{} cannot be read (No such file or directory): check the name.": Tokenizer.load,
    "{} is not UTF-8, so it is no tokenizer: restore it, or train again.": loaded("{}".encode("utf-16")),
    "{} has steps that no tokenizer of regard has: restore it, or train again.": changed(
        lambda content: content.update(decoder=None)
    ),
    "kind must be one of 'bpe', 'words', 'spaces', 'characters', got 'word'.": trained(ENGLISH, "word"),
    "form must be one of 'NFC', 'NFKC', got 'NFD'.": trained(ENGLISH, form="NFD"),
    "vocab_size must be at least 260 with kind='bpe', got 100.": trained(ENGLISH, vocab_size=100),
    "texts must hold at least one sentence to train a tokenizer, got none.": trained(["", ""]),
    "texts must be a sequence of sentences, got one str: put it in a list.": trained("introduce"),
    "texts must be str, text 1 is a int.": trained(["a", 1]),
    "texts must be unicode, text 0 has half a surrogate pair: read it as UTF-8.": lambda file: train_tokenizer(
        ENGLISH
    ).encode("\ud800"),
    "ids must be below vocab_size=6 and not negative, got 6.": lambda file: WORDS.decode([6]),
    "ids must be below vocab_size=6 and not negative, got -1.": lambda file: WORDS.list_tokens([4, -1]),
}
WORDS = train_tokenizer(["a b"], "words")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_file_is_named_with_its_fault(tmp_path, fault):
    file = tmp_path / "tokenizer.json"
    with pytest.raises(RegardError) as error:
        FAULTS[fault](file)
    assert str(error.value) == f"{file} is not a tokenizer of regard ({fault}): restore it, or train again."


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message[:90])
def test_the_message_is_pinned(tmp_path, message):
    file = tmp_path / "tokenizer.json"
    with pytest.raises(RegardError) as error:
        MESSAGES[message](file)
    assert str(error.value) == message.replace("{}", str(file))
    assert len(message) <= 200


def test_what_rust_says_is_passed_on(tmp_path):
    file = tmp_path / "tokenizer.json"
    with pytest.raises(RegardError) as error:
        changed(lambda content: content["model"].update(unk_token=3))(file)
    # in words that change with its version
    (why,) = re.findall(r"\((.*expected a string.*)\)", str(error.value))
    assert str(error.value) == f"{file} is not a tokenizer ({why}): restore it, or train again."


def test_a_file_too_large_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(room, "MOST_BYTES", 1000)
    file = tmp_path / "tokenizer.json"
    with pytest.raises(RegardError) as error:
        loaded(" " * 1001)(file)
    assert str(error.value) == f"{file} is larger than 1,000 bytes, too large for a tokenizer: check the name."


def test_the_package_is_named_where_it_is_missing(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    for call in (lambda: train_tokenizer(ENGLISH), lambda: Tokenizer.load(tmp_path)):
        with pytest.raises(RegardError) as error:
            call()
        assert str(error.value) == f"Tokenizers need the package tokenizers: {install('text')}."


def test_the_room_does_not_need_the_package():
    script = "import sys; sys.modules['tokenizers'] = None; import regard.data; print(regard.data.__all__)"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False)
    assert "read_pairs" in done.stdout, done.stderr


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("form", ["NFC", "NFKC"])
def test_all_that_can_be_trained_can_be_loaded(tmp_path, kind, lowercase, form):
    train_tokenizer(ENGLISH, kind, lowercase=lowercase, form=form).save(tmp_path / "tokenizer.json")
    assert Tokenizer.load(tmp_path / "tokenizer.json").normalise("\uff21É") == {
        ("NFC", False): "\uff21É", ("NFC", True): "\uff41é", ("NFKC", False): "AÉ", ("NFKC", True): "aé",
    }[form, lowercase]  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        # text that is read as a token, catastrophic patterns, text that is lost
        lambda content: content["added_tokens"].append({**content["added_tokens"][0], "id": 6, "content": "a"}),
        lambda content: content["added_tokens"][2].update(special=False),
        lambda content: content["pre_tokenizer"].update(pattern={"Regex": "(a+)+$"}),
        lambda content: content["model"].update(unk_token="a"),
        lambda content: content.update(normalizer=None),
        lambda content: content.update(truncation={"max_length": 3, "strategy": "LongestFirst", "stride": 0}),
    ],
)
def test_steps_of_others_are_refused(tmp_path, change):
    with pytest.raises(RegardError, match=r"tokenizer\.json has steps|is not a tokenizer \("):
        changed(change)(tmp_path / "tokenizer.json")


@pytest.mark.parametrize("kind", ["bpe", "words"])
def test_mutated_files_are_read_or_refused(tmp_path, kind):
    rng, file, refused = random.Random(kind), tmp_path / "tokenizer.json", []
    train_tokenizer(["a b", "b a"], kind, vocab_size=262).save(file)
    whole = file.read_bytes()
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.choice(b'0123456789{}[]",:abtrue \xff\0')
        try:
            tokenizer = loaded(bytes(data))(file)
            tokenizer.decode(tokenizer.encode("a b"))
        except RegardError as error:
            refused.append(str(error))
    assert len(refused) > 30
    assert not any("\n" in line for line in refused)


@wide
def test_real_text(data):
    chinese = [target for _, target in read_pairs(data / "tatoeba" / "cmn-eng.zip")][::5]
    german = [target for _, target in read_aligned(*(data / "multi30k" / f"train.{x}.gz" for x in ("en", "de")))][::5]
    for texts, kind in ((chinese, "characters"), (chinese, "bpe"), (german, "words"), (german, "bpe")):
        tokenizer = train_tokenizer(texts, kind, vocab_size=100_000 if kind != "bpe" else 4000)
        assert [tokenizer.decode(ids) for ids in tokenizer.encode_all(texts)] == texts


@pytest.mark.parametrize("kind", ["bpe", "words", "spaces", "characters"])
def test_spans_are_the_characters_of_each_token(kind):
    texts = ["the café is in 西安, please", "naïve 北京", "two  spaces"]
    tokenizer = train_tokenizer(texts, kind=kind, vocab_size=300)
    for text in texts:
        spans, ids = tokenizer.list_spans(text), tokenizer.encode(text)
        assert len(spans) == len(ids)
        # every character belongs to a token, in order; the bytes of one character share it
        assert {k for start, stop in spans for k in range(start, stop)} == set(range(len(text)))
        assert spans == sorted(spans)
        for (start, stop), token in zip(spans, tokenizer.list_tokens(ids), strict=True):
            assert "\ufffd" in token or token.strip() == text[start:stop].strip()
    with pytest.raises(RegardError, match="texts must be unicode, text 0 has half a surrogate pair"):
        tokenizer.list_spans("\ud800")
