"""A reading is made of the numbers: change one, and it says something else."""

import pytest

from regard.compare.report.readings import write_readings
from regard.compare.settings import PARTS
from tests.compare.sample import make_sample


def read(comparison, part):
    return write_readings(comparison)[part]


def change(comparison, part, listed, new, **wanted):
    rows = [row for row in comparison.parts[part][listed] if all(row[key] == value for key, value in wanted.items())]
    assert rows
    for row in rows:
        row.update(new)


def test_there_is_one_for_each_part():
    assert list(write_readings(make_sample())) == ["textbook", *PARTS]
    assert list(write_readings(make_sample("paths", "order"))) == ["textbook", "paths", "order"]
    assert list(write_readings(make_sample("order"))) == ["order"]


def test_which_row_is_whose():
    made = make_sample()
    text = read(made, "textbook")
    assert (
        "those of convolution (k^1.00) and the chain of steps that grows with n is that of plain RNN and GRU." in text
    )
    assert "Operations, sequential steps and longest paths are counted, and the same on every machine." in text
    # as the notes have it that mix the rows up
    change(made, "steps", "fits", {"order": "n"}, kind="conv")
    change(made, "steps", "fits", {"order": "1"}, kind="rnn")
    assert "that grows with n is that of convolution and GRU." in read(made, "textbook")


def test_what_was_not_measured_is_not_spoken_of():
    text = read(make_sample("cost", "digits"), "textbook")
    assert "swap" not in text
    assert "on every machine" not in text
    assert "What is learned (digits) depends on the seed" in text
    text = read(make_sample("steps"), "textbook")
    assert "Sequential steps are counted, and the same on every machine." in text
    assert "Seconds" not in text


def test_exponents_are_held_against_the_textbooks():
    made = make_sample()
    assert "All 13 exponents are within 0.02 of the textbooks'." in read(made, "operations")
    assert "63 of 63 counts are exactly the formula's." in read(made, "operations")
    change(made, "operations", "fits", {"exponents": {"n": 1.4, "d": 2.0}}, kind="rnn", of="mixing")
    change(made, "operations", "rows", {"mixing": 1}, kind="gru", n=64, d=32)
    text = read(made, "operations")
    assert "Of 13 exponents 1 differ from the textbooks' by more than 0.02: of n in plain RNN (1.40, not 1)." in text
    assert "62 of 63 counts" in text


def test_projections_move_where_layers_cross():
    made = make_sample()
    text = read(made, "operations")
    assert "2,097,152 more operations at n = 64, d = 64 (8·n·d²), 66.7 % of the layer." in text
    assert "it meets convolution at n = 96, whole layers never: it is always dearer." in text
    # without projections whole layers cross where the products do
    for row in made.parts["operations"]["rows"]:
        row["operations"] = row["mixing"]
    assert "it meets plain RNN at n = 64, whole layers at n = 64." in read(made, "operations")


def test_steps_that_are_not_exact_or_not_as_they_should():
    made = make_sample()
    assert "Each is exact for all that was traced (72 graphs)." in read(made, "steps")
    assert "Each is of the order that the textbooks say" in read(made, "steps")
    change(made, "steps", "fits", {"is_exact": False, "order": "n^1.10"}, kind="linear")
    text = read(made, "steps")
    assert "For linear attention this is a fit, not exact." in text
    assert "not what the textbooks say of linear attention O(n^1.10), not O(1)." in text


def test_a_path_that_is_not_the_formulas():
    made = make_sample()
    assert "72 of 72 lengths are exactly the formula's." in read(made, "paths")
    assert "At n = 256 and k = 3: 255 for convolution, 256 for plain RNN" in read(made, "paths")
    change(made, "paths", "rows", {"length": 9}, kind="conv", n=256, d=64, k=5)
    assert "71 of 72" in read(made, "paths")
    assert "convolution at n = 256, k = 5 is not: 9, not 128." in read(made, "paths")


def test_the_quickest_and_what_it_crosses():
    made = make_sample()
    text = read(made, "cost")
    assert "At n = 1,024 the quickest is convolution (3.78 ms)" in text
    assert (
        "By the textbooks' formulas, which have no constant factors, self-attention is cheaper than convolution up to"
        " n ≈ 96" in text
    )
    assert (
        "By the clock, self-attention is cheaper than convolution at no length and than plain RNN up to n ≈ 2,850"
        in text
    )
    change(made, "cost", "rows", {"seconds": 1e-6}, kind="gru", n=1024)
    change(made, "cost", "crossings", {"spans": [[None, None]]}, other="conv", of="seconds")
    change(made, "cost", "crossings", {"spans": [[9.0, 99.0], [500.0, None]]}, other="rnn", of="seconds")
    assert "At n = 1,024 the quickest is GRU (1 µs)" in read(made, "cost")
    assert "than convolution at every length" in read(made, "cost")
    assert "than plain RNN from n ≈ 9 to 99 and from n ≈ 500 on" in read(made, "cost")


def keep_lengths(comparison, *lengths):
    cost = comparison.parts["cost"]
    cost["rows"] = [row for row in cost["rows"] if row["n"] in lengths]


def test_of_a_few_lengths_no_others_are_spoken_of():
    made = make_sample()
    keep_lengths(made, 32, 64)
    text = read(made, "cost")
    # the spans of the sample are wider
    assert (
        "By the clock, self-attention is cheaper than convolution not at n = 32 and not at n = 64 and than plain RNN at"
        " n = 32 and at n = 64. Those are too few lengths to say anything of others." in text
    )
    assert "convolution up to n ≈ 96" in text
    keep_lengths(made, 32)
    assert "than plain RNN at n = 32. Those" in read(made, "cost")
    made = make_sample()
    keep_lengths(made, 32, 64, 128)
    assert "too few" not in read(made, "cost")


def test_a_time_that_may_be_of_what_else_ran_is_marked():
    made = make_sample()
    change(made, "cost", "rows", {"fastest": 1e-3}, kind="gru")
    assert "uncertain" not in read(make_sample(), "cost")
    text = read(made, "cost")
    assert "the slowest GRU (84.8 ms ?)" in text
    assert "timings are uncertain (?): half of the rounds took twice as long as the fastest." in text
    assert "convolution (3.78 ms)" in text


def test_what_is_too_long_for_some_is_no_race():
    made = make_sample()
    rows = made.parts["cost"]["rows"]
    made.parts["cost"]["rows"] = [row for row in rows if row["n"] < 1024 or row["kind"] == "gru"]
    text = read(made, "cost")
    assert "At n = 512 the quickest is convolution" in text
    assert "At n = 512 training keeps, between operators," in text


def test_growth_that_is_uncertain_is_not_judged():
    made = make_sample()
    assert "more slowly than its operations in self-attention" in read(made, "cost")
    change(made, "cost", "fits", {"interval": [-3.0, 5.0]}, kind="attention", of="seconds")
    text = read(made, "cost")
    assert "uncertain by more than 0.25 for self-attention." in text
    assert "more slowly" not in text


@pytest.mark.parametrize(("power", "said"), [(1.02, "no n × n weights are kept"), (1.97, ": n × n weights are kept")])
def test_memory_of_attention(power, said):
    made = make_sample()
    change(made, "cost", "fits", {"exponent": power}, kind="attention", of="bytes")
    assert said in read(made, "cost")


def test_recall_within_reach_and_beyond():
    made = make_sample()
    text = read(made, "recall")
    assert "Convolution reaches 12: 100.0 % within it and 12.7 % beyond it, at chance." in text
    assert "Plain RNN recalls 13.3 % at distance 100, down from 95.9 % at 1." in text
    assert "Self-attention recalls 100.0 % at distance 100, as at 1 (100.0 %)." in text
    change(made, "recall", "rows", {"accuracy": 0.3}, kind="conv", distance=100)
    change(made, "recall", "rows", {"accuracy": 0.6}, kind="attention", distance=100)
    assert "17.0 % beyond it, not at chance." in read(made, "recall")
    assert "Self-attention recalls 60.0 % at distance 100, down from 100.0 % at 1." in read(made, "recall")


@pytest.mark.parametrize("part", ["recall", "order"])
def test_the_edge_of_what_is_reached(part):
    made = make_sample()
    assert "Of 6 models that do not reach all, 6 are right at the last distance" in read(made, part)
    change(made, part, "edges", {"beyond": 0.9}, k=5, has_position=False)
    text = read(made, part)
    assert "Of 6 models that do not reach all, 5 are right" in text
    assert "; convolution, k = 5, no position, does not (98.0 %, then 90.0 %)." in text


def test_order_with_positions_and_without():
    made = make_sample()
    text = read(made, "order")
    assert "above 75.0 % it is learned" in text
    assert "Only with positions by self-attention (100.0 % with, 50.2 % without)." in text
    change(made, "order", "rows", {"accuracy": 0.9}, kind="attention", has_position=False)
    change(made, "order", "rows", {"accuracy": 0.5}, kind="gru")
    text = read(made, "order")
    assert "Only with positions" not in text
    assert "Not learned here by GRU (50.0 % with, 50.0 % without)." in text


@pytest.mark.parametrize(
    ("share", "placed", "said"),
    [
        (1.0, True, "With positions it is learned by self-attention (100.0 % with); without was not measured."),
        (1.0, False, "Without positions it is learned by self-attention (100.0 % without); with was not measured."),
        (0.5, True, "With positions it is not learned by self-attention (50.0 % with); without was not measured."),
        (0.5, False, "Without positions it is not learned by self-attention (50.0 % without); with was not measured."),
    ],
)
def test_order_of_which_one_half_was_left_out(share, placed, said):
    made = make_sample("order")
    rows = made.parts["order"]["rows"]
    made.parts["order"]["rows"] = [
        {**row, "accuracy": share} for row in rows if (row["kind"], row["has_position"]) == ("attention", placed)
    ]
    text = read(made, "order")
    assert said in text
    assert "Only" not in text


def test_order_without_positions_alone_and_of_what_reaches_nothing():
    made = make_sample("order")
    change(made, "order", "rows", {"accuracy": 0.5}, kind="gru", has_position=True)
    made.parts["order"]["reach"]["conv"] = 0
    text = read(made, "order")
    assert "Only without positions by GRU (50.0 % with, 100.0 % without)." in text
    assert "Nothing that it reaches was asked of convolution." in text


def test_digits_and_who_is_ahead():
    made = make_sample()
    text = read(made, "digits")
    assert (
        "From 50 images convolution gets 70.5 %, self-attention 55.5 %: 15.0 points apart, more than what seeds" in text
    )
    change(made, "digits", "rows", {"accuracy": 0.96}, kind="attention", images=1500)
    text = read(made, "digits")
    assert "From 1,500 images self-attention gets 96.0 %" in text
    assert "within what seeds and counting may do" in text
    assert "With more images, self-attention overtakes." in text


@pytest.mark.parametrize("name", PARTS)
def test_a_part_without_rows_is_read(name):
    made = make_sample(name)
    for listed in ("rows", "fits", "crossings", "maps", "edges"):
        if listed in made.parts[name]:
            made.parts[name][listed] = []
    assert read(made, name)
