"""The list of seeded faults fits the source, and the tool that plants them tells caught from survived."""

import ast
import functools
import json
import pathlib

import pytest

from tests.tools.toy import CAUGHT, SURVIVES, TWO, begin, write_files
from tools import copies, seed_faults
from tools.faults import DRAWN, EQUIVALENT, FAULTS, Fault, SeedError
from tools.verdicts import Verdict, show

ROOT = pathlib.Path(__file__).parents[2]
UPPER = {"layers": 7, "models": 7, "data": 6, "tasks": 8, "views": 7, "compare": 5, "watching": 4, "cli": 4}


def test_every_fault_fits_the_source():
    # raises unless each text is there exactly once, and says how to draw again
    seed_faults.check_texts(ROOT, FAULTS)
    idle = []
    for fault in FAULTS:
        source = (ROOT / fault.path).read_text(encoding="utf-8")
        wrong = fault.plant(source)
        is_same = wrong == source if fault.needs_browser else ast.dump(ast.parse(wrong)) == read(source)
        idle += [fault.what] if is_same else []
    assert not idle, "these change nothing"


@functools.cache
def read(source: str) -> str:
    return ast.dump(ast.parse(source))


def test_faults_are_many_and_told_apart():
    assert len({fault.what for fault in FAULTS}) == len(FAULTS)
    assert len({(fault.file, fault.old, fault.new) for fault in FAULTS}) == len(FAULTS)
    drawn = {fault.what for fault in DRAWN}
    for room, least in UPPER.items():
        by_hand = [fault for fault in FAULTS if fault.room == room and fault.what not in drawn]
        assert len(by_hand) >= least
        assert sum(fault.room == room for fault in DRAWN) >= 5
    assert len(DRAWN) >= 56


def test_what_is_equivalent_was_drawn_and_has_a_reason():
    assert set(EQUIVALENT) <= {fault.what for fault in DRAWN}
    assert all(reason and "\n" not in reason for reason in EQUIVALENT.values())


@pytest.mark.parametrize("source", ["y = 1\n", "x = 1\nx = 1\n"])
def test_an_aged_fault_is_an_error(source):
    with pytest.raises(ValueError, match=r"'wrong' was found [02] times, must be once"):
        Fault("a.py", "x = 1", "x = 2", "wrong").plant(source)


def judge(project, faults, **changed):
    options = {"first": (), "jobs": 1, "limit": 60.0, "clean": False} | changed
    return list(seed_faults.judge(project, faults, **options))


def test_one_is_caught_and_one_survives(project):
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    found = {verdict.fault: verdict for verdict in judge(project, [CAUGHT, SURVIVES], jobs=2, clean=True)}
    assert found[CAUGHT].test == "tests/room/test_double.py::test_two"
    assert not found[SURVIVES].caught
    assert "SURVIVED" in show(found[SURVIVES])
    assert "by tests/room/test_double.py::test_two" in show(found[CAUGHT])
    # the project itself was never touched
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == before


@pytest.fixture
def sure(monkeypatch):
    """No canary: other tests hear it."""
    monkeypatch.setattr(seed_faults, "check_copy", lambda *_: None)


def test_a_room_above_may_be_the_one_that_catches(project, sure):
    write_files(project, {"tests/room/test_double.py": "import regard.room.double\n\ndef test_nothing(): pass\n"})
    write_files(project, {"tests/cli/test_far.py": TWO})
    (verdict,) = judge(project, [CAUGHT])
    assert verdict.test == "tests/cli/test_far.py::test_two"


def test_a_fault_that_breaks_a_conftest_is_caught(project, sure):
    write_files(project, {"tests/room/conftest.py": "from regard.room.double import double\n\nassert double(1) == 2\n"})
    (verdict,) = judge(project, [CAUGHT])
    assert verdict.test == "pytest itself, status 4"


def test_a_copy_leaves_caches_and_environments_behind(project, tmp_path):
    copy = copies.copy_project(project, tmp_path / "copy")
    assert (copy / "src/regard/room/double.py").is_file()
    assert not (copy / ".venv").exists()
    assert not list(copy.rglob("__pycache__"))


def test_tests_that_fail_anyway_are_an_error(project, sure):
    (project / "tests/room/test_red.py").write_text("def test_red():\n    assert False\n")
    with pytest.raises(SeedError, match=r"fail without any fault: tests/room/test_red.py::test_red"):
        judge(project, [CAUGHT], clean=True)


def test_tests_that_do_not_see_the_copy_are_an_error(project):
    # what an installed package would do: the test finds another `double` than the copy's
    (project / "tests/room/test_double.py").write_text("def test_two():\n    assert 2 * 2 == 4\n")
    with pytest.raises(SeedError, match="the tests do not run on the copy"):
        judge(project, [CAUGHT])


def test_a_fault_that_takes_too_long_is_not_caught_and_leaves_nothing_running(project, sure):
    endless = Fault("room/double.py", "y = 2 * x", "while True: pass", "never ends")
    (verdict,) = judge(project, [endless], limit=1.0)
    assert not verdict.caught
    assert "NO END" in show(verdict)
    assert not copies.RUNNING


def test_data_is_found_from_the_copy(project, monkeypatch):
    monkeypatch.setenv("REGARD_DATA", "data")
    monkeypatch.chdir(project)
    asks = "import os\n\ndef test_data():\n    assert os.environ['REGARD_DATA'] == {!r}\n"
    write_files(project, {"tests/room/test_data.py": asks.format(str(project / "data"))})
    assert copies.run_tests(project, ["tests/room/test_data.py"], 60.0)[0] == ""


@pytest.fixture
def quick(monkeypatch):
    """Nothing is copied or asked of the machine; every fault is caught but those in `missed`."""
    missed: list[str] = []

    def judge(root, faults, *_):
        return (Verdict(fault, "" if fault.what in missed else "a test", 1.0) for fault in faults)

    monkeypatch.setattr(seed_faults, "judge", judge)
    monkeypatch.setattr(seed_faults, "begin_count", lambda faults, command: begin(faults, command=command))
    monkeypatch.setattr(seed_faults, "FAULTS", FAULTS[:24])
    # the source may be on its way
    monkeypatch.setattr(seed_faults, "check_texts", lambda *_: None)
    return missed


@pytest.mark.parametrize(("count", "status"), [(0, 0), (1, 0), (2, 1)])
def test_the_status_tells_whether_enough_were_caught(count, status, quick, capsys):
    # two of 24 are more than one in twenty
    quick += [fault.what for fault in FAULTS[:count]]
    assert seed_faults.main([]) == status
    printed = capsys.readouterr().out
    assert f"\n24 of 24: {24 - count} caught, {count} not\n" in printed
    assert f"{24 - count} of 24 faults caught" in printed
    assert printed.count("  survived: ") == count


def test_a_count_is_written_after_every_fault_and_gone_on_with(quick, capsys, tmp_path, monkeypatch):
    page = tmp_path / "faults.md"
    sound = seed_faults.judge

    def stop(root, faults, *rest):
        yield from list(sound(root, faults, *rest))[:5]
        raise KeyboardInterrupt

    monkeypatch.setattr(seed_faults, "judge", stop)
    with pytest.raises(SystemExit) as end:
        seed_faults.main(["--out", str(page)])
    assert end.value.code == 130
    assert "5 of 24 caught (20.8%).\n19 are not judged to the end yet." in page.read_text()
    assert len(json.loads(page.with_suffix(".json").read_text())["verdicts"]) == 5
    monkeypatch.setattr(seed_faults, "judge", sound)
    assert seed_faults.main(["--resume", str(page.with_suffix(".json"))]) == 0
    assert "5 were judged before." in capsys.readouterr().out
    assert "24 of 24 caught (100.0%)." in page.read_text()
    assert "--resume" in page.read_text()


def test_rooms_can_be_chosen(quick, capsys):
    rooms = {fault.room for fault in FAULTS[:24]}
    (room, *_) = sorted(rooms)
    assert seed_faults.main(["--room", room]) == 0
    own = sum(fault.room == room for fault in FAULTS[:24])
    assert f"{own} of {own} faults caught" in capsys.readouterr().out


def test_a_fault_in_a_script_is_set_aside_without_a_browser(monkeypatch):
    monkeypatch.setattr(seed_faults, "find_chromium", lambda: None)
    script = next(fault for fault in FAULTS if fault.needs_browser)
    count = seed_faults.begin_count([CAUGHT, script], "")
    assert count.todo == [CAUGHT]
    assert f"  not judged: {script.what}: no Chromium is installed" in count.sum_up()


def test_the_list_runs_nothing(quick, capsys, monkeypatch):
    monkeypatch.setattr(seed_faults, "judge", lambda *_: pytest.fail("nothing should run"))
    monkeypatch.setattr(seed_faults, "EQUIVALENT", {FAULTS[3].what: "nobody can see it"})
    assert seed_faults.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 24
    assert lines[3].endswith("(equivalent: nobody can see it)")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--jobs", "0"], "must be a whole number above 0, got '0'"),
        (["--only", "no such fault"], "no fault has 'no such fault'"),
        (["--first", "tests/nowhere"], "there is no tests/nowhere"),
        (["--room", "cellar"], "there are no faults of 'cellar', only of "),
        (["--out", "faults.txt"], "must end in .md, got 'faults.txt'"),
        (["--resume", "nowhere.json"], "nowhere.json holds no verdicts to go on from (FileNotFoundError)"),
        (["--twice"], "unrecognized arguments"),
    ],
)
def test_bad_input_is_one_line_and_status_two(arguments, words, quick, capsys):
    with pytest.raises(SystemExit) as stop:
        seed_faults.main(arguments)
    assert stop.value.code == 2
    complaint = capsys.readouterr().err
    assert complaint.count("\n") == 1
    assert words in complaint


def test_an_aged_list_stops_the_run(capsys, monkeypatch):
    aged = Fault("score/dot.py", "no such text", "", "aged")
    gone = Fault("score/gone.py", "x", "", "gone")
    drawn = Fault("layers/cache.py", "no such text", "", DRAWN[0].what)
    monkeypatch.setattr(seed_faults, "FAULTS", [aged, gone, drawn])
    with pytest.raises(SystemExit) as stop:
        seed_faults.main([])
    assert stop.value.code == 2
    complaint = capsys.readouterr().err
    assert "the text of 'aged' was found 0 times" in complaint
    assert "src/regard/score/gone.py of 'gone' cannot be read." in complaint
    assert complaint.rstrip().endswith("Draw again: python -m tools.faults.draw --seed 17 --count 56.")
