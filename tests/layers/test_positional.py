"""Sines, cosines and learned vectors by their formulas; and what order means to self-attention."""

import copy
import math
import pickle

import pytest
import torch
from torch import nn

from regard import attend
from regard.core import RegardError
from regard.layers.biases import AlibiBias, DenseBias, RelativeBias
from regard.layers.positional import LearnedPositionalEncoding, PositionalEncoding
from regard.layers.rotary import Rotary
from regard.mask import Causal
from regard.score import Dot
from regard.weigh import Relu
from tests.tolerances import assert_close

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def write_out(positions: list[int], width: int) -> torch.Tensor:
    """The textbook's table, entry by entry."""
    table = torch.zeros(len(positions), width, dtype=torch.float64)
    for row, i in enumerate(positions):
        for column in range(width):
            angle = i / 10000 ** ((column - column % 2) / width)
            table[row, column] = math.cos(angle) if column % 2 else math.sin(angle)
    return table


@pytest.mark.parametrize("width", [1, 2, 5, 8])
def test_sines_and_cosines_are_the_formula(width):
    x = torch.randn(2, 7, width, dtype=torch.float64)
    assert_close(PositionalEncoding(width)(x), x + write_out(list(range(7)), width))


def test_the_textbook_code_gives_the_same_numbers():
    # d2l's own lines, float32 as there
    table = torch.zeros(1, 60, 32)
    angles = torch.arange(60, dtype=torch.float32).reshape(-1, 1) / torch.pow(
        10000, torch.arange(0, 32, 2, dtype=torch.float32) / 32
    )
    table[:, :, 0::2], table[:, :, 1::2] = torch.sin(angles), torch.cos(angles)
    layer = PositionalEncoding(32, 0)
    assert_close(layer(torch.zeros(1, 60, 32)), table)
    assert_close(layer.P[:, :60], table)
    assert layer.P.shape == (1, 1000, 32)
    # nothing is stored, as in the textbook
    assert layer.state_dict() == {}


def test_a_shift_is_a_rotation():
    # each pair (sin, cos) of position i turned by δ·ω is that of position i + δ, whatever i
    width, delta = 6, 5
    table = PositionalEncoding(width)(torch.zeros(1, 40, width, dtype=torch.float64))[0].view(40, 3, 2)
    turn = delta / 10000 ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    rotation = torch.stack((turn.cos(), turn.sin(), -turn.sin(), turn.cos()), -1).view(3, 2, 2)
    assert_close(torch.einsum("jab,ijb->ija", rotation, table[:-delta]), table[delta:])


@pytest.mark.parametrize("dtype", DTYPES)
def test_longer_than_max_len_grows_and_keeps_the_dtype(dtype):
    layer = PositionalEncoding(3, max_len=4)
    short = layer(torch.zeros(1, 4, 3, dtype=dtype))
    long = layer(torch.zeros(1, 9, 3, dtype=dtype))
    # rounded once, from float64
    assert torch.equal(long[0], write_out(list(range(9)), 3).to(dtype))
    assert torch.equal(long[:, :4], short)
    assert layer.P.shape == (1, 9, 3)
    assert layer.P.dtype == long.dtype == dtype


def test_half_precision_in_between_costs_nothing():
    layer = PositionalEncoding(4).to(torch.bfloat16)
    layer(torch.zeros(1, 2, 4, dtype=torch.bfloat16))
    out = layer.to(torch.float64)(torch.zeros(1, 30, 4, dtype=torch.float64))
    assert_close(out[0], write_out(list(range(30)), 4))


def test_far_positions_are_exact():
    # a float32 table would be off in the third digit here
    out = PositionalEncoding(4)(torch.zeros(1, 2, 4), offset=10**6)
    assert_close(out[0], write_out([10**6, 10**6 + 1], 4).float())


def test_a_leap_ahead_keeps_no_table():
    layer = PositionalEncoding(4, max_len=8)
    layer(torch.zeros(1, 2, 4), offset=10**12)
    assert layer.P.shape == (1, 8, 4)


def test_decoding_makes_the_table_a_few_times(monkeypatch):
    layer, made = PositionalEncoding(4, max_len=8), []
    tabulate = layer.tabulate
    monkeypatch.setattr(layer, "tabulate", lambda positions: made.append(len(positions)) or tabulate(positions))
    for i in range(100):
        layer(torch.zeros(1, 1, 4), offset=i)
    assert made == [8, 16, 32, 64, 128]


def encodings(width: int, max_len: int = 12):
    return [PositionalEncoding(width, max_len=4), LearnedPositionalEncoding(width, max_len=max_len)]


@pytest.mark.parametrize("layer", encodings(5), ids=lambda x: type(x).__name__)
def test_steps_with_an_offset_are_the_whole(layer):
    x = torch.randn(2, 11, 5)
    steps = [layer(x[:, i : i + 1], offset=i) for i in range(11)]
    assert torch.equal(torch.cat(steps, 1), layer(x))
    # one offset for each sequence, and one without an axis
    ragged = layer(x[:, :3], offset=torch.tensor([4, 7]))
    assert torch.equal(ragged[:1], layer(x[:1, :3], offset=4))
    assert torch.equal(ragged[1:], layer(x[1:, :3], offset=7))
    assert torch.equal(layer(x[:, :3], offset=torch.tensor(4)), layer(x[:, :3], offset=4))


@pytest.mark.parametrize("layer", encodings(5), ids=lambda x: type(x).__name__)
def test_offsets_that_are_none_are_refused(layer):
    x, name = torch.zeros(2, 3, 5), type(layer).__name__
    wrong = {
        f"{name} offset must be at least 0, got -1.": [-1, torch.tensor([0, -1])],
        f"{name} offset must be an integer or a tensor of them, got float.": [1.0],
        f"{name} offset must be integers, got float32.": [torch.ones(2)],
        f"{name} offset must be a number or one for each sequence, (batch,)=(2,), got shape (3,).": [
            torch.zeros(3).long()
        ],
    }
    for message, offsets in wrong.items():
        for offset in offsets:
            with pytest.raises(RegardError) as caught:
                layer(x, offset=offset)
            assert str(caught.value) == message


@pytest.mark.parametrize("layer", encodings(5), ids=lambda x: type(x).__name__)
def test_wrong_inputs_are_named(layer):
    name = type(layer).__name__
    for x, message in [
        (torch.zeros(3, 5), f"{name} X must be (batch, positions, num_hiddens=5), got shape (3, 5)."),
        (torch.zeros(2, 3, 4), f"{name} X must be (batch, positions, num_hiddens=5), got shape (2, 3, 4)."),
        (
            torch.zeros(2, 3, 5).long(),
            f"{name} X must be floating point, got int64: positions are added to embeddings, not tokens.",
        ),
        ([1.0], f"{name} X must be a tensor, got list."),
    ]:
        with pytest.raises(RegardError) as caught:
            layer(x)
        assert str(caught.value) == message
    for arguments, message in [
        ({"num_hiddens": 0}, f"{name} num_hiddens must be at least 1, got 0."),
        ({"num_hiddens": 2, "max_len": 0}, f"{name} max_len must be at least 1, got 0."),
        ({"num_hiddens": 2, "dropout": 1.0}, f"{name} dropout must lie in [0, 1), got 1.0."),
    ]:
        with pytest.raises(RegardError) as caught:
            type(layer)(**arguments)
        assert str(caught.value) == message


def test_learned_positions_end():
    layer = LearnedPositionalEncoding(4, max_len=5)
    layer(torch.zeros(1, 2, 4), offset=3)
    message = (
        "LearnedPositionalEncoding has max_len=5 positions and X needs 6: make max_len larger, or take"
        " PositionalEncoding, which has no end."
    )
    for length, offset in [(6, 0), (2, 4), (2, torch.tensor([4]))]:
        with pytest.raises(RegardError) as caught:
            layer(torch.zeros(1, length, 4), offset=offset)
        assert str(caught.value) == message
    with pytest.raises(RegardError, match=r"^LearnedPositionalEncoding is in float32 and X in bfloat16: bring both"):
        layer(torch.zeros(1, 2, 4, dtype=torch.bfloat16))


@pytest.mark.parametrize("offset", [2, torch.tensor([2, 2, 2])], ids=["number", "tensor"])
def test_learned_positions_are_added_and_learn(offset):
    layer = LearnedPositionalEncoding(3, max_len=7).double()
    x, cotangent = torch.randn(2, 3, 4, 3, dtype=torch.float64)[0], torch.randn(3, 4, 3, dtype=torch.float64)
    out = layer(x, offset)
    assert torch.equal(out, x + layer.P[:, 2:6])
    (grad,) = torch.autograd.grad(out, layer.P, cotangent)
    expected = torch.zeros(1, 7, 3, dtype=torch.float64)
    expected[0, 2:6] = cotangent.sum(0)
    assert_close(grad, expected)


@pytest.mark.parametrize("layer", encodings(8), ids=lambda x: type(x).__name__)
def test_dropout_is_of_training_alone(layer):
    layer = type(layer)(8, dropout=0.5, max_len=12)
    x = torch.randn(4, 12, 8)
    assert 0.3 < (layer(x) == 0).float().mean() < 0.7
    layer.eval()
    assert torch.equal(layer(x), layer(x))
    assert not (layer(x) == 0).any()


@pytest.mark.parametrize("layer", encodings(4), ids=lambda x: type(x).__name__)
def test_copies_and_files(layer):
    x = torch.randn(2, 9, 4)
    out = layer(x)
    other = type(layer)(4, max_len=layer.max_len)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x), out)
    assert torch.equal(copy.deepcopy(layer)(x), out)
    assert torch.equal(layer(x), out)
    # a file holds no table
    wide = PositionalEncoding(64)
    wide(torch.zeros(1, 2, 64))
    assert len(pickle.dumps(wide)) < 10_000


def test_a_table_made_in_inference_serves_training():
    layer, x = Rotary(4), torch.randn(2, 3, 4)
    with torch.inference_mode():
        layer(x)
    x.requires_grad_()
    layer(x).sum().backward()
    assert x.grad is not None


@pytest.mark.thin(2)
@pytest.mark.parametrize("layer", [*encodings(4), Rotary(4, max_len=3)], ids=lambda x: type(x).__name__)
def test_no_graph_break(layer):
    layer = copy.deepcopy(layer)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    # longer than the table, later, and one place for each sequence
    for length, offset in [(3, 0), (9, 0), (2, 5), (2, torch.tensor([3, 8]))]:
        x = torch.randn(2, length, 4)
        out = compiled(x, offset)
        # a graph leaves nothing behind
        assert getattr(layer, "_table", None) is None
        assert torch.equal(out, copy.deepcopy(layer)(x, offset))


# what order means


class Reader(nn.Module):
    """Self-attention of one head or two, with a place for each kind of encoding."""

    def __init__(self, add=None, turn=None, bias=None):
        super().__init__()
        self.W_q, self.W_k, self.W_v = (nn.Linear(8, 8, bias=False) for _ in range(3))
        self.add, self.turn, self.bias = add, turn, bias
        self.double()
        for weight in self.parameters():
            nn.init.normal_(weight, std=0.5)

    def forward(self, x, mask=None):
        x = x if self.add is None else self.add(x)
        query, key, value = (w(x).unflatten(-1, (2, 4)).transpose(1, 2) for w in (self.W_q, self.W_k, self.W_v))
        if self.turn is not None:
            query, key = self.turn(query), self.turn(key)
        terms = {} if mask is None else {"mask": mask}
        out = attend(query, key, value, bias=None if self.bias is None else self.bias(), **terms)
        return out.transpose(1, 2).flatten(2)


def difference(reader, order, mask=None) -> float:
    """How far reading the words in another order is from the reading of each word in the first."""
    words = torch.randn(1, len(order), 8, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    return (reader(words[:, order], mask) - reader(words, mask)[:, order]).abs().max().item()


def test_without_encoding_order_means_nothing():
    for order in ([2, 1, 0], [1, 2, 0], [4, 0, 3, 1, 2]):
        assert difference(Reader(), order) < 1e-14


def test_without_encoding_order_means_nothing_at_all():
    # whole numbers, whose sums are exact in any order: equal to the last bit
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(-4, 5, (2, 7, 3), generator=draw).double()
    weights = torch.randint(-3, 4, (3, 3, 3), generator=draw).double()

    def read(rows):
        query, key, value = (rows @ w for w in weights)
        return attend(query, key, value, score=Dot(scale=1.0), weigh=Relu())

    order = torch.randperm(7, generator=draw)
    assert torch.equal(read(x[:, order]), read(x)[:, order])
    assert read(x).abs().max() > 0


def ordered():
    torch.manual_seed(5)
    yield "sines", Reader(add=PositionalEncoding(8))
    yield "learned", Reader(add=LearnedPositionalEncoding(8))
    yield "rotary", Reader(turn=Rotary(4))
    yield "rotary halves", Reader(turn=Rotary(4, interleaved=False))
    yield "relative", Reader(bias=RelativeBias(2))
    yield "dense", Reader(bias=DenseBias(2, 3, 3))


@pytest.mark.parametrize("reader", [pytest.param(r, id=name) for name, r in ordered()])
def test_with_an_encoding_abc_is_not_cba(reader):
    assert difference(reader, [2, 1, 0]) > 1e-3


def test_alibi_knows_near_from_far_but_not_left_from_right():
    reader = Reader(bias=AlibiBias(2))
    # the mirror image keeps every distance
    assert difference(reader, [2, 1, 0]) < 1e-14
    assert difference(reader, [1, 0, 2]) > 1e-3
    # read from left to right it tells them apart
    assert difference(reader, [2, 1, 0], Causal()) > 1e-3
