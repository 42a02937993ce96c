"""Words by their letters: by hand for each word, however many letters stand behind it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from regard import RegardError
from regard.layers import Spelling
from tests.layers.padded import draw, shake

LETTERS = torch.tensor([[[3, 1, 8, 2, 5], [7, 0, 0, 0, 0]], [[0, 0, 0, 0, 0], [4, 4, 6, 0, 0]]])


def spell_by_hand(layer: Spelling, word: list[int]) -> Tensor:
    if not word:
        return torch.zeros(layer.num_hiddens, dtype=torch.float64)
    rows = layer.embedding.weight[word].T[None]
    found = []
    for conv in layer.convs:
        side = conv.weight.shape[-1] // 2
        found.append(
            functional.conv1d(functional.pad(rows, (side, side)), conv.weight, conv.bias)[0].clamp(min=0).amax(-1)
        )
    return torch.cat(found) @ layer.dense.weight.T + layer.dense.bias


@pytest.mark.parametrize("options", [{}, {"kernel_sizes": (1, 3), "num_filters": 4, "embed_size": 3}], ids=str)
def test_each_word_is_as_by_hand(options):
    layer = shake(Spelling(9, 5, **options))
    words = [spell_by_hand(layer, [x for x in word if x]) for word in LETTERS.flatten(0, 1).tolist()]
    expected = torch.stack(words).view(2, 2, 5)
    torch.testing.assert_close(layer(LETTERS), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(layer(LETTERS.int()), expected, rtol=0, atol=1e-12)
    # more padding is no more
    torch.testing.assert_close(layer(functional.pad(LETTERS, (0, 4))), expected, rtol=0, atol=1e-12)


def test_what_stands_for_padding_is_unread():
    layer = shake(Spelling(9, 5))
    before = layer(LETTERS)
    grads = torch.autograd.grad((before * draw(*before.shape)).sum(), [*layer.parameters()])
    with torch.no_grad():
        layer.embedding.weight[0] = torch.nan
    after = layer(LETTERS)
    assert after.equal(before)
    again = torch.autograd.grad((after * draw(*after.shape)).sum(), [*layer.parameters()])
    assert all(a.equal(b) for a, b in zip(grads, again, strict=True))
    assert not grads[0][0].any()


def test_nothing_at_all():
    layer = Spelling(9, 5)
    assert layer(LETTERS[:, :, :0]).equal(torch.zeros(2, 2, 5))
    assert layer(LETTERS[:, :0]).shape == (2, 0, 5)
    assert layer(torch.zeros(2, 3, 4, dtype=torch.int64)).equal(torch.zeros(2, 3, 5))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Spelling(0, 5), "Spelling num_characters must be at least 1, got 0."),
        (lambda: Spelling(9, 5, 1.5), "Spelling dropout must lie in [0, 1), got 1.5."),
        (lambda: Spelling(9, 5, kernel_sizes=(3, 4)), "Spelling kernel_size must be odd and at least 1, got 4."),
        (lambda: Spelling(9, 5, kernel_sizes=()), "Spelling kernel_sizes must name at least one, got ()."),
        (
            lambda: Spelling(9, 5)(LETTERS[0]),
            "Spelling letters must be int64 or int32 (batch, words, letters), got int64 of shape (2, 5).",
        ),
        (
            lambda: Spelling(9, 5)([[1]]),
            "Spelling letters must be int64 or int32 (batch, words, letters), got list.",
        ),
        (
            lambda: Spelling(9, 5)(LETTERS + 1),
            "Spelling letters must be at most 8 (the last of the characters), got 9.",
        ),
        (lambda: Spelling(9, 5)(LETTERS - 1), "Spelling letters must be at least 0, got -1."),
    ],
)
def test_wrong_input_is_named(call, message):
    with pytest.raises(RegardError) as error:
        call()
    assert str(error.value) == message
