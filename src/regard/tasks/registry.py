"""The registry of tasks: one entry for each, which says what the task is and where its parts are.

Parts are named as "module:name" and imported when they are first used, so that reading all entries loads nothing.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from regard.core import RegardError
from regard.core.names import import_plugin
from regard.models.layout import read_config
from regard.plugins import find_plugins, load


@dataclass(frozen=True)
class Entry:
    """A task: its name, what a run of it does, and references to its parts.

    >>> find_task("tag").does, find_task("tag").open("job").__name__
    ('tags words', 'TagJob')

    `job` is the class of what a run is to learn, `reader` that of the examples, `loader` that whose `load(folder,
    device)` opens a trained run. `scorer` is a function of a run and examples, `look` one of what the loader gave and
    of what is looked at; `scene` is the class of what lies under its weights: a text, a picture or a graph. `train` and
    `ask` are commands of the command line, `ask` by the name `command`; without them the command line makes its own, of
    the settings of `job` and `reader` and of the loader's `answer`. `scoring` and `looking` are dataclasses of options
    that `evaluate` and `look` have for this task. `units` are what a run is asked, `measures` says in a sentence what
    the scorer does, and `sample` is a thing that a run can be asked, as the shell takes it; `looked_at` is one for a
    look, where that is another. `models` are those that are taken for this task's where they do not name one: type and
    head.
    """

    name: str
    does: str
    job: str
    reader: str
    loader: str
    scorer: str
    look: str
    train: str | None = None
    ask: str | None = None
    command: str = ""
    scoring: str | None = None
    looking: str | None = None
    scene: str = "regard.tasks.looks.scenes:Scene"
    units: str = "examples"
    measures: str = ""
    sample: str = '"a sentence"'
    looked_at: str | None = None
    models: tuple[tuple[str, str | None], ...] = ()

    def open(self, part: str) -> Any:
        """Import what one of the references names."""
        reference = getattr(self, part)
        if reference.startswith("regard."):
            # what that lacks, such as an optional package, is told elsewhere
            return load(reference)
        try:
            return load(reference)
        except (ImportError, AttributeError) as error:
            raise RegardError(
                f"task {self.name} has the {part} {reference}, which cannot be imported ({error}): mend or remove the"
                " package that declares it."
            ) from error

    @property
    def use(self) -> str:
        """The name of the command that uses a trained run."""
        return self.command or self.name


TASKS = (
    Entry(
        "translate",
        "translates",
        job="regard.tasks.text.translate_job:TranslateJob",
        reader="regard.tasks.reading.pairs:PairCorpus",
        loader="regard.tasks.text.translator:Translator",
        scorer="regard.tasks.text.translator_scores:score_translator",
        look="regard.tasks.looks.of_translator:look_at_translation",
        train="regard.cli.train.translate:translate",
        ask="regard.cli.ask.translate:translate",
        scoring="regard.cli.options.scoring:TranslationScoring",
        looking="regard.cli.options.looking:TranslationLooking",
        models=(("regard-seq2seq", None), ("regard-transformer", None)),
        units="sentences",
        measures="Translation: BLEU and chrF with their sacreBLEU signatures, and exact matches.",
    ),
    Entry(
        "tag",
        "tags words",
        job="regard.tasks.text.tag:TagJob",
        reader="regard.tasks.text.tag:TaggedCorpus",
        loader="regard.tasks.text.tagger:Tagger",
        scorer="regard.tasks.text.tagger:score_tagger",
        look="regard.tasks.looks.of_encoder:look_at_tags",
        train="regard.cli.train.tag:tag",
        ask="regard.cli.ask.tag:tag",
        scoring="regard.cli.options.scoring:TagScoring",
        models=(("regard-encoder", "tags"),),
        units="sentences",
        measures="Tagging: accuracy and F1, also per label, and sentences without a wrong tag.",
    ),
    Entry(
        "classify",
        "labels texts",
        job="regard.tasks.text.classify:ClassifyJob",
        reader="regard.tasks.text.classify:LabelledCorpus",
        loader="regard.tasks.text.classifier:Classifier",
        scorer="regard.tasks.text.classifier:score_classifier",
        look="regard.tasks.looks.of_encoder:look_at_class",
        train="regard.cli.train.classify:classify",
        ask="regard.cli.ask.classify:classify",
        scoring="regard.cli.options.scoring:LabelScoring",
        models=(("regard-encoder", "classes"),),
        units="sentences",
        measures="Classification: accuracy and F1, also per label.",
    ),
    Entry(
        "summarize",
        "shortens sentences",
        job="regard.tasks.text.summarize_job:SummarizeJob",
        reader="regard.tasks.text.summarize_job:ShortCorpus",
        loader="regard.tasks.text.summarizer:Summarizer",
        scorer="regard.tasks.text.summarizer:score_summarizer",
        look="regard.tasks.looks.of_encoder:look_at_summary",
        train="regard.cli.train.summarize:summarize",
        ask="regard.cli.ask.summarize:summarize",
        scoring="regard.cli.options.scoring:PairScoring",
        sample='"a sentence that could be shorter"',
        units="sentences",
        measures="Sentence compression: F1 of the words, beside the baselines that keep all words and the first words.",
    ),
    Entry(
        "pretrain",
        "fills in words",
        job="regard.tasks.text.pretrain_job:PretrainJob",
        reader="regard.tasks.text.pretrain_job:TextCorpus",
        loader="regard.tasks.text.filler:Filler",
        scorer="regard.tasks.text.filler:score_filler",
        look="regard.tasks.looks.of_encoder:look_at_words",
        train="regard.cli.train.pretrain:pretrain",
        ask="regard.cli.ask.fill:fill",
        command="fill",
        scoring="regard.cli.options.scoring:TextScoring",
        sample='"a ___ with a blank"',
        models=(("regard-encoder", "words"), ("regard-encoder", "none")),
        units="sentences",
        measures="A pre-trained encoder: perplexity of masked words.",
    ),
)


@cache
def list_tasks() -> Mapping[str, Entry]:
    """All tasks by name: regard's own, then those of other installed packages (entry points `regard.tasks`)."""
    found, must = {entry.name: entry for entry in TASKS}, "must be an Entry of that name, which no other task has"

    def fits(name: str, entry: Any) -> bool:
        return isinstance(entry, Entry) and entry.name == name not in found

    for name, reference in sorted(find_plugins("tasks").items()):
        found[name] = import_plugin("tasks", name, reference, must, fits)
    return found


def find_task(name: str) -> Entry:
    """The registered task of that name."""
    tasks = list_tasks()
    if name not in tasks:
        raise RegardError(
            f"no task is called {name[:40]!r}: regard has {', '.join(tasks)}; install the package that has it."
        )
    return tasks[name]


def find_entry(run: str | pathlib.Path) -> Entry:
    """The task that the run in a folder was trained for; a model that names none is told by its type and head."""
    config = read_config(pathlib.Path(run))
    name = config.get("training", {}).get("task")
    if isinstance(name, str):
        try:
            return find_task(name)
        except RegardError as error:
            raise RegardError(f"{run}: {error}") from None
    kinds = {(config["model_type"], None), (config["model_type"], config.get("head"))}
    for entry in list_tasks().values():
        if kinds.intersection(entry.models):
            return entry
    raise RegardError(f"{run} does not say what it was trained for: name a run that regard train wrote.")
