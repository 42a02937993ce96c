"""What nobody set is made to fit the data: batch size, epochs, warm-up, and how often a run validates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from regard.core import RegardError
from regard.data.split import Split
from regard.tasks.training.folder import SETTINGS

if TYPE_CHECKING:
    from regard.tasks.training.examples import Examples
    from regard.tasks.training.folder import RunFolder
    from regard.tasks.training.recipe import Recipe

# settings of a recipe that may be left to the data
LEFT = ("epochs", "warmup", "validate_every")
# of few examples, batches are small enough for so many an epoch
BATCHES, LEAST_BATCH = 16, 4
# a run validates every epoch; where these are short, so often at most, or every so many steps; and where they are long
VALIDATIONS, SOON, SELDOM = 20, 50, 2000
# where epochs are more than the model's own, a run ends when so many validations in a row are no better
PATIENCE = 8


class Planned:
    """A job that knows which of its settings were left to the data: those in `adapts`."""

    # of few examples, epochs are more, as if they had so many steps
    least_steps: ClassVar[int] = 60

    if TYPE_CHECKING:
        task: ClassVar[str]
        adapts: tuple[str, ...]
        corpus: Examples
        recipe: Recipe
        batch_size: int | None

        def part(self) -> Split: ...

    @property
    def settings(self) -> dict[str, Any]:
        """What decides a run, as JSON can hold it."""
        return {"task": self.task, **{name: x for name, x in asdict(self).items() if name != "adapts"}}  # type: ignore[call-overload]

    def recall(self, before: Mapping[str, Any]) -> Self:
        """The job with all that is left open as the run in a folder was begun with, by its settings.

        Where a run ends is as it was, unless now epochs or steps are given.
        """
        made, corpus = before.get("recipe", {}), before.get("corpus", {})
        known = [name for name in self.adapts if name in made or name in before]
        ends = {} if self.recipe.patience is not None else {"patience": made.get("patience")}
        if "epochs" in known and self.recipe.max_steps not in (None, made.get("max_steps")):
            # of these steps, whatever the epochs were
            known.remove("epochs")
        elif "epochs" in known:
            ends["max_steps"] = made.get("max_steps")
        was = {"held_out": corpus.get("held_out"), "parting": corpus.get("parting", "hash")}
        if not all(self.corpus.fits[name](value) for name, value in was.items()):
            raise TypeError(was)
        if self.corpus.held_out is not None:
            del was["held_out"]
        changes: dict[str, Any] = {"batch_size": before["batch_size"]} if "batch_size" in known else {}
        return replace(  # type: ignore[type-var]
            self,
            corpus=replace(self.corpus, **was),
            recipe=replace(self.recipe, **ends, **{name: made[name] for name in known if name in made}),
            adapts=tuple(name for name in self.adapts if name not in known),
            **changes,
        )

    def fit_batches(self, count: int) -> Self:
        """The job with a batch size for so many examples to learn from, if it was left open.

        >>> from regard.tasks.text.classify import ClassifyJob
        >>> [ClassifyJob.default().fit_batches(count).batch_size for count in (28, 200, 10_000)]
        [4, 12, 64]
        """
        if "batch_size" not in self.adapts:
            return self
        size = min(max(count // BATCHES, LEAST_BATCH), self.batch_size or LEAST_BATCH)
        rest = tuple(name for name in self.adapts if name != "batch_size")
        return replace(self, batch_size=size, adapts=rest)  # type: ignore[type-var]

    def fit_steps(self, per_epoch: int) -> Self:
        """The job with a recipe for epochs of so many steps, where that was left open.

        >>> from regard.tasks.text.classify import ClassifyJob
        >>> recipe = ClassifyJob.default().fit_steps(per_epoch=7).recipe
        >>> recipe.epochs, recipe.warmup, recipe.validate_every
        (86, 60, 31)
        """
        recipe, epochs = self.recipe, self.recipe.epochs
        if "epochs" in self.adapts:
            epochs = math.ceil((recipe.max_steps or epochs * max(self.least_steps, per_epoch)) / per_epoch)
        total, has_more = replace(recipe, epochs=epochs).count_steps(per_epoch), epochs > recipe.epochs
        made: dict[str, Any] = {
            "epochs": epochs,
            "warmup": min(recipe.warmup, total // 10),
            "validate_every": min(max(per_epoch, min(math.ceil(total / VALIDATIONS), SOON)), SELDOM),
        }
        changes = {name: value for name, value in made.items() if name in self.adapts}
        if has_more and recipe.max_steps is None and recipe.patience is None:
            changes["patience"] = PATIENCE
        return replace(self, recipe=replace(recipe, **changes), adapts=())  # type: ignore[type-var]


def leave_open(recipe: Mapping[str, Any], settings: Mapping[str, Any]) -> tuple[str, ...]:
    """What is left to the data where no more than this is given.

    >>> leave_open({"lr": 0.1, "epochs": 3}, {"preset": "small"})
    ('warmup', 'validate_every', 'batch_size')
    """
    is_sized = any(settings.get(name) is not None for name in ("batch_size", "max_tokens"))
    return (*(name for name in LEFT if name not in recipe), *(() if is_sized else ("batch_size",)))


def open_job(job: Any, folder: RunFolder, parts: Split | None = None) -> tuple[Any, Split]:
    """A job as it goes on in a folder, or as it begins there, and its examples by part; both as they are if given."""
    if parts is not None:
        return job, parts
    if folder.is_begun():
        before = folder.read_settings()
        try:
            job = job.recall(before)
        except RegardError:
            raise
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RegardError(
                f"{folder.path / SETTINGS} is damaged ({type(error).__name__}): restore it, or name a new folder."
            ) from None
    return job, job.part()


def describe_plan(job: Any, per_epoch: int) -> str:
    """How long and in what steps a job learns, in a line.

    >>> from regard.tasks.text.classify import ClassifyJob
    >>> describe_plan(ClassifyJob.default(recipe={"patience": 0}).fit_batches(28).fit_steps(7), 7)
    'Batches of 4, 7 steps an epoch, 86 epochs: 602 steps, 60 of them to warm up; a validation every 31.'
    """
    recipe = job.recipe
    total, whole = recipe.count_steps(per_epoch), recipe.epochs * per_epoch
    size = f"{job.batch_size:,}" if job.batch_size else f"{job.max_tokens:,} tokens"
    epochs = f"{recipe.epochs:,} epoch{'s'[: recipe.epochs > 1]}" if total == whole else "ended by max_steps"
    warmup = f", {recipe.warmup:,} of them to warm up" if recipe.warmup else ""
    every = f"a validation every {recipe.validate_every or per_epoch:,}"
    sooner = f", the end when {recipe.patience} in a row are no better" if recipe.patience else ""
    steps = [f"{count:,} step{'s'[: count > 1]}" for count in (per_epoch, total)]
    return f"Batches of {size}, {steps[0]} an epoch, {epochs}: {steps[1]}{warmup}; {every}{sooner}."


def describe_move(step: int, moved: Mapping[str, tuple[Any, Any]]) -> str:
    """How the end of a run is moved, in a line.

    >>> describe_move(70, {"epochs": (10, 20), "patience": (None, 3)})
    'From step 70 on: epochs 10 → 20, patience none → 3.'
    """
    shown = {name: [f"{x:,}" if x is not None else "none" for x in pair] for name, pair in moved.items()}
    return f"From step {step:,} on: {', '.join(f'{name} {was} → {now}' for name, (was, now) in shown.items())}."
