"""Test examples of a trained run: those it held out, or other data, read as it read its own."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from regard.core import RegardError
from regard.data.split import take_first
from regard.models.layout import CONFIG, read_config
from regard.tasks.registry import Entry
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
        raise RegardError(f"{pathlib.Path(run) / CONFIG} is damaged ({cause}): restore it{other}.") from None
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
