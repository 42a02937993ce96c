"""Tasks by name, and by what a run says of itself."""

from __future__ import annotations

import json

import pytest

from regard import RegardError
from regard.tasks import registry
from regard.tasks.registry import TASKS, find_entry, find_task, list_tasks
from tests.tasks.reading import save, tag_job

pytest.importorskip("safetensors")


@pytest.fixture
def declare(monkeypatch):
    """Pretends that an installed package declares a task."""

    def declare(name, reference):
        monkeypatch.setattr(registry, "find_plugins", lambda kind: {name: reference} if kind == "tasks" else {})
        list_tasks.cache_clear()

    yield declare
    list_tasks.cache_clear()


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("other", "tests.tasks.test_registry:TASKS"),
        ("other", "tests.tasks.test_registry:TAG"),
        ("tag", "tests.tasks.test_registry:TAG"),
    ],
)
def test_what_is_declared_wrongly_is_named(declare, name, reference):
    declare(name, reference)
    with pytest.raises(RegardError) as error:
        find_task("translate")
    assert str(error.value) == (
        f"entry point regard.tasks {name}={reference} must be an Entry of that name, which no other task has: mend or"
        " remove the package that declares it."
    )


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
