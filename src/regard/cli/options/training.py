"""Options that all training commands share, hyperparameters and hardware; and what is printed at the end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options.files import name_program
from regard.cli.options.settings import show_settings
from regard.cli.options.spread import Some, drop_none

if TYPE_CHECKING:
    from regard.tasks.registry import Entry


def require(context: typer.Context, out: Path | None) -> Path | None:
    """Check that a run has a folder; an option that is not given is looked at after all that are."""
    if out is None and not context.params.get("settings"):
        raise typer.BadParameter("name a folder for the run")
    return out


Out = Annotated[
    Path | None,
    Some(
        "FOLDER", "Folder of the run: its settings, weights, curves. A run there is resumed.  [required]",
        callback=require,
    ),
]  # fmt: skip
Valid = Annotated[list[str] | None, Some("FILE", "Validation data, given as --data is.  [default: held out of --data]")]
HeldOut = Annotated[
    float | None,
    Some(
        "X",
        "Without --valid: fraction of --data held out for validation, and as much again for the test.  [default: from"
        " the size of the data]",
    ),
]
Limit = Annotated[int | None, Some("N", "Train on the first N examples only.  [default: all]", min=1)]
Preset = Annotated[str, typer.Option(metavar="NAME", help="Size of the model: tiny, small or base.")]
Changes = Annotated[
    list[str] | None,
    Some(
        "KEY=VALUE",
        "Change a setting of the model, as num_hiddens=512; repeat for more.  [default: the preset's; see --settings]",
        "--set",
    ),
]


@dataclass(frozen=True)
class Training:
    """Options of training: its recipe (hyperparameters) and its hardware."""

    epochs: Annotated[
        int | None,
        Some(
            "N",
            "Passes over the training data. Ends at --epochs or --max-steps, whichever is reached first."
            "  [default: {epochs}; more for small data]",
            min=1,
        ),
    ] = None
    max_steps: Annotated[
        int | None,
        Some(
            "N",
            "Optimizer steps. Ends at --epochs or --max-steps, whichever is reached first.  [default: no limit]",
            min=1,
        ),
    ] = None
    accumulate: Annotated[
        int, typer.Option(metavar="N", min=1, help="Gradient accumulation: batches per optimizer step.")
    ] = 1
    lr: Annotated[float | None, Some("X", "Peak learning rate of AdamW, above 0.  [default: {lr}]")] = None
    warmup: Annotated[
        int | None,
        Some("N", "Steps of linear learning-rate warmup.  [default: from the size of the data and the model]", min=0),
    ] = None
    schedule: Annotated[
        str | None,
        Some(
            "NAME",
            "Learning rate after the warmup: constant, linear or cosine (both fall to 0), or inverse-sqrt."
            "  [default: {schedule}]",
        ),
    ] = None
    weight_decay: Annotated[
        float | None, Some("X", "Weight decay of AdamW, 0 for none.  [default: {weight_decay}]")
    ] = None
    clip: Annotated[
        float, typer.Option(metavar="X", help="Maximum gradient norm, above 0; larger gradients are clipped to it.")
    ] = 1.0
    average: Annotated[
        float | None,
        Some(
            "X",
            "Decay of an exponential moving average of the weights, which is then validated and kept: in [0, 1),"
            " 0 for none.  [default: {average}; 0 with fsdp]",
        ),
    ] = None
    patience: Annotated[
        int | None,
        Some("N", "Early stopping: validations in a row without improvement, 0 for never.  [default: never]", min=0),
    ] = None
    validate_every: Annotated[
        int | None,
        Some("N", "Steps from one validation to the next.  [default: from the size of the data and the model]", min=1),
    ] = None
    save_every: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="Steps from one checkpoint to the next; a validation makes one, too."),
    ] = 500
    seed: Annotated[
        int, typer.Option(metavar="N", min=0, help="Random seed of initial weights, data order and dropout.")
    ] = 0
    accelerator: Annotated[
        str, typer.Option(metavar="NAME", help="Hardware: auto (a GPU where there is one), cpu or cuda.")
    ] = "auto"
    devices: Annotated[
        str, typer.Option(metavar="N", help="Number of devices, as 2; their indices, as 0,3; or auto for all.")
    ] = "1"
    strategy: Annotated[
        str,
        typer.Option(metavar="NAME", help="Over several devices: auto, ddp (data parallel) or fsdp (sharded weights)."),
    ] = "auto"
    num_nodes: Annotated[
        int, typer.Option(metavar="N", min=1, help="Number of machines; torchrun starts the command on each.")
    ] = 1
    precision: Annotated[
        str, typer.Option(metavar="NAME", help="Numeric precision: 32-true, bf16-mixed, bf16-true or 64-true.")
    ] = "32-true"
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Write TensorBoard logs into the run's folder, too.")
    ] = False
    settings: Annotated[
        bool,
        typer.Option("--settings", help="List what --set may change: name, values, default. Trains nothing."),
    ] = False
    quiet: Annotated[bool, typer.Option("--quiet", help="Print no progress and no summary.")] = False

    @property
    def recipe(self) -> dict[str, Any]:
        """The settings of a `Recipe` that were given."""
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

    def run(self, job: Any, out: Path | None) -> None:
        """Train a job in a folder, print how it ended, and exit."""
        if self.settings or out is None:
            print("\n".join(show_settings(job)))
            raise typer.Exit()
        from regard.tasks.registry import find_task
        from regard.tasks.training.folder import RunFolder
        from regard.tasks.training.job import open_job
        from regard.tasks.training.machine import Machine

        machine = Machine(self.accelerator, self.devices, self.strategy, self.num_nodes, self.precision)
        job.check_settings()
        folder = RunFolder(out)
        folder.check()
        # read before torch and its like are loaded: what is wrong with a file shows at once
        job, parts = open_job(job, folder)
        options: dict[str, Any] = {"parts": parts, "is_shown": not self.quiet, "logs": self.tensorboard}
        with hush():
            # brings torch
            from regard.tasks.training.run import train

            standing = train(job, out, machine, **options)
        entry = find_task(job.task)
        raise typer.Exit(close(standing, out, entry, job.metric, has_test=len(parts.test) > 0, is_shown=not self.quiet))


@contextmanager
def hush() -> Iterator[None]:
    """Silence logs and warnings of lightning and torch, which are for programmers; errors still show."""
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


def close(standing: Any, out: Path, entry: Entry, metric: str = "", *, has_test: bool = True, is_shown: bool) -> int:
    """Print how a run ended and the commands to use it with; the exit status."""
    import signal

    from torch import distributed

    # of several processes one speaks
    is_first = not (distributed.is_available() and distributed.is_initialized() and distributed.get_rank())
    where = f"{out}: step {standing.step}, {standing.seconds:.0f} s of training"
    if standing.ended.startswith("SIG"):
        if is_first:
            print(f"Stopped and saved. {where}. The same command resumes it.", file=sys.stderr)
        return 128 + signal.Signals[standing.ended]
    if is_shown and is_first:
        why = "early stopping" if standing.ended == "patience" else "all steps done"
        best = f"best {metric} {standing.best:.4g} at step {standing.best_step}"
        print(f"Done ({why}). {where}, {best}.", file=sys.stderr)
        for note in standing.notes:
            print(note, file=sys.stderr)
        program = name_program()
        print(f"Curves: {out / 'curves.png'}. Use it: {program} {entry.use} {out} {entry.sample}", file=sys.stderr)
        asked = entry.sample if entry.looked_at is None else entry.looked_at
        look = " ".join(filter(None, (program, "look", str(out), asked, "--out page.html")))
        data = "" if has_test else " --data FILE"
        print(f"Score it: {program} evaluate {out}{data}. See it: {look}", file=sys.stderr)
    return 0
