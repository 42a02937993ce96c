"""What every trained task does around `fit`: a folder begun or gone on with, the best model kept in it, its curves."""

from __future__ import annotations

import copy
import hashlib
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from torch import Tensor

from regard.core import RegardError
from regard.models.files import name_fault
from regard.models.pretrained import CONFIG, WEIGHTS, Pretrained, load_pretrained
from regard.tasks.fit import Standing, fit
from regard.tasks.folder import RunFolder, say_why
from regard.tasks.hugging import PREFIX
from regard.tasks.progress import Progress
from regard.tasks.recipe import Machine, Recipe


class Learning:
    """The part of a `Task` that is the same in all: the best weights as a model's folder, with the job's settings.

    A subclass has `settings`, what decides the run as JSON can hold it, and writes what else its folder needs. `notes`
    are for whoever begins it; `longest`, the most tokens of a text that is learned from, for whoever asks it.
    """

    notes: Sequence[str] = ()
    longest: int | None = None

    def __init__(self, model: Pretrained) -> None:
        self.model: Any = model
        # weights are saved from a copy of their own: those in training may lie on other devices, in parts
        self._kept = copy.deepcopy(model)

    @property
    def settings(self) -> dict[str, Any]:
        raise NotImplementedError

    def write_files(self, folder: RunFolder) -> None:
        """Write what the model needs beside its weights, such as tokenizers, before the first step."""
        raise NotImplementedError

    def save(self, folder: RunFolder, weights: dict[str, Tensor]) -> None:
        self._kept.load_state_dict(weights)
        with say_why(folder.path):
            self._kept.save_pretrained(folder.path, training={**self.settings, "longest": self.longest})

    def check(self, folder: RunFolder) -> None:
        try:
            load_pretrained(folder.path, kinds=(type(self._kept),))
        except RegardError as error:
            file = folder.path / (WEIGHTS if f"{WEIGHTS} " in str(error) else CONFIG)
            cause = "is damaged" if file.exists() else "is not there"
            fix = "restore it, or begin in a new folder, for the best weights are nowhere else"
            raise name_fault(file, cause, fix) from None


def digest_data(*parts: Any) -> str:
    """A name for data that no other data has."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def is_same_start(one: Any, other: Any) -> bool:
    """Whether two runs begin from one folder, however its name is written.

    >>> is_same_start("runs/words", "./runs/words/"), is_same_start("hf:bert", "bert"), is_same_start(None, "bert")
    (True, False, False)
    """
    if not isinstance(one, str) or not isinstance(other, str) or one.startswith(PREFIX) != other.startswith(PREFIX):
        return bool(one == other)
    one, other = (os.path.abspath(os.path.expanduser(x.removeprefix(PREFIX))) for x in (one, other))
    return bool(one == other)


def train_run(
    path: str, prepare: Callable[[RunFolder], Any], recipe: Recipe, machine: Machine | None = None, *,
    is_shown: bool = True, logs: bool = False,
) -> Standing:  # fmt: skip
    """Train what `prepare` makes ready in a folder, or go on with the run that is there.

    `prepare` is given the folder, since what a stopped run has read stays as it was read: a task and `Learning` in one.
    """
    folder, machine = RunFolder(path), machine or Machine()
    fabric = machine.launch(path if logs else None)
    if fabric.is_global_zero:
        folder.check()
    task = prepare(folder)
    with folder.hold() if fabric.is_global_zero else nullcontext():
        if fabric.is_global_zero:
            settings = {**task.settings, "precision": machine.precision, "processes": fabric.world_size}
            before = folder.read_settings() if folder.is_begun() else {}
            if before.get("start") and is_same_start(before["start"], settings.get("start")):
                # another name of the same folder is no other setting
                settings["start"] = before["start"]
            folder.begin(settings)
            if not folder.is_begun():
                with say_why(folder.path):
                    task.write_files(folder)
                progress = Progress(is_shown=is_shown)
                for note in task.notes:
                    progress.say(note)
        standing = fit(task, folder, recipe, fabric, is_shown=is_shown)
        if fabric.is_global_zero and standing.history:
            from regard.views import draw_curves

            draw_curves(standing.history, folder.path / "curves.png")
    return standing
