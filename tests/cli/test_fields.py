"""The command of a task of one's own, and its options, which are made of settings."""

from dataclasses import dataclass, replace

import pytest

from regard import RegardError
from regard.cli import app
from regard.cli.options.fields import make_options
from regard.cli.options.spread import join_options
from regard.models.config import setting
from regard.tasks.registry import TASKS


@dataclass(frozen=True)
class Sizes:
    rate: float = setting(0.5, "how fast")
    widths: tuple[int, ...] = setting((3, 2), "width of each layer")


def test_a_setting_that_cannot_be_typed_is_named():
    with pytest.raises(RegardError) as error:
        make_options(Sizes)
    assert str(error.value) == (
        "Sizes widths must be int, float, str or bool to be an option, got tuple[int, ...]: declare it as a plain"
        " field, not by setting."
    )
    assert make_options(Sizes, without=("widths",))(rate=0.25).rate == 0.25


def test_an_option_that_another_task_means_otherwise_is_named():
    @dataclass
    class Other:
        rate: int = 2

    assert join_options([Sizes, Sizes])().rate == 0.5
    with pytest.raises(RegardError) as error:
        join_options([Sizes, Other])
    assert str(error.value) == "a command would have two options --rate: name that setting of a task otherwise."


def test_a_command_of_another_is_named(monkeypatch):
    monkeypatch.setattr(app, "list_tasks", lambda: {"own": replace(TASKS[0], name="own", command="look")})
    with pytest.raises(RegardError) as error:
        app.Root().references()
    assert str(error.value) == (
        "task own would have the command look, which is another's: mend or remove the package that declares it."
    )
