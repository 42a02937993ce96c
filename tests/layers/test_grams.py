"""Words by their runs of letters: run by run, in plain Python."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from regard import RegardError
from regard.layers import Grams
from tests.layers.padded import draw, shake

LETTERS = torch.tensor([[[1, 7, 5, 3, 2], [1, 7, 2, 0, 0]], [[0, 0, 0, 0, 0], [1, 4, 4, 2, 0]]])


def list_runs(word: list[int], sizes: tuple[int, ...]) -> list[tuple[int, ...]]:
    return [tuple(word[i : i + size]) for size in sizes for i in range(len(word) - size + 1)]


def number(run: tuple[int, ...], rows: int) -> int:
    code = len(run)
    for letter in run:
        code = (code * 1_000_003 + letter) % (2**31 - 1)
    return 1 + code % (rows - 1)


@pytest.mark.parametrize("sizes", [(2, 3, 4, 5), (1,), (3, 9)])
def test_each_word_is_as_by_hand(sizes):
    layer = shake(Grams(50, 6, sizes=sizes))
    for word, found in zip(LETTERS.flatten(0, 1).tolist(), layer(LETTERS).flatten(0, 1), strict=True):
        runs = list_runs([x for x in word if x], sizes)
        rows = [layer.embedding.weight[number(run, 50)] for run in runs]
        expected = sum(rows) / math.sqrt(len(rows)) if rows else torch.zeros(6, dtype=torch.float64)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    # more padding is no more
    longer = layer(functional.pad(LETTERS, (0, 4)).int())
    torch.testing.assert_close(longer, layer(LETTERS), rtol=0, atol=1e-12)


def test_padding_is_unread():
    layer = shake(Grams(50, 6))
    with torch.no_grad():
        layer.embedding.weight[0] = torch.nan
    found = layer(LETTERS)
    (found * draw(*found.shape)).sum().backward()
    assert found.isfinite().all()
    assert layer.embedding.weight.grad.isfinite().all()
    assert not layer.embedding.weight.grad[0].any()


def test_a_suffix_is_shared_and_no_other_run_is():
    layer = Grams(100_003, 6)
    one, other = (set(layer.number(torch.tensor([[word]])).flatten().tolist()) for word in ([1, 7, 5, 2], [1, 8, 5, 2]))
    # of 5 2 alone, where 2 ends the word
    assert len(one & other) == 1
    assert len(one | other) == 2 * (3 + 2 + 1) - 1


def test_nothing_at_all():
    layer = Grams(50, 6)
    assert layer(LETTERS[:, :, :0]).equal(torch.zeros(2, 2, 6))
    assert layer(LETTERS[:, :0]).shape == (2, 0, 6)
    assert layer(torch.zeros(2, 3, 4, dtype=torch.int64)).equal(torch.zeros(2, 3, 6))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Grams(1, 6), "Grams num_grams must be at least 2, a row for padding and more, got 1."),
        (lambda: Grams(9, 6, sizes=()), "Grams sizes must name at least one, each 1 or more, got ()."),
        (lambda: Grams(9, 6)(LETTERS - 1), "Grams letters must be at least 0, got -1."),
        (
            lambda: Grams(9, 6)(LETTERS[0]),
            "Grams letters must be int64 or int32 (batch, words, letters), got int64 of shape (2, 5).",
        ),
    ],
)
def test_what_is_wrong_is_said(call, message):
    with pytest.raises(RegardError) as caught:
        call()
    assert str(caught.value) == message
