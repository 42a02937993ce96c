"""What a model is to learn: all settings of a run but its machine."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NamedTuple, Self, get_type_hints

from regard.core import RegardError
from regard.data.split import Split
from regard.models.config import list_values
from regard.tasks.training.examples import Examples
from regard.tasks.training.plan import Planned, leave_open
from regard.tasks.training.recipe import Recipe


class Setting(NamedTuple):
    """A setting of a model: what it may be, without a space, what it is, and what that means."""

    name: str
    values: str
    value: Any
    help: str


@dataclass(frozen=True)
class TrainingJob(Planned):
    """All that decides a run; `dataclasses.asdict` of it is JSON.

    `model` is one of `models`, `preset` a size of it and `changes` what is to differ from that. `corpus` has the
    examples. `metric` decides which weights are kept, one of `metrics`. `adapts` names the settings that are made to
    fit the size of the data when the run begins: see `Planned`.
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
    # whether more is better, by what validation may decide by
    metrics: ClassVar[Mapping[str, bool]] = {"loss": False}
    # what suits a model unless told otherwise, by its name
    recipes: ClassVar[Mapping[str, dict[str, Any]]] = {}
    # settings that must be from 1 to 2**31 where they are numbers
    counts: ClassVar[tuple[str, ...]] = ("batch_size", "max_tokens")

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
        """The recipe that suits the model, with what is to differ; the rest is left to the data."""
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
        """The examples to learn from, to validate by, and for the test."""
        return self.corpus.part()

    def configure(self) -> tuple[Any, set[str]]:
        """The model's config as far as the job decides it, and the names of the settings that `changes` may not name.

        Sizes that the data decide may be any.
        """
        raise RegardError(f"{self.task} has no settings of its model to change: leave --set and --settings out.")

    def list_settings(self) -> list[Setting]:
        """All that `changes` may name, with its value under the job's model, preset and changes.

        >>> from regard.tasks.text.translate_job import Job
        >>> Job.default("bahdanau").list_settings()[0]
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
        """Complain of a preset or a change that the model has not."""
        self.configure()


def check_changes(called: str, kind: type[Any], changes: Mapping[str, Any], fixed: Sequence[str]) -> dict[str, Any]:
    """`changes`, if a model's config has such settings and they are in proportion; `fixed` are not for `changes`."""
    known = [x.name for x in fields(kind) if x.name not in fixed]
    for name, value in changes.items():
        if name not in known:
            near = ", ".join(difflib.get_close_matches(name[:40], known, 4, 0.0))
            raise RegardError(f"{called} has no setting {name[:40]!r} to change; it has {near} and others.")
        most = 1000 if "layers" in name else 2**20
        if isinstance(value, int | float) and value > most:
            raise RegardError(f"{name} must be at most {most}, got {value}.")
    return dict(changes)
