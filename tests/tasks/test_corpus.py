"""Where pairs come from, and how they are parted."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from regard import RegardError
from regard.data.phrasebook import split_pairs
from regard.tasks.reading.pairs import PairCorpus, open_pairs
from regard.tasks.text.classify import LabelledCorpus
from regard.tasks.text.tag import TaggedCorpus


@pytest.fixture
def tsv(tmp_path):
    def write(name, numbers):
        (tmp_path / name).write_text("".join(f"source {i}\ttarget {i}\n" for i in numbers))
        return str(tmp_path / name)

    return write


def test_one_file_or_two(tmp_path, tsv):
    pairs = [(f"source {i}", f"target {i}") for i in range(3)]
    assert list(open_pairs([tsv("a.tsv", range(3))])) == pairs
    for side, name in enumerate(("a.en", "a.de")):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in pairs))
    two = [str(tmp_path / "a.en"), str(tmp_path / "a.de")]
    assert list(open_pairs(two)) == pairs
    assert list(open_pairs(two, swap=True)) == [pair[::-1] for pair in pairs]


def test_names_of_columns_that_are_not_known(tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text("message,kind\n" + "".join(f"text {i},{'ab'[i % 2]}\n" for i in range(9)))
    with pytest.raises(RegardError) as error:
        LabelledCorpus(data=(str(file),)).part()
    assert str(error.value) == (
        f"{file} seems to begin with the names of its columns: add --columns message,kind, or --columns 1,2 if its"
        " first row is a text and its label."
    )
    for settings, count in ({"columns": ("message", "kind")}, 9), ({"header": True}, 9), ({"columns": (0, 1)}, 10):
        assert sum(map(len, LabelledCorpus(data=(str(file),), **settings).part())) == count


def test_sentences_without_blank_lines(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("a\tX\nb\tY\n" * 20)
    with pytest.raises(RegardError) as error:
        TaggedCorpus(data=(str(file),)).part()
    assert str(error.value) == f"{file} is one sentence: put a blank line behind each."


@pytest.mark.parametrize("count", [0, 3])
def test_no_other_number_of_files(count):
    with pytest.raises(RegardError) as error:
        open_pairs(["x"] * count)
    message = f"data must be one file of pairs or two files line by line, got {count} names."
    assert str(error.value) == message


def test_two_files_have_no_member():
    with pytest.raises(RegardError) as error:
        open_pairs(["a", "b"], member="x.tsv")
    assert str(error.value) == "member='x.tsv' names a file in a .zip, and there are two files: leave member out."


def test_the_phrasebook():
    train, asked = split_pairs(least=500)
    parts = PairCorpus().part()
    assert list(parts.train) == list(train)
    assert not {source for source, _ in train} & {source for source, _ in (*parts.valid, *parts.test)}
    assert [*parts.test, *parts.valid] == list(asked[:1000])
    assert list(open_pairs(["phrasebook"])) == list(parts.test)
    assert PairCorpus(swap=True, limit=2).part().train == [pair[::-1] for pair in train[:2]]


def test_the_phrasebook_with_other_sentences_to_validate_by(tsv):
    parts = PairCorpus(valid=(tsv("mine.tsv", range(3)),), limit=5).part()
    assert [source for source, _ in parts.valid] == ["source 0", "source 1", "source 2"]
    assert len(parts.train) == 5


def test_parted_by_a_hash(tsv):
    file = tsv("a.tsv", range(500))
    parts = PairCorpus((file,), held_out=0.1, parting="hash").part()
    assert sorted([*parts.train, *parts.valid, *parts.test]) == sorted(open_pairs([file]))
    assert all(30 < len(part) < 70 for part in (parts.valid, parts.test))
    # the sentence decides, not its place: more data do not move it
    more = PairCorpus((tsv("b.tsv", range(-100, 500)),), held_out=0.1, parting="hash").part()
    assert set(parts.valid) <= set(more.valid)
    limited = PairCorpus((file,), held_out=0.1, limit=7, parting="hash").part()
    assert (limited.train, limited.valid) == (parts.train[:7], parts.valid)


def test_parted_evenly(tsv):
    file = tsv("a.tsv", range(40))
    assert [len(part) for part in PairCorpus((file,)).part()] == [28, 6, 6]
    parts = PairCorpus((file,), held_out=0.1, limit=7).part()
    assert [len(part) for part in parts] == [7, 4, 4]
    # a run that does not say how was parted by hashes
    entries = {name: x for name, x in asdict(PairCorpus((file,), held_out=0.1)).items() if name != "parting"}
    old = PairCorpus.from_dict(json.loads(json.dumps(entries))).part()
    assert old == PairCorpus((file,), held_out=0.1, parting="hash").part() != parts


def test_a_file_to_validate_by(tsv):
    parts = PairCorpus((tsv("a.tsv", range(9)),), (tsv("b.tsv", range(20, 22)),)).part()
    assert (len(parts.train), len(parts.valid), len(parts.test)) == (9, 2, 0)


def test_through_json_and_back():
    corpus = PairCorpus(("a", "b"), ("c",), columns=(2, 0), limit=3)
    assert PairCorpus.from_dict(json.loads(json.dumps(asdict(corpus)))) == corpus


def test_too_little(tsv):
    file = tsv("one.tsv", [3])
    ways = (("even", None, "validation"), ("hash", 0.0, "validation"), ("hash", 0.4999, "training"))
    for parting, held_out, purpose in ways:
        seed = find_seed(file) if held_out else 0
        with pytest.raises(RegardError) as error:
            # by its hash, the one is for the test
            PairCorpus((file,), held_out=held_out, seed=seed, parting=parting).part()
        message = (
            f"{file} leaves no pairs for {purpose}, of 1 (1 different): give more, a larger held_out"
            " (--held-out 0.2), or valid (--valid FILE)."
        )
        assert str(error.value) == message


def test_columns_the_wrong_way_round(tmp_path):
    file = tmp_path / "turned.tsv"
    file.write_text("".join(f"good\tfilm {number}\n" for number in range(30)))
    with pytest.raises(RegardError) as error:
        PairCorpus((str(file),)).part()
    said = f"{file} leaves no pairs for validation, of 30 (1 different): are the columns the wrong way round?"
    assert str(error.value) == said


def find_seed(file) -> int:
    from regard.data.split import split

    return next(seed for seed in range(99) if not split(open_pairs([file]), test=0.4999, valid=0.4999, seed=seed).train)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"held_out": 0.5}, "held_out must be a fraction below one half, got 0.5."),
        ({"held_out": -0.1}, "held_out must be a fraction below one half, got -0.1."),
        ({"limit": 0}, "limit must be at least 1, got 0."),
    ],
)
def test_settings_that_make_no_sense(settings, message):
    with pytest.raises(RegardError) as error:
        PairCorpus(**settings).part()
    assert str(error.value) == message


NO_CORPUS = [
    {"path": "a"}, {"data": "a.tsv"}, {"data": [5]}, {"data": []}, {"data": ["a", "b", "c"]}, {"data": None},
    {"valid": [None]}, {"columns": "x"}, {"columns": [1]}, {"columns": [0, -1]}, {"columns": [True, False]},
    {"columns": [0.0, 1.0]}, {"keys": [1, 2]}, {"keys": "ab"}, {"swap": 1}, {"member": 3}, {"held_out": True},
    {"held_out": "much"}, {"held_out": 0.5}, {"held_out": float("nan")}, {"limit": [3]}, {"limit": 0}, {"limit": True},
    {"seed": 1.5}, {"seed": False},
]  # fmt: skip


@pytest.mark.parametrize("entry", NO_CORPUS, ids=str)
def test_what_is_no_corpus(entry):
    ((name, value),) = entry.items()
    with pytest.raises(RegardError) as error:
        PairCorpus.from_dict({"swap": True, **entry})
    assert str(error.value) == f"a corpus cannot have {name}={value!r}."


def test_what_is_a_corpus():
    # whole numbers are fractions, too
    assert PairCorpus.from_dict({"held_out": 0}) == PairCorpus(held_out=0, parting="hash")
    with pytest.raises(RegardError) as error:
        PairCorpus.from_dict({"data" * 99: ["a" * 999]})
    assert len(str(error.value)) < 100
    assert {*PairCorpus.fits} == {*asdict(PairCorpus())}
    few = PairCorpus(limit=3, member="a")
    assert PairCorpus.from_dict(json.loads(json.dumps(asdict(few)))) == few
