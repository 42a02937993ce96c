"""The model around the layers and its training: what it can and cannot see, before and after it has learned."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from regard.compare.kinds import KINDS
from regard.compare.meters.learning import PATIENCE, Recipe, measure_accuracy, run_trials, train
from regard.compare.meters.puzzles import Course, Puzzle
from regard.compare.meters.sight import find_reach
from regard.compare.settings import Dimensions, Settings
from tests.compare.sample import ignore

LENGTH, TOKENS = 15, 7
# three symbols of noise and as many that tell, with the question seven tokens
PUZZLE = Puzzle(3, torch.arange(3)[:, None])


def test_a_step_is_that_of_adamw_with_a_clipped_gradient():
    torch.manual_seed(0)
    inputs, answers = 50 * torch.randn(6, 3), torch.arange(6) % 2
    model, other = nn.Linear(3, 2), nn.Linear(3, 2)
    other.load_state_dict(model.state_dict())
    told = train(model, lambda: (inputs, answers), Recipe(steps=1, rate=0.1), ignore)
    optimizer = torch.optim.AdamW(other.parameters(), lr=0.1, weight_decay=0.01)
    loss = functional.cross_entropy(other(inputs), answers)
    loss.backward()
    norm = math.sqrt(sum(float((weight.grad**2).sum()) for weight in other.parameters()))
    assert norm > 1
    for weight in other.parameters():
        weight.grad /= norm
    optimizer.step()
    for weight, expected in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(weight, expected)
        # the first step of Adam is the same for gradients of any length: so these are compared too
        torch.testing.assert_close(weight.grad, expected.grad)
    assert told["loss"] == pytest.approx(loss.item())


def test_the_rate_rises_falls_and_moves_what_is_learned(monkeypatch):
    rates = []
    step = torch.optim.AdamW.step

    def watch(self, *args):
        rates.append(self.param_groups[0]["lr"])
        return step(self, *args)

    monkeypatch.setattr(torch.optim.AdamW, "step", watch)
    examples = torch.eye(2), torch.tensor([0, 1])
    train(nn.Linear(2, 2), lambda: examples, Recipe(steps=20, rate=0.5), ignore)
    assert rates == pytest.approx([0.25, 0.5] + [0.5 * left / 19 for left in range(18, 0, -1)])


def test_it_ends_where_there_is_nothing_left_to_learn():
    model = nn.Linear(2, 2)
    with torch.no_grad():
        model.weight.copy_(100 * torch.eye(2))
    told = train(model, lambda: (torch.eye(2), torch.arange(2)), Recipe(steps=1000), ignore)
    assert told["steps"] == PATIENCE


def test_accuracy_is_the_share_of_right_answers():
    # more than are looked at at once, the last of them wrong
    answers = torch.arange(300) % 3
    guesses = torch.where(torch.arange(300) < 240, answers, (answers + 1) % 3)
    assert measure_accuracy(nn.Identity(), functional.one_hot(guesses, 3).float(), answers) == 0.8


def test_trials_have_a_seed_each_and_nothing_is_felt_outside():
    trials = [{"kind": "b", "seed": 3}, {"kind": "a", "seed": 3}, {"kind": "a", "seed": 4}]
    told = []

    def learn(trial, generator, advance):
        advance(0.5)
        return {"rows": [{**trial, "drawn": [float(torch.rand(1)), float(torch.rand(1, generator=generator))]}]}

    before = torch.get_rng_state()
    found = run_trials(trials, learn, Settings(), told.append, ["a", "b"])
    assert torch.get_rng_state().equal(before)
    one, other, same = found["rows"]
    assert (one["kind"], other["kind"], same["kind"]) == ("a", "a", "b")
    assert one["drawn"] == same["drawn"] != other["drawn"]
    assert told == pytest.approx([0.5 / 3, 1.5 / 3, 2.5 / 3])


# --- the model --------------------------------------------------------------------------------------------------------


def make(kind, *, has_position=False, **sizes):
    torch.manual_seed(0)
    dims = Dimensions(**{"width": 8, "heads": 2, "window": 4, **sizes})
    return Course(PUZZLE, LENGTH, (), 0, Recipe(0)).make_reader(KINDS[kind], dims, has_position).eval()


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
