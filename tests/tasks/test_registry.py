"""Tasks of other packages: what is wrong with one is said in a line that names it, whatever command is called."""

from __future__ import annotations

import itertools
import json
import sys

import pytest

from regard import RegardError
from regard.cli import main
from regard.compare.part import find_part
from regard.tasks.registry import TASKS, find_entry, find_task, list_tasks
from tests.tasks.reading import save, tag_job
from tools.own_package import forget

MEND = "mend or remove the package that declares it."
TASK = """
import dataclasses
from typing import Annotated

from regard.cli.options.scoring import Scoring
from regard.cli.options.spread import Some
from regard.tasks.registry import TASKS

@dataclasses.dataclass(frozen=True)
class Limits(Scoring):
    limit: Annotated[int | None, Some("N", "More.")] = None

@dataclasses.dataclass(frozen=True)
class Others(Scoring):
    column: Annotated[int | None, Some("N", "Another column.")] = None

"""


@pytest.fixture
def declare(tmp_path, monkeypatch):
    """Install a package of one file, with entry points."""
    monkeypatch.syspath_prepend(str(tmp_path))
    names = (f"foreign{number}" for number in itertools.count())
    declared = []

    def install(points: str, content: str = "") -> None:
        declared.append(name := next(names))
        (tmp_path / f"{name}.py").write_text(TASK + content)
        (tmp_path / f"{name}.dist-info").mkdir()
        (tmp_path / f"{name}.dist-info" / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (tmp_path / f"{name}.dist-info" / "entry_points.txt").write_text(points.replace("HERE", name))
        forget()

    yield install
    forget()
    for name in declared:
        sys.modules.pop(name, None)


def make_task(**changes):
    said = "".join(f", {name}={value!r}" for name, value in changes.items())
    return f"FOREIGN = dataclasses.replace(TASKS[1]{said})"


@pytest.mark.parametrize(
    ("content", "error"),
    {
        "raises": ("1 / 0", "cannot be imported (division by zero)"),
        "lacks a package": ("import nowhere", "cannot be imported (No module named 'nowhere')"),
        "has no such name": ("", "cannot be imported (module 'foreign0' has no attribute 'FOREIGN')"),
        "is no task": ("FOREIGN = 1", "must be an Entry of that name, which no other task has"),
        "has another name": (make_task(name="b"), "must be an Entry of that name, which no other task has"),
    }.values(),
)  # fmt: skip
def test_a_package_that_cannot_be_imported_is_named(declare, capsys, content, error):
    declare("[regard.tasks]\nforeign = HERE:FOREIGN\n", content)
    assert main(["--help"]) == 2
    assert capsys.readouterr().err == f"entry point regard.tasks foreign=foreign0:FOREIGN {error}: {MEND}\n"


def test_a_name_that_two_packages_declare_is_refused(declare):
    for word in ("one", "other"):
        declare("[regard.tasks]\nforeign = HERE:FOREIGN\n", make_task(name="foreign", does=word))
    with pytest.raises(RegardError) as caught:
        list_tasks()
    assert str(caught.value) == (
        "entry point regard.tasks foreign is declared by several packages, as foreign0:FOREIGN and foreign1:FOREIGN:"
        " remove all but one."
    )


@pytest.mark.parametrize(("name", "command"), [("demo", ""), ("evaluate", ""), ("foreign", "tag"), ("new", "look")])
def test_a_command_that_is_there_is_not_taken(declare, capsys, name, command):
    declare(f"[regard.tasks]\n{name} = HERE:FOREIGN\n", make_task(name=name, command=command))
    assert main(["--help"]) == 2
    said = f"task {name} would have the command {command or name}, which is another's: {MEND}\n"
    assert capsys.readouterr().err == said


def test_a_part_that_cannot_be_imported_is_named(declare, capsys):
    task = make_task(name="foreign", job="foreign0:Job", train=None)
    declare("[regard.tasks]\nforeign = HERE:FOREIGN\n", task)
    assert main(["train", "foreign", "--help"]) == 2
    assert capsys.readouterr().err == (
        "task foreign has the job foreign0:Job, which cannot be imported (module 'foreign0' has no attribute 'Job'):"
        " mend or remove the package that declares it.\n"
    )
    assert find_task("foreign").open("reader").__name__ == "TaggedCorpus"


@pytest.mark.parametrize(("scoring", "option"), [("Limits", "limit"), ("Others", "column")])
def test_an_option_that_is_there_is_not_taken(declare, capsys, monkeypatch, scoring, option):
    monkeypatch.delitem(sys.modules, "regard.cli.evaluate", raising=False)
    declare("[regard.tasks]\nforeign = HERE:FOREIGN\n", make_task(name="foreign", scoring=f"foreign0:{scoring}"))
    assert main(["evaluate", "--help"]) == 2
    said = f"a command would have two options --{option}: name that setting of a task otherwise.\n"
    assert capsys.readouterr().err == said


def test_a_part_of_the_comparison_that_cannot_be_imported_is_named(declare):
    declare("[regard.compare]\nforeign = HERE:FOREIGN\n")
    with pytest.raises(
        RegardError, match=r"^entry point regard.compare foreign=foreign0:FOREIGN cannot be imported \("
    ):
        find_part("foreign")


TAG = next(entry for entry in TASKS if entry.name == "tag")


def change(folder, **changes):
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def test_the_task_of_a_run(tmp_path):
    save(tag_job, tmp_path)
    assert find_entry(tmp_path) is TAG
    # one that does not say is told by its head
    change(tmp_path, training={})
    assert find_entry(tmp_path) is TAG
    change(tmp_path, training={"task": "haiku"})
    names = ", ".join(entry.name for entry in TASKS)
    said = f"no task is called 'haiku': regard has {names}; install the package that has it."
    for call, begins in ((lambda: find_task("haiku"), ""), (lambda: find_entry(tmp_path), f"{tmp_path}: ")):
        with pytest.raises(RegardError) as error:
            call()
        assert str(error.value) == f"{begins}{said}"


def test_a_model_that_no_task_trains_is_named(tmp_path):
    save(tag_job, tmp_path)
    change(tmp_path, training={}, head="pairs")
    with pytest.raises(RegardError) as error:
        find_entry(tmp_path)
    assert str(error.value) == f"{tmp_path} does not say what it was trained for: name a run that regard train wrote."
