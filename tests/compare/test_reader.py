"""The model around the layers: what it can and what it cannot see, before it has learned anything."""

import pytest
import torch

from regard.compare.kinds import KINDS, Dimensions
from regard.compare.measure.paths import find_reach
from regard.compare.measure.reader import Reader

LENGTH, TOKENS = 15, 7


def make(kind, *, has_position=False, **sizes):
    torch.manual_seed(0)
    dims = Dimensions(**{"width": 8, "heads": 2, "window": 4, **sizes})
    return Reader(KINDS[kind], dims, 2, TOKENS, 3, has_position).eval()


def draw(count=4):
    return torch.randint(TOKENS, (count, LENGTH), generator=torch.Generator().manual_seed(1))


@torch.no_grad()
@pytest.mark.parametrize("has_position", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_without_positions_attention_answers_whatever_the_order(kind, has_position):
    model, tokens = make(kind, has_position=has_position), draw()
    moved = torch.cat([tokens[:, :-1].flip(1), tokens[:, -1:]], 1)
    is_blind = kind in ("attention", "linear") and not has_position
    assert model(moved).allclose(model(tokens), atol=1e-6) == is_blind


@torch.no_grad()
@pytest.mark.parametrize("has_position", [False, True])
@pytest.mark.parametrize(
    ("kind", "sizes", "reach"),
    [("conv", {"kernel": 3}, 2), ("conv", {"kernel": 5}, 4), ("conv", {"kernel": 7}, 6), ("windowed", {}, 4)],
)
def test_beyond_its_reach_not_a_bit_of_the_answer_changes(kind, sizes, reach, has_position):
    model, tokens = make(kind, has_position=has_position, **sizes), draw()
    for distance in range(1, LENGTH):
        other = tokens.clone()
        other[:, -1 - distance] = (other[:, -1 - distance] + 1) % TOKENS
        assert model(other).equal(model(tokens)) == (distance > reach), distance
    assert find_reach(model.read, LENGTH, 8, dtype=torch.float32) == reach


@torch.no_grad()
@pytest.mark.parametrize("kind", ["rnn", "gru", "attention", "linear"])
def test_the_others_see_all(kind):
    model, tokens = make(kind), draw()
    other = tokens.clone()
    other[:, 0] = (other[:, 0] + 1) % TOKENS
    assert not model(other).equal(model(tokens))
    assert find_reach(model.read, LENGTH, 8, dtype=torch.float32) == LENGTH - 1


@torch.no_grad()
def test_it_is_embedding_position_blocks_and_the_head_at_the_last():
    model, tokens = make("conv", has_position=True), draw()
    rows = model.embedding.weight[tokens] + model.position.P[:, :LENGTH]
    for block in model.blocks:
        rows = block.mixed.ln(rows + block.mixer(rows))
        hidden = torch.relu(rows @ block.network.dense1.weight.T + block.network.dense1.bias)
        rows = block.worked.ln(rows + hidden @ block.network.dense2.weight.T + block.network.dense2.bias)
    expected = rows[:, -1] @ model.head.weight.T + model.head.bias
    torch.testing.assert_close(model(tokens), expected)


def test_models_differ_in_the_layer_alone():
    shapes = [
        {name: weight.shape for name, weight in make(kind).named_parameters() if "mixer" not in name} for kind in KINDS
    ]
    assert all(shape == shapes[0] for shape in shapes)
