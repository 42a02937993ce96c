"""Truncated self-attention: who may have influence on whom, with padding and with caches."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from regard import RegardError
from regard.layers import AdditiveAttention, DecoderBlock, MultiHeadAttention
from regard.models import encoder, transformer
from regard.models.encoder import Encoder
from tests.models import reading, small
from tests.models.reading import LENS, VALID, assert_same, draw, draw_inputs
from tests.models.small import SOURCE, TARGET

VECTORS = {"vocab_size": 0, "inputs": "vectors", "input_size": 5}


def find_reach(model: Encoder, n: int = 12, **which: Tensor) -> Tensor:
    """Whether position i of the outcome has a gradient at vector j."""
    rows = torch.randn(1, n, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64).requires_grad_()
    out = model.encode(rows, **which)[0].sin().sum(-1)
    grads = [torch.autograd.grad(one, rows, retain_graph=True)[0][0] for one in out]
    return torch.stack(grads).abs().amax(-1) > 0


@pytest.mark.parametrize("position", ["rotary", "alibi", "relative"])
@pytest.mark.parametrize(("window", "before", "after"), [((2, 1), 2, 1), (1, 1, 1), ((3, 0), 3, 0), (0, 0, 0)])
def test_influence_ends_at_layers_times_window(window, before, after, position):
    model = reading.build(**VECTORS, window=window, position=position)
    ahead = torch.arange(12) - torch.arange(12)[:, None]
    expected = (ahead <= 2 * after) & (ahead >= -2 * before)
    assert find_reach(model).equal(expected)


def test_padding_has_no_influence_within_a_window():
    model = reading.build(**VECTORS, window=(2, 1))
    gaps = torch.tensor([[True] * 4 + [False] + [True] * 7])
    for which, valid in (({"valid_lens": torch.tensor([9])}, torch.arange(12) < 9), ({"mask": gaps}, gaps[0])):
        reach = find_reach(model, **which)
        assert not reach[~valid].any()
        assert not reach[:, ~valid].any()
        assert reach[valid][:, valid].any(1).all()
    # a position counts what is padded before it: five sees three and four, not two
    one = reading.build(**VECTORS, window=(2, 1), num_layers=1)
    assert find_reach(one, mask=gaps)[5].nonzero()[:, 0].tolist() == [3, 5, 6]


@pytest.mark.parametrize("changes", [{}, {"position": "relative", "norm_first": True}, {"weigh": "entmax"}], ids=str)
def test_a_wide_window_is_none(changes):
    ids, mask = draw(4, 7), VALID.flip(1)
    for window in (6, (6, 9), 2**20):
        wide, full = (reading.build(head="tags", window=x, **changes) for x in (window, None))
        for which in ({}, {"valid_lens": LENS}, {"mask": mask}):
            assert_same(wide(ids, **which), full(ids, **which))
    wide, full = (small.build(window=x, **changes) for x in (6, None))
    assert_same(wide(SOURCE, small.LENS, TARGET), full(SOURCE, small.LENS, TARGET))


def test_a_sentence_is_as_alone():
    model, inputs = reading.build(window=(1, 2), **reading.RICH), draw_inputs(**reading.RICH)
    together = model(**inputs, valid_lens=LENS)
    for i, length in enumerate(LENS.tolist()):
        if length:
            alone = model(**{name: x[i : i + 1, :length] for name, x in inputs.items()})
            assert_same(together[i, :length], alone[0])


@pytest.mark.parametrize("position", ["sinusoidal", "rotary", "relative", "alibi"])
@pytest.mark.parametrize("window", [2, (5, 3), (0, 1)])
def test_steps_equal_the_whole(window, position):
    model = small.build(window=window, position=position)
    with torch.no_grad():
        whole = model(SOURCE, small.LENS, TARGET)
        for widths in ((1,) * 6, (2, 1, 3)):
            state = model.init_state(model.encode(SOURCE, small.LENS), small.LENS)
            found = [model.decode(part, state)[0] for part in TARGET.split(widths, 1)]
            assert_same(torch.cat(found, 1), whole)


def test_a_decoder_looks_back_so_far_and_never_ahead():
    model = small.build(window=(1, 3), position="rotary")
    with torch.no_grad():
        before = model(SOURCE, small.LENS, TARGET)
        for at in range(6):
            other = TARGET.clone()
            other[:, at] = other[:, at] % (small.VOCAB - 1) + 1
            moved = (model(SOURCE, small.LENS, other) - before).abs().amax((0, 2)) > 0
            # two layers of one back
            assert moved.nonzero()[:, 0].tolist() == [i for i in range(6) if at <= i <= at + 2]
        # and the encoder ahead, too: two layers of three
        wide = SOURCE[1:]
        memory = model.encode(wide)
        other = wide.clone()
        other[:, 6] = other[:, 6] % (small.VOCAB - 1) + 1
        moved = (model.encode(other) - memory).abs().amax((0, 2)) > 0
        assert moved.nonzero()[:, 0].tolist() == list(range(7))
        other = wide.clone()
        other[:, 0] = other[:, 0] % (small.VOCAB - 1) + 1
        moved = (model.encode(other) - memory).abs().amax((0, 2)) > 0
        assert moved.nonzero()[:, 0].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: encoder.Config(9, window=(1,)), "Config window must be int | tuple[int, int] | None, got (1,)."),
        (lambda: encoder.Config(9, window=(1, -1)), "Config window must be at least 0, got -1."),
        (lambda: transformer.Config(9, window=True), "Config window must be int | tuple[int, int] | None, got True."),
        (lambda: transformer.Config(9, window=2**20 + 1), "Config window must be at most 1048576, got 1048577."),
        (
            lambda: encoder.Config(9, kind="gru", window=4),
            "Config window is for kind='attention', got kind='gru': leave it out.",
        ),
        (
            lambda: DecoderBlock(AdditiveAttention(8, 8, 8), MultiHeadAttention(8, 8, 8, 8, 2), 8, 8)(
                torch.ones(1, 2, 8), torch.ones(1, 3, 8), before=1
            ),
            "DecoderBlock before needs attention1 to be a MultiHeadAttention, got AdditiveAttention.",
        ),
    ],
)
def test_a_wrong_window_is_named(make, message):
    with pytest.raises(RegardError) as error:
        make()
    assert str(error.value) == message
