"""What all that train share: the options of how and on what machine, and what is said at the end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli.files import name_program
from regard.cli.options import Some, drop_none

Out = Annotated[Path, typer.Option(metavar="FOLDER", help="Where the run lives; one that is there goes on.")]
Valid = Annotated[list[str] | None, Some("FILE", "What to validate by, as --data.  [default: held out of --data]")]
HeldOut = Annotated[
    float | None,
    Some(
        "X", "Fraction of --data to validate by, and as much again for the test.  [default: from the size of the data]"
    ),
]
Limit = Annotated[int | None, Some("N", "Learn from the first so many only.", min=1)]
Preset = Annotated[str, typer.Option(metavar="NAME", help="Its size: tiny, small or base.")]
Changes = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting of the model, as num_hiddens=512; repeat."),
]


@dataclass(frozen=True)
class Training:
    """How, how long and on what a model is trained."""

    epochs: Annotated[
        int | None, Some("N", "Times to go through the data.  [default: 10, or as suits the model]", min=1)
    ] = None
    max_steps: Annotated[int | None, Some("N", "End after so many steps.", min=1)] = None
    accumulate: Annotated[int, typer.Option(metavar="N", min=1, help="Batches in a step.")] = 1
    lr: Annotated[float | None, Some("X", "Learning rate at its top.  [default: by the model]")] = None
    warmup: Annotated[int | None, Some("N", "Steps to the top.  [default: by the model]", min=0)] = None
    schedule: Annotated[
        str | None, Some("NAME", "constant, linear, cosine or inverse-sqrt.  [default: by the model]")
    ] = None
    weight_decay: Annotated[float | None, Some("X", "Of AdamW.  [default: by the model]")] = None
    clip: Annotated[float, typer.Option(metavar="X", help="Longest gradient.")] = 1.0
    average: Annotated[
        float | None, Some("X", "Decay of a moving average of the weights; 0 is none.  [default: by the model]")
    ] = None
    patience: Annotated[
        int | None, Some("N", "End after so many validations without a better one; 0 never does.", min=0)
    ] = None
    validate_every: Annotated[int | None, Some("N", "Steps.  [default: an epoch]", min=1)] = None
    save_every: Annotated[int, typer.Option(metavar="N", min=1, help="Steps; validations save too.")] = 500
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="The same seed, the same run.")] = 0
    accelerator: Annotated[str, typer.Option(metavar="NAME", help="auto, cpu or cuda.")] = "auto"
    devices: Annotated[str, typer.Option(metavar="N", help="How many, or which: 2, auto or 0,3.")] = "1"
    strategy: Annotated[str, typer.Option(metavar="NAME", help="auto, ddp or fsdp.")] = "auto"
    num_nodes: Annotated[int, typer.Option(metavar="N", min=1, help="Machines, under torchrun.")] = 1
    precision: Annotated[str, typer.Option(metavar="NAME", help="32-true, bf16-mixed, bf16-true or 64-true.")] = (
        "32-true"
    )
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write logs for it, too.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing while it lasts.")] = False

    @property
    def recipe(self) -> dict[str, Any]:
        """What was given of a `Recipe`."""
        # an average would need all of the weights in one place
        average = 0.0 if self.average is None and self.strategy == "fsdp" else self.average
        return drop_none(
            {
                "epochs": self.epochs, "max_steps": self.max_steps, "lr": self.lr, "warmup": self.warmup,
                "schedule": self.schedule, "clip": self.clip, "weight_decay": self.weight_decay,
                "accumulate": self.accumulate, "average": average, "patience": self.patience,
                "validate_every": self.validate_every, "save_every": self.save_every, "seed": self.seed,
            }
        )  # fmt: skip

    def run(self, job: Any, out: Path, use: str) -> None:
        """Train a job in a folder and end the program; `use` is the command for what was trained."""
        from regard.tasks.folder import RunFolder
        from regard.tasks.plan import open_job
        from regard.tasks.recipe import Machine

        machine = Machine(self.accelerator, self.devices, self.strategy, self.num_nodes, self.precision)
        folder = RunFolder(out)
        folder.check()
        # read before torch and its like are loaded: what is wrong with a file shows at once
        job, parts = open_job(job, folder)
        options: dict[str, Any] = {"parts": parts, "is_shown": not self.quiet, "logs": self.tensorboard}
        with hush():
            standing = job.open_trainer()(job, str(out), machine, **options)
        raise typer.Exit(close(standing, out, use, job.metric, has_test=bool(parts.test), is_shown=not self.quiet))


@contextmanager
def hush() -> Iterator[None]:
    """Keep back what lightning and torch say of themselves: it is for whoever programs them. Errors are errors."""
    import logging
    import warnings

    # the import sets the levels
    import lightning.fabric  # noqa: F401

    # its rooms write into one another's
    loggers = [logging.getLogger(name) for name in ("lightning", "lightning.fabric", "lightning.pytorch")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            # python -W asks for them
            if not sys.warnoptions:
                warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def close(standing: Any, out: Path, use: str, metric: str = "", *, has_test: bool = True, is_shown: bool) -> int:
    """Say how a run ended and what can be done now, by what command and with what; the status to exit with."""
    import signal

    from torch import distributed

    # of several processes one speaks
    is_first = not (distributed.is_available() and distributed.is_initialized() and distributed.get_rank())
    where = f"{out}: step {standing.step}, {standing.seconds:.0f} s of training"
    if standing.ended.startswith("SIG"):
        if is_first:
            print(f"Stopped and saved. {where}. The same command goes on.", file=sys.stderr)
        return 128 + signal.Signals[standing.ended]
    if is_shown and is_first:
        why = "no better for long enough" if standing.ended == "patience" else "all steps done"
        best = f"best {metric} {standing.best:.4g} at step {standing.best_step}"
        print(f"Done ({why}). {where}, {best}.", file=sys.stderr)
        for note in standing.notes:
            print(note, file=sys.stderr)
        use = use.format(run=out)
        print(f"Curves: {out / 'curves.png'}. Use it: {name_program()} {use}", file=sys.stderr)
        program = name_program()
        look = f'{program} look {out} "a sentence" --out page.html'
        data = "" if has_test else " --data FILE"
        print(f"Score it: {program} evaluate {out}{data}. See it: {look}", file=sys.stderr)
    return 0
