"""The list of seeded faults fits the source, and the tool that plants them tells caught from survived."""

import ast
import pathlib

import pytest

from tools import seed_faults
from tools.faults import FAULTS, Fault

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what.replace(" ", "-"))
def test_a_fault_fits_the_source(fault):
    source = (ROOT / fault.path).read_text(encoding="utf-8")
    # raises unless the text is there exactly once
    wrong = fault.plant(source)
    assert ast.dump(ast.parse(wrong)) != ast.dump(ast.parse(source)), "the fault changes nothing"


def test_faults_are_many_and_told_apart():
    assert len(FAULTS) >= 24
    assert len({fault.what for fault in FAULTS}) == len(FAULTS)
    assert len({(fault.file, fault.old, fault.new) for fault in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize("source", ["y = 1\n", "x = 1\nx = 1\n"])
def test_an_aged_fault_is_an_error(source):
    with pytest.raises(ValueError, match=r"'wrong' was found [02] times, must be once"):
        Fault("a.py", "x = 1", "x = 2", "wrong").plant(source)


@pytest.fixture
def project(tmp_path) -> pathlib.Path:
    """A project of one function and one test, and things that must not be copied or run."""
    files = {
        "src/regard/__init__.py": "",
        "src/regard/room/__init__.py": "",
        "src/regard/room/double.py": "def double(x):\n    y = 2 * x\n    unseen = 1\n    return y\n",
        "tests/room/test_double.py": "from regard.room.double import *\n\ndef test_two():\n    assert double(2) == 4\n",
        "tests/tools/test_always.py": "def test_always():\n    assert False, 'must not be run'\n",
        "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["src"]\n',
        ".venv/left.py": "",
        "src/regard/room/__pycache__/double.pyc": "",
    }
    for name, text in files.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "project"


CAUGHT = Fault("room/double.py", "2 * x", "3 * x", "triples")
SURVIVES = Fault("room/double.py", "unseen = 1", "unseen = 2", "nobody looks")


def judge(project, faults, **changed):
    options = {"order": (), "jobs": 1, "limit": 60.0, "clean": True} | changed
    return list(seed_faults.judge(project, faults, **options))


def test_one_is_caught_and_one_survives(project):
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    caught, survived = judge(project, [CAUGHT, SURVIVES])
    assert caught.test == "tests/room/test_double.py::test_two"
    assert not survived.caught
    assert "SURVIVED" in seed_faults.show(survived)
    assert "by tests/room/test_double.py::test_two" in seed_faults.show(caught)
    # the project itself was never touched
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == before


def test_two_at_a_time_give_the_same(project):
    verdicts = judge(project, [CAUGHT, SURVIVES, CAUGHT], jobs=2, clean=False)
    assert [verdict.caught for verdict in verdicts] == [True, False, True]


def test_a_copy_leaves_caches_and_environments_behind(project, tmp_path):
    copy = seed_faults.copy_project(project, tmp_path / "copy")
    assert (copy / "src/regard/room/double.py").is_file()
    assert not (copy / ".venv").exists()
    assert not list(copy.rglob("__pycache__"))


def test_tests_that_fail_anyway_are_an_error(project):
    (project / "tests/room/test_red.py").write_text("def test_red():\n    assert False\n")
    with pytest.raises(seed_faults.SeedError, match=r"fail without any fault: tests/room/test_red.py::test_red"):
        judge(project, [CAUGHT])


def test_tests_that_do_not_see_the_copy_are_an_error(project):
    # what an installed package would do: the test finds another `double` than the copy's
    (project / "tests/room/test_double.py").write_text("def test_two():\n    assert 2 * 2 == 4\n")
    with pytest.raises(seed_faults.SeedError, match="the tests do not run on the copy"):
        judge(project, [CAUGHT])


def test_a_fault_that_takes_too_long_is_not_caught(project):
    endless = Fault("room/double.py", "y = 2 * x", "while True: pass", "never ends")
    (verdict,) = judge(project, [endless], limit=3.0, clean=False)
    assert not verdict.caught
    assert "NO END" in seed_faults.show(verdict)


def test_what_is_near_a_file_exists():
    files = {fault.file for fault in FAULTS}
    for file, tests in seed_faults.NEAR.items():
        assert file in files
        for test in tests:
            assert (ROOT / test).is_file(), test


def test_the_order_of_tests(project):
    slow = seed_faults.LAST[0]
    for name in ("tests/mask/test_b.py", "tests/other/test_c.py", "tests/mask/rules.py", "tests/test_top.py", slow):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text("")
    tests = seed_faults.list_tests(project, ["tests/other/test_c.py", "tests/mask", "tests/missing"])
    assert tests[:2] == ["tests/other/test_c.py", "tests/mask/test_b.py"]
    assert tests[2:] == ["tests/room/test_double.py", "tests/test_top.py", slow]
    # a fault's own test comes before all
    assert seed_faults.own_test(CAUGHT, tests)[0] == "tests/room/test_double.py"
    assert sorted(seed_faults.own_test(CAUGHT, tests)) == sorted(tests)


def test_the_list_runs_nothing(capsys, monkeypatch):
    monkeypatch.setattr(seed_faults, "judge", lambda *_: pytest.fail("nothing should run"))
    assert seed_faults.main(["--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(FAULTS)


@pytest.mark.parametrize(("missed", "status"), [(0, 0), (1, 0), (2, 1)])
def test_the_status_tells_whether_enough_were_caught(missed, status, capsys, monkeypatch):
    # two of 24 are more than one in twenty
    faults = FAULTS[:24]
    monkeypatch.setattr(seed_faults, "FAULTS", faults)
    verdicts = [seed_faults.Verdict(fault, "" if at < missed else "a test", 1.0) for at, fault in enumerate(faults)]
    monkeypatch.setattr(seed_faults, "judge", lambda *_: verdicts)
    assert seed_faults.main([]) == status
    printed = capsys.readouterr().out
    assert f"{24 - missed} of 24 faults caught" in printed
    assert printed.count("  survived: ") == missed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--jobs", "0"], "must be a whole number above 0, got '0'"),
        (["--only", "no such fault"], "no fault has 'no such fault'"),
        (["--first", "tests/nowhere"], "there is no tests/nowhere"),
        (["--twice"], "unrecognized arguments"),
    ],
)
def test_bad_input_is_one_line_and_status_two(arguments, words, capsys):
    with pytest.raises(SystemExit) as stop:
        seed_faults.main(arguments)
    assert stop.value.code == 2
    complaint = capsys.readouterr().err
    assert complaint.count("\n") == 1
    assert words in complaint


def test_an_aged_list_stops_the_run(capsys, monkeypatch):
    aged = Fault("score/dot.py", "no such text", "", "aged")
    monkeypatch.setattr(seed_faults, "FAULTS", [aged])
    with pytest.raises(SystemExit) as stop:
        seed_faults.main([])
    assert stop.value.code == 2
    assert "the text of 'aged' was found 0 times" in capsys.readouterr().err
