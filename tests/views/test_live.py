"""Curves that grow: every one of them, in a notebook, in a terminal and in a file."""

import io
import math
import re
import sys
import types

import numpy as np
import pytest
import torch

from regard import RegardError
from regard.views import braille, live

rich = pytest.importorskip("rich.console")
cells = pytest.importorskip("rich.cells")
image = pytest.importorskip("matplotlib.image")
board_module = sys.modules["regard.views.live"]

SEVEN = [f"s{k}" for k in range(7)]


@pytest.fixture
def clock(monkeypatch):
    """Time that moves when told."""
    now = types.SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(board_module.time, "monotonic", lambda: now.seconds)
    return now


@pytest.fixture
def notebook(monkeypatch):
    """What a notebook was asked to display, and to exchange."""
    shown = []

    class Handle:
        def update(self, picture):
            shown.append(("update", picture._repr_png_()))

    def display(picture, display_id):
        assert display_id is True
        shown.append(("display", picture._repr_png_()))
        return Handle()

    shell = types.ModuleType("IPython")
    shell.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    shell.display = types.ModuleType("IPython.display")
    shell.display.display = display
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setitem(sys.modules, "IPython.display", shell.display)
    return shown


def open_console(terminal=False, width=60):
    colours = "truecolor" if terminal else None
    return rich.Console(file=io.StringIO(), width=width, height=30, force_terminal=terminal, color_system=colours)


def read_figure(board):
    """The lines of the picture that `save` would write."""
    from regard.views.sheet import open_sheet

    with open_sheet() as paper:
        return board._draw(paper).axes[0]


def feed(board, steps=20):
    for step in range(steps):
        board.add(step, **{name: math.exp(-step / 5) + k for k, name in enumerate(SEVEN)})


def test_none_of_seven_curves_is_dropped(tmp_path):
    console = open_console()
    with live(*SEVEN, console=console) as board:
        feed(board)
    axes = read_figure(board)
    assert [line.get_label() for line in axes.lines] == SEVEN
    assert [text.get_text() for text in axes.get_legend().get_texts()] == SEVEN
    looks = {(line.get_color(), line.get_linestyle()) for line in axes.lines}
    assert len(looks) == 7
    for k, line in enumerate(axes.lines):
        np.testing.assert_allclose(line.get_ydata(), [math.exp(-s / 5) + k for s in range(20)])
    text = console.file.getvalue()
    assert all(f"{letter} s{k} " in text for k, letter in enumerate("abcdefg"))
    board.save(tmp_path / "live.png")
    assert image.imread(tmp_path / "live.png").shape[1] > 600


def test_thirty_curves_differ_in_colour_or_line():
    board = live()
    board.add(0, **{f"s{k}": k for k in range(28)})
    board.add(1, **{f"s{k}": k for k in range(28)})
    assert len({(line.get_color(), line.get_linestyle()) for line in read_figure(board).lines}) == 28


def test_a_notebook_shows_one_picture_and_exchanges_it(notebook, clock):
    with live(*SEVEN) as board:
        for step in range(10):
            clock.seconds += 0.125
            board.add(step, s0=step)
    kinds = [kind for kind, _ in notebook]
    assert kinds[0] == "display"
    assert set(kinds[1:]) == {"update"}
    # every second time, and the last
    assert len(kinds) == 6
    assert all(picture.startswith(b"\x89PNG") for _, picture in notebook)
    assert notebook[0][1] != notebook[-1][1]


def test_a_terminal_is_redrawn_five_times_a_second_at_most(clock, monkeypatch):
    drawn = []
    draw = board_module._Terminal.draw
    monkeypatch.setattr(board_module._Terminal, "draw", lambda self, board: (drawn.append(1), draw(self, board)))
    with live("loss", console=open_console(terminal=True)) as board:
        for step in range(1000):
            clock.seconds += 0.001
            board.add(step, loss=1.0)
        assert len(drawn) == 5
    assert len(drawn) == 6


def test_slow_drawing_does_not_hold_up_the_training(clock, monkeypatch):
    drawn = []

    def draw(self, board):
        drawn.append(1)
        clock.seconds += 1.0

    monkeypatch.setattr(board_module._Terminal, "draw", draw)
    with live("loss", console=open_console(terminal=True)) as board:
        for step in range(100):
            clock.seconds += 0.1
            board.add(step, loss=1.0)
    # ten seconds of training: one at the start, one after five more, the last
    assert len(drawn) == 3


def test_without_a_terminal_the_plot_comes_once_at_the_end():
    console = open_console()
    with live("loss", title="西安 [b]", console=console) as board:
        board.add(0, loss=2.0)
        assert console.file.getvalue() == ""
        board.add(10, loss=1.0)
    text = console.file.getvalue()
    assert "\x1b" not in text
    assert text.startswith("西安 [b]\n")
    assert text.count("a loss 1") == 1
    assert "0 … step 10" in text
    assert max(map(cells.cell_len, text.splitlines())) <= 60


def test_the_terminal_is_left_as_it_was_when_a_training_breaks():
    console = open_console(terminal=True)
    board = live("loss", console=console)

    def train():
        with board:
            board.add(0, loss=1.0)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    # the cursor is back
    assert console.file.getvalue().rstrip().endswith("\x1b[?25h")
    assert board.series == {"loss": [(0.0, 1.0)]}


def test_values_come_in_many_kinds_and_the_later_counts():
    board = live()
    board.add(1, a=torch.tensor(2.0, requires_grad=True), b=np.float32(3), c=4)
    board.add(0, a=torch.tensor([1.5]), b=None, c=math.inf)
    board.add(np.int64(1), c=5)
    assert board.series["a"] == [(0.0, 1.5), (1.0, 2.0)]
    assert board.series["c"][1] == (1.0, 5.0)
    assert math.isnan(board.series["b"][0][1])
    assert math.isnan(board.series["c"][0][1])
    labels = [line.get_label() for line in read_figure(board).lines]
    assert labels == ["a", "b (1 not finite)", "c (1 not finite)"]


def test_a_board_without_values_is_drawn():
    console = open_console()
    with live("loss", console=console) as board:
        pass
    assert "a loss –" in console.file.getvalue()
    assert len(read_figure(board).lines) == 1
    assert read_figure(live()).get_legend() is None


def test_a_long_curve_keeps_its_extremes_and_gaps():
    board = live("x")
    values = np.sin(np.arange(20_000) / 50)
    values[7777], values[12_345] = 9.0, np.nan
    for step, value in enumerate(values):
        board.add(step, x=value)
    points = board_module.thin(board.series["x"])
    assert len(points) <= board_module.MOST
    assert (7777.0, 9.0) in points
    assert any(math.isnan(y) for _, y in points)
    assert points[-1] == board.series["x"][-1]
    assert [x for x, _ in points] == sorted(x for x, _ in points)


# --- dots -------------------------------------------------------------------------------------------------------------


def list_dots(lines):
    """Every dot's place, from the top left."""
    found = set()
    for row, line in enumerate(lines):
        for column, (letter, _) in enumerate(line):
            bits = ord(letter) - 0x2800
            # Unicode numbers the dots 1 2 3 7 down the left side and 4 5 6 8 down the right
            for number, (x, y) in enumerate([(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3)]):
                if bits >> number & 1:
                    found.add((2 * column + x, 4 * row + y))
    return found


def test_a_straight_line_has_its_dots():
    lines, limits = braille.plot({"a": [(0, 0.0), (7, 7.0)]}, 4, 2)
    assert list_dots(lines) == {(k, 7 - k) for k in range(8)}
    assert limits == (0, 7, 0.0, 7.0)


def test_a_gap_parts_a_curve_and_the_later_lies_on_top():
    lines, _ = braille.plot({"a": [(0, 0.0), (1, 0.0), (2, math.nan), (6, 0.0), (7, 1.0)]}, 4, 1)
    assert list_dots(lines) == {(0, 3), (1, 3), (6, 3), (6, 2), (7, 1), (7, 0)}
    lines, _ = braille.plot({"a": [(0, 0.0), (1, 1.0)], "b": [(0, 0.0)]}, 1, 1)
    assert lines[0][0][1] == "b"


def test_a_flat_curve_runs_through_the_middle():
    lines, _ = braille.plot({"a": [(0, 5.0), (3, 5.0)]}, 2, 1)
    assert list_dots(lines) == {(k, 1) for k in range(4)}


def test_shares_alone_are_drawn_from_nothing_to_all():
    def write(**values):
        console = open_console()
        with live(*values, console=console) as board:
            for step in range(2):
                board.add(step, **values)
        lines = [line.split() for line in console.file.getvalue().splitlines()]
        return [line[0] for line in lines if line and line[0].replace(".", "").isdigit()][:2]

    assert write(valid_accuracy=99.0, f1=97.0) == ["100", "0"]
    assert write(valid_accuracy=99.0, loss=0.5) == ["99", "0.5"]
    lines, limits = braille.plot({"a": [(0, 100.0), (1, 100.0)]}, 1, 2, (0.0, 100.0))
    assert limits == (0, 1, 0, 100)
    assert [letter for ((letter, _),) in lines] == ["⠉", "⠀"]


def test_each_curve_ends_in_its_letter():
    console = open_console()
    with live("up", "down", console=console) as board:
        for step in range(10):
            board.add(step, up=step, down=9 - step)
    lines = console.file.getvalue().splitlines()
    ends = {re.sub(r"[^ab]", "", line[-2:]): k for k, line in enumerate(lines[:12])}
    assert ends["a"] == 0
    assert ends["b"] == 11


# --- what is wrong ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: live(3), "names of curves must be text, got '3'."),
        (lambda: live("a", "a"), "names of curves must differ: two are the same."),
        (lambda: live("loss").add(1, lost=2.0), "there is no curve 'lost', only loss: name it in live(…)."),
        (lambda: live("loss").add("x", loss=2.0), "step must be a number, got 'x'."),
        (lambda: live("loss").add(math.nan, loss=2.0), "step must be a number, got 'nan'."),
        (lambda: live("loss").add(1, loss="2.0"), "loss must be a number, got '2.0'."),
        (lambda: live("loss").add(1, loss=torch.ones(2)), "loss must be a number, got 'tensor([1., 1.])'."),
    ],
)
def test_what_is_wrong_is_named(call, message):
    with pytest.raises(RegardError) as error:
        call()
    assert str(error.value) == message


def test_a_wrong_value_leaves_the_board_as_it_was():
    board = live("a", "b")
    with pytest.raises(RegardError, match=r"^b must be a number"):
        board.add(1, a=1.0, b="x")
    assert board.series == {"a": [], "b": []}


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.live", None)
    with pytest.raises(RegardError, match=r"^The live view needs the package rich: pip install rich\.$"), live("loss"):
        pass
