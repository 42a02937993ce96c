"""All commands, by name: those of the tasks from their registry, and a line here for each other.

A command is one file with one typed function and EXAMPLES, imported when it is called for; `regard --help` imports all
of them, so torch is for their bodies.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from regard.plugins import load
from regard.tasks.registry import list_tasks

# plain text, not panels: the same on a terminal, in a pipe and in a file
STYLE: dict[str, Any] = {"rich_markup_mode": None, "add_completion": False}


class Commands(TyperGroup):
    """Commands that are imported when they are called for, by `references`."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.references())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.commands and (reference := self.references().get(cmd_name)):
            self.commands[cmd_name] = make_command(cmd_name, load(reference) if isinstance(reference, str) else reference)
        return self.commands.get(cmd_name)

    def references(self) -> dict[str, Any]:
        """A function or another group for each name, or where it is."""
        raise NotImplementedError


class Training(Commands):
    """`regard train`: a command for each task."""

    def references(self) -> dict[str, Any]:
        return {name: entry.train or make_training(entry) for name, entry in list_tasks().items()}


class Root(Commands):
    """`regard`: training, asking and looking."""

    def references(self) -> dict[str, Any]:
        asks = {entry.use: entry.ask or make_asking(entry) for entry in list_tasks().values()}
        return {
            "demo": "regard.cli.demo:demo",
            "train": train,
            **asks,
            "embed": "regard.cli.ask.embed:embed",
            "evaluate": "regard.cli.evaluate:evaluate",
            "look": "regard.cli.look:look",
            "compare": "regard.cli.compare:compare",
        }
