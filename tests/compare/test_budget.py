"""A quick look ends in time, whatever the machine: what there is no time for is left out, and is said to be."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from regard.compare import comparison
from regard.compare.comparison import Comparison, measure
from regard.compare.kinds import KINDS
from regard.compare.meters import cost, learning
from regard.compare.meters.cost import PASSES, measure_cost
from regard.compare.meters.learning import Recipe
from regard.compare.meters.puzzles import Course, Puzzle, measure_course
from regard.compare.meters.spending import WHY
from regard.compare.part import find_part
from regard.compare.parts import digits
from regard.compare.parts.digits import measure_digits
from regard.compare.settings import QUICK_SECONDS, Dimensions, Settings
from regard.compare.tables import list_tables
from tests.compare.sample import draw_page, ignore, read_part

# over before anything is done: the first of a part is done all the same
HURRY = Settings(
    dims=Dimensions(width=8, heads=2, window=4), lengths=(8, 16, 32), batches=(1, 2), is_quick=True, seconds=1e-9
)
RECALL = Puzzle(4, torch.arange(4)[:, None])
TINY = dict.fromkeys((True, False), Course(RECALL, 12, (1, 2, 9), 3, Recipe(2, batch=2), width=8))


def test_time_is_measured_at_the_shortest_first_and_the_rest_is_listed():
    made = measure_cost(HURRY, ignore)
    assert {(row["n"], row["batch"], row["pass"]) for row in made["rows"]} == {(8, 1, "forward")}
    left = {(row["kind"], row["n"], row["batch"], row["pass"]) for row in made["skipped"]}
    everything = {
        (kind, n, batch, which) for kind in KINDS for n in (8, 16, 32) for batch in (1, 2) for which in PASSES
    }
    assert left == everything - {(kind, 8, 1, "forward") for kind in KINDS}
    assert {row["why"] for row in made["skipped"]} == {WHY}


def test_attention_learns_first_and_no_training_is_cut_short():
    made = measure_course(TINY, HURRY, ignore)
    assert {(row["kind"], row["has_position"]) for row in made["rows"]} == {("attention", True)}
    assert [row["steps"] for row in made["training"]] == [2]
    assert len(made["skipped"]) == 2 * len(KINDS) - 1
    assert {row["why"] for row in made["skipped"]} == {WHY}
    whole = measure_course(TINY, Settings(dims=HURRY.dims, is_quick=True), ignore)
    # what was done in a hurry is what would have been done at leisure
    assert [row for row in whole["rows"] if (row["kind"], row["has_position"]) == ("attention", True)] == made["rows"]
    assert whole["skipped"] == []


def test_every_kind_has_its_turn_before_any_has_another(monkeypatch):
    for module, count in ((learning, len(KINDS)), (cost, 2 * len(PASSES))):
        turns = iter([True] * count)
        budget = SimpleNamespace(allows=lambda turns=turns: next(turns, False))
        monkeypatch.setattr(module, "Budget", lambda seconds, budget=budget: budget)
    learned = measure_course(TINY, HURRY, ignore)
    assert {(row["kind"], row["has_position"]) for row in learned["rows"]} == {(kind, True) for kind in KINDS}
    timed = measure_cost(HURRY, ignore)
    assert {(row["kind"], row["n"]) for row in timed["rows"]} == {(kind, 8) for kind in KINDS}


def test_digits_are_learned_by_all_kinds_or_none(monkeypatch):
    monkeypatch.setitem(digits.COURSES, True, digits.Course((50, 100), 1, Recipe(2), width=8, depth=1))
    made = measure_digits(HURRY, ignore)
    assert [(row["kind"], row["images"]) for row in made["rows"]] == [("conv", 50), ("attention", 50)]
    assert [(row["kind"], row["images"]) for row in made["skipped"]] == [("conv", 100), ("attention", 100)]


def test_what_is_left_out_is_told_in_every_place():
    made = measure_course(TINY, HURRY, ignore)
    found = Comparison(HURRY.to_dict(), {}, {"recall": made, "cost": measure_cost(HURRY, ignore)})
    others = ", ".join(KINDS[kind].label for kind in KINDS if kind not in ("attention", "linear"))
    wanted = f"Left out ({WHY}): "
    some = f"with positions {others} and linear attention"
    tables = list_tables(found.parts, found.settings)
    for text in (tables["recall"][0].note, read_part(found, "recall")):
        assert wanted in text
        assert some in text
        assert "without positions convolution" in text
    assert "Left out, as the page lists: 66 of 72 timings." in tables["cost"][0].note
    assert draw_page(found).count(WHY) > len(made["skipped"])
    assert json.loads(found.to_json())["settings"]["seconds"] == 1e-9


def test_each_part_has_its_share_of_what_is_left(monkeypatch):
    clock, given = SimpleNamespace(now=0.0), {}

    def stand_in(part, takes):
        def measure(settings, advance, kinds):
            given[part] = settings.seconds
            clock.now += takes
            return {}

        return measure

    def find(name):
        # steps take nothing of what they might, recall takes twice as long
        takes = {"steps": 0.0, "recall": 30.0}.get(name, 1.0)
        return replace(find_part(name), measure=stand_in(name, takes))

    monkeypatch.setattr(comparison.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(comparison, "find_part", find)
    found = measure(Settings().quicken())
    assert found.settings["seconds"] == QUICK_SECONDS
    assert given["operations"] == pytest.approx(QUICK_SECONDS * 15 / 100)
    assert given["steps"] == pytest.approx((QUICK_SECONDS - 1) * 3 / 85)
    assert given["paths"] == pytest.approx((QUICK_SECONDS - 1) * 3 / 82)
    assert given["recall"] == pytest.approx((QUICK_SECONDS - 3) * 45 / 65)
    assert given["order"] == pytest.approx((QUICK_SECONDS - 33) * 8 / 20)
    # at leisure nobody is told to hurry
    measure(Settings())
    assert set(given.values()) == {None}
