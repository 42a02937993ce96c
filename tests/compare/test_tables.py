"""The tables say what the parts have, and no more; in a pipe they are plain."""

import io
import re
import sys

import pytest

from regard.compare.meters.spending import WHY
from regard.compare.registry import PARTS
from regard.compare.tables import list_tables
from regard.core import RegardError
from regard.extras import install
from tests.compare.sample import draw_page, make_sample


def list_all(comparison):
    return list_tables(comparison.parts, comparison.settings)


def find(comparison, part):
    return list_all(comparison)[part][0]


def read_cell(table, row, column):
    (found,) = [cells for cells in table.rows if cells[0] == row]
    return found[table.columns.index(column)]


def render(comparison, width=100):
    from rich.console import Console

    out = io.StringIO()
    comparison.print(Console(file=out, width=width, highlight=False, markup=False))
    return out.getvalue()


@pytest.mark.parametrize(
    ("row", "column", "cell"),
    [
        ("convolution", "operations", "O(k·n·d²)\nn^1.00 d^2.00 k^1.00"),
        ("self-attention", "operations", "O(n²·d)\nn^2.00 d^1.00"),
        ("convolution", "steps", "O(1)\n1"),
        ("plain RNN", "steps", "O(n)\n3n + 1"),
        ("convolution", "longest path", "O(n/k)\n⌈2(n−1)/(k−1)⌉: 27 of 27"),
        ("GRU", "longest path", "O(n)\nn: 9 of 9"),
        ("self-attention", "seconds", "n^1.70\nn^1.70"),
        ("plain RNN", "memory", "n^1.00\nn^1.00"),
    ],
)
def test_the_textbooks_table(row, column, cell):
    assert read_cell(find(make_sample(), "textbook"), row, column) == cell


def test_what_contradicts_the_textbooks_is_seen():
    made = make_sample()
    for fit in made.parts["operations"]["fits"]:
        if fit["kind"] == "gru" and fit["of"] == "mixing":
            fit["exponents"]["n"] = 1.5
    made.parts["paths"]["rows"][0]["length"] = None
    made.parts["steps"]["fits"][0] |= {"per_token": 0.5, "constant": -2.25, "is_exact": False}
    for fit in made.parts["cost"]["fits"]:
        if fit["kind"] == "linear":
            fit["interval"] = [-1.0, 3.0]
    table = find(made, "textbook")
    assert read_cell(table, "GRU", "operations").endswith("\nn^1.50 d^2.00")
    assert read_cell(table, "convolution", "longest path").endswith(": 26 of 27")
    assert read_cell(table, "convolution", "steps") == "O(1)\n≈ 0.5n − 2.25"
    assert read_cell(table, "linear attention", "seconds") == "n^0.9 ?\nn^0.9 ?"
    assert "With ?: uncertain by more than 0.25." in table.note


def test_crossings_by_what_is_counted():
    table = find(make_sample(), "cost")
    assert read_cell(table, "textbooks", "plain RNN") == "n < 64"
    assert read_cell(table, "operations", "plain RNN") == "never"
    assert read_cell(table, "seconds, forward, batch 16", "plain RNN") == "n < 2,850"
    assert read_cell(table, "seconds, forward, batch 16", "GRU") == "–"
    assert [read_cell(table, row, "all") for row in ("textbooks", "operations")] == ["n < 64", "never"]


def test_curves_that_are_one_and_curves_that_cross_twice():
    made = make_sample()
    first, second = made.parts["cost"]["crossings"][:2]
    first |= {"is_equal": True, "spans": []}
    second |= {"spans": [[12.0, 64.0], [1500.0, None]]}
    table = find(made, "cost")
    assert read_cell(table, "textbooks", "convolution") == "equal"
    assert read_cell(table, "textbooks", "plain RNN") == "12 < n < 64, n > 1,500"


def test_always_and_never_take_three_lengths():
    made = make_sample()
    cost = made.parts["cost"]
    name = "seconds, forward, batch 16"
    assert read_cell(find(made, "cost"), name, "all") == "never"
    for lengths, conv, rnn in (((32, 64), "not at 32, not at 64", "at 32, at 64"), ((32,), "not at 32", "at 32")):
        cost["rows"] = [row for row in cost["rows"] if row["n"] in lengths]
        table = find(made, "cost")
        assert [read_cell(table, name, column) for column in ("convolution", "plain RNN")] == [conv, rnn]
        assert read_cell(table, name, "all") == "–"
        assert "At and not at: the only lengths that both were measured at." in table.note
        # formulas know all lengths
        assert read_cell(table, "operations", "plain RNN") == "never"


def test_what_was_left_out_is_said_first():
    made = make_sample()
    assert "lack of time" not in render(made)
    left = {"kind": "gru", "has_position": False, "k": None, "why": WHY}
    made.parts["recall"]["skipped"] = 3 * [left]
    # timings, one of which was too slow, and models
    trained = sum(len(made.parts[part]["training"]) for part in ("recall", "order", "digits"))
    whole = len(made.parts["cost"]["rows"]) + 1 + 3 + trained
    said = f"3 of {whole} measurements were left out for lack of time; run without --quick for all."
    assert render(made).startswith(said)
    assert f"<header>{said}" in re.sub(r"<header>.*<p><strong>", "<header>", draw_page(made), flags=re.DOTALL)


def test_recall_is_a_mean_over_what_was_asked():
    made = make_sample()
    rows = [row for row in made.parts["recall"]["rows"] if row["kind"] == "rnn" and row["has_position"]]
    first, second = (row for row in rows if row["distance"] == 1)
    first |= {"accuracy": 1.0, "count": 300}
    second |= {"accuracy": 0.2, "count": 100}
    table = find(made, "recall")
    assert read_cell(table, "plain RNN", "1") == "80"
    assert read_cell(table, "convolution", "reach") == "12"
    assert read_cell(table, "self-attention", "reach") == "all"
    assert read_cell(table, "convolution, no position", "100") == "13"


def test_order_and_digits():
    made = make_sample()
    assert read_cell(find(made, "order"), "self-attention, no position", "8") == "50"
    edges = list_all(made)["order"][1]
    assert edges.title == "Order at the edge"
    assert edges.rows[3] == ("convolution, k = 5, no position", "4", "98.0 %", "50.0 %")
    assert read_cell(find(made, "digits"), "convolution", "50 images") == "70.5 %"


@pytest.mark.parametrize("name", PARTS)
def test_each_part_alone(name):
    made = make_sample(name)
    assert {part: len(tables) for part, tables in list_all(made).items()} == {
        "textbook": name in ("operations", "steps", "paths", "cost"),
        name: {"cost": 1, "recall": 2, "order": 2, "digits": 1}.get(name, 0),
    }
    assert "Not measured: " in render(made)


def test_no_part_at_all():
    made = make_sample("steps")
    made.parts.clear()
    assert list_all(made) == {"textbook": []}
    assert "Not measured: operations, steps, paths, cost, recall, order and digits." in render(made)


def test_a_pipe_gets_plain_text_of_a_hundred_columns(capsys):
    make_sample().print()
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= 100
    # nothing of the textbooks' table is broken into another line
    for text in ("n^1.00 d^2.00 k^1.00   1 ", "⌈2(n−1)/(k−1)⌉: 27 of 27", "windowed attention"):
        assert text in out


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 200])
def test_no_word_is_cut_at_any_width(width):
    made = make_sample()
    # as many digits as a length may have
    crossings = made.parts["cost"]["crossings"]
    for other in ("rnn", "gru", "windowed"):
        spans = [[2_341.0, 15_909.0], [100_000.0, None]]
        crossings.append({**crossings[-1], "pass": "training", "other": other, "spans": spans})
    made.parts["cost"]["leads"].append({"of": "seconds", "batch": 16, "pass": "training", "spans": []})
    shown = render(made, width)
    for table in (table for tables in list_all(made).values() for table in tables):
        for cell in (*table.columns, *(cell for row in table.rows for cell in row)):
            assert all(word in shown for word in cell.split())
    if width >= 100:
        assert max(map(len, shown.splitlines())) <= width


def test_markup_in_a_name_is_text():
    made = make_sample("digits")
    made.parts["digits"]["rows"][0]["kind"] = "[bold]x[/bold]"
    assert "[bold]x[/bold]" in render(made)


def test_without_rich(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    with pytest.raises(RegardError) as error:
        make_sample("digits").print()
    assert str(error.value) == f"Tables need the package rich: {install('plot')}."
