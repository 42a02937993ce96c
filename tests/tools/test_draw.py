"""Faults that are drawn: which slips a file offers, which it does not, and that the same seed draws the same."""

import ast
import pathlib

import pytest

from tools.faults import COMMAND, DRAWN, draw
from tools.faults.mutate import list_slips


def mutate(source: str) -> list[str]:
    """The first line that differs, of every slip."""
    made = [slip.make(source) for slip in list_slips(source)]
    for text in made:
        assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(source))
    lines = source.split("\n")
    return [next(new for old, new in zip(lines, text.split("\n"), strict=True) if old != new) for text in made]


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("y = a < b", ["y = a <= b"]),
        ("y = (a) >= (b)", ["y = (a) > (b)"]),
        ("y = a == b != c", ["y = a != b != c", "y = a == b == c"]),
        ("y = a is not b", ["y = a is b"]),
        ("y = a not  in b", ["y = a in b"]),
        ("y = a + b // c", ["y = a - b // c", "y = a + b * c"]),
        ("y += x", ["y -= x"]),
        ("y = a and b and c", ["y = a or b and c"]),
        ("y = not a", ["y = a"]),
        ("y = x.sum(-1)", ["y = x.sum(-2)"]),
        ("y = f(x, keepdim=True)", ["y = f(x, keepdim=False)"]),
        ("y = max(a, b)", ["y = min(a, b)"]),
        ("y = x.any()", ["y = x.all()"]),
        ("y = x[a:b.c]", ["y = x[a + 1:b.c]", "y = x[a:b.c + 1]"]),
        ("self.x = y", ["pass"]),
        ("x[i] += y", ["pass", "x[i] -= y"]),
        ("f(x)", ["pass"]),
        ("def f(a=3): return g(a, b)", ["def f(a=4): return g(a, b)", "def f(a=3): return g(b, a)"]),
        ("y = a if b else c", ["y = a if not (b) else c"]),
        # beyond ascii a column is no place
        ("y = 'é', a < b", ["y = 'é', a <= b"]),
    ],
)  # fmt: skip
def test_a_slip(source, wanted):
    assert sorted(mutate(source)) == sorted(wanted)


@pytest.mark.parametrize(
    "source",
    [
        '"""A text."""',
        "import a",
        "def f(a: Literal[1] = None) -> tuple[1]: ...",
        "x: Annotated[int, Option(min=1)] = y",
        "@g(frozen=True)\nclass A: ...",
        "__all__ = [1]",
        "if TYPE_CHECKING:\n    f(1)",
        'if __name__ == "__main__":\n    f(1)',
        'raise E(f"{x[:3]}")',
        "assert a < b",
        "def __repr__(self): return f(1, 2)",
        "x = field(repr=False)",
        "x = zip(a, b, strict=True)",
        "warnings.warn(f(1), stacklevel=2)",
        'x = f"{a + 1}"',
        'x = "a" + b',
        "x = [z] + y",
        "x = a @ b % c",
    ],
)
def test_what_nobody_could_notice_offers_none(source):
    assert list_slips(source) == []


def test_a_place_is_told_by_the_names_around_it():
    source = "class A:\n    def f(self, x=2):\n        return x < 1 or x"
    assert [slip.what for slip in list_slips(source)] == [
        "A.f: def f(self, x=2): becomes def f(self, x=3):",
        "A.f: x < 1 or x becomes x < 1 and x",
        "A.f: x < 1 becomes x <= 1",
        "A.f: x < 1 becomes x < 2",
    ]


@pytest.fixture
def root(tmp_path) -> pathlib.Path:
    """A project of every room, one of them large; statements are many and alike."""
    for room in draw.ROOMS:
        folder = tmp_path / "src" / "regard" / room
        folder.mkdir(parents=True)
        count = 60 if room == "tasks" else 9
        lines = [f"    if a < b:\n        x{n % 3} = {n} + a\n" for n in range(count)]
        (folder / "one.py").write_text("def f(a, b):\n" + "".join(lines))
    return tmp_path


def test_the_same_seed_draws_the_same(root):
    faults = draw.draw_faults(root, 17, 50)
    assert faults == draw.draw_faults(root, 17, 50)
    assert faults != draw.draw_faults(root, 18, 50)
    assert len({fault.what for fault in faults}) == len(faults) == 50


def test_every_room_has_its_share_and_no_statement_two(root):
    faults = draw.draw_faults(root, 17, 50)
    counts = {room: sum(fault.room == room for fault in faults) for room in draw.ROOMS}
    assert counts == {room: 15 if room == "tasks" else 5 for room in draw.ROOMS}
    places = []
    for fault in faults:
        source = (root / fault.path).read_text()
        # raises unless the text is there once
        pairs = zip(source.split("\n"), fault.plant(source).split("\n"), strict=True)
        # a line is a statement here
        places += [(fault.file, number) for number, (old, new) in enumerate(pairs) if old != new]
    assert len(set(places)) == len(places) == 50


def test_what_is_written_reads_back(root, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(draw, "ROOT", root)
    file = tmp_path / "drawn.py"
    assert draw.main(["--seed", "3", "--count", "44", "--out", str(file)]) == 0
    assert capsys.readouterr().out.startswith("44 faults: layers 5, models 5,")
    text, space = file.read_text(), {}
    exec(compile(text, "drawn.py", "exec"), space)
    assert space["DRAWN"] == draw.draw_faults(root, 3, 44)
    assert space["COMMAND"] == "python -m tools.faults.draw --seed 3 --count 44"
    assert text.startswith('"""Made by `python -m tools.faults.draw --seed 3 --count 44`; nobody edits it by hand."""')
    assert max(map(len, text.splitlines())) <= draw.WIDTH


@pytest.mark.parametrize("text", ["", "plain", 'a "b"', "it's", "a\n    b \\ c", "é " * 99, "'\" " * 40])
def test_a_text_is_quoted_in_short_lines(text):
    written = draw._quote(text)
    assert "".join(ast.literal_eval(line.strip()) for line in written.split("\n")) == text
    assert max(map(len, written.split("\n"))) <= draw.WIDTH - 2


def test_what_lies_in_the_folder_says_its_command():
    assert COMMAND.endswith(f" --seed 17 --count {len(DRAWN)}")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(["--count", "9"], "must be at least 40, 5 of each room"), (["--out", "a.txt"], "must end in .py, got 'a.txt'")],
)
def test_bad_input_is_one_line_and_status_two(arguments, words, capsys):
    with pytest.raises(SystemExit) as stop:
        draw.main(arguments)
    assert stop.value.code == 2
    complaint = capsys.readouterr().err
    assert complaint.count("\n") == 1
    assert words in complaint
