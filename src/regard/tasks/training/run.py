"""A training run in a folder: started or resumed, the best model saved, learning curves drawn."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from regard.core import RegardError
from regard.data.split import Split
from regard.models.files import name_fault
from regard.models.layout import CONFIG, WEIGHTS
from regard.models.pretrained import Pretrained, load_pretrained
from regard.plugins import load
from regard.tasks.training.digest import digest_again, digest_data
from regard.tasks.training.fit import Standing, fit
from regard.tasks.training.folder import RunFolder, is_same_start, say_why
from regard.tasks.training.job import describe_plan, open_job
from regard.tasks.training.machine import Machine
from regard.tasks.training.progress import Progress
from regard.tasks.training.task import Task


class Learning(Task):
    """The base of every task that is trained in a folder: saves the best weights as a model, with the job's settings.

    A subclass gives what is learned from and validated by, as the model has it, whose digest tells the run from others;
    and it writes what else its folder needs, the files of `files`. `notes` are for whoever begins it; `longest`, the
    most tokens of an example that is learned from, for whoever asks it; `test_digest` is that of the examples of the
    test, for whoever reads them again. `job` is what `train` fits to the number of steps an epoch has.
    """

    files: tuple[str, ...] = ()
    # settings that may differ when a run goes on
    free: tuple[str, ...] = ()
    notes: Sequence[str] = ()
    longest: int | None = None
    test_digest: str | None = None

    def __init__(self, model: Pretrained, job: Any, data: Sequence[Any]) -> None:
        self.model: Any = model
        self.job, self.data = job, data
        self.metric, self.more_is_better = job.metric, job.metrics[job.metric]
        # weights are saved from a copy of their own: those in training may lie on other devices, in parts
        self._kept = copy.deepcopy(model)
        self._digest = ""

    @property
    def settings(self) -> dict[str, Any]:
        """All settings that decide the run, as JSON can hold them, with a digest of the data."""
        self._digest = self._digest or digest_data(*self.data)
        return {**self.job.settings, "data_digest": self._digest}

    def recall(self, before: Mapping[str, Any]) -> None:
        """Make the digest of the data in the format that the resumed run has saved."""
        if isinstance(digest := before.get("data_digest"), str):
            self._digest = digest_again(digest, *self.data)

    def write_files(self, folder: RunFolder) -> None:
        """Write what the model needs beside its weights, such as tokenizers, before the first step."""

    def judge(self, folder: RunFolder, device: torch.device, best: Mapping[str, float]) -> list[str]:
        """A report on held-out examples by the best model, as lines: whether it learned; `best` is its validation."""
        return []

    def save(self, folder: RunFolder, weights: dict[str, Tensor]) -> None:
        self._kept.load_state_dict(weights)
        more = {"longest": self.longest, "test_digest": self.test_digest}
        with say_why(folder.path):
            self._kept.save_pretrained(folder.path, training={**self.settings, **more})

    def check(self, folder: RunFolder) -> None:
        try:
            load_pretrained(folder.path, kinds=(type(self._kept),))
        except RegardError as error:
            file = folder.path / (WEIGHTS if f"{WEIGHTS} " in str(error) else CONFIG)
            cause = "is damaged" if file.exists() else "is not there"
            fix = "restore it, or begin in a new folder, for the best weights are nowhere else"
            raise name_fault(file, cause, fix) from None


def describe_parts(parts: Sequence[Sequence[Any]], called: str) -> str:
    """The sizes of the training, validation and test split, in words.

    >>> describe_parts(([1, 2, 3], [4], []), "pairs")
    '3 pairs for training, 1 for validation, none for the test'
    """
    train, valid, test = (f"{len(part):,}" if len(part) else "none" for part in parts)
    return f"{train} {called} for training, {valid} for validation, {test} for the test"


def train(
    job: Any, path: str | os.PathLike[str], machine: Machine | None = None, *, parts: Split | None = None,
    is_shown: bool = True, logs: bool = False,
) -> Standing:  # fmt: skip
    """Train a job in a folder, or resume the run that is there; `parts` are its examples, if they are read.

    What a stopped run has read stays as it was read: whatever makes the task ready is given the folder.
    """
    folder, machine = RunFolder(path), machine or Machine()
    fabric = machine.launch(os.fspath(path) if logs else None)
    if fabric.is_global_zero:
        folder.check()
    job, found = open_job(job, folder, parts)
    task = load(job.trainer)(job, found, folder)
    folder.files = task.files
    # every epoch has as many
    steps = math.ceil(len(task.batches(fabric.global_rank, fabric.world_size)) / task.job.recipe.accumulate)
    task.job = task.job.fit_steps(steps)
    moved: dict[str, Any] = {}
    with folder.hold() if fabric.is_global_zero else nullcontext():
        if fabric.is_global_zero:
            before = folder.read_settings() if folder.is_begun() else {}
            task.recall(before)
            settings = {**task.settings, "precision": machine.precision, "processes": fabric.world_size}
            if before.get("start") and is_same_start(before["start"], settings.get("start")):
                # another name of the same folder is no other setting
                settings["start"] = before["start"]
            moved = folder.begin(settings, task.free)
            if not folder.is_begun():
                with say_why(folder.path):
                    task.write_files(folder)
                progress = Progress(is_shown=is_shown)
                for note in (*task.notes, describe_plan(task.job, steps)):
                    progress.say(note)
        standing = fit(task, folder, task.job.recipe, fabric, moved=moved, is_shown=is_shown)
        if fabric.is_global_zero and standing.history:
            from regard.views import draw_curves

            draw_curves(standing.history, folder.path / "curves.png")
        if fabric.is_global_zero and standing.ended in ("steps", "patience") and standing.best_step and is_shown:
            best = next(row for row in standing.history if row["step"] == standing.best_step)
            standing.notes = task.judge(folder, fabric.device, best)
    return standing
