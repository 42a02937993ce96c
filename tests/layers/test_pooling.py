"""A sequence as one vector: by hand in float64, whatever its padding holds."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from regard import RegardError, watch
from regard.layers import AttentionPooling
from regard.layers.pooling import reduce_rows
from tests.layers.padded import LENS, D, assert_unread, differentiate, draw, find_padding, shake

PADDING = find_padding(LENS, 7)
# padding before, between and after, and nothing else
GAPS = ~torch.tensor([[0, 1, 0, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1, 1], [0] * 7, [0, 0, 0, 0, 0, 0, 1]]).bool()


def weigh_by_hand(layer: AttentionPooling, rows: Tensor) -> Tensor:
    keys = torch.tanh(rows @ layer.W_k.weight.T + layer.W_k.bias)
    return torch.softmax(keys @ layer.query / D**0.5, 0)


def test_it_is_the_mean_by_learned_weights():
    layer, X = shake(AttentionPooling(D)), draw(4, 7, D)

    def by_hand(X: Tensor) -> Tensor:
        parts = [X[i, :length] for i, length in enumerate(LENS.tolist())]
        return torch.stack([weigh_by_hand(layer, x) @ x for x in parts])

    for found, expected in zip(
        differentiate(layer, lambda x: layer(x, LENS), X), differentiate(layer, by_hand, X), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    layer(X, LENS)
    assert layer.attention_weights.shape == (4, 1, 7)
    assert not layer.attention_weights[:, 0][PADDING].any()
    torch.testing.assert_close(layer.attention_weights[0, 0, :3], weigh_by_hand(layer, X[0, :3]))


@pytest.mark.parametrize("how", ["soft", "hard"])
def test_padding_is_unread(how):
    layer = shake(AttentionPooling(D, how))
    for training in (True, False) if how == "soft" else (True,):
        layer.train(training)
        assert_unread(layer, lambda x: layer(x, LENS), PADDING)
        assert_unread(layer, lambda x: layer(x, mask=~GAPS), GAPS)
    assert not layer(draw(4, 7, D), LENS)[2].any()


@pytest.mark.parametrize("how", ["soft", "hard"])
def test_a_mask_and_lengths_both_hold(how):
    layer, X = shake(AttentionPooling(D, how)).eval(), draw(4, 7, D)
    each = zip(X, LENS, GAPS, strict=True)
    alone = torch.cat([layer(x[None, :length][:, ~gaps[:length]]) for x, length, gaps in each])
    torch.testing.assert_close(layer(X, LENS, mask=~GAPS), alone, rtol=0, atol=1e-12)


def test_hard_takes_the_best_row():
    layer, X = shake(AttentionPooling(D, "hard")).eval(), draw(4, 7, D)
    out = layer(X, LENS)
    for i in (0, 1, 3):
        best = int(weigh_by_hand(layer, X[i, : LENS[i]]).argmax())
        assert out[i].equal(X[i, best])
        assert layer.attention_weights[i, 0].tolist() == [float(j == best) for j in range(7)]


def test_hard_draws_by_the_soft_weights_and_learns_as_they_do():
    soft, hard = shake(AttentionPooling(D)), shake(AttentionPooling(D, "hard"))
    hard.load_state_dict(soft.state_dict())
    rows = draw(1, 5, D)
    X, lens = rows.expand(4000, -1, -1), torch.full((4000,), 4)
    torch.manual_seed(0)
    out = hard(X, lens)
    counts = (out[:, None] == rows).all(-1).double().mean(0)
    # five deviations of 4,000 draws
    torch.testing.assert_close(counts[:4], weigh_by_hand(hard, rows[0, :4]), rtol=0, atol=0.04)
    assert int((counts * 4000).round().sum()) == 4000
    grads = [differentiate(x, lambda y, x=x: x(y, LENS), draw(4, 7, D))[1:] for x in (soft, hard)]
    assert all(a.equal(b) for a, b in zip(*grads, strict=True))


def test_it_drops_out_in_training_alone():
    for how in ("soft", "hard"):
        layer, X = shake(AttentionPooling(D, how, dropout=0.5)), draw(64, 1, D)
        # the one weight of each is dropped, or doubled
        kept = (layer(X) / X[:, 0]).round(decimals=6)
        assert sorted(set(kept.flatten().tolist())) == [0, 2]
        assert layer.eval()(X).equal(X[:, 0])


def test_it_is_watched():
    for how in ("soft", "hard"):
        layer = shake(AttentionPooling(D, how)).eval()
        with watch(layer) as seen:
            layer(draw(4, 7, D), LENS)
        assert list(seen) == ["AttentionPooling"]


@pytest.mark.parametrize(
    ("how", "by_hand"), [("mean", lambda x: x.mean(0)), ("max", lambda x: x.amax(0)), ("first", lambda x: x[0])]
)
def test_rows_are_reduced(how, by_hand):
    X = draw(4, 7, D)
    for padding in (PADDING, GAPS):
        out = reduce_rows(X, ~padding, how)
        for x, gaps, found in zip(X, padding, out, strict=True):
            expected = by_hand(x[~gaps]) if (~gaps).any() else torch.zeros(D, dtype=x.dtype)
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
        assert_unread(torch.nn.Identity(), lambda x, padding=padding: reduce_rows(x, ~padding, how), padding)
    torch.testing.assert_close(reduce_rows(X, None, how)[0], by_hand(X[0]), rtol=0, atol=1e-12)
    assert reduce_rows(X[:, :0], None, how).equal(torch.zeros(4, D, dtype=X.dtype))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda _: AttentionPooling(D, "mean"), "AttentionPooling how must be 'soft' or 'hard', got 'mean'."),
        (lambda _: AttentionPooling(0), "AttentionPooling num_hiddens must be at least 1, got 0."),
        (lambda _: AttentionPooling(D, dropout=1.0), "AttentionPooling dropout must lie in [0, 1), got 1.0."),
        (
            lambda layer: layer(draw(2, 3, D + 1)),
            "AttentionPooling X must be (batch, positions, num_hiddens=6), got shape (2, 3, 7).",
        ),
        (
            lambda layer: layer(draw(2, 3, D), torch.ones(2, 3, dtype=torch.int64)),
            "AttentionPooling valid_lens must be (batch,)=(2,), got shape (2, 3).",
        ),
        (
            lambda layer: layer(draw(2, 3, D), torch.tensor([1, 4])),
            "AttentionPooling valid_lens must be at most 3 (the number of keys), got 4.",
        ),
        (
            lambda layer: layer(draw(2, 3, D), mask=torch.ones(2, 3)),
            "AttentionPooling mask must be bool (batch, positions)=(2, 3), True = a token, got float32 of shape"
            " (2, 3).",
        ),
        (
            lambda layer: layer(draw(2, 3, D), mask=[True]),
            "AttentionPooling mask must be bool (batch, positions)=(2, 3), True = a token, got list.",
        ),
        (
            lambda layer: layer(draw(2, 3, D), mask=torch.ones(2, 3, dtype=torch.bool, device="meta")),
            "AttentionPooling mask must lie on the device cpu of X, got meta.",
        ),
    ],
)
def test_wrong_input_is_named(call, message):
    with pytest.raises(RegardError) as error:
        call(AttentionPooling(D).double())
    assert str(error.value) == message
