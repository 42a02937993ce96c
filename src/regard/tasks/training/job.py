"""A training job: all settings that decide a run, but for its hardware."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, get_type_hints

from regard.core import RegardError
from regard.data.split import Split
from regard.models.config import list_values
from regard.tasks.training.examples import Examples
from regard.tasks.training.folder import ENDS, SETTINGS
from regard.tasks.training.recipe import Recipe

if TYPE_CHECKING:
    from regard.tasks.training.folder import RunFolder

# settings of a recipe that may be left to the data
LEFT = ("epochs", "warmup", "validate_every")
# of few examples, batches are small enough for so many an epoch
BATCHES, LEAST_BATCH = 16, 4
# a run validates every epoch; where these are short, so often at most, or every so many steps; and where they are long
VALIDATIONS, SOON, SELDOM = 20, 50, 2000
# where epochs are more than the model's own, a run ends when so many validations in a row are no better
PATIENCE = 8


class Setting(NamedTuple):
    """A setting of a model: its name, what it may be (without a space), its value, and what that means."""

    name: str
    values: str
    value: Any
    help: str


@dataclass(frozen=True)
class TrainingJob:
    """All settings that decide a training run; `dataclasses.asdict` of it is JSON.

    `model` is one of `models`, `preset` a size of it and `changes` what is to differ from that. `corpus` has the
    examples. `metric` decides which weights are kept, one of `metrics`. `adapts` names the settings that were left to
    the data, to whose size they are made to fit when the run begins.
    """

    model: str = ""
    preset: str = "tiny"
    changes: dict[str, Any] = field(default_factory=dict)
    corpus: Examples = field(default_factory=Examples)
    recipe: Recipe = field(default_factory=Recipe)
    batch_size: int | None = 32
    max_tokens: int | None = None
    metric: str = "loss"
    adapts: tuple[str, ...] = ()

    task: ClassVar[str]
    # the function that makes ready what is trained, of a job, its examples by part and the folder: "module:name"
    trainer: ClassVar[str]
    models: ClassVar[tuple[str, ...]] = ("",)
    # sizes of a model, none where there is but one
    presets: ClassVar[tuple[str, ...]] = ("tiny", "small", "base")
    # whether more is better, by what validation may decide by
    metrics: ClassVar[Mapping[str, bool]] = {"loss": False}
    # what suits a model unless told otherwise, by its name
    recipes: ClassVar[Mapping[str, dict[str, Any]]] = {}
    # settings that must be from 1 to 2**31 where they are numbers
    counts: ClassVar[tuple[str, ...]] = ("batch_size", "max_tokens")
    # of few examples, epochs are more, as if they had so many steps
    least_steps: ClassVar[int] = 60

    def __post_init__(self) -> None:
        if self.model not in self.models:
            raise RegardError(f"model must be one of {', '.join(self.models)}, got {self.model!r}.")
        if self.metric not in self.metrics:
            raise RegardError(f"metric must be one of {', '.join(self.metrics)}, got {self.metric!r}.")
        for name in self.counts:
            value = getattr(self, name)
            if value is not None and not 1 <= value <= 2**31:
                raise RegardError(f"{name} must be from 1 to 2**31, got {value}.")

    @classmethod
    def default(cls, model: str | None = None, *, recipe: dict[str, Any] | None = None, **changes: Any) -> Self:
        """A job with the recipe that suits the model, and with what is to differ; the rest adapts to the data."""
        # fields of a dataclass have their defaults on the class
        name = cls.model if model is None else model
        made = Recipe(**{**cls.recipes.get(cls.name_recipe(name, changes), {}), **(recipe or {})})
        changes.setdefault("adapts", leave_open(recipe or {}, changes))
        if changes.get("max_tokens") is not None:
            changes.setdefault("batch_size", None)
        return cls(model=name, recipe=made, **changes)

    @classmethod
    def name_recipe(cls, model: str, changes: Mapping[str, Any]) -> str:
        """Which of the `recipes` suits a model under these settings of the job."""
        return model

    def part(self) -> Split:
        """The training, validation and test examples."""
        return self.corpus.part()

    def configure(self) -> tuple[Any, set[str]]:
        """The model's config as far as the job decides it, and the names of settings that `changes` may not name.

        Sizes that the data decide may be any.
        """
        raise RegardError(f"{self.task} has no settings of its model to change: leave --set and --settings out.")

    def list_settings(self) -> list[Setting]:
        """All settings of the model that `changes` may name, with their values in this job.

        >>> from regard.tasks.text.translate_job import TranslateJob
        >>> TranslateJob.default("bahdanau").list_settings()[0]
        Setting(name='embed_size', values='>=1', value=64, help='width of the embeddings')

        What the data decide, or another option of the job, is not there.
        """
        config, fixed = self.configure()
        kinds = get_type_hints(type(config))
        return [
            Setting(x.name, list_values(x, kinds[x.name]), getattr(config, x.name), x.metadata["help"])
            for x in fields(config)
            if x.name not in fixed
        ]

    def check_settings(self) -> None:
        """Check that the model has the preset and the settings that are changed."""
        self.configure()

    @property
    def settings(self) -> dict[str, Any]:
        """All settings that decide the run, as JSON can hold them."""
        return {"task": self.task, **{name: x for name, x in asdict(self).items() if name != "adapts"}}

    def recall(self, before: Mapping[str, Any]) -> Self:
        """The job as it is resumed: settings left open are those that the run was begun with.

        Where a run ends is as it was, unless now epochs or steps are given.
        """
        made, corpus = before.get("recipe", {}), before.get("corpus", {})
        known = [name for name in self.adapts if name in made or name in before]
        numbers = {name: made.get(name) for name in (*LEFT, *ENDS)}
        if not all(x is None or type(x) is int for x in numbers.values()):
            raise TypeError(numbers)
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
        return replace(
            self,
            corpus=replace(self.corpus, **was),
            recipe=replace(self.recipe, **ends, **{name: made[name] for name in known if name in made}),
            adapts=tuple(name for name in self.adapts if name not in known),
            **changes,
        )

    def fit_batches(self, count: int) -> Self:
        """The job with a batch size for so many training examples, if it was left open.

        >>> from regard.tasks.text.classify import ClassifyJob
        >>> [ClassifyJob.default().fit_batches(count).batch_size for count in (28, 200, 10_000)]
        [4, 12, 64]
        """
        if "batch_size" not in self.adapts:
            return self
        size = min(max(count // BATCHES, LEAST_BATCH), self.batch_size or LEAST_BATCH)
        rest = tuple(name for name in self.adapts if name != "batch_size")
        return replace(self, batch_size=size, adapts=rest)

    def fit_steps(self, per_epoch: int) -> Self:
        """The job with epochs, warm-up and validations for epochs of so many steps, where these were left open.

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
        return replace(self, recipe=replace(recipe, **changes), adapts=())


def check_changes(called: str, kind: type[Any], changes: Mapping[str, Any], fixed: Sequence[str]) -> dict[str, Any]:
    """Check that `changes` are settings of a model's config, within bounds and not `fixed`; a copy of them."""
    known = [x.name for x in fields(kind) if x.name not in fixed]
    for name, value in changes.items():
        if name not in known:
            near = ", ".join(difflib.get_close_matches(name[:40], known, 4, 0.0))
            raise RegardError(f"{called} has no setting {name[:40]!r} to change; it has {near} and others.")
        most = 1000 if "layers" in name else 2**20
        if isinstance(value, int | float) and value > most:
            raise RegardError(f"{name} must be at most {most}, got {value}.")
    return dict(changes)


def leave_open(recipe: Mapping[str, Any], settings: Mapping[str, Any]) -> tuple[str, ...]:
    """The settings that adapt to the data, where no more than this is given.

    >>> leave_open({"lr": 0.1, "epochs": 3}, {"preset": "small"})
    ('warmup', 'validate_every', 'batch_size')
    """
    is_sized = any(settings.get(name) is not None for name in ("batch_size", "max_tokens"))
    return (*(name for name in LEFT if name not in recipe), *(() if is_sized else ("batch_size",)))


def open_job(job: Any, folder: RunFolder, parts: Split | None = None) -> tuple[Any, Split]:
    """A job, new or as its run is resumed, and its examples, split; both unchanged where `parts` are given."""
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
    """The plan of training in a line: batch size, epochs, steps, warm-up, validations and early stopping.

    >>> from regard.tasks.text.classify import ClassifyJob
    >>> describe_plan(ClassifyJob.default(recipe={"patience": 0}).fit_batches(28).fit_steps(7), 7)
    'Batches of 4, 7 steps per epoch, 86 epochs: 602 steps, 60 of them warmup; validation every 31 steps.'
    """
    recipe = job.recipe
    total, whole, between = recipe.count_steps(per_epoch), recipe.epochs * per_epoch, recipe.validate_every or per_epoch
    size = f"Batches of {job.batch_size:,}" if job.batch_size else "One batch"
    size = f"Batches of {job.max_tokens:,} tokens" if job.max_tokens and not job.batch_size else size
    epochs = f"{recipe.epochs:,} epoch{'s'[: recipe.epochs > 1]}" if total == whole else "ended by max_steps"
    warmup = f", {recipe.warmup:,} of them warmup" if recipe.warmup else ""
    sooner = f", early stopping after {recipe.patience} without improvement" if recipe.patience else ""
    steps = [f"{count:,} step{'s'[: count > 1]}" for count in (per_epoch, total, between)]
    return f"{size}, {steps[0]} per epoch, {epochs}: {steps[1]}{warmup}; validation every {steps[2]}{sooner}."


def describe_move(step: int, moved: Mapping[str, tuple[Any, Any]]) -> str:
    """How the end of training is moved, in a line.

    >>> describe_move(70, {"epochs": (10, 20), "patience": (None, 3)})
    'From step 70 on: epochs 10 → 20, patience none → 3.'
    """
    shown = {name: [f"{x:,}" if x is not None else "none" for x in pair] for name, pair in moved.items()}
    return f"From step {step:,} on: {', '.join(f'{name} {was} → {now}' for name, (was, now) in shown.items())}."
