"""A quick look ends in time, whatever the machine: what there is no time for is left out, and is said to be."""

import json
from types import SimpleNamespace

import pytest

from regard.compare import run
from regard.compare.comparison import Comparison
from regard.compare.kinds import KINDS, Dimensions
from regard.compare.measure import cost, digits, solve
from regard.compare.measure.budget import WHY, Budget
from regard.compare.measure.cost import PASSES, measure_cost
from regard.compare.measure.digits import measure_digits
from regard.compare.measure.learning import Recipe
from regard.compare.measure.puzzles import make_recall
from regard.compare.measure.solve import Course, measure_course
from regard.compare.report.page import write_page
from regard.compare.report.readings import write_readings
from regard.compare.report.table import list_tables
from regard.compare.settings import PARTS, QUICK_SECONDS, Settings

# over before anything is done: the first of a part is done all the same
HURRY = Settings(
    dims=Dimensions(width=8, heads=2, window=4), lengths=(8, 16, 32), batches=(1, 2), is_quick=True, seconds=1e-9
)
TINY = Course(make_recall(4), 12, (1, 2, 9), 3, Recipe(2, batch=2), width=8)


def ignore(share):
    pass


@pytest.mark.parametrize(
    ("seconds", "takes", "count"),
    [(10.0, [2.0] * 9, 5), (10.0, [4.0, 1.0, 1.0, 1.0, 1.0, 1.0], 4), (1.0, [50.0, 1.0], 1), (None, [50.0] * 4, 4)],
)
def test_another_is_begun_while_there_is_time_for_the_longest(seconds, takes, count):
    clock = SimpleNamespace(now=100.0)
    budget = Budget(seconds, lambda: clock.now)
    done = 0
    for one in takes:
        if budget.allows():
            clock.now, done = clock.now + one, done + 1
    assert done == count


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
    for module, count in ((solve, len(KINDS)), (cost, 2 * len(PASSES))):
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
    tables = {table.title: table.note for table in list_tables(found)}
    for text in (tables["Recall by distance"], write_readings(found)["recall"]):
        assert wanted in text
        assert some in text
        assert "without positions convolution" in text
    assert any("Left out, as the page lists: 66 of 72 timings." in note for note in tables.values())
    assert write_page(found).count(WHY) > len(made["skipped"])
    assert json.loads(found.to_json())["settings"]["seconds"] == 1e-9


def test_each_part_has_its_share_of_what_is_left(monkeypatch):
    clock, given = SimpleNamespace(now=0.0), {}

    def stand_in(part, takes):
        def measure(settings, advance, kinds):
            given[part] = settings.seconds
            clock.now += takes
            return {}

        return measure

    monkeypatch.setattr(run.time, "monotonic", lambda: clock.now)
    # steps take nothing of what they might, recall takes twice as long
    measures = {part: (stand_in(part, {"steps": 0.0, "recall": 30.0}.get(part, 1.0)), 1.0) for part in PARTS}
    monkeypatch.setattr(run, "MEASURES", measures)
    found = run.measure(Settings().quicken())
    assert found.settings["seconds"] == QUICK_SECONDS
    assert given["operations"] == pytest.approx(QUICK_SECONDS * 15 / 100)
    assert given["steps"] == pytest.approx((QUICK_SECONDS - 1) * 3 / 85)
    assert given["paths"] == pytest.approx((QUICK_SECONDS - 1) * 3 / 82)
    assert given["recall"] == pytest.approx((QUICK_SECONDS - 3) * 45 / 65)
    assert given["order"] == pytest.approx((QUICK_SECONDS - 33) * 8 / 20)
    # at leisure nobody is told to hurry
    run.measure(Settings())
    assert set(given.values()) == {None}
