"""The training loop, and what a short training learns of recall and order."""

import json
import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from regard.compare.kinds import KINDS, Dimensions, count_parameters
from regard.compare.measure import solve
from regard.compare.measure.learning import PATIENCE, Recipe, measure_accuracy, portion, seeded, train
from regard.compare.measure.puzzles import make_order, make_recall
from regard.compare.measure.solve import (
    ORDERS,
    RECALLS,
    Course,
    learn,
    list_dims,
    measure_course,
    measure_order,
    measure_recall,
)
from regard.compare.settings import Settings

SMALL = Dimensions(width=8, heads=2, window=4)
TINY = Course(make_recall(4), 10, (1, 2, 9), 3, Recipe(3, batch=4), width=8)


@pytest.fixture
def two_threads():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(threads)


def ignore(share):
    pass


def pick(*names):
    return {name: KINDS[name] for name in names}


def forget(made):
    """All but the seconds, which are never the same."""
    return {**made, "training": [{**entry, "seconds": 0} for entry in made["training"]]}


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


def test_progress_is_told_as_a_share_of_all():
    told = []
    measure_course(TINY, Settings(dims=SMALL), told.append, pick("conv", "attention"))
    assert told == sorted(told)
    assert told[-1] == 1
    # three kernels and attention, with positions and without
    assert len(told) == 8
    portion(told.append, 2, 4)(0.0)
    assert told[-1] == 0.5


def test_the_seed_decides_all_and_nothing_is_felt_outside():
    kinds = pick("rnn", "attention")
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    made = [forget(measure_course(TINY, Settings(dims=SMALL, seed=seed), ignore, kinds)) for seed in (0, 0, 1)]
    assert torch.rand(2).equal(expected)
    assert made[0] == made[1]
    assert [entry["loss"] for entry in made[0]["training"]] != [entry["loss"] for entry in made[2]["training"]]
    with seeded(3, "cpu"):
        one = torch.rand(2)
    torch.rand(1)
    with seeded(3, "cpu"):
        assert torch.rand(2).equal(one)


def test_one_thread_within_and_as_many_as_before_after_it(two_threads):
    with seeded(0, "cpu"):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 2
    with pytest.raises(ZeroDivisionError), seeded(0, "cpu"):
        raise ZeroDivisionError
    assert torch.get_num_threads() == 2


class Noisy(nn.Linear):
    """Works on each token by itself, draws a number each time, and says by how many threads."""

    seen: set[tuple[bool, int]]

    def forward(self, rows):
        self.seen.add((self.training, torch.get_num_threads()))
        return super().forward(rows) + 0 * torch.rand(1)


def make_pointwise(layer=nn.Linear):
    return replace(KINDS["rnn"], name="pointwise", build=lambda dims: layer(dims.width, dims.width))


def test_asking_is_by_one_thread_and_not_felt_outside_either(two_threads, monkeypatch):
    monkeypatch.setattr(Noisy, "seen", set(), raising=False)
    before = torch.get_rng_state()
    measure_course(TINY, Settings(dims=SMALL), ignore, {"noisy": make_pointwise(Noisy)})
    assert Noisy.seen == {(True, 1), (False, 1)}
    assert torch.get_num_threads() == 2
    assert torch.get_rng_state().equal(before)


def record_questions(monkeypatch, seed, *names):
    """Every question that is asked of each model in turn, by model."""
    asked = {}

    def watch(model, tokens, answers):
        asked.setdefault(model, []).append(tokens.tolist())
        return measure_accuracy(model, tokens, answers)

    monkeypatch.setattr(solve, "measure_accuracy", watch)
    measure_course(replace(TINY, recipe=Recipe(1)), Settings(dims=SMALL, seed=seed), ignore, pick(*names))
    return list(asked.values())


def test_all_are_asked_the_same_and_by_another_seed_something_else(monkeypatch):
    questions = record_questions(monkeypatch, 0, "rnn", "gru", "attention", "linear")
    assert len(questions) == 8
    assert all(own == questions[0] for own in questions)
    # once more, of another kind alone
    assert record_questions(monkeypatch, 0, "attention") == questions[:2]
    # torch keeps 32 bits of a seed: the greatest there are, and neighbours
    seeds = (1, 2, 2**16, 2**31, 2**32 - 2, 2**32 - 1)
    found = [questions[0], *(record_questions(monkeypatch, seed, "attention")[0] for seed in seeds)]
    for at, distance in enumerate(TINY.distances):
        assert len({str(own[at]) for own in found}) == len(found), distance


@pytest.mark.parametrize("found", [0, None])
def test_what_reaches_nothing_is_told_of_and_at_chance(found, monkeypatch):
    if found is None:
        monkeypatch.setattr(solve, "find_reach", lambda *args, **named: None)
    for puzzle in (make_recall(4), make_order(4)):
        course = replace(TINY, puzzle=puzzle, distances=(1, 2, 7))
        made = measure_course(course, Settings(dims=SMALL), ignore, {"pointwise": make_pointwise()})
        assert (made["reach"], made["edges"]) == ({"pointwise": 0}, [])
        assert [row["accuracy"] for row in made["rows"]] == 6 * [made["chance"]]
        assert len(made["training"]) == 2


def test_recall_and_order_are_plain_json_for_every_kind(monkeypatch):
    monkeypatch.setitem(RECALLS, True, TINY)
    monkeypatch.setitem(ORDERS, True, Course(make_order(4), 8, (1, 5), 2, Recipe(2, batch=2), width=8))
    settings = Settings(dims=SMALL, seed=4, is_quick=True)
    for measure, distances, count, chance in (
        (measure_recall, (1, 2, 9), 12, 1 / 4),
        (measure_order, (1, 5), 4, 1 / 2),
    ):
        made = measure(settings, ignore)
        assert json.loads(json.dumps(made, allow_nan=False)) == made
        found = [(row["kind"], row["has_position"], row["distance"]) for row in made["rows"]]
        assert found == [(kind, has, t) for kind in KINDS for has in (False, True) for t in distances]
        assert {(row["count"], row["seed"]) for row in made["rows"]} == {(count, 4)}
        assert all(0 <= row["accuracy"] <= 1 for row in made["rows"])
        assert made["chance"] == chance
        assert list(made["reach"]) == list(KINDS)
        assert (made["reach"]["conv"], made["reach"]["windowed"], made["reach"]["attention"]) == (2, 4, None)
        assert {(edge["kind"], edge["beyond"]) for edge in made["edges"]} == {("conv", chance), ("windowed", chance)}
        assert len(made["training"]) == 2 * len(KINDS)


def test_kernels_and_widths_are_those_of_the_settings():
    settings = Settings(dims=Dimensions(width=40, heads=5, kernel=9), widths=(40,), kernels=(3, 7))
    assert [(dims.kernel, dims.width) for dims in list_dims(KINDS["conv"], 32, settings)] == [(3, 35), (7, 35), (9, 35)]
    assert [dims.width for dims in list_dims(KINDS["gru"], 32, settings)] == [35]
    equal = Settings(has_equal_parameters=True)
    wanted = count_parameters(KINDS["attention"], Dimensions(width=32))
    for kind in KINDS.values():
        for dims in list_dims(kind, 32, equal):
            assert abs(count_parameters(kind, dims) / wanted - 1) < 0.2


def test_a_short_training_recalls_from_afar_by_attention_and_within_its_reach_by_convolution():
    course = Course(make_recall(4), 14, (1, 2, 3, 12), 16, Recipe(150, batch=16, rate=1e-2), width=16)
    made = measure_course(course, Settings(is_quick=True), ignore, pick("conv", "attention"))
    found = {(row["kind"], row["has_position"], row["distance"]): row["accuracy"] for row in made["rows"]}
    for has_position in (False, True):
        assert [found["attention", has_position, t] for t in course.distances] == [1, 1, 1, 1]
        assert [found["conv", has_position, t] for t in course.distances] == [1, 1, 0.25, 0.25]


def test_without_positions_attention_cannot_learn_the_order():
    course = Course(make_order(4), 8, (1, 5), 16, Recipe(100, batch=16, rate=1e-2), width=16)
    settings = Settings(is_quick=True)
    for has_position in (False, True):
        [dims] = list_dims(KINDS["attention"], course.width, settings)
        with seeded(0, "cpu") as generator:
            model, _ = learn(course, KINDS["attention"], dims, has_position, "cpu", generator, ignore)
        tokens, answers = course.puzzle.ask(16, course.length, 3, torch.Generator().manual_seed(0))
        forwards, backwards = model(tokens).detach().chunk(2)
        assert forwards.allclose(backwards, atol=1e-5) != has_position
        assert measure_accuracy(model, tokens, answers) == (1 if has_position else 0.5)
