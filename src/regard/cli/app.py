"""All commands, by name; each is one file with one typed function, and one line here.

Whatever is imported at the top of these files is what `regard --help` waits for: torch is for the bodies.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from regard.cli import compare, demo, evaluate, look
from regard.cli.ask import classify, embed, fill, summarize, tag, translate
from regard.cli.train import classify as train_classify
from regard.cli.train import pretrain as train_pretrain
from regard.cli.train import summarize as train_summarize
from regard.cli.train import tag as train_tag
from regard.cli.train import translate as train_translate

# plain text, not panels: the same on a terminal, in a pipe and in a file
app = typer.Typer(
    name="regard",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


training = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Train a model, on your own data or on the built-in phrasebook."
)


def add(command: Callable[..., None], examples: str, to: Any = app, *, needs_more: bool = True) -> None:
    """Make a function a command; `examples` are shown as they stand at the end of its help."""
    # \b: what follows is not filled into lines
    to.command(epilog=f"\b\nExamples:\n{examples}", no_args_is_help=needs_more)(command)


add(demo.demo, demo.EXAMPLES, needs_more=False)
app.add_typer(training, name="train")
add(train_translate.translate, train_translate.EXAMPLES, training)
add(train_tag.tag, train_tag.EXAMPLES, training)
add(train_classify.classify, train_classify.EXAMPLES, training)
add(train_summarize.summarize, train_summarize.EXAMPLES, training)
add(train_pretrain.pretrain, train_pretrain.EXAMPLES, training)
add(translate.translate, translate.EXAMPLES)
add(tag.tag, tag.EXAMPLES)
add(classify.classify, classify.EXAMPLES)
add(summarize.summarize, summarize.EXAMPLES)
add(fill.fill, fill.EXAMPLES)
add(embed.embed, embed.EXAMPLES)
add(evaluate.evaluate, evaluate.EXAMPLES)
add(look.look, look.EXAMPLES)
add(compare.compare, compare.EXAMPLES, needs_more=False)


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
    """Attention models of text: train, use, and look into them."""


app.callback()(begin)


def run(arguments: Sequence[str]) -> int:
    """Run a command line; `regard.cli.main` says in one line what is raised here."""
    command = typer.main.get_command(app)
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
    """The command that is meant, by all its names."""
    names = ["regard"]
    for word in arguments:
        if word not in getattr(command, "commands", {}):
            break
        names.append(word)
        command = command.commands[word]
    return " ".join(names)


def _explain(error: Any, path: str) -> int:
    """One line that says what is wrong with a command line and where to look; help, where nothing was asked."""
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.ctx.get_help())
        return 0
    message = " ".join(str(error.format_message()).split()).rstrip(".")
    print(f"{message}: see {path} --help.", file=sys.stderr)
    return int(error.exit_code)
