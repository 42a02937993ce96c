"""Test examples of a trained run: those it held out, or other data, read as it read its own."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from regard.core import RegardError
from regard.data.split import Split, take_first
from regard.models.layout import CONFIG, read_config
from regard.tasks.registry import Entry
from regard.tasks.training.digest import digest_again
from regard.tasks.training.examples import Examples


def find_examples(
    run: str | os.PathLike[str], entry: Entry, data: Sequence[str] = (), limit: int | None = None,
    changes: dict[str, Any] | None = None,
) -> Sequence[Any]:  # fmt: skip
    """The test examples of a run: all of `data`, or else those it held out of its own.

    `changes` are settings of its reader that differ for `data`.
    """
    kind: type[Examples] = entry.open("reader")
    training = read_config(run).get("training", {})
    # data that is named is read as the run read its own
    other = "" if data else f", or name {kind.called} by --data"
    if not (data or isinstance(training.get("corpus"), dict)):
        raise RegardError(f"{run} does not say what it was trained on: name {kind.called} by --data.")
    corpus, digest = _read_corpus(run, kind, training.get("corpus"), other), training.get("test_digest")
    if data:
        return replace(corpus, **(changes or {})).read(tuple(data), "test", limit)
    test = corpus.part().test
    if not len(test):
        raise RegardError(f"{run} held no {kind.called} out of {' and '.join(corpus.data)}: name others by --data.")
    if digest not in (None, corpus.digest(test)):
        raise RegardError(
            f"{' and '.join(corpus.data)} changed since {run} was trained, so what it held out may be what it learned"
            f" from: name {kind.called} it never saw by --data."
        )
    return take_first(test, limit)


def find_learned(run: str | os.PathLike[str], kind: type[Examples]) -> Split:
    """The examples of a run, split, whose first two parts are what it learned from, as they were.

    For what cannot be asked without them, as the nodes of a graph.
    """
    training = read_config(run).get("training", {})
    corpus, digest = _read_corpus(run, kind, training.get("corpus"), ""), training.get("data_digest")
    parts = corpus.part()
    if not isinstance(digest, str) or digest != digest_again(digest, *parts[:2]):
        raise RegardError(
            f"{' and '.join(corpus.data)} changed since {run} was trained, which knows the {kind.called} as they were:"
            " restore them, or train it anew."
        )
    return parts


def _read_corpus(run: str | os.PathLike[str], kind: type[Examples], entries: Any, other: str) -> Examples:
    """The dataset as a run's config has it; `other` is what else can be done where that is damaged."""
    try:
        return kind.from_dict({} if entries is None else entries)
    except (RegardError, AttributeError, TypeError) as error:
        cause = str(error).removesuffix(".")
        raise RegardError(f"{pathlib.Path(run) / CONFIG} is damaged ({cause}): restore it{other}.") from None
