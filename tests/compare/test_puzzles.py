"""Recall and order: data read again by who knows only what the puzzle says, and what a short training learns."""

import json
from dataclasses import replace

import pytest
import torch
from torch import nn

from regard.compare.comparison import measure
from regard.compare.kinds import KINDS, count_parameters, match_attention
from regard.compare.meters import puzzles
from regard.compare.meters.learning import Recipe, measure_accuracy, train
from regard.compare.meters.puzzles import Course, Puzzle, measure_course
from regard.compare.parts.puzzles import RECALLS
from regard.compare.settings import Dimensions, Settings
from tests.compare.sample import ignore

SMALL = Dimensions(width=8, heads=2, window=4)
RECALL, ORDER = Puzzle(4, torch.arange(4)[:, None]), Puzzle(4, torch.tensor([[2, 1, 0], [0, 1, 2]]))
TINY = dict.fromkeys((True, False), Course(RECALL, 10, (1, 2, 9), 3, Recipe(3, batch=4), width=8))


def read_recall(tokens, noise):
    """The marked value and its distance from the question, from a list of tokens."""
    assert tokens[-1] == 2 * noise
    [place] = [at for at, token in enumerate(tokens[:-1]) if token >= noise]
    return tokens[place] - noise, len(tokens) - 1 - place


def read_order(tokens, noise):
    assert tokens[-1] == noise + 3
    text = "".join("abc"[token - noise] if token >= noise else "." for token in tokens[:-1])
    answer = ["abc", "cba"].index(text.strip("."))
    return answer, len(text) - text.rindex("abc" if answer == 0 else "cba") - 2


PUZZLES = [
    pytest.param(Puzzle(5, torch.arange(5)[:, None]), read_recall, 5, id="recall"),
    pytest.param(ORDER, read_order, 4, id="order"),
]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(("puzzle", "read", "noise"), PUZZLES)
def test_it_says_what_the_answer_is_and_where(puzzle, read, noise):
    farthest = puzzle.find_farthest(11)
    distances = torch.arange(1, farthest + 1).repeat(len(puzzle.tellers))
    answers = torch.arange(len(puzzle.tellers)).repeat_interleave(farthest)
    tokens = puzzle.write(11, distances, answers, seeded())
    told = [read(row, noise) for row in tokens.tolist()]
    assert told == list(zip(answers.tolist(), distances.tolist(), strict=True))
    assert {token for row in tokens.tolist() for token in row} == set(range(puzzle.question + 1))


@pytest.mark.parametrize(("puzzle", "read", "noise"), PUZZLES)
def test_near_and_far_are_drawn_alike(puzzle, read, noise):
    length = 40
    tokens, answers = puzzle.draw(4000, length, seeded())
    told = [read(row, noise) for row in tokens.tolist()]
    assert [answer for answer, _ in told] == answers.tolist()
    distances = torch.tensor([distance for _, distance in told], dtype=torch.float64)
    farthest = puzzle.find_farthest(length)
    assert (distances.min(), distances.max()) == (1, farthest)
    # in the logarithm they are uniform: of 1 to 5 there are as many as log 6 is of log(farthest + 1)
    share = torch.tensor(6.0).log() / torch.tensor(farthest + 1.0).log()
    assert abs((distances <= 5).double().mean() - share) < 0.03
    assert (answers.bincount() > 0.9 * 4000 / len(puzzle.tellers)).all()


@pytest.mark.parametrize(("puzzle", "read", "noise"), PUZZLES)
def test_each_context_is_asked_with_every_answer(puzzle, read, noise):
    tokens, answers = puzzle.ask(6, 12, 7, seeded())
    assert [read(row, noise) for row in tokens.tolist()] == [(answer, 7) for answer in answers.tolist()]
    assert answers.bincount().tolist() == [6] * len(puzzle.tellers)
    hidden = tokens.masked_fill((tokens >= noise) & (tokens < puzzle.question), -1)
    assert hidden.unflatten(0, (len(puzzle.tellers), 6)).unique(dim=0).shape[0] == 1
    assert hidden.unique(dim=0).shape[0] == 6


@pytest.mark.parametrize(("puzzle", "read", "noise"), PUZZLES)
def test_the_same_generator_draws_the_same(puzzle, read, noise):
    one, same, other = (puzzle.draw(8, 12, seeded(seed))[0] for seed in (0, 0, 1))
    assert one.equal(same)
    assert not one.equal(other)


# --- what is learned of them ------------------------------------------------------------------------------------------


def pick(*names):
    return {name: KINDS[name] for name in names}


def forget(made):
    """All but the seconds, which are never the same."""
    return {**made, "training": [{**entry, "seconds": 0} for entry in made["training"]]}


def test_progress_is_told_as_a_share_of_all():
    told = []
    measure_course(TINY, Settings(dims=SMALL), told.append, pick("conv", "attention"))
    assert told == sorted(told)
    assert told[-1] == 1
    # three kernels and attention, with positions and without
    assert len(told) == 8


def test_the_seed_decides_all_and_nothing_is_felt_outside():
    kinds = pick("rnn", "attention")
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    made = [forget(measure_course(TINY, Settings(dims=SMALL, seed=seed), ignore, kinds)) for seed in (0, 0, 1)]
    assert torch.rand(2).equal(expected)
    assert made[0] == made[1]
    assert [entry["loss"] for entry in made[0]["training"]] != [entry["loss"] for entry in made[2]["training"]]


class Noisy(nn.Linear):
    """Works on each token by itself, draws a number each time, and says by how many threads."""

    seen: set[tuple[bool, int]]

    def forward(self, rows):
        self.seen.add((self.training, torch.get_num_threads()))
        return super().forward(rows) + 0 * torch.rand(1)


def make_pointwise(layer=nn.Linear):
    return {"pointwise": replace(KINDS["rnn"], name="pointwise", build=lambda dims: layer(dims.width, dims.width))}


def test_all_is_by_one_thread_and_not_felt_outside(monkeypatch):
    monkeypatch.setattr(Noisy, "seen", set(), raising=False)
    monkeypatch.setitem(RECALLS, True, TINY[True])
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        measure(Settings(dims=SMALL, is_quick=True, parts=("recall",)), make_pointwise(Noisy))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert Noisy.seen == {(True, 1), (False, 1)}
    assert torch.get_rng_state().equal(before)


def record_questions(monkeypatch, seed, *names):
    """Every question that is asked of each model in turn, by model."""
    asked = {}

    def watch(model, tokens, answers):
        asked.setdefault(model, []).append(tokens.tolist())
        return measure_accuracy(model, tokens, answers)

    monkeypatch.setattr(puzzles, "measure_accuracy", watch)
    measure_course(
        {False: replace(TINY[False], recipe=Recipe(1))}, Settings(dims=SMALL, seed=seed), ignore, pick(*names)
    )
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
    for at, distance in enumerate(TINY[False].distances):
        assert len({str(own[at]) for own in found}) == len(found), distance


@pytest.mark.parametrize("found", [0, None])
def test_what_reaches_nothing_is_told_of_and_at_chance(found, monkeypatch):
    if found is None:
        monkeypatch.setattr(puzzles, "find_reach", lambda *args, **named: None)
    for puzzle in (RECALL, ORDER):
        course = replace(TINY[False], puzzle=puzzle, distances=(1, 2, 7))
        made = measure_course({False: course}, Settings(dims=SMALL), ignore, make_pointwise())
        assert (made["reach"], made["edges"]) == ({"pointwise": 0}, [])
        assert [row["accuracy"] for row in made["rows"]] == 6 * [made["chance"]]
        assert len(made["training"]) == 2


def test_recall_and_order_are_plain_json_for_every_kind():
    order = {True: Course(ORDER, 8, (1, 5), 2, Recipe(2, batch=2), width=8)}
    settings = Settings(dims=SMALL, seed=4, is_quick=True)
    for courses, distances, count, chance in ((TINY, (1, 2, 9), 12, 1 / 4), (order, (1, 5), 4, 1 / 2)):
        made = measure_course(courses, settings, ignore)
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
    seen = []

    def build(dims):
        seen.append((dims.kernel, dims.width))
        return KINDS["conv"].build(dims)

    # the next width that heads share evenly
    settings = Settings(dims=Dimensions(width=40, heads=5, kernel=9), widths=(40,), kernels=(3, 7))
    course = replace(TINY[False], width=32, depth=1, recipe=Recipe(1))
    measure_course({False: course}, settings, ignore, {"conv": replace(KINDS["conv"], build=build)})
    assert seen == 2 * [(3, 35), (7, 35), (9, 35)]
    wanted = count_parameters(KINDS["attention"], Dimensions(width=32))
    for kind in KINDS.values():
        dims = match_attention(kind, Dimensions(width=32), Settings(has_equal_parameters=True))
        assert abs(count_parameters(kind, dims) / wanted - 1) < 0.2


def test_a_short_training_recalls_from_afar_by_attention_and_within_its_reach_by_convolution():
    course = Course(RECALL, 14, (1, 2, 3, 12), 16, Recipe(150, batch=16, rate=1e-2), width=16)
    made = measure_course({True: course}, Settings(is_quick=True), ignore, pick("conv", "attention"))
    found = {(row["kind"], row["has_position"], row["distance"]): row["accuracy"] for row in made["rows"]}
    for has_position in (False, True):
        assert [found["attention", has_position, t] for t in course.distances] == [1, 1, 1, 1]
        assert [found["conv", has_position, t] for t in course.distances] == [1, 1, 0.25, 0.25]


@pytest.mark.parametrize("has_position", [False, True])
def test_without_positions_attention_cannot_learn_the_order(has_position):
    course = Course(ORDER, 8, (1, 5), 16, Recipe(100, batch=16, rate=1e-2))
    torch.manual_seed(0)
    model, generator = course.make_reader(KINDS["attention"], Dimensions(width=16), has_position), seeded()
    train(model, lambda: ORDER.draw(16, 8, generator), course.recipe, ignore)
    tokens, answers = ORDER.ask(16, 8, 3, seeded())
    forwards, backwards = model.eval()(tokens).detach().chunk(2)
    assert forwards.allclose(backwards, atol=1e-5) != has_position
    assert measure_accuracy(model, tokens, answers) == (1 if has_position else 0.5)
