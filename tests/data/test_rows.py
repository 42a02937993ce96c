"""Rows hold what was given and padding; Masked hides as much as it says, never the same way by chance alone."""

import random

import pytest
import torch

from regard.core import RegardError
from regard.data import PAD, Batches, Labelled, Masked, Rows

RNG = random.Random(2)
SEQUENCES = [[RNG.randrange(4, 60) for _ in range(RNG.randrange(1, 30))] for _ in range(307)]
TAGS = [[RNG.randrange(9) for _ in row] for row in SEQUENCES]
CLASSES = [RNG.randrange(3) for _ in SEQUENCES]
LETTERS = [[[RNG.randrange(1, 30) for _ in range(RNG.randrange(7))] for _ in row] for row in SEQUENCES]
TYPES = [[RNG.randrange(2) for _ in row] for row in SEQUENCES]


def same(left: list[Labelled], right: list[Labelled]) -> bool:
    return len(left) == len(right) and all(
        (a is b is None) or torch.equal(a, b)
        for one, two in zip(left, right, strict=True)
        for a, b in zip(one, two, strict=True)
    )


def fill(row: list, width: int, empty: object) -> list:
    return row + [empty] * (width - len(row))


def test_a_batch_is_what_plain_lists_make_it():
    rows = Rows(SEQUENCES, TAGS, letters=LETTERS, types=TYPES, max_tokens=150, seed=1)
    for batch in rows.walk(3):
        chosen = batch.numbers.tolist()
        n = max(len(SEQUENCES[i]) for i in chosen)
        k = max(1, *(len(word) for i in chosen for word in LETTERS[i]))
        assert batch.ids.tolist() == [fill(SEQUENCES[i], n, PAD) for i in chosen]
        assert batch.lengths.tolist() == [len(SEQUENCES[i]) for i in chosen]
        assert batch.labels.tolist() == [fill(TAGS[i], n, -100) for i in chosen]
        assert batch.types.tolist() == [fill(TYPES[i], n, 0) for i in chosen]
        words = [fill([fill(word, k, 0) for word in LETTERS[i]], n, [0] * k) for i in chosen]
        assert batch.spelling.tolist() == words


def test_classes_and_what_is_not_given():
    for batch in Rows(SEQUENCES, CLASSES, batch_size=16).walk():
        assert batch.labels.tolist() == [CLASSES[i] for i in batch.numbers.tolist()]
        assert batch.spelling is batch.types is None
    batch = next(Rows(SEQUENCES, batch_size=16, shuffle=False).walk())
    assert batch.labels is None
    moved = batch.to("meta")
    assert isinstance(moved, Labelled)
    assert [part if part is None else part.device.type for part in moved] == ["meta", "meta", None, "meta", None, None]
    first = next(Rows(SEQUENCES, TAGS, batch_size=16, shuffle=False, pad_label=7).walk())
    assert first.labels.min() >= 0


@pytest.mark.parametrize("world_size", [1, 3])
def test_the_order_is_that_of_batches(world_size):
    options = {"batch_size": 8, "seed": 4, "rank": world_size - 1, "world_size": world_size}
    # a target of no words: a pair is one longer, for <eos>
    pairs = Batches([(row, []) for row in SEQUENCES], max_tokens=8 * 31, max_length=26, **options)
    rows = Rows(SEQUENCES, max_tokens=8 * 30, max_length=25, **options)
    assert rows.dropped == pairs.dropped == sum(len(row) > 25 for row in SEQUENCES) > 0
    for epoch in range(2):
        found = [batch.numbers.tolist() for batch in rows.walk(epoch)]
        assert found == [batch.numbers.tolist() for batch in pairs.walk(epoch)]
        assert len(found) == len(rows)


def test_empty_sequences_take_one_place_of_padding():
    (batch,) = Rows([[], []], [[], []], letters=[[], []], types=[[], []], max_tokens=4).walk()
    assert batch.ids.tolist() == [[PAD], [PAD]]
    assert batch.labels.tolist() == [[-100], [-100]]
    assert batch.lengths.tolist() == [0, 0]
    assert batch.spelling.tolist() == [[[0]], [[0]]]
    (batch,) = Rows([[5], []], [[2], []], batch_size=2).walk()
    assert (batch.ids.tolist(), batch.labels.tolist()) == ([[5], [PAD]], [[2], [-100]])


def mask(rate: float = 0.15, **options: object) -> Masked:
    rows = Rows(SEQUENCES, letters=LETTERS, batch_size=16, seed=6, **options)
    return Masked(rows, mask_id=60, vocab_size=60, special={0, 1, 2, 3, 4, 5}, rate=rate)


def test_what_is_hidden_is_asked_and_nothing_else_changes():
    chosen = hidden = other = tokens = 0
    for epoch in range(25):
        for batch in mask(0.2).walk(epoch):
            true = torch.tensor([fill(SEQUENCES[n], batch.ids.shape[1], PAD) for n in batch.numbers.tolist()])
            asked = batch.labels != -100
            assert torch.equal(batch.labels[asked], true[asked])
            assert torch.equal(batch.ids[~asked], true[~asked])
            assert not (asked & (true <= 5)).any()
            gone = batch.ids != true
            assert batch.spelling[gone].sum() == 0
            # a special one is never put there
            assert (batch.ids[gone] >= 6).all()
            chosen += int(asked.sum())
            tokens += int((true > 5).sum())
            hidden += int((batch.ids == 60).sum())
            other += int((gone & (batch.ids != 60)).sum())
    # of 100,000 tokens 20,000 are chosen: these are three deviations and more; one draw in 54 is the word itself
    assert chosen / tokens == pytest.approx(0.2, abs=0.005)
    assert hidden / chosen == pytest.approx(0.8, abs=0.01)
    assert other / chosen == pytest.approx(0.1 * 53 / 54, abs=0.008)


def test_the_letters_of_what_stays_are_there():
    letters = {tuple(word) for row in LETTERS for word in row}
    for batch in mask().walk():
        stays = batch.labels == batch.ids
        if stays.any():
            assert {tuple(n for n in word if n) for word in batch.spelling[stays].tolist()} <= letters


@pytest.mark.parametrize("batch_size", [1, 16])
def test_at_least_one_is_asked(batch_size):
    rows = Rows([[1], [1, 7, 8], *SEQUENCES], batch_size=batch_size)
    asked = {}
    for batch in Masked(rows, mask_id=60, vocab_size=60, special={1}, rate=1e-9).walk():
        asked |= dict(zip(batch.numbers.tolist(), (batch.labels != -100).sum(1).tolist(), strict=True))
    # of the first that has something to ask, whatever comes with it
    assert {number for number, count in asked.items() if count} == {1}
    assert asked[1] == 1
    (batch,) = Masked(Rows([[1, 2]], batch_size=1), mask_id=9, vocab_size=9, special={1, 2}).walk()
    assert (batch.labels == -100).all()


def test_masks_go_on_where_they_were():
    whole = list(mask().walk(2))
    for start in (0, 1, 9, len(whole) - 1, len(whole)):
        torch.manual_seed(start)
        assert same(list(mask().walk(2, start)), whole[start:])
    # the companions are the same without shuffling: what is hidden is not
    first, second = (next(mask(shuffle=False).walk(epoch)) for epoch in (0, 1))
    assert torch.equal(first.numbers, second.numbers)
    assert not torch.equal(first.labels, second.labels)


def hide(sequences: list, epoch: int = 0, ranks: int = 1, **options: object) -> dict[int, tuple]:
    """Each sequence with what is hidden of it."""
    found = {}
    for rank in range(ranks):
        rows = Rows(sequences, rank=rank, world_size=ranks, **options)
        for batch in Masked(rows, mask_id=60, vocab_size=60).walk(epoch):
            for number, length, *row in zip(
                batch.numbers.tolist(), batch.lengths.tolist(), batch.ids.tolist(), batch.labels.tolist(), strict=True
            ):
                found[number] = tuple(tuple(part[:length]) for part in row)
    return found


@pytest.mark.parametrize("options", [{"batch_size": 1}, {"ranks": 3}, {"shuffle": False}, {"max_tokens": 90}], ids=str)
def test_a_sequence_hides_the_same_whatever_comes_with_it(options):
    assert hide(SEQUENCES, **{"batch_size": 16, **options}) == hide(SEQUENCES, batch_size=16)


def test_every_sequence_epoch_and_seed_hides_in_its_own_way():
    # all alike, so that the same draw would hide the same places
    same = [[7] * 30] * len(SEQUENCES)
    ways = [way for options in ({}, {"epoch": 1}, {"seed": 1}) for way in hide(same, batch_size=8, **options).values()]
    # two that hide nothing, or one place, may be alike
    known = [labels for _, labels in ways if sum(n != -100 for n in labels) > 3]
    assert len(known) > 500
    assert len(set(known)) >= len(known) - 5
    # each place as often as another: 3 deviations of 921 draws
    for place in range(30):
        assert sum(labels[place] != -100 for _, labels in ways) / len(ways) == pytest.approx(0.15, abs=0.036)
    # and neighbours together as often as chance has it
    both = sum(labels[i] != -100 != labels[i + 1] for _, labels in ways for i in range(29))
    assert both / len(ways) / 29 == pytest.approx(0.15**2, abs=0.003)


MESSAGES = {
    "labels must be as many as the sequences: 1 for 2.": {"labels": [1]},
    "letters must be as many as the sequences: 3 for 2.": {"letters": [[], [], []]},
    "labels of sequence 1 must be as many as its tokens: 3 for 1.": {"labels": [[1, 2], [1, 2, 3]]},
    "types of sequence 0 must be as many as its tokens: 0 for 2.": {"types": [[], [1]]},
    "labels must be ints for sequences or lists for tokens, not both: see number 1.": {"labels": [1, [2]]},
    "batches need a size: give batch_size, max_tokens or both.": {"batch_size": None},
}


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message[:50])
def test_the_message_is_pinned(message):
    with pytest.raises(RegardError) as error:
        Rows([[5, 6], [7]], **{"batch_size": 2} | MESSAGES[message])
    assert str(error.value) == message


def test_masks_need_something_to_hide():
    rows = Rows([[5]], batch_size=1)
    with pytest.raises(RegardError) as error:
        Masked(rows, mask_id=9, vocab_size=9, rate=0)
    assert str(error.value) == "rate, the fraction of the tokens to mask, must lie in (0, 1], got 0."
    with pytest.raises(RegardError) as error:
        Masked(rows, mask_id=2, vocab_size=2, special={0, 1})
    assert str(error.value) == "all 2 ids of the vocabulary are special: leave some to be predicted."


def test_the_longest_sequence_is_that_of_what_is_left():
    rows = [[4] * 9, [4] * 3, [4]]
    assert [Rows(rows, batch_size=2, max_length=most).longest for most in (None, 6, 2)] == [9, 3, 1]
