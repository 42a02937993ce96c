"""`regard train …` for any task: the command for training one that has none of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, field, make_dataclass
from functools import partial
from typing import Annotated, Any

from regard.cli.options.examples import Texts
from regard.cli.options.fields import make_options
from regard.cli.options.spread import Some, drop_none, read_changes, spread
from regard.cli.options.training import Changes, Out, Training
from regard.tasks.registry import Entry

# which model is fitted, and in what batches
FITTING: dict[str, Any] = {
    "model": Annotated[str | None, Some("NAME", "Architecture: {models}.  [default: {model}]")],
    "preset": Annotated[str | None, Some("NAME", "Size of the model: {presets}.  [default: {preset}]")],
    "set_": Changes,
    "batch_size": Annotated[
        int | None, Some("N", "Examples per batch.  [default: from the size of the data and the model]", min=1)
    ],
    "metric": Annotated[
        str | None, Some("NAME", "Validation metric that selects the best weights: {metrics}.  [default: {metric}]")
    ],
}


def make_fitting(job_class: Any) -> type[Any]:
    """The options of `FITTING` that leave something to choose."""
    chosen = {
        "model": len(job_class.models) > 1, "preset": len(job_class.presets) > 1, "set_": True,
        "batch_size": job_class.batch_size is not None, "metric": len(job_class.metrics) > 1,
    }  # fmt: skip
    return make_dataclass("Fitting", [(name, FITTING[name], field(default=None)) for name, x in chosen.items() if x])


def make_training(entry: Entry) -> Callable[..., None]:
    """The command that trains a task, its options from the settings of its dataset and its job."""
    job_class, reader = entry.open("job"), entry.open("reader")

    def train(*, out: Any = None, source: Any, reading: Any, fitting: Any, learning: Any, training: Any) -> None:
        corpus = reader(**source.settings, **drop_none(asdict(reading)))
        given = drop_none(asdict(fitting)) | drop_none(asdict(learning))
        model, changes = given.pop("model", None), read_changes(given.pop("set_", None))
        training.run(job_class.default(model, recipe=training.recipe, corpus=corpus, changes=changes, **given), out)

    train.__annotations__ = {
        "out": Out, "source": Texts, "reading": make_options(reader), "fitting": make_fitting(job_class),
        "learning": make_options(job_class), "training": Training,
    }  # fmt: skip
    train.__doc__ = (
        f"Train a model that {entry.does}, or resume a run.\n\n"
        "Stop it at any moment: the same command resumes it, with the same result."
    )
    train.examples = (  # type: ignore[attr-defined]
        f"  regard train {entry.name} --out runs/{entry.name}\n"
        f"  regard train {entry.name} --data FILE --epochs 20 --seed 1 --out runs/mine"
    )
    return partial(spread, said=_describe_defaults(job_class, reader))(train)


def _describe_defaults(job_class: Any, reader: Any) -> dict[str, str]:
    """The choices and defaults of a task, which the help of shared options leaves open."""
    jobs = {name: job_class.default(name) for name in job_class.models}
    found = {
        name: ", ".join(dict.fromkeys(str(getattr(job.recipe, name)) for job in jobs.values()))
        for name in ("epochs", "lr", "schedule", "weight_decay", "average")
    }
    first = job_class.default()
    builtin = f"the built-in {reader.builtin}" if reader.builtin else "required"
    return found | {
        "models": ", ".join(job_class.models), "model": first.model, "presets": ", ".join(job_class.presets),
        "preset": first.preset, "metrics": ", ".join(job_class.metrics), "metric": first.metric, "builtin": builtin,
    }  # fmt: skip
