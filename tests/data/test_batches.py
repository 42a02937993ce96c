"""Batches: every pair once, budgets kept, the same order again, going on in the middle, shares of several processes."""

import random
import time

import pytest
import torch

from regard.core import RegardError
from regard.data import BOS, EOS, PAD, Batch, Batches, pad, read_aligned, train_tokenizer
from tests.wide import wide


def draw_pairs(count: int, seed: int = 0, longest: int = 30) -> list[tuple[list[int], list[int]]]:
    rng = random.Random(seed)
    sizes = [(rng.randrange(1, longest), rng.randrange(longest)) for _ in range(count)]
    return [([rng.randrange(4, 99) for _ in range(a)], [rng.randrange(4, 99) for _ in range(b)]) for a, b in sizes]


PAIRS = draw_pairs(1009)


def same(left: list[Batch], right: list[Batch]) -> bool:
    return len(left) == len(right) and all(
        torch.equal(a, b) for one, two in zip(left, right, strict=True) for a, b in zip(one, two, strict=True)
    )


@pytest.mark.parametrize("options", [{"batch_size": 32}, {"max_tokens": 200}, {"batch_size": 9, "max_tokens": 200}])
@pytest.mark.parametrize("shuffle", [True, False])
def test_every_pair_once_an_epoch_within_the_budget(options, shuffle):
    batches = Batches(PAIRS, **options, shuffle=shuffle)
    for epoch in range(3):
        found = list(batches.walk(epoch))
        assert len(found) == len(batches)
        assert sorted(n for batch in found for n in batch.numbers.tolist()) == list(range(len(PAIRS)))
        for batch in found:
            assert len(batch.numbers) <= options.get("batch_size", len(PAIRS))
            assert max(batch.source.numel(), batch.inputs.numel()) <= options.get("max_tokens", 10**9)


def test_what_a_batch_holds():
    for batch in Batches(PAIRS, max_tokens=300).walk(5):
        for row, number in enumerate(batch.numbers.tolist()):
            source, target = PAIRS[number]
            n, m = batch.source_lengths[row], batch.target_lengths[row]
            assert batch.source[row, :n].tolist() == [*source, EOS]
            assert batch.inputs[row, :m].tolist() == [BOS, *target]
            assert batch.outputs[row, :m].tolist() == [*target, EOS]
            assert (batch.source[row, n:] == PAD).all()
            assert (batch.inputs[row, m:] == PAD).all()
            assert (batch.outputs[row, m:] == PAD).all()
        # no wider than the longest
        assert batch.source.shape[1] == batch.source_lengths.max()
        assert batch.inputs.shape == batch.outputs.shape == (len(batch.numbers), batch.target_lengths.max())
        assert all(part.dtype == torch.long for part in batch)


def test_the_seed_and_the_epoch_decide():
    def walk(seed: int, epoch: int) -> list[Batch]:
        # what else is drawn does not matter
        torch.manual_seed(random.randrange(1000))
        return list(Batches(PAIRS, batch_size=32, seed=seed).walk(epoch))

    assert same(walk(1, 2), walk(1, 2))
    for other in (walk(1, 3), walk(2, 2), walk(2, 1)):
        assert not same(walk(1, 2), other)
        # other companions too, not just another order
        assert {frozenset(x.numbers.tolist()) for x in walk(1, 2)} != {frozenset(x.numbers.tolist()) for x in other}


def test_the_order_of_an_epoch_is_pinned():
    # a change here breaks the resumption of every run that is under way
    pairs = [([9] * n, [9]) for n in (1, 1, 1, 2, 2, 3)]
    found = [batch.numbers.tolist() for batch in Batches(pairs, batch_size=2, seed=4).walk(1)]
    assert found == [[4, 2], [5, 3], [1, 0]]


def test_the_order_is_mixed_by_length():
    lengths = [int(batch.source_lengths.max()) for batch in Batches(PAIRS, batch_size=8).walk()]
    assert lengths != sorted(lengths)
    assert lengths != sorted(lengths, reverse=True)
    # but within a batch they are alike: the longer sides differ by little
    for batch in Batches(PAIRS, batch_size=8).walk():
        sides = torch.maximum(batch.source_lengths, batch.target_lengths)
        assert sides.max() - sides.min() <= 3


@pytest.mark.parametrize("world_size", [1, 3])
def test_going_on_equals_the_rest(world_size):
    batches = Batches(PAIRS, max_tokens=250, seed=3, rank=world_size - 1, world_size=world_size)
    whole = list(batches.walk(4))
    for start in (0, 1, len(batches) // 2, len(batches) - 1, len(batches)):
        again = Batches(PAIRS, max_tokens=250, seed=3, rank=world_size - 1, world_size=world_size)
        assert same(list(again.walk(4, start)), whole[start:])


def test_going_on_does_not_replay():
    class Watched(Batches):
        touched = 0

        def make(self, numbers):
            self.touched += len(numbers)
            return super().make(numbers)

    batches = Watched(PAIRS, batch_size=8)
    last = list(batches.walk(0, len(batches) - 1))
    assert batches.touched == sum(len(batch.numbers) for batch in last) <= 8


@pytest.mark.parametrize("world_size", [2, 3, 8])
@pytest.mark.parametrize("options", [{"batch_size": 16}, {"max_tokens": 120}])
def test_shares_are_disjoint_equal_in_number_and_cover(world_size, options):
    shards = [Batches(PAIRS, **options, rank=rank, world_size=world_size) for rank in range(world_size)]
    assert len({len(shard) for shard in shards}) == 1
    walks = [list(shard.walk(1)) for shard in shards]
    assert {len(walk) for walk in walks} == {len(shards[0])}
    assert sorted(n for walk in walks for batch in walk for n in batch.numbers.tolist()) == list(range(len(PAIRS)))
    for step in zip(*walks, strict=True):
        sizes = [len(batch.numbers) for batch in step]
        assert max(sizes) - min(sizes) <= 1
        assert min(sizes) >= 1
        for batch in step:
            assert len(batch.numbers) <= options.get("batch_size", 10**9)
            assert max(batch.source.numel(), batch.inputs.numel()) <= options.get("max_tokens", 10**9)


def test_two_processes_see_what_one_sees_with_batches_of_twice_the_size():
    one = list(Batches(PAIRS, batch_size=32, seed=5).walk(2))
    two = [list(Batches(PAIRS, batch_size=16, seed=5, rank=rank, world_size=2).walk(2)) for rank in range(2)]
    for whole, *halves in zip(one, *two, strict=True):
        assert set(whole.numbers.tolist()) == {n for half in halves for n in half.numbers.tolist()}


@pytest.mark.parametrize(("count", "batch_size", "left"), [(9, 4, 0), (13, 2, 0), (9, 1, 1), (5, 1, 1), (4, 1, 0)])
def test_a_short_last_batch_borrows_from_the_one_before(count, batch_size, left):
    pairs = PAIRS[:count]
    shards = [list(Batches(pairs, batch_size=batch_size, rank=r, world_size=4).walk()) for r in range(4)]
    assert len({len(shard) for shard in shards}) == 1
    seen = [n for shard in shards for batch in shard for n in batch.numbers.tolist()]
    assert all(len(batch.numbers) <= batch_size for shard in shards for batch in shard)
    # with one pair a batch nobody can spare one
    assert len(seen) == len(set(seen)) == count - left


def test_too_long_pairs_are_dropped_and_counted():
    long = [n for n, (source, target) in enumerate(PAIRS) if max(len(source), len(target)) + 1 > 20]
    for options in ({"batch_size": 16, "max_length": 20}, {"max_tokens": 20}, {"max_tokens": 20, "max_length": 29}):
        batches = Batches(PAIRS, **options)
        assert batches.dropped == len(long) > 100
        seen = {n for batch in batches.walk() for n in batch.numbers.tolist()}
        assert seen == set(range(len(PAIRS))) - set(long)


def test_pad():
    rows, lengths = pad([[5], [], [6, 7]])
    assert rows.tolist() == [[5, PAD], [PAD, PAD], [6, 7]]
    assert lengths.tolist() == [1, 0, 2]
    assert pad([[], []])[0].shape == (2, 0)
    assert pad([])[0].shape == (0, 0)


def test_a_batch_moves_whole():
    batch = next(Batches(PAIRS, batch_size=4).walk())
    assert [part.device.type for part in batch.to("meta")] == ["meta"] * 6


MESSAGES = {
    "batches need a size: give batch_size, max_tokens or both.": {},
    "batch_size must be at least 1, got 0.": {"batch_size": 0},
    "max_length must be at least 1, got -3.": {"batch_size": 2, "max_length": -3},
    "rank must be from 0 to world_size - 1, got rank=2, world_size=2.": {"batch_size": 2, "rank": 2, "world_size": 2},
    "batches need a pair for each of 1 processes, got 3 pairs, 3 of them too long: give more, or raise max_length and"
    " max_tokens.": {"max_tokens": 1},
    "batches need a pair for each of 4 processes, got 3 pairs, 0 of them too long: give more, or raise max_length and"
    " max_tokens.": {"batch_size": 1, "world_size": 4},
}


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message[:60])
def test_the_message_is_pinned(message):
    with pytest.raises(RegardError) as error:
        Batches(draw_pairs(3), **MESSAGES[message])
    assert str(error.value) == message


def test_a_start_beyond_the_end_is_named():
    with pytest.raises(RegardError) as error:
        next(Batches(PAIRS[:10], batch_size=5).walk(0, 3))
    assert str(error.value) == "start must be from 0 to 2 (the number of batches), got 3."


@wide
def test_multi30k(data):
    texts = list(zip(*read_aligned(*(data / "multi30k" / f"train.{x}.gz" for x in ("en", "de"))), strict=True))
    tokenizer = train_tokenizer([*texts[0], *texts[1]], vocab_size=8000)
    pairs = list(zip(*map(tokenizer.encode_all, texts), strict=True))
    batches, start = Batches(pairs, max_tokens=4096), time.perf_counter()
    found = list(batches.walk())
    seconds = time.perf_counter() - start
    assert sum(len(batch.numbers) for batch in found) == 29_000
    real = sum(int(batch.source_lengths.sum() + batch.target_lengths.sum()) for batch in found)
    places = sum(batch.source.numel() + batch.inputs.numel() for batch in found)
    # measured: 0.93 in 0.2 s
    assert real / places > 0.9
    assert seconds < 5


def test_the_longest_source_is_that_of_what_is_left():
    pairs = [([4] * 9, [4]), ([4] * 3, [4] * 2), ([4], [4] * 4)]
    assert Batches(pairs, batch_size=2).longest == 9
    assert Batches(pairs, batch_size=2, max_length=6).longest == 3
    # a target that is too long takes its source with it
    assert Batches(pairs[1:], batch_size=2, max_tokens=4).longest == 3
    assert Batches([([4] * 3, [4] * 7), ([4], [4])], batch_size=2, max_length=6).longest == 1
