"""Buckets: the numbers of a batch follow the rules as a plain walk over sorted lists states them."""

import random

import pytest
import torch

from regard.core import RegardError
from regard.data.buckets import Buckets, draw_by, pad

RNG = random.Random(5)
LENGTHS = [RNG.randrange(40) for _ in range(211)]


def cut(lengths: list[int], batch_size: int | None, max_tokens: int | None) -> list[list[int]]:
    """The oracle, for one process and no shuffling: fill from the longest on, and never go over a budget."""
    batches: list[list[int]] = []
    for number in sorted(range(len(lengths)), key=lambda n: -max(1, lengths[n])):
        longest = max(1, lengths[batches[-1][0]]) if batches else 0
        if (
            not batches
            or (batch_size and len(batches[-1]) + 1 > batch_size)
            or (max_tokens and (len(batches[-1]) + 1) * longest > max_tokens)
        ):
            batches.append([])
        batches[-1].append(number)
    return batches


@pytest.mark.parametrize(("batch_size", "max_tokens"), [(7, None), (None, 100), (5, 90)])
def test_the_batches_are_those_of_a_plain_walk(batch_size, max_tokens):
    buckets = Buckets(LENGTHS, batch_size=batch_size, max_tokens=max_tokens, shuffle=False)
    expected = cut(LENGTHS, batch_size, max_tokens)
    assert [numbers.tolist() for numbers in buckets.walk()] == expected
    mixed = Buckets(LENGTHS, batch_size=batch_size, max_tokens=max_tokens, seed=3)
    # mixed, the batches have the lengths of these, in another order; an empty one counts as one of one
    shapes, plain = (
        [sorted(max(1, LENGTHS[n]) for n in batch) for batch in found]
        for found in ([numbers.tolist() for numbers in mixed.walk(2)], expected)
    )
    assert sorted(shapes) == sorted(plain)
    assert shapes != plain


def test_the_draw_is_pinned():
    # a change here breaks the resumption of every run that is under way
    assert torch.randperm(6, generator=draw_by(4, 1)).tolist() == [3, 4, 2, 1, 0, 5]
    assert draw_by(1, 23).initial_seed() != draw_by(12, 3).initial_seed()


def test_pad_with_another_number():
    assert pad([[5], [], [6, 7]], -100)[0].tolist() == [[5, -100], [-100, -100], [6, 7]]


def test_too_few_are_named():
    with pytest.raises(RegardError) as error:
        Buckets([9, 9, 2], batch_size=2, max_length=5, world_size=2)
    assert str(error.value) == (
        "batches need a sequence for each of 2 processes, got 3 sequences, 2 of them too long:"
        " give more, or raise max_length and max_tokens."
    )
