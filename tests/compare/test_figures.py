"""What is drawn is what was measured, in the colour of its kind, on light paper and on dark."""

import math
import re

import numpy as np
import pytest
from matplotlib.colors import to_hex

from regard.compare.kinds import KINDS
from regard.compare.part import find_part
from regard.compare.registry import PARTS
from regard.compare.report.figures import DARK, LIGHT, LOOKS, Sheet, repaint, write_svg
from regard.views.sheet import open_sheet
from tests.compare.sample import KERNELS, LENGTHS, STEPS, make_sample, pick

# what draws a picture, and the part it is of
PICTURES = {draw.__name__.removeprefix("draw_"): (draw, part) for part in PARTS for draw in find_part(part).pictures}


def draw(name, comparison=None):
    picture, part = PICTURES[name]
    comparison = comparison or make_sample(part)
    with open_sheet() as paper:
        sheet = Sheet(paper)
        picture(sheet, comparison.parts[part], comparison.settings)
        return sheet.figure


def write(name, comparison=None, theme=LIGHT):
    picture, part = PICTURES[name]
    comparison = comparison or make_sample(part)
    return write_svg(picture, comparison.parts[part], comparison.settings, theme)


def list_lines(axes):
    """By label, the points of every line that has one."""
    return {
        line.get_label(): (list(line.get_xdata()), list(line.get_ydata()))
        for line in axes.lines if not line.get_label().startswith("_")
    }  # fmt: skip


def list_hidden(axes, label):
    return [line for line in axes.lines if line.get_label() == label]


def test_every_kind_has_its_own_colour_and_mark():
    assert set(LOOKS) == set(KINDS)
    for column in zip(*LOOKS.values(), strict=True):
        assert len(set(column)) == len(KINDS)


def test_operations():
    made = make_sample("operations")
    left, right = draw("operations", made).axes
    for axes, field in ((left, "mixing"), (right, "operations")):
        lines = list_lines(axes)
        assert list(lines) == [kind.label for kind in KINDS.values()]
        for name, kind in KINDS.items():
            rows = pick(made.parts["operations"]["rows"], kind=name, d=64, k=3 if name == "conv" else None)
            assert lines[kind.label] == ([row["n"] for row in rows], [row[field] for row in rows])
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    # windowed attention has no formula
    assert len(list_hidden(left, "_formula")) == len(KINDS) - 1
    assert sorted(text.get_text() for text in left.texts)[-1] == "n^2.00"


def test_steps():
    (axes,) = draw("steps").axes
    lines = list_lines(axes)
    for name, (slope, constant) in STEPS.items():
        (label,) = [label for label in lines if label.startswith(f"{KINDS[name].label}: ")]
        assert lines[label] == (list(LENGTHS[1:4]), [slope * n + constant for n in LENGTHS[1:4]])


def test_paths_have_a_line_for_every_kernel():
    made = make_sample("paths")
    rows = pick(made.parts["paths"]["rows"], kind="conv", d=64, k=5)
    rows[1]["length"] = None
    (axes,) = draw("paths", made).axes
    lines = list_lines(axes)
    assert {f"convolution, k = {k}" for k in KERNELS} <= set(lines)
    assert lines["convolution, k = 7"][1] == [
        row["length"] for row in pick(made.parts["paths"]["rows"], kind="conv", d=64, k=7)
    ]
    # what was never reached is a gap in the points, not in the formula
    assert [math.isnan(y) for y in lines["convolution, k = 5"][1]] == [False, True, False]
    formulas = [list(line.get_ydata()) for line in list_hidden(axes, "_formula")]
    assert [row["formula"] for row in rows] in formulas


def test_maps_are_what_is_seen():
    made = make_sample("paths")
    maps = made.parts["paths"]["maps"]
    figure = draw("maps", made)
    assert len(figure.axes) == len(maps) == 18
    # down by depth, across by kind
    for axes, (layers, kind) in zip(figure.axes, [(a, b) for a in (1, 2, 4) for b in KINDS], strict=True):
        (one,) = pick(maps, kind=kind, layers=layers)
        drawn = np.asarray(axes.images[0].get_array())
        assert ["".join(map(str, row)) for row in drawn.astype(int)] == one["seen"]
        assert to_hex(axes.images[0].cmap(1)) == LOOKS[kind][0].lower()
        # what is seen has the kind's own colour, not half of it
        assert axes.images[0].get_clim() == (0, 1)
        assert to_hex(axes.spines["top"].get_edgecolor()) == LIGHT.line


@pytest.mark.parametrize(("name", "field"), [("seconds", "seconds"), ("memory", "bytes")])
def test_time_and_memory(name, field):
    made = make_sample("cost")
    figure = draw(name, made)
    cases = [(doing, batch) for doing in ("forward", "training") for batch in (1, 16)]
    assert [axes.get_title(loc="left") for axes in figure.axes] == [f"{doing}, batch {batch}" for doing, batch in cases]
    for axes, (doing, batch) in zip(figure.axes, cases, strict=True):
        for kind in KINDS:
            rows = pick(made.parts["cost"]["rows"], kind=kind, batch=batch, **{"pass": doing})
            rows = [row for row in rows if row[field] is not None]
            points = ([row["n"] for row in rows], [row[field] for row in rows])
            assert list_lines(axes)[KINDS[kind].label] == points
    assert len(figure.legends[0].get_texts()) == len(KINDS)


@pytest.mark.parametrize("batches", [(1,), (1, 16)])
def test_the_legend_is_no_wider_than_the_figure(batches):
    made = make_sample("cost")
    cost = made.parts["cost"]
    cost["rows"] = [row for row in cost["rows"] if row["batch"] in batches]
    figure = draw("seconds", made)
    figure.canvas.draw()
    (legend,) = figure.legends
    assert len(legend.get_texts()) == len(KINDS)
    assert legend.get_window_extent().x0 >= 0
    assert legend.get_window_extent().x1 <= figure.bbox.x1


def test_recall():
    made = make_sample("recall")
    part = made.parts["recall"]
    figure = draw("recall", made)
    assert [axes.get_title(loc="left") for axes in figure.axes] == [kind.label for kind in KINDS.values()]
    for axes, kind in zip(figure.axes, KINDS, strict=True):
        for placed in (True, False):
            (line,) = list_hidden(axes, f"_{kind} {'with' if placed else 'without'} positions")
            for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True):
                rows = pick(part["rows"], kind=kind, has_position=placed, distance=x)
                assert y == pytest.approx(100 * sum(row["accuracy"] for row in rows) / len(rows))
        reach = part["reach"][kind]
        assert [line.get_xdata()[0] for line in list_hidden(axes, "_reach")] == ([] if reach is None else [reach])
        (chance,) = list_hidden(axes, "_chance")
        assert chance.get_ydata()[0] == 12.5


def test_order_bars_are_over_what_is_reached():
    made = make_sample("order")
    for row in made.parts["order"]["rows"]:
        row["accuracy"] = 0.9 if row["has_position"] else 0.6
        if row["kind"] == "conv" and row["distance"] > 12:
            row["accuracy"] = 0.0
    (axes,) = draw("order", made).axes
    heights = [bar.get_height() for bar in axes.patches]
    assert heights == pytest.approx(len(KINDS) * [90, 60])
    assert [to_hex(bar.get_edgecolor()) for bar in axes.patches[::2]] == [LOOKS[kind][0].lower() for kind in KINDS]


def test_digits():
    (axes,) = draw("digits").axes
    x, y = list_lines(axes)["convolution"]
    assert x == [50, 200, 800, 1500]
    assert y[:3] == pytest.approx([70.5, 80.5, 90.5])
    assert len(axes.collections) == 2


def hide_names(svg):
    """Names that matplotlib makes of what it draws, colours and all."""
    return re.sub(r"\b[mp][0-9a-f]{10}\b", "name", svg)


@pytest.mark.parametrize("name", ["maps", "order"])
def test_repainted_is_as_if_drawn_in_the_dark(name):
    light, dark = (write(name, theme=theme) for theme in (LIGHT, DARK))
    assert light != dark
    assert hide_names(repaint(light)) == hide_names(dark)


def test_the_same_numbers_are_the_same_picture():
    first, second = (write("digits") for _ in range(2))
    assert first == second
    assert "<dc:date>" not in first


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", PICTURES)
def test_a_part_without_rows_is_drawn_without_a_warning(name):
    made = make_sample(PICTURES[name][1])
    made.parts[PICTURES[name][1]] |= {"rows": [], "fits": [], "maps": []}
    assert draw(name, made).axes


@pytest.mark.filterwarnings("error")
def test_one_point_is_drawn_without_a_warning():
    made = make_sample("cost")
    made.parts["cost"]["rows"] = made.parts["cost"]["rows"][:1]
    assert "<svg" in write("seconds", made)


@pytest.mark.filterwarnings("error")
def test_what_reaches_nothing_is_drawn_without_a_warning():
    made = make_sample("recall")
    made.parts["recall"]["reach"]["conv"] = 0
    assert write("recall", made).startswith("<?xml")
    panels = {axes.get_title(loc="left"): axes for axes in draw("recall", made).axes}
    assert not list_hidden(panels["convolution"], "_reach")
    assert list_hidden(panels["windowed attention"], "_reach")
