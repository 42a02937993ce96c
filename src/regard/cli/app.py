"""All commands, by name: those of the tasks from their registry, and a line here for each other.

A command is one file with one typed function and EXAMPLES, imported when it is called for; `regard --help` imports all
of them, so torch is for their bodies.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command, get_group

from regard.cli.ask.of_task import make_asking
from regard.cli.train.of_task import make_training
from regard.core import RegardError
from regard.plugins import load
from regard.tasks.registry import list_tasks

# commands that do something where nothing more is said
ALONE = ("demo", "compare")
# plain text, not panels: the same on a terminal, in a pipe and in a file
STYLE: dict[str, Any] = {"rich_markup_mode": None, "add_completion": False}


class Commands(TyperGroup):  # type: ignore[misc]
    """A group of commands, each imported when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.references())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands and (reference := self.references().get(cmd_name)):
            made = load(reference) if isinstance(reference, str) else reference()
            self.commands[cmd_name] = made if isinstance(made, TyperGroup) else make_command(cmd_name, made)
        return self.commands.get(cmd_name)

    def references(self) -> dict[str, str | Callable[[], Any]]:
        """For each command's name, where its function is, or what makes one, or another group."""
        raise NotImplementedError


class Training(Commands):
    """`regard train`: a command for each task."""

    def references(self) -> dict[str, str | Callable[[], Any]]:
        return {
            name: partial(entry.open, "train") if entry.train else partial(make_training, entry)
            for name, entry in list_tasks().items()
        }


class Root(Commands):
    """`regard`: all commands."""

    def references(self) -> dict[str, str | Callable[[], Any]]:
        first: dict[str, str | Callable[[], Any]] = {
            "demo": "regard.cli.demo:demo", "train": partial(get_group, training)
        }  # fmt: skip
        last: dict[str, str | Callable[[], Any]] = {
            "embed": "regard.cli.ask.embed:embed", "evaluate": "regard.cli.evaluate:evaluate",
            "look": "regard.cli.look:look", "compare": "regard.cli.compare:compare",
        }  # fmt: skip
        for entry in list_tasks().values():
            if entry.use in first or entry.use in last:
                raise RegardError(
                    f"task {entry.name} would have the command {entry.use}, which is another's: mend or remove the"
                    " package that declares it."
                )
            first[entry.use] = partial(entry.open, "ask") if entry.ask else partial(make_asking, entry)
        return first | last


def make_command(name: str, function: Callable[..., None]) -> Any:
    """The command of a typed function, with the EXAMPLES of its file at the end of its help, as they stand."""
    examples = getattr(function, "examples", None) or sys.modules[function.__module__].EXAMPLES
    alone = typer.Typer(**STYLE)
    # \b: what follows is not filled into lines
    alone.command(name, epilog=f"\b\nExamples:\n{examples}", no_args_is_help=name not in ALONE)(function)
    return get_command(alone)


app = typer.Typer(
    name="regard",
    cls=Root,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    **STYLE,
)
training = typer.Typer(
    name="train", cls=Training, no_args_is_help=True, help="Train a model, on your own data or on examples built in.",
    **STYLE,
)  # fmt: skip


def show_version(wanted: bool) -> None:
    if wanted:
        import regard

        print(f"regard {regard.__version__}")
        raise typer.Exit()


def begin(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Attention models: train, use, and look into them."""


app.callback()(begin)


def run(arguments: Sequence[str]) -> int:
    """Run a command line; `regard.cli.main` makes one line of what is raised here."""
    command: Any = get_command(app)
    try:
        with command.make_context("regard", list(arguments)) as context:
            command.invoke(context)
    except typer.Exit as stop:
        return int(stop.exit_code)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except Exception as error:
        # what is wrong with a command line has a message; its class has no public name in all of typer's versions
        if not hasattr(error, "format_message"):
            raise
        return _explain(error, _name_command(command, arguments))
    return 0


def _name_command(command: Any, arguments: Sequence[str]) -> str:
    """The full name of the command that is meant."""
    names = ["regard"]
    for word in arguments:
        found = command.get_command(None, word) if isinstance(command, Commands) else None
        if found is None:
            break
        names.append(word)
        command = found
    return " ".join(names)


def _explain(error: Any, path: str) -> int:
    """Print one line on what is wrong with a command line; help, where nothing was asked."""
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.ctx.get_help())
        return 0
    message = " ".join(str(error.format_message()).split()).rstrip(".")
    print(f"{message}: see {path} --help.", file=sys.stderr)
    return int(error.exit_code)
