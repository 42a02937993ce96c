"""How runs of each task are scored, and what is said of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.options.files import show_progress

if TYPE_CHECKING:
    from regard.tasks.metrics.labels import LabelScores

# labels that are named where some are mistaken, or not known
FEW = 5


@dataclass(frozen=True)
class Result:
    """Scores as JSON can hold them and as lines to read, and what the run answered, a line each."""

    entries: dict[str, Any]
    rows: list[str]
    answers: list[str]
    seconds: float
    count: int
    # what is to be known about the scores
    notes: list[str] = field(default_factory=list)


def clock(title: str, count: int, ask: Callable[..., Any]) -> tuple[Any, float]:
    """What is found, with a bar meanwhile, and how long that took."""
    start = time.perf_counter()
    with show_progress(title, count) as on_progress:
        found = ask(on_progress=on_progress)
    return found, time.perf_counter() - start


def score_translator(
    run: Path, asked: Sequence[Any], device: str, batch_size: int, *, beam: int = 5, alpha: float = 0.6,
    lowercase: bool = False, tokenize: str = "auto",
) -> Result:  # fmt: skip
    from regard.tasks.metrics.translation import check_cut, choose_cut, evaluate
    from regard.tasks.text.translator import Translator

    translator = Translator.load(run, device)
    if tokenize == "auto":
        tokenize = choose_cut([target for _, target in asked], translator.joiner)
    options: dict[str, Any] = {"beam": beam, "alpha": alpha, "batch_size": batch_size, "lowercase": lowercase}
    ask = partial(evaluate, translator, asked, tokenize=check_cut(tokenize), **options)
    (scores, found), seconds = clock("translating", len(asked), ask)
    rows = [
        f"BLEU  {scores.bleu:6.2f}   {scores.bleu_signature}",
        f"chrF2 {scores.chrf:6.2f}   {scores.chrf_signature}",
        f"exact {100 * scores.exact / scores.count:6.2f}   {scores.exact} of {scores.count}",
    ]
    return Result(asdict(scores), rows, [" ".join(said.text.splitlines()) for said in found], seconds, scores.count)


def score_tagger(run: Path, asked: Sequence[Any], device: str, batch_size: int) -> Result:
    from regard.tasks.metrics.labels import score_labels
    from regard.tasks.text.tagger import Tagger
    from regard.views.labels import show_line

    tagger = Tagger.load(run, device)
    sentences = [words for words, _ in asked]
    found, seconds = clock("tagging", len(asked), partial(tagger.tag, sentences, batch_size=batch_size))
    said, right = ([tag for tags in rows for tag in tags] for rows in ([x.tags for x in found], [x for _, x in asked]))
    scores = score_labels(said, right, tagger.model.config.labels)
    exact = sum(one.tags == tuple(tags) for one, (_, tags) in zip(found, asked, strict=True))
    rows, notes = _show_labels(scores)
    rows.insert(2, f"sentences {100 * exact / len(found):6.2f}   {exact} of {len(found)} without a wrong tag")
    answers = [
        " ".join(f"{word}/{show_line(tag)}" for word, tag in zip(one.words, one.tags, strict=True)) for one in found
    ]
    return Result({**asdict(scores), "exact": exact}, rows, answers, seconds, len(found), notes)


def score_classifier(run: Path, asked: Sequence[Any], device: str, batch_size: int) -> Result:
    from regard.tasks.metrics.labels import score_labels
    from regard.tasks.text.classifier import Classifier
    from regard.views.labels import show_line

    classifier = Classifier.load(run, device)
    texts, right = ([pair[i] for pair in asked] for i in (0, 1))
    found, seconds = clock("labelling", len(asked), partial(classifier.classify, texts, batch_size=batch_size))
    answers = [one.label for one in found]
    scores = score_labels(answers, right, classifier.model.config.labels)
    rows, notes = _show_labels(scores)
    cut = sum(one.num_left_out > 0 for one in found)
    if cut:
        notes.append(f"Of {cut} of {len(found)} texts only the first {classifier.max_length} tokens are read.")
    return Result(asdict(scores), rows, [show_line(label) for label in answers], seconds, len(found), notes)


def score_summarizer(run: Path, asked: Sequence[Any], device: str, batch_size: int) -> Result:
    from regard.tasks.text.summarizer import Summarizer, find_ratio, keep_all, lead, score_summaries

    summarizer = Summarizer.load(run, device)
    texts, references = ([pair[i] for pair in asked] for i in (0, 1))
    found, seconds = clock("shortening", len(asked), partial(summarizer.summarize, texts, batch_size=batch_size))
    share = find_ratio(asked)
    scores = {
        name: score_summaries(some, references)
        for name, some in (("run", found), ("keep all", keep_all(texts)), ("lead", lead(texts, share)))
    }
    rows = ["            F1   exact   words kept, %"]
    rows += [f"{name:8} {x.f1:6.2f}  {x.exact:6.2f}  {x.ratio:6.2f}" for name, x in scores.items()]
    rows.append(f"lead keeps the first words, as many as the references do ({100 * share:.0f} %)")
    entries = {name.replace(" ", "_"): asdict(x) for name, x in scores.items()}
    answers = [" ".join(one.text.splitlines()) for one in found]
    return Result({**entries.pop("run"), **entries}, rows, answers, seconds, len(found))


def score_encoder(run: Path, asked: Sequence[Any], device: str, batch_size: int) -> Result:
    from regard.models.layout import read_config
    from regard.tasks.text.filler import Filler, score_words

    filler = Filler.load(run, device)
    rate = read_config(run).get("training", {}).get("rate")
    hidden = rate if isinstance(rate, float) and 0 < rate < 1 else 0.15
    options: dict[str, Any] = {"limit": filler.max_length, "rate": hidden, "batch_size": batch_size}
    ask = partial(score_words, filler.model, filler.lexicon, asked, **options)
    scores, seconds = clock("guessing", len(asked), ask)
    rows = [
        f"perplexity {scores.perplexity:8.2f}",
        f"accuracy   {scores.accuracy:8.2f}   of {scores.count} words;"
        f" always guessing the most frequent: {scores.baseline:.2f}",
    ]
    if scores.next is not None:
        rows.append(f"next       {scores.next:8.2f}   second texts told from others")
    return Result(asdict(scores), rows, [], seconds, len(asked))


def _show_labels(scores: LabelScores) -> tuple[list[str], list[str]]:
    """Lines to read, and notes."""
    from regard.views.labels import show_line

    right = round(scores.accuracy * scores.count / 100)
    rows = [
        f"accuracy  {scores.accuracy:6.2f}   {right} of {scores.count};"
        f" always saying {show_line(scores.usual)}: {scores.baseline:.2f}",
        f"mean F1   {scores.f1:6.2f}   of {len(scores.labels)} labels",
    ]
    width = max(5, *(len(show_line(name)) for name in scores.labels))
    rows += ["", f"{'label':{width}}  precision  recall      F1   count"]
    for name, x in sorted(scores.labels.items(), key=lambda item: -item[1].count):
        rows.append(f"{show_line(name):{width}}  {x.precision:9.2f}  {x.recall:6.2f}  {x.f1:6.2f}  {x.count:6}")
    worst = ", ".join(
        f"{show_line(said)} for {show_line(name)} ({times})" for name, said, times in scores.confusions[:FEW]
    )
    if worst:
        rows += ["", f"Most often wrong: {worst}."]
    notes = []
    if sum(scores.unknown.values()) == scores.count:
        notes.append("None of these labels is one of this run's: do --columns name the right one?")
    if scores.unknown:
        names = [f"{show_line(name)} ({times})" for name, times in scores.unknown.items()]
        more = f" and {len(names) - FEW} more" if len(names) > FEW else ""
        notes.append(f"Labels that this run does not know count as wrong: {', '.join(names[:FEW])}{more}.")
    return rows, notes
