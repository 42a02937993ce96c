"""A reading is made of the numbers: change one, and it says something else."""

import pytest

from regard.compare.registry import PARTS
from tests.compare.sample import make_sample, pick, read_part

BOOKS = "formulas, which have no constant factors, self-attention is cheaper than convolution up to n ≈ 96"
SAID = {
    "textbook": (
        "those of convolution (k^1.00) and the chain of steps that grows with n is that of plain RNN and GRU.",
        "Operations, sequential steps and longest paths are counted, and the same on every machine.",
    ),
    "operations": (
        "All 13 exponents are within 0.02 of the textbooks'.",
        "63 of 63 counts are exactly the formula's.",
        "2,097,152 more operations at n = 64, d = 64 (8·n·d²), 66.7 % of the layer.",
        "it meets convolution at n = 96, whole layers never: it is always dearer.",
    ),
    "steps": (
        "Each is exact for all that was traced (72 graphs).",
        "Each is of the order that the textbooks say",
    ),
    "paths": (
        "72 of 72 lengths are exactly the formula's.",
        "At n = 256 and k = 3: 255 for convolution, 256 for plain RNN",
    ),
    "cost": (
        "At n = 1,024 the quickest is convolution (3.78 ms)",
        BOOKS,
        "By the clock, self-attention is cheaper than convolution at no length and than plain RNN up to n ≈ 2,850",
        "more slowly than its operations in self-attention",
        "memory grows as n^1.00: no n × n weights are kept",
    ),
    "recall": (
        "Convolution reaches 12: 100.0 % within it and 12.7 % beyond it, at chance.",
        "Plain RNN recalls 13.3 % at distance 100, down from 95.9 % at 1.",
        "Self-attention recalls 100.0 % at distance 100, as at 1 (100.0 %).",
        "Of 6 models that do not reach all, 6 are right at the last distance",
    ),
    "order": (
        "above 75.0 % it is learned",
        "Only with positions by self-attention (100.0 % with, 50.2 % without).",
        "Of 6 models that do not reach all, 6 are right at the last distance",
    ),
    "digits": (
        "From 50 images convolution gets 70.5 %, self-attention 55.5 %: 15.0 points apart, more than what seeds",
    ),
}  # fmt: skip
# a part, what is put into which entries of a list of it, and what it says then
EDGE = "; convolution, k = 5, no position, does not (98.0 %, then 90.0 %)."
OF_NEW = [
    ("operations", "rows", {"mixing": 1}, {"kind": "gru", "n": 64, "d": 32}, "62 of 63 counts"),
    ("operations", "fits", {"exponents": {"n": 1.4, "d": 2.0}}, {"kind": "rnn", "of": "mixing"},
     "Of 13 exponents 1 differ from the textbooks' by more than 0.02: of n in plain RNN (1.40, not 1)."),
    ("steps", "fits", {"is_exact": False}, {"kind": "linear"}, "For linear attention this is a fit, not exact."),
    ("steps", "fits", {"order": "n^1.10"}, {"kind": "linear"},
     "not what the textbooks say of linear attention O(n^1.10), not O(1)."),
    ("paths", "rows", {"length": 9}, {"kind": "conv", "n": 256, "d": 64, "k": 5},
     "71 of 72 lengths are exactly the formula's; convolution at n = 256, k = 5 is not: 9, not 128."),
    ("cost", "rows", {"seconds": 1e-6}, {"kind": "gru", "n": 1024}, "At n = 1,024 the quickest is GRU (1 µs)"),
    ("cost", "rows", {"fastest": 1e-3}, {"kind": "gru"}, "the slowest GRU (84.8 ms ?)"),
    ("cost", "rows", {"fastest": 1e-3}, {"kind": "gru"},
     "timings are uncertain (?): half of the rounds took twice as long as the fastest."),
    ("cost", "crossings", {"spans": [[None, None]]}, {"other": "conv", "of": "seconds"},
     "than convolution at every length"),
    ("cost", "crossings", {"spans": [[9.0, 99.0], [500.0, None]]}, {"other": "rnn", "of": "seconds"},
     "than plain RNN from n ≈ 9 to 99 and from n ≈ 500 on"),
    ("cost", "fits", {"interval": [-3.0, 5.0]}, {"kind": "attention", "of": "seconds"},
     "uncertain by more than 0.25 for self-attention."),
    ("cost", "fits", {"exponent": 1.97}, {"kind": "attention", "of": "bytes"}, "n^1.97: n × n weights are kept"),
    ("recall", "rows", {"accuracy": 0.3}, {"kind": "conv", "distance": 100}, "17.0 % beyond it, not at chance."),
    ("recall", "rows", {"accuracy": 0.6}, {"kind": "attention", "distance": 100},
     "Self-attention recalls 60.0 % at distance 100, down from 100.0 % at 1."),
    ("recall", "edges", {"beyond": 0.9}, {"k": 5, "has_position": False}, EDGE),
    ("order", "edges", {"beyond": 0.9}, {"k": 5, "has_position": False}, EDGE),
    ("order", "rows", {"accuracy": 0.5}, {"kind": "gru"}, "Not learned here by GRU (50.0 % with, 50.0 % without)."),
    ("order", "rows", {"accuracy": 0.5}, {"kind": "gru", "has_position": True},
     "Only without positions by GRU (50.0 % with, 100.0 % without)."),
    ("digits", "rows", {"accuracy": 0.96}, {"kind": "attention", "images": 1500},
     "From 1,500 images self-attention gets 96.0 %"),
    ("digits", "rows", {"accuracy": 0.96}, {"kind": "attention", "images": 1500},
     "With more images, self-attention overtakes."),
    ("digits", "rows", {"accuracy": 0.96}, {"kind": "attention", "images": 1500},
     "points apart, within what seeds and counting may do"),
]  # fmt: skip


def change(comparison, part, listed, new, wanted):
    rows = pick(comparison.parts[part][listed], **wanted)
    assert rows
    for row in rows:
        row.update(new)


@pytest.mark.parametrize("part", SAID)
def test_what_is_said_of_the_sample(part):
    text = read_part(make_sample(), part)
    for said in SAID[part]:
        assert said in text


@pytest.mark.parametrize(("part", "listed", "new", "wanted", "said"), OF_NEW)
def test_of_other_numbers_something_else_is_said(part, listed, new, wanted, said):
    made = make_sample(part)
    assert said not in read_part(made, part)
    change(made, part, listed, new, wanted)
    assert said in read_part(made, part)


def test_rows_that_are_mixed_up_are_told_as_measured():
    made = make_sample()
    change(made, "steps", "fits", {"order": "n"}, {"kind": "conv"})
    change(made, "steps", "fits", {"order": "1"}, {"kind": "rnn"})
    assert "that grows with n is that of convolution and GRU." in read_part(made, "textbook")


def test_what_was_not_measured_is_not_spoken_of():
    text = read_part(make_sample("cost", "digits"), "textbook")
    assert "swap" not in text
    assert "on every machine" not in text
    assert "What is learned (digits) depends on the seed" in text
    text = read_part(make_sample("steps"), "textbook")
    assert "Sequential steps are counted, and the same on every machine." in text
    assert "Seconds" not in text
    assert read_part(make_sample("order"), "textbook") == ""


def test_without_projections_whole_layers_cross_where_products_do():
    made = make_sample()
    for row in made.parts["operations"]["rows"]:
        row["operations"] = row["mixing"]
    assert "it meets plain RNN at n = 64, whole layers at n = 64." in read_part(made, "operations")


@pytest.mark.parametrize(
    ("lengths", "said"),
    [
        # the spans of the sample are wider
        ((32, 64), "not at n = 32 and not at n = 64 and than plain RNN at n = 32 and at n = 64. Those are too few"),
        ((32,), "than plain RNN at n = 32. Those"),
        ((32, 64, 128), "than plain RNN up to n ≈ 2,850."),
    ],
)  # fmt: skip
def test_of_a_few_lengths_no_others_are_spoken_of(lengths, said):
    made = make_sample("cost")
    cost = made.parts["cost"]
    cost["rows"] = [row for row in cost["rows"] if row["n"] in lengths]
    text = read_part(made, "cost")
    assert said in text
    assert ("too few" in text) == (len(lengths) < 3)
    assert BOOKS in text


def test_what_is_too_long_for_some_is_no_race():
    made = make_sample()
    rows = made.parts["cost"]["rows"]
    made.parts["cost"]["rows"] = [row for row in rows if row["n"] < 1024 or row["kind"] == "gru"]
    text = read_part(made, "cost")
    assert "At n = 512 the quickest is convolution" in text
    assert "At n = 512 training keeps, between operators," in text


@pytest.mark.parametrize(("share", "learned"), [(1.0, "is learned"), (0.5, "is not learned")])
@pytest.mark.parametrize(("placed", "this", "that"), [(True, "with", "without"), (False, "without", "with")])
def test_order_of_which_one_half_was_left_out(share, learned, placed, this, that):
    made = make_sample("order")
    rows = pick(made.parts["order"]["rows"], kind="attention", has_position=placed)
    made.parts["order"]["rows"] = [{**row, "accuracy": share} for row in rows]
    text = read_part(made, "order")
    said = f"{this} positions it {learned} by self-attention ({share:.1%} {this}); {that} was not measured."
    assert said.replace("%", " %").capitalize() in text
    assert "Only" not in text


def test_order_of_what_reaches_nothing():
    made = make_sample("order")
    made.parts["order"]["reach"]["conv"] = 0
    assert "Nothing that it reaches was asked of convolution." in read_part(made, "order")


@pytest.mark.parametrize("name", PARTS)
def test_a_part_without_rows_is_read(name):
    made = make_sample(name)
    made.parts[name] |= {listed: [] for listed, found in made.parts[name].items() if isinstance(found, list)}
    assert read_part(made, name)
