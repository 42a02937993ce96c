"""`regard evaluate`: the scores of a trained run."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli import scoring
from regard.cli.ask import answers as asking
from regard.cli.options.examples import Member, Swap, read_column, read_columns, read_label_columns, read_two
from regard.cli.options.files import Force, check_place, write_lines
from regard.cli.options.spread import Some, drop_none
from regard.cli.train.classify import Header

EXAMPLES = """\
  regard evaluate runs/demo
  regard evaluate runs/de --data test.de --data test.en --lowercase --json
  regard evaluate runs/tags --data test.conllu
  regard evaluate runs/sst --data test.tsv --columns 2,1"""

# what a task knows of these
TASKS = {
    "translate": ("columns", "keys", "swap", "member", "beam", "alpha", "lowercase", "tokenize", "output"),
    "summarize": ("columns", "keys", "swap", "member", "output"),
    "classify": ("columns", "keys", "header", "output"),
    "tag": ("column", "output"),
    "pretrain": ("column",),
}


def evaluate(
    run: asking.Run,
    data: Annotated[
        list[str] | None,
        Some("FILE", "Test data, given as for training; repeat for more.  [default: what the run held out]"),
    ] = None,
    columns: Annotated[
        str | None,
        Some(
            "M,N",
            "Columns in TSV and CSV, source and target or text and label: numbers from 1, or names for labels. "
            " [default: 1,2; for labels as in training]",
        ),
    ] = None,
    keys: Annotated[
        str | None, Some("A,B", "The same, keys in JSONL.  [default: source,target; for labels as in training]")
    ] = None,
    column: Annotated[
        str | None,
        Some("NAME", "Column of the tags in CoNLL-U, or of plain text in TSV and CSV.  [default: as in training]"),
    ] = None,
    header: Header = False,
    swap: Swap = False,
    member: Member = None,
    limit: Annotated[int | None, Some("N", "Score the first N examples only.  [default: all]", min=1)] = None,
    beam: Annotated[
        int | None, Some("N", "For translation: beam size; 1 is greedy decoding.  [default: 5]", min=1)
    ] = None,
    alpha: Annotated[
        float | None,
        Some("X", "For translation: length penalty of beam search, 0 for none.  [default: 0.6]", min=0),
    ] = None,
    batch_size: asking.BatchSize = 64,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="For translation: ignore case.")] = False,
    tokenize: Annotated[
        str | None,
        Some(
            "NAME",
            "For translation: sacreBLEU's tokenizer, 13a, intl, zh, char or none; auto is none for a run with a"
            " --joiner, zh for Chinese, char for other scripts without spaces, else 13a.  [default: auto]",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        Some("FILE", "Write the answers to a file, one per line; one that exists needs --force.  [default: none]"),
    ] = None,
    force: Force = False,
    device: asking.Device = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print the scores as one JSON object.")] = False,
) -> None:
    """Score a trained run on test data, which it was not trained on.

    Translation: BLEU and chrF with their sacreBLEU signatures, and exact matches. Tagging and classification: accuracy
    and F1, also per label. Sentence compression: F1 of the words, beside the baselines that keep all words and the
    first words. A pre-trained encoder: perplexity of masked words.
    """
    check_place("--output", output, force)
    asking.check_run(run, device)
    task = asking.find_task(run) or _guess_task(run)
    given = drop_none({
        "columns": columns, "keys": keys, "column": column, "header": header or None, "swap": swap or None,
        "member": member, "beam": beam,
        "alpha": alpha, "lowercase": lowercase or None, "tokenize": tokenize, "output": output,
    })  # fmt: skip
    for name in given:
        if name not in TASKS.get(task, given):
            does, _ = asking.USES[task]
            raise typer.BadParameter(f"--{name} is not for {run}, which {does}: leave it out")
    changes = _read_changes(task, columns, keys, column, header, swap, member)
    ask: Any = {"tag": scoring.score_tagger, "classify": scoring.score_classifier,
                "summarize": scoring.score_summarizer, "pretrain": scoring.score_encoder}.get(task)  # fmt: skip
    if ask is None:
        from regard.tasks.metrics.translation import check_cut

        if tokenize not in (None, "auto"):
            check_cut(str(tokenize))
        found = {"beam": beam, "alpha": alpha, "lowercase": lowercase, "tokenize": tokenize}
        ask = partial(scoring.score_translator, **drop_none(found))
    # what is asked is read before the model: a wrong name shows at once
    asked = find_examples(run, task, data or (), limit, changes)
    result = ask(run, asked, device, batch_size)
    if output is not None:
        write_lines(output, result.answers)
    speed = result.count / result.seconds
    if as_json:
        timing = {"seconds": round(result.seconds, 3), "sentences_per_second": round(speed, 1)}
        print(json.dumps({**result.entries, **timing}, ensure_ascii=False))
    else:
        print("\n".join(result.rows))
        print(f"{result.count} sentences in {result.seconds:.1f} s, {speed:.1f} a second")
    sys.stdout.flush()
    for note in result.notes:
        print(note, file=sys.stderr)


def _guess_task(run: Path) -> str:
    """What a model is for that does not say what it was trained for: an encoder's head tells."""
    from regard.core import RegardError
    from regard.models.layout import read_config

    entries = read_config(run)
    if entries.get("model_type") != "regard-encoder":
        return "translate"
    task = {"tags": "tag", "classes": "classify", "words": "pretrain"}.get(str(entries.get("head")))
    if task is None:
        raise RegardError(f"{run} has no head that answers: name a run that was trained for a task.")
    return task


def _read_changes(
    task: str, columns: str | None, keys: str | None, column: str | None, header: bool, swap: bool, member: str | None
) -> dict[str, Any]:
    """How data is read that was not learned from."""
    if task in ("tag", "pretrain"):
        is_tag = task == "tag" or column is None
        return drop_none({"column": column if is_tag else read_column(str(column))})
    if task == "classify":
        named = None if keys is None else read_two("--keys", keys)
        return drop_none({"columns": read_label_columns(columns), "keys": named, "header": header or None})
    numbers, names = read_columns(columns or "1,2"), read_two("--keys", keys or "source,target")
    return {"columns": numbers, "keys": names, "swap": swap, "member": member}


def find_examples(run: Path, task: str, data: Sequence[str], limit: int | None, changes: dict[str, Any]) -> list[Any]:
    """What a run is to be asked: all of `data`, or else what it held out of its own."""
    from regard.core import RegardError
    from regard.models.layout import CONFIG, read_config
    from regard.tasks.reading.pairs import Corpus
    from regard.tasks.text.classify import LabelledCorpus
    from regard.tasks.text.pretrain_job import TextCorpus
    from regard.tasks.text.summarize_job import ShortCorpus
    from regard.tasks.text.tag import TaggedCorpus
    from regard.tasks.training.digest import digest_texts
    from regard.tasks.training.examples import PHRASEBOOK, Examples

    kinds: dict[str, type[Examples]] = {
        "tag": TaggedCorpus, "classify": LabelledCorpus, "summarize": ShortCorpus, "pretrain": TextCorpus,
    }  # fmt: skip
    kind = kinds.get(task, Corpus)
    if data and issubclass(kind, Corpus):
        return list(itertools.islice(kind(**changes).open(tuple(data)), limit))
    training = read_config(run).get("training", {})
    entries, digest = training.get("corpus"), training.get("test_digest")
    if data and entries is None:
        entries = {}
    if not isinstance(entries, dict):
        raise RegardError(f"{run} does not say what it was trained on: name {kind.called} by --data.")
    try:
        corpus = kind.from_dict(entries)
    except RegardError as error:
        cause = str(error).removesuffix(".")
        # data that is named is read as the run read its own
        other = "" if data else f", or name {kind.called} by --data"
        raise RegardError(f"{run / CONFIG} is damaged ({cause}): restore it{other}.") from None
    if data:
        corpus = replace(corpus, data=tuple(data), **changes)
        asked = corpus.draw().test if corpus.data == (PHRASEBOOK,) else corpus.open(corpus.data)
        return list(itertools.islice(asked, limit))
    test = corpus.part().test
    if not test:
        raise RegardError(f"{run} held no {kind.called} out of {' and '.join(corpus.data)}: name others by --data.")
    if digest not in (None, digest_texts(test)):
        raise RegardError(
            f"{' and '.join(corpus.data)} changed since {run} was trained, so what it held out may be what it learned"
            f" from: name {kind.called} it never saw by --data."
        )
    return test[:limit]
