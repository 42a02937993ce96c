"""`regard train …` for any task: the command that one without a command of its own has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, Any

from regard.cli.options.examples import Texts
from regard.cli.options.fields import make_options
from regard.cli.options.spread import Some, drop_none, read_changes, spread
from regard.cli.options.training import Changes, Out, Training
from regard.tasks.registry import Entry


@dataclass(frozen=True)
class Fitting:
    """Which model is fitted, and in what batches."""

    model: Annotated[str | None, Some("NAME", "Architecture: {models}.  [default: {model}]")] = None
    preset: Annotated[str | None, Some("NAME", "Size of the model, a name of its presets.  [default: {preset}]")] = None
    set_: Changes = None
    batch_size: Annotated[
        int | None, Some("N", "Examples per batch.  [default: from the size of the data and the model]", min=1)
    ] = None
    metric: Annotated[
        str | None, Some("NAME", "Validation metric that selects the best weights: {metrics}.  [default: {metric}]")
    ] = None

    @property
    def settings(self) -> dict[str, Any]:
        """What was given of a job."""
        given = {name: getattr(self, name) for name in ("preset", "batch_size", "metric")}
        return drop_none(given) | {"changes": read_changes(self.set_)}


def make_training(entry: Entry) -> Callable[..., None]:
    """The command that trains a task, its options from the settings of its reader and its job."""
    job_class, reader = entry.open("job"), entry.open("reader")

    def train(*, out: Any = None, source: Any, reading: Any, fitting: Any, learning: Any, training: Any) -> None:
        corpus = reader(**source.settings, **drop_none(asdict(reading)))
        given = fitting.settings | drop_none(asdict(learning))
        training.run(job_class.default(fitting.model, recipe=training.recipe, corpus=corpus, **given), out)

    train.__annotations__ = {
        "out": Out, "source": Texts, "reading": make_options(reader), "fitting": Fitting,
        "learning": make_options(job_class), "training": Training,
    }  # fmt: skip
    train.__doc__ = (
        f"Train a model that {entry.does}, or resume a run.\n\n"
        "Stop it at any moment: the same command resumes it, and comes to the same end."
    )
    train.examples = (  # type: ignore[attr-defined]
        f"  regard train {entry.name} --out runs/{entry.name}\n"
        f"  regard train {entry.name} --data FILE --epochs 20 --seed 1 --out runs/mine"
    )
    return partial(spread, said=_describe_defaults(job_class, reader))(train)


def _describe_defaults(job_class: Any, reader: Any) -> dict[str, str]:
    """What the help of shared options leaves open, of this task."""
    jobs = {name: job_class.default(name) for name in job_class.models}
    found = {
        name: ", ".join(dict.fromkeys(str(getattr(job.recipe, name)) for job in jobs.values()))
        for name in ("epochs", "lr", "schedule", "weight_decay", "average")
    }
    first = job_class.default()
    models = ", ".join(filter(None, job_class.models)) or "one alone"
    builtin = f"the built-in {reader.builtin}" if reader.builtin else "required"
    return found | {
        "models": models, "model": first.model or "that one", "preset": first.preset, "metric": first.metric,
        "metrics": ", ".join(job_class.metrics), "builtin": builtin,
    }  # fmt: skip
