"""Which tests judge a fault, and in which order."""

import pathlib

import pytest

from tests.tools.toy import CAUGHT, write_files
from tools import stages
from tools.faults import SeedError

ROOT = pathlib.Path(__file__).parents[2]


def test_rooms_are_those_of_the_import_contract():
    rooms = stages.read_rooms(ROOT)
    assert rooms.index(["core"]) < rooms.index(["engine"]) < rooms.index(["models", "views", "data"])
    assert {path.name for path in (ROOT / "src/regard").iterdir() if path.is_dir()} - {"__pycache__"} <= {
        room for level in rooms for room in level
    }


def test_every_folder_of_tests_has_its_place():
    found = {path.name for path in (ROOT / "tests").iterdir() if list(path.glob("**/test_*.py"))}
    assert found <= {*stages.list_folders(ROOT, "core"), "packaging", "tools"}


@pytest.mark.parametrize(
    ("room", "first", "never"),
    [
        ("core", ["core", "score", "weigh", "mask", "bias", "engine", "conformance"], []),
        ("mask", ["mask", "engine", "conformance", "incidents"], ["weigh", "core"]),
        ("layers", ["layers", "models", "views", "data", "tasks", "compare"], ["engine", "conformance", "fuzz"]),
        ("views", ["views", "tasks", "compare", "cli"], ["models", "layers"]),
        ("cli", ["cli", "__main__"], ["tasks", "compare"]),
    ],
)
def test_a_fault_is_judged_by_its_room_and_those_above(room, first, never):
    folders = stages.list_folders(ROOT, room)
    assert folders[: len(first)] == first
    assert not set(never) & set(folders)
    assert folders[-2:] == ["examples", "benchmarks"]


def test_a_room_that_nobody_knows_is_an_error():
    with pytest.raises(SeedError, match=r"has no room 'cellar'"):
        stages.list_folders(ROOT, "cellar")


def test_stages_go_from_near_to_far(project, monkeypatch):
    write_files(project, dict.fromkeys(("tests/room/test_a.py", "tests/cli/test_d.py", "tests/examples/test_e.py"), ""))
    write_files(project, dict.fromkeys(("tests/tasks/test_c.py", "tests/room/rules.py", "tests/room/test_slow.py"), ""))
    write_files(project, {"tests/room/test_b.py": "import regard.room.double", stages.DOCS: ""})
    monkeypatch.setattr(stages, "LAST", ("tests/room/test_slow.py", "tests/room/test_gone.py", stages.DOCS))
    assert stages.plan_stages(project, CAUGHT) == [
        ["tests/packaging/test_docs.py::test_docstrings[src/regard/room/double.py]", "tests/room/test_double.py"],
        # one that names the module goes before one that does not
        ["tests/room/test_b.py", "tests/room/test_a.py"],
        ["tests/tasks/test_c.py"],
        ["tests/cli/test_d.py"],
        ["tests/examples/test_e.py"],
        ["tests/room/test_slow.py", "tests/packaging/test_docs.py"],
    ]
    planned = stages.plan_stages(project, CAUGHT, ["tests/cli", "tests/room/test_a.py"])
    assert planned[0] == ["tests/cli/test_d.py", "tests/room/test_a.py"]
    assert [len(tests) for tests in stages.gather_tests(planned)] == [1, 3, 2, 1, 1]


def test_what_is_near_a_file_exists():
    for file, tests in stages.NEAR.items():
        for path in (f"src/regard/{file}", *tests):
            assert (ROOT / path).is_file(), path
