"""Parts by hash, by label and by masks; examples made when they are asked for, and their batches."""

import itertools
import json
import random
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from operator import itemgetter

import pytest

from regard.core import RegardError
from regard.data import find_part, read_pairs, split
from regard.data.collated import Collated
from regard.data.split import fold, split_by_masks, split_evenly, take_first
from regard.data.subset import Subset
from regard.models.config import setting
from regard.tasks.training.examples import Examples

PAIRS = [(f"Sentence {n}, of {n * n}.", f"Satz {n}") for n in range(20_000)]
# sha256 of "0\nsentence0" and so on as fractions: 0.88 0.50 0.80 0.29 0.66 0.12 0.61 0.37
PINNED = ["train", "valid", "train", "test", "train", "test", "train", "valid"]


@pytest.mark.parametrize(("test", "valid"), [(0.1, 0.1), (0.02, 0.3), (0.5, 0.0)])
def test_fractions_are_met_within_chance(test, valid):
    parts = split(PAIRS, test=test, valid=valid, seed=3)
    assert sum(map(len, parts)) == len(PAIRS)
    for part, fraction in ((parts.test, test), (parts.valid, valid), (parts.train, 1 - test - valid)):
        # four standard deviations of a binomial
        assert abs(len(part) - fraction * len(PAIRS)) <= 4 * (len(PAIRS) * fraction * (1 - fraction)) ** 0.5


def test_parts_at_the_ends():
    assert split(PAIRS[:50], test=0, valid=0) == (PAIRS[:50], [], [])
    assert split(PAIRS[:50], test=1, valid=0) == ([], [], PAIRS[:50])
    assert split(PAIRS[:50], test=0, valid=1) == ([], PAIRS[:50], [])
    assert split([]) == ([], [], [])


def test_the_parts_are_pinned():
    # the same in every process; a change here moves test sentences into the training of whoever goes on with a run
    parts = [find_part(f"sentence {n}", test=0.3, valid=0.3) for n in range(8)]
    assert parts == PINNED
    assert fold("Wie geht's?") == "wiegehts"


def test_near_duplicates_stay_together():
    rng = random.Random(0)
    for source, _ in PAIRS[:300]:
        shout = unicodedata.normalize("NFKD", f" {source.upper()} !\u200b")
        wide = "".join(chr(ord(mark) + 0xFEE0) if "!" <= mark <= "~" else mark for mark in source)
        spread = "".join(mark + rng.choice(["", "\u3000", ", "]) for mark in source)
        assert {find_part(text, test=0.3, valid=0.3) for text in (source, shout, wide, spread)} == {
            find_part(source, test=0.3, valid=0.3)
        }


def test_what_differs_is_not_folded():
    assert len({fold(text) for text in ("C", "C+", "c++", "1", "一", "é", "e", "?!", "?", "")}) == 10
    # such are spread as others are
    assert {find_part("?" * n) for n in range(1, 80)} == {"train", "valid", "test"}


def test_more_data_moves_nothing():
    few, many = split(PAIRS[::3]), split(reversed(PAIRS))
    for part, whole in zip(few, many, strict=True):
        assert set(part) <= set(whole)
    # nor does more validation take from the test
    assert split(PAIRS, valid=0.4).test == split(PAIRS).test


def test_the_seed_draws_anew():
    one, two = split(PAIRS, seed=1), split(PAIRS, seed=2)
    both = len(set(one.test) & set(two.test))
    assert abs(both - 0.01 * len(PAIRS)) < 4 * (0.01 * 0.99 * len(PAIRS)) ** 0.5


@pytest.mark.parametrize(("test", "valid"), [(-0.1, 0.1), (0.6, 0.5), (float("nan"), 0.1)])
def test_fractions_that_are_none(test, valid):
    with pytest.raises(RegardError) as error:
        split(PAIRS[:1], test=test, valid=valid)
    message = f"test and valid must be fractions with a sum of at most 1, got test={test}, valid={valid}."
    assert str(error.value) == message


def test_tatoeba_does_not_leak(data):
    parts = split(read_pairs(data / "tatoeba" / "cmn-eng.zip", swap=True))
    sources = [{fold(source) for source, _ in part} for part in parts]
    assert not sources[0] & sources[1]
    assert not sources[0] & sources[2]
    assert not sources[1] & sources[2]
    assert all(0.09 < len(part) / 29_155 < 0.11 for part in parts[1:])


def test_labels_are_held_out_in_proportion():
    chance = random.Random(0)
    for count, names in ((40, "ab"), (41, "aab"), (200, "abcd"), (97, "aaaaaaab"), (6, "ab")):
        rows = [(f"text {n}", names[n % len(names)]) for n in range(count)]
        parts = split_evenly(rows, label=itemgetter(1))
        assert sorted(itertools.chain(*parts)) == sorted(rows)
        assert len(parts.valid) == len(parts.test) == max(1, min(count // 5, max(round(count**0.5), count // 20)))
        for name, total in Counter(label for _, label in rows).items():
            held = [sum(label == name for _, label in part) for part in parts]
            # each in proportion, up to one
            assert all(abs(x - total * len(part) / count) <= 1 for x, part in zip(held, parts, strict=True))
            assert held[0] > 0
        # neither order nor label's spelling of others matters
        mixed = chance.sample(rows, count)
        assert [sorted(part) for part in split_evenly(mixed, label=itemgetter(1))] == [sorted(part) for part in parts]
        # of odd shares, too, both have as many
        assert abs(len(parts.valid) - len(parts.test)) <= 1
        # another seed holds out others
        assert count < 10 or split_evenly(rows, label=itemgetter(1), seed=1).valid != parts.valid


def test_both_parts_have_examples_wherever_a_label_can_spare_two():
    chance = random.Random(0)
    for _ in range(300):
        counts = [chance.choice((1, 1, 2, 3, 5, 40)) for _ in range(chance.randint(1, 12))]
        rows = [(f"{name} {n}", str(name)) for name, count in enumerate(counts) for n in range(count)]
        parts = split_evenly(rows, label=itemgetter(1))
        assert abs(len(parts.valid) - len(parts.test)) <= 1, counts
        assert bool(parts.valid) == bool(parts.test) == (max(counts) > 2), counts
        assert {label for _, label in parts.train} == {label for _, label in rows}
    # references of a few texts: whole texts are held out, however often they are there
    assert [len(part) for part in split_evenly([(f"text {n % 6}", "") for n in range(48)])] == [32, 8, 8]


def test_few_labels_and_near_duplicates_are_learned_from_together():
    rows = [(f"text {n}", "common") for n in range(30)] + [("rare one", "rare"), ("rare two", "rare")]
    parts = split_evenly(rows, label=itemgetter(1))
    assert rows[-1] in parts.train
    assert rows[-2] in parts.train
    doubles = [(text, "x") for n in range(20) for text in (f"Hi, {n}!", f"hi {n}", f"HI {n}.")]
    parts = split_evenly(doubles)
    for one, other in itertools.combinations(parts, 2):
        assert not {fold(text) for text, _ in one} & {fold(text) for text, _ in other}
    assert all(parts)
    # one text alone is no two parts
    assert [len(part) for part in split_evenly([("same", str(n)) for n in range(9)])] == [9, 0, 0]


@pytest.mark.parametrize(
    ("held_out", "count", "sizes"), [(None, 50_000, 2000), (None, 1000, 50), (0.1, 1000, 100), (0, 9, 0)]
)
def test_how_many_are_held_out(held_out, count, sizes):
    parts = split_evenly([(str(n), "") for n in range(count)], held_out=held_out)
    assert [len(part) for part in parts] == [count - 2 * sizes, sizes, sizes]


class Made(Sequence):
    """Examples that are made when they are asked for, and counted."""

    def __init__(self, rows):
        self.rows, self.asked = rows, Counter()

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, number):
        self.asked.update([number][: number < len(self.rows)])
        return self.rows[number]


@pytest.mark.parametrize("part_up", [split, split_evenly])
def test_examples_made_lazily_are_parted_as_a_list_is(part_up):
    rows = [(f"text {n % 50}", f"label {n % 3}") for n in range(90)]
    source = Made(rows)
    parts = part_up(source)
    # to be parted, each is looked at once; none is kept
    assert source.asked == dict.fromkeys(range(90), 1)
    assert all(isinstance(part, Subset) for part in parts)
    assert [list(part) for part in parts] == list(part_up(rows))
    assert list(parts.train[3:7]) == part_up(rows).train[3:7]


class Endless:
    """A dataset as torch has them: no sequence to Python, no slices, and no end to what it is asked for."""

    def __init__(self, count):
        self.count, self.asked = count, Counter()

    def __len__(self):
        return self.count

    def __getitem__(self, number):
        assert type(number) is int
        self.asked.update([number])
        return f"text {number}"


@pytest.mark.parametrize("part_up", [partial(split, key=str), partial(split_evenly, key=str)])
def test_a_dataset_of_torch_is_parted_and_not_kept(part_up):
    source = Endless(60)
    parts = part_up(source)
    assert source.asked == dict.fromkeys(range(60), 1)
    assert [list(part) for part in parts] == [list(part) for part in part_up([f"text {n}" for n in range(60)])]


def test_the_first_of_a_dataset_are_not_read_before_they_are_asked_for():
    @dataclass(frozen=True)
    class Lazy(Examples):
        def open(self, paths):
            return Endless(int(paths[0]))

    parts = Lazy(data=("9",), valid=("4",), limit=3).part()
    assert parts.train.source.asked == parts.valid.source.asked == {}
    assert (list(parts.train), len(parts.valid), parts.test) == ([f"text {n}" for n in range(3)], 4, [])
    assert list(take_first(Endless(5), 9)) == [f"text {n}" for n in range(5)]
    assert list(take_first({"a": 1}, 1)) == ["a"]


def test_settings_of_a_reader_are_read_again_as_they_are_declared():
    @dataclass(frozen=True)
    class Sized(Examples):
        size: int = setting(8, "pixels of a side", most=64)
        mode: str = setting("grey", "colours", ("grey", "rgb"))

    # annotations of a class in a function are found here
    Sized.__annotations__ |= {"size": int, "mode": str}
    made = Sized(data=("a",), size=16)
    assert Sized.from_dict(json.loads(json.dumps(asdict(made)))) == made
    for wrong, said in (
        ({"size": "x"}, "a corpus' size must be int, got 'x'."),
        ({"size": 0}, "a corpus' size must be at least 1, got 0."),
        ({"mode": "x"}, "a corpus' mode must be one of 'grey', 'rgb', got 'x'."),
        ({"sizes": 1}, "a corpus cannot have sizes=1."),
    ):  # fmt: skip
        with pytest.raises(RegardError) as caught:
            Sized.from_dict(wrong)
        assert str(caught.value) == said


def test_masks_must_fit_and_share_nothing_that_is_learned():
    masks = {"train": [1, 0, 0, 1], "valid": [0, 1, 0, 0], "test": [0, 1, 1, 0]}
    parts = split_by_masks("abcd", masks)
    assert [list(part) for part in parts] == [["a", "d"], ["b"], ["b", "c"]]
    assert [list(part) for part in split_by_masks("abcd", {"train": [1, 1, 1, 1]})] == [list("abcd"), [], []]
    with pytest.raises(RegardError) as error:
        split_by_masks("abcd", masks | {"valid": [0, 1, 0]})
    assert str(error.value) == "the mask of valid must have 4 entries, one for each, got 3."
    for part in ("valid", "test"):
        with pytest.raises(RegardError) as error:
            split_by_masks("abcd", masks | {part: [0, 0, 1, 1]})
        assert str(error.value) == (
            f"the mask of {part} must have none that train learns from, and both have 3: take it out of one."
        )


def test_collated_batches_go_on_anywhere_and_are_shared_out():
    source = Made(list(range(23)))
    whole = Collated(source, tuple, batch_size=4, seed=3)
    epochs = [list(whole.walk(epoch)) for epoch in range(2)]
    assert all(sorted(itertools.chain(*epoch)) == list(range(23)) for epoch in epochs)
    assert epochs[0] != epochs[1]
    source.asked.clear()
    assert list(whole.walk(1, start=4)) == epochs[1][4:]
    # what was done before is not made again
    assert set(source.asked) == set(itertools.chain(*epochs[1][4:]))
    shares = [list(Collated(source, tuple, batch_size=4, seed=3, rank=rank, world_size=2).walk()) for rank in (0, 1)]
    assert len(shares[0]) == len(shares[1])
    assert set(itertools.chain(*shares[0], *shares[1])) == set(range(23))
