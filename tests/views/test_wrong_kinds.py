"""Every view names what is of the wrong kind, in one line, and lets no error of another library through."""

import io
import pathlib

import numpy as np
import pytest
import torch

from regard import RegardError, views
from regard.engine.look import look
from regard.views import live, page

pytest.importorskip("matplotlib")
rich = pytest.importorskip("rich.console")

SEEN = look(torch.eye(4)[None, None], torch.eye(4)[None, None], keep=True)
LONG = look(torch.ones(2, 8), torch.ones(2, 8))
TOKENS = list("abcd")
GREY = np.zeros((4, 4, 3), np.uint8)
LABELS = "page tokens['text'] must be a list of strings, one per token: give labels."
PAIRS = "must be an array (2, count) of from and to, or a list of pairs (from, to), got"


def draw(n, m):
    return look(torch.ones(1, 1, n, 4), torch.ones(1, 1, m, 4), keep=True)


def show(**options):
    return page(SEEN, TOKENS, None, **options)


PAGES = [
    (lambda: page(SEEN, None, None), LABELS),
    (lambda: page(SEEN, 5, None), LABELS),
    (lambda: page(SEEN, "abcd", None), LABELS),
    (lambda: page(SEEN, [1, 2, 3, 4], None), LABELS),
    (lambda: page(SEEN, TOKENS, 5), "page out must be the name of a file, or None, got int."),
    (lambda: show(title=5), "page title must be text, got int."),
    (lambda: show(image="no-such.png"),
     "page image 'no-such.png' cannot be read (No such file or directory): give a PNG file, or an array."),
    (lambda: show(image=pathlib.Path(__file__).parent),
     "page image 'views' cannot be read (Is a directory): give a PNG file, or an array."),
    (lambda: show(image="nul\0.png"),
     "page image 'nul\\x00.png' cannot be read (embedded null byte): give a PNG file, or an array."),
    (lambda: show(image=object()), "page image must be an array of pixels or a PIL image."),
    (lambda: show(image=np.zeros((0, 4, 3))),
     "page image must be (height, width), or that with 3 or 4 colours, got (0, 4, 3)."),
    (lambda: show(image=GREY, grid=5), "page grid must be (rows, columns), two whole numbers above 0, got 5."),
    (lambda: show(image=GREY, grid=(1, 4, 1)),
     "page grid must be (rows, columns), two whole numbers above 0, got (1, 4, 1)."),
    (lambda: show(image=GREY, grid=(-1, -4)),
     "page grid must be (rows, columns), two whole numbers above 0, got (-1, -4)."),
    (lambda: show(image=GREY, grid=(1.0, 4.0)),
     "page grid must be (rows, columns), two whole numbers above 0, got (1.0, 4.0)."),
    (lambda: show(graph=5),
     "page graph edges must be an array (2, count) of from and to, or a list of pairs (from, to), got int."),
    (lambda: show(graph={"edges": None}), f"page graph edges {PAIRS} NoneType."),
    (lambda: show(graph=[[0, 1], [2]]), f"page graph edges {PAIRS} list."),
    (lambda: show(graph=[1, 2, 3]), f"page graph edges {PAIRS} list."),
    (lambda: show(graph=[[0, 1, 2], [1, 2, 3]]), f"page graph edges {PAIRS} list."),
    (lambda: show(graph=[torch.tensor([0, 1]), torch.tensor([2, 3])]), f"page graph edges {PAIRS} list."),
    (lambda: show(graph=np.zeros((3, 2), int)), f"page graph edges {PAIRS} shape (3, 2)."),
    (lambda: show(graph=[("a", "b")]), f"page graph edges {PAIRS} list."),
    (lambda: show(graph=[(0, -1), (1, 2)]), "page graph edges must be whole numbers of nodes, 0 or more, got -1."),
    (lambda: show(graph=[(0, 0.5)]), "page graph edges must be whole numbers of nodes, 0 or more, got 0.5."),
    (lambda: show(graph=[(0, 1e300)]), "page graph edges must be whole numbers of nodes, 0 or more, got 1e+300."),
    (lambda: show(graph={"edges": [(0, 1)], "nodes": 5}), "page graph nodes must be a list of names, got int."),
    (lambda: show(graph={"edges": [(0, 1)], "at": "abc"}), "page graph at must be numbers, two for each node."),
    (lambda: show(graph={"edges": [(0, 1)], "at": [[0.0, np.nan]] * 4}),
     "page graph at must be a finite place (x, y) for each of the 4 nodes, got shape (4, 2)."),
    (lambda: show(sides=5), "page sides must be a mapping of names to (query side, key side), got int."),
    (lambda: show(sides={5: ("text", "text")}),
     "page sides must be a mapping of names to (query side, key side), got a name of int."),
    (lambda: show(sides={"attention": 5}), "page sides['attention'] must be two of ['text'], got 5."),
    (lambda: show(sides={"attention": ([], "text")}),
     "page sides['attention'] must be two of ['text'], got ([], 'text')."),
    (lambda: show(other=(SEEN,)), "page other must be what was seen, or a pair of that and its tokens, got 1 of them."),
    (lambda: show(other=5), "page other must be a look or weights, or a mapping of names to them, got int."),
    (lambda: page(draw(5, 0), {"a": [], "b": ["x"] * 5}, None),
     "page seen['attention'] has no queries or no keys (5 by 0): there is nothing to show."),
    (lambda: page(draw(0, 500), {"a": [], "b": ["x"] * 500}, None),
     "page seen['attention'] has no queries or no keys (0 by 500): there is nothing to show."),
]  # fmt: skip

FIGURES = [
    (lambda: views.map(SEEN, tokens=5), "tokens must be a list of text, one for each place, got int."),
    (lambda: views.row(SEEN, 0, keys=5), "keys must be a list of text, one for each place, got int."),
    (lambda: views.align(SEEN, 5, TOKENS), "source must be a list of text, one for each place, got int."),
    (lambda: views.align(SEEN, TOKENS, None), "target must be a list of text, one for each place, got NoneType."),
    (lambda: views.map(SEEN, title=5), "title must be text, got int."),
    (lambda: views.align(SEEN, TOKENS, TOKENS, title=5), "title must be text, got int."),
    (lambda: views.draw_alignment([[1.0]], ["a"], ["b"], "a.png", title=5), "title must be text, got int."),
    (lambda: views.draw_alignment([[1.0]], 5, ["b"], "a.png"),
     "source_tokens must be a list of text, one for each place, got int."),
    (lambda: views.draw_alignment([[1.0]], ["a"], ["b"], 5), "path must be the name of a file, got int."),
    (lambda: views.heads(SEEN, sort=["entropy"]),
     "sort must be entropy, local, first or received, got \"['entropy']\"."),
    (lambda: views.compare(SEEN, SEEN, names=None), "names must be two texts, one for each look."),
    (lambda: views.compare(SEEN, SEEN, names="ab"), "names must be two texts, one for each look."),
    (lambda: views.edges([1.0], [(0, 1)], labels=5), "labels must be a list of text, one for each place, got int."),
    (lambda: views.edges([1.0], [(0, 1)], labels=[1, 2]), "labels must be text, got int: decode the ids first."),
    (lambda: views.edges([1.0, 2.0], np.array([[0, 1], [2, 3], [4, 5]])), f"pairs {PAIRS} shape (3, 2)."),
    (lambda: views.edges([1.0], [(0, 10**9)]),
     "pairs name node 1000000000: a circle has room for 10000, so give labels or positions."),
    (lambda: views.edges([1.0], [(0, 10**9)], labels=["a"]), "labels must be 1000000001, one for each place, got 1."),
    (lambda: views.edges([1.0], [(0, 10**9)], [(0, 0)]),
     "positions must be finite and (1000000001, 2), a place for each node, got (1, 2)."),
]  # fmt: skip

OTHERS = [
    (lambda: views.show(SEEN, 5, console=rich.Console(file=io.StringIO())),
     "tokens must be a list of text, one for each place, got int."),
    (lambda: views.show(SEEN, TOKENS, console=5), "console must be a Console of rich, got int."),
    (lambda: live("a", console=5), "console must be a Console of rich, got int."),
    (lambda: live("a", title=5), "title must be text, got int."),
    (lambda: live("a", "step"), "names of curves must not be 'step': that is what they are drawn over."),
    (lambda: live("a").save(5), "path must be the name of a file, got int."),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), [*PAGES, *FIGURES, *OTHERS])
def test_the_wrong_kind_is_named(call, message):
    with pytest.raises(RegardError) as error:
        call()
    assert str(error.value) == message
    assert "\n" not in message
    assert len(message) <= 200


def test_a_page_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(RegardError) as error:
        page(SEEN, TOKENS, tmp_path / "folder")
    place = tmp_path / "folder"
    assert str(error.value) == f"{place} cannot be written (Is a directory): check the folder and its space."
    assert [x.name for x in tmp_path.iterdir()] == ["folder"]


def test_tokens_may_come_one_by_one():
    assert page(SEEN, (token for token in TOKENS), None).html == page(SEEN, TOKENS, None).html
    axes = views.align(SEEN, iter("wxyz"), iter(TOKENS))
    assert [label.get_text() for label in axes.get_xticklabels()] == list("wxyz")
    axes = views.edges([1.0], [(0, 1)], labels=iter("xy"))
    assert [text.get_text() for text in axes.texts] == ["x", "y"]
