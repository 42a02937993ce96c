"""The heat map, as it comes out of its file."""

import errno
import os
import pathlib
import sys
import warnings
import xml.etree.ElementTree

import numpy as np
import pytest
import torch

from regard import RegardError
from regard.core import files
from regard.extras import install
from regard.views import draw_alignment, fonts
from regard.views.figures import axes, colours
from tests.wide import thin

matplotlib = pytest.importorskip("matplotlib")
image = pytest.importorskip("matplotlib.image")

SOURCE, TARGET = list("介绍一下西安"), ["introduce", "xi'an", "<eos>"]
WEIGHTS = torch.tensor(
    [[0.43, 0.39, 0.09, 0.06, 0.02, 0.01], [0.01, 0.02, 0.01, 0.03, 0.48, 0.45], [0.02, 0.03, 0.07, 0.17, 0.28, 0.43]]
)


@pytest.fixture(autouse=True)
def strict():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture
def draw(tmp_path):
    def draw(weights, source, target, name="a.png", **options):
        path = tmp_path / name
        draw_alignment(weights, source, target, path, **options)
        return image.imread(path) if path.suffix == ".png" else path.read_bytes()

    return draw


def find_colour(picture, colour):
    """How many pixels have a colour."""
    wanted = np.array(matplotlib.colors.to_rgb(colour))
    return int((np.abs(picture[..., :3] - wanted) < 0.5 / 255).all(-1).sum())


def needs(text):
    if fonts.find_fonts(text)[1]:
        pytest.skip("no font here has these characters")


def test_the_picture_is_of_a_good_size(draw):
    needs("介绍一下西安")
    rows, columns, _ = draw(WEIGHTS, SOURCE, TARGET, title="介绍一下西安 → introduce xi'an").shape
    assert 300 < rows < 700
    assert 700 < columns < 1200


@pytest.mark.parametrize(("rows", "columns"), thin([(1, 1), (80, 80), (3, 80), (20, 30), (1000, 2)], 2))
def test_any_number_of_tokens_fits_a_sheet(draw, rows, columns):
    table = torch.rand(rows, columns)
    picture = draw(table, ["source"] * columns, ["target"] * rows)
    assert all(250 < side < 3200 for side in picture.shape[:2])
    # as high and wide as its tokens ask
    if rows != columns:
        assert (picture.shape[0] > picture.shape[1]) == (rows > columns)


def test_the_brightest_cell_is_the_largest_weight(draw):
    table = np.zeros((4, 5))
    table[2, 3] = 1.0
    picture = draw(table, list("abcde"), list("wxyz"))
    bright = matplotlib.colormaps[colours.WEIGHTS](1.0)
    dull = matplotlib.colormaps[colours.WEIGHTS](0.0)
    hits = (np.abs(picture - np.array(bright)) < 1 / 255).all(-1)
    cells = (np.abs(picture - np.array(dull)) < 1 / 255).all(-1)
    # left of the colour bar, whose ends have both colours
    lines, places = np.nonzero(cells)
    left, top, bottom = places.min(), lines.min(), lines.max()
    width = (bottom - top) / 4
    block = hits[:, : int(left + 5 * width)]
    across, down = np.nonzero(block)[1].mean(), np.nonzero(block)[0].mean()
    assert int((across - left) // width) == 3
    assert int((down - top) // width) == 2


def test_the_glyph_of_xi_is_no_box(draw, tmp_path):
    needs("西安")
    pictures = {c: draw([[1.0]], [c], ["x"]).tobytes() for c in "西安"}
    assert pictures["西"] != pictures["安"]
    # the box that stands for what no font has: the same for all of a kind
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(axes, "choose_fonts", lambda text: ([fonts.PLAIN], ""))
        boxes = {c: draw([[1.0]], [c], ["x"]).tobytes() for c in "西安"}
    assert boxes["西"] == boxes["安"]
    assert boxes["西"] != pictures["西"]


def test_text_is_never_a_formula_or_a_tag(draw):
    # svg names its glyphs by their numbers: a formula has no dollar, and its letters are slanted
    number = matplotlib.ft2font.FT2Font(matplotlib.font_manager.findfont("DejaVu Sans")).get_char_index(ord("$"))
    page = draw([[1.0]], ["$x$"], ["$x$"], "a.svg", title="$x$")
    assert page.count(b'xlink:href="#DejaVuSans-%x"' % number) == 6
    assert b"Oblique" not in page
    for wild in (r"$\frac{1}{2}$", "$x", "$$", r"\$", r"$\undefined{$", "<b>x</b>", "&lt;", "]]>", "--><script>"):
        page = draw([[1.0]], [wild], [wild], "b.svg", title=wild)
        assert b"<script" not in page
        xml.etree.ElementTree.fromstring(page)
    # a formula would lack its dollars, and be narrower
    formula, word = (draw([[1.0]], ["x"], [text]).shape[1] for text in ("$xxxxxxxx$", "xxxxxxxx"))
    assert formula > word


def test_spaces_are_seen(draw):
    assert draw([[1.0]], [" x"], ["y"]).tobytes() != draw([[1.0]], ["x"], ["y"]).tobytes()
    assert draw([[1.0]], ["\n"], ["y"]).tobytes() == draw([[1.0]], ["↵"], ["y"]).tobytes()


def test_numbers_stand_in_small_maps_alone(draw, monkeypatch):
    def list_texts(n):
        texts = []
        text = matplotlib.axes.Axes.text
        monkeypatch.setattr(
            matplotlib.axes.Axes, "text", lambda self, *x, **y: texts.append(x[2]) or text(self, *x, **y)
        )
        draw(torch.full((n, n), 1 / n), ["a"] * n, ["b"] * n)
        monkeypatch.undo()
        return texts

    assert list_texts(4) == ["0.25"] * 16
    assert list_texts(30) == []


def test_what_is_not_finite_is_grey(draw):
    whole = draw([[0.5, 0.5], [0.2, 0.8]], ["a", "b"], ["c", "d"])
    broken = draw([[0.5, np.nan], [np.inf, 0.8]], ["a", "b"], ["c", "d"])
    assert find_colour(whole, colours.NOTHING) < 100
    assert find_colour(broken, colours.NOTHING) > 10_000
    for table in ([[np.nan]], [[0.0]], [[-1.0]], [[1e308]], [[-1e308]], [[123456.0]]):
        assert draw(table, ["a"], ["b"]).size


@pytest.mark.parametrize(
    "weights",
    [
        WEIGHTS.bfloat16(),
        WEIGHTS.clone().requires_grad_(),
        WEIGHTS.numpy().astype(np.float16),
        WEIGHTS.tolist(),
        torch.ones(3, 6, dtype=torch.bool),
    ],
    ids=["bfloat16", "grad", "float16", "list", "bool"],
)
def test_weights_come_in_many_kinds(draw, weights):
    assert draw(weights, list("abcdef"), TARGET).size


@pytest.mark.parametrize(("name", "head"), [("a.png", b"\x89PNG"), ("a.PDF", b"%PDF-"), ("a.svg", b"<?xml")])
def test_the_ending_picks_the_kind_and_the_file_is_the_same_each_time(tmp_path, name, head):
    needs("西")
    for folder in ("one", "two"):
        draw_alignment([[1.0]], ["西"], ["west"], tmp_path / folder / name, title="西")
    one, two = ((tmp_path / folder / name).read_bytes() for folder in ("one", "two"))
    assert one.startswith(head)
    assert one == two
    # a date would differ only now and then
    assert b"CreationDate" not in one
    assert b"<dc:date>" not in one


def test_the_users_settings_do_not_count_and_come_back(draw):
    plain = draw([[1.0]], ["a"], ["b"], title="$x$")
    ours = {"text.usetex": True, "savefig.transparent": True, "figure.facecolor": "red", "font.size": 30.0}
    with matplotlib.rc_context(ours):
        assert (draw([[1.0]], ["a"], ["b"], title="$x$") == plain).all()
        assert {key: matplotlib.rcParams[key] for key in ours} == ours


# --- what is wrong ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "source", "target", "name", "message"),
    [
        (torch.rand(3, 5), "abcdef", "xyz", "a.png",
         "weights must be (targets, sources) = (3, 6), as there are tokens, got (3, 5)."),
        (torch.rand(6, 3), "abcdef", "xyz", "a.png",
         "weights must be (targets, sources) = (3, 6), as there are tokens, got (6, 3)."),
        (torch.rand(1, 3, 6), "abcdef", "xyz", "a.png",
         "weights must be (targets, sources) = (3, 6), as there are tokens, got (1, 3, 6)."),
        ("many", "a", "x", "a.png", "weights must be a table of numbers, a row for every target token."),
        ([[1.0], [1.0, 2.0]], "ab", "xy", "a.png", "weights must be a table of numbers, a row for every target token."),
        (torch.empty(2, 3, device="meta"), "abc", "xy", "a.png",
         "weights must be a table of numbers, a row for every target token."),
        (torch.rand(0, 3), "abc", "", "a.png",
         "weights must have a row and a column at least: there are no tokens to draw."),
        (torch.rand(1, 1), [5], ["x"], "a.png", "source_tokens must be text, got int: decode the ids first."),
        (torch.rand(1, 1), "a", "x", "a.jpg",
         "{} must end in .png, .svg or .pdf: the ending says what kind of picture it is."),
        (torch.rand(1, 1), "a", "x", "attention",
         "{} must end in .png, .svg or .pdf: the ending says what kind of picture it is."),
    ],
)  # fmt: skip
def test_wrong_input_is_named_and_nothing_written(tmp_path, weights, source, target, name, message):
    path = tmp_path / name
    with pytest.raises(RegardError) as error:
        draw_alignment(weights, source, target, path)
    assert str(error.value) == message.format(path)
    assert not list(tmp_path.iterdir())


def test_a_missing_matplotlib_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(RegardError) as error:
        draw_alignment([[1.0]], ["a"], ["b"], tmp_path / "a.png")
    assert str(error.value) == f"Pictures need the package matplotlib: {install('plot')}."
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_the_old_picture(draw, tmp_path, monkeypatch):
    old = draw([[1.0]], ["a"], ["b"])

    def fail(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(RegardError) as error:
        draw([[1.0]], ["other"], ["picture"])
    message = f"{tmp_path / 'a.png'} cannot be written (No space left on device): check the folder and its space."
    assert str(error.value) == message
    assert [x.name for x in tmp_path.iterdir()] == ["a.png"]
    assert (image.imread(tmp_path / "a.png") == old).all()


@pytest.mark.parametrize("name", ["folder.png", "file/a.png", "nul\0.png"])
def test_a_place_that_cannot_be_written_is_named(tmp_path, name):
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "file").write_text("here")
    with pytest.raises(RegardError, match=r"cannot be written \(.*\): check the folder and its space\.$") as error:
        draw_alignment([[1.0]], ["a"], ["b"], tmp_path / name)
    assert str(error.value).startswith(f"{tmp_path / name} cannot")
    assert sorted(x.name for x in tmp_path.iterdir()) == ["file", "folder.png"]


def test_folders_are_made(tmp_path):
    draw_alignment([[1.0]], ["a"], ["b"], str(tmp_path / "runs" / "x" / "a.png"))
    assert pathlib.Path(tmp_path, "runs", "x", "a.png").is_file()
