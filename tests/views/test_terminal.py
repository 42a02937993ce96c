"""A sentence with its weights, as a terminal of any width has it."""

import io
import math
import re
import sys

import pytest
import torch

from regard import RegardError, views
from regard.engine.look import look
from regard.views import terminal

rich = pytest.importorskip("rich.console")
cells = pytest.importorskip("rich.cells")

CHINESE = list("介绍一下西安")


def make(n=6, **options):
    torch.manual_seed(0)
    return look(torch.randn(2, 3, n, 8) * 3, torch.randn(2, 3, n, 8), **options)


def show(*args, width=80, terminal=False, colours=None, **options):
    """What is printed."""
    file = io.StringIO()
    console = rich.Console(file=file, width=width, force_terminal=terminal, color_system=colours, highlight=False)
    views.show(*args, console=console, **options)
    return file.getvalue()


@pytest.mark.parametrize("tokens", [CHINESE, ["介绍一下", "x", "西安的历史", "a long one", "of", "北京"]])
def test_each_weight_stands_under_its_token(tokens):
    seen = make()
    tokens = [token.replace(" ", "_") for token in tokens]
    title, above, below = show(seen, tokens, query=2, head=1, sequence=1).splitlines()
    assert title == f"what query 2 {tokens[2]} attends to, head 1"
    weights = seen.map[1, 1, 2].tolist()
    assert above.split() == tokens
    assert below.split() == [terminal.format_weight(x) for x in weights]
    # by cells, two to each of these characters
    starts = [m.start() for m in re.finditer(r"\S+", below)]
    places = [cells.cell_len(above[: above.index(c)]) for c in tokens]
    assert starts == places


def test_without_a_query_it_is_what_each_received():
    seen = make()
    title, _, below = show(seen, CHINESE).splitlines()
    assert title == "what each token received, head 0"
    assert below.split() == [terminal.format_weight(x) for x in seen.received[0, 0].tolist()]


@pytest.mark.parametrize("width", [8, 20, 41])
def test_no_line_is_wider_than_the_terminal(width):
    words = ["internationalisation", "西安西安西安西安西安西安西安", "of", "$x$", "[bold]b[/bold]", "y"]
    lines = show(make(), words, query=0, width=width).splitlines()
    assert max(map(cells.cell_len, lines)) <= width
    text = "".join(lines)
    assert "[bold]b"[: width - 2] in text
    assert ("…" in text) is (width < 41)


def test_tokens_are_shaded_in_a_terminal_and_plain_elsewhere(monkeypatch):
    seen = make()
    plain = show(seen, CHINESE, query=2)
    assert "\x1b" not in plain
    shaded = show(seen, CHINESE, query=2, terminal=True, colours="truecolor")
    # the largest weight has the brightest shade
    best = CHINESE[int(seen.map[0, 0, 2].argmax())]
    assert f"\x1b[30;48;2;254;232;56m{best}" in shaded
    assert re.sub(r"\x1b\[[0-9;]*m", "", shaded) == plain
    monkeypatch.setenv("NO_COLOR", "1")
    assert "48;2" not in show(seen, CHINESE, query=2, terminal=True)


def test_tokens_cannot_move_the_cursor():
    tokens = ["\x1b[2J", "\x1b]0;x\x07", "\r", "\u202e", "a\nb", "[red]x"]
    text = show(make(), tokens, query=0)
    assert not set(text) & {"\x1b", "\x07", "\r", "\u202e"}
    assert len(text.splitlines()) == 3
    assert "[red]x" in text


def test_a_row_of_the_top_keys_says_so():
    text = show(make(40, map=4, top=2), ["x"] * 40, query=1)
    assert text.startswith("what query 1 x attends to (top 2 keys only), head 0\n")


def test_of_a_long_text_the_strongest_are_shown():
    bias = torch.zeros(1, 1000).index_fill(1, torch.tensor([500, 507, 515]), 9.0)
    seen = look(torch.ones(1, 1), torch.zeros(1000, 1), bias=bias, rows=(0,))
    text = show(seen, [f"t{k}" for k in range(1000)], query=0)
    one = math.exp(9) / (3 * math.exp(9) + 997)
    assert text.count(terminal.format_weight(one)) == 3
    # 503 and 504 lie between two neighbourhoods
    assert "t498 t499 t500 t501 t502 t503 t504 t505" in " ".join(text.split())
    gaps = [int(x) for x in re.findall(r"…(\d+) more…", text)]
    assert sum(gaps) + len(re.findall(r"\bt\d+", text)) == 1000
    assert len(text.splitlines()) < 60
    # two are shown, more are counted
    assert min(gaps) > 2


def test_a_table_of_heads_has_their_means():
    seen = make()
    lines = show({"encoder.0": seen, "[b]x": seen}, sequence=1, width=100).splitlines()
    assert lines[0].split() == ["attention", *terminal.COLUMNS]
    rows = [line.split() for line in lines[2:]]
    assert [len(row) for row in rows] == [8, 7, 7, 8, 7, 7]
    assert rows[0][0] == "encoder.0"
    assert rows[3][0] == "[b]x"
    for head in range(3):
        means = [getattr(seen, name)[1, head].mean() for name in terminal.COLUMNS[1:-1]]
        most = seen.received[1, head].max() / seen.received[1, head].sum()
        assert rows[head][-7:] == [str(head), *(f"{x:.2f}" for x in [*means, most])]


def test_a_narrow_table_says_what_it_lacks():
    text = show(make(), width=40)
    assert "too narrow for" in text
    assert max(map(cells.cell_len, text.splitlines())) <= 40


def test_the_shades_are_those_of_the_figures():
    matplotlib = pytest.importorskip("matplotlib")
    ramp = matplotlib.colormaps["cividis"]
    assert [matplotlib.colors.to_hex(ramp(k / 8)) for k in range(9)] == list(terminal.SHADES)


def test_what_is_not_a_number_is_printed():
    seen = look(torch.full((2, 1), torch.nan), torch.ones(2, 1))
    assert "nan" in show(seen, ["a", "b"], query=0)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    with pytest.raises(RegardError, match=r"^The terminal view needs the package rich: pip install rich\.$"):
        views.show(make(), CHINESE)


@pytest.mark.parametrize(
    ("args", "options", "message"),
    [
        ((["a"] * 5,), {}, "tokens must be 6, one for each place, got 5."),
        ((CHINESE,), {"query": 6}, "query must be a whole number from 0 to 5, got 6."),
        ((CHINESE,), {"head": 3}, "head must be a whole number from 0 to 2, got 3."),
    ],
)
def test_what_is_wrong_is_named(args, options, message):
    with pytest.raises(RegardError) as error:
        show(make(), *args, **options)
    assert str(error.value) == message
