"""Evaluation of a trained translator: BLEU, chrF and exact matches."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from regard.tasks.metrics.result import Bar, Report, Result, hide, time_answers
from regard.tasks.metrics.translation import Cut, Scores, check_cut, choose_cut, score
from regard.tasks.text.translator import Translation, Translator


def evaluate(
    translator: Translator, pairs: Iterable[tuple[str, str]], *, beam: int = 5, alpha: float = 0.6,
    max_len: int | None = None, batch_size: int = 64, lowercase: bool = False, tokenize: Cut = "13a",
    on_progress: Report | None = None,
) -> tuple[Scores, list[Translation]]:  # fmt: skip
    """Translate sentence pairs and score them: the scores, and the translations in their order.

    Where it has a joiner, references are joined as its answers are.
    """
    asked = list(pairs)
    options: dict[str, Any] = {"beam": beam, "alpha": alpha, "max_len": max_len, "batch_size": batch_size}
    found = translator.translate([source for source, _ in asked], on_progress=on_progress, **options)
    references = [translator.join(target) for _, target in asked]
    return score([said.text for said in found], references, lowercase=lowercase, tokenize=tokenize), found


def score_translator(
    run: str | os.PathLike[str], asked: Sequence[Any], *, device: str = "auto", batch_size: int = 64, bar: Bar = hide,
    beam: int = 5, alpha: float = 0.6, lowercase: bool = False, tokenize: str = "auto",
) -> Result:  # fmt: skip
    """Evaluate a run on sentence pairs: BLEU, chrF and exact matches."""
    if tokenize != "auto":
        check_cut(tokenize)
    translator = Translator.load(run, device)
    if tokenize == "auto":
        tokenize = choose_cut([target for _, target in asked], translator.joiner)
    options: dict[str, Any] = {"beam": beam, "alpha": alpha, "batch_size": batch_size, "lowercase": lowercase}
    ask = partial(evaluate, translator, asked, tokenize=check_cut(tokenize), **options)
    (scores, found), seconds = time_answers(bar, "translating", len(asked), ask)
    rows = [
        f"BLEU  {scores.bleu:6.2f}   {scores.bleu_signature}",
        f"chrF2 {scores.chrf:6.2f}   {scores.chrf_signature}",
        f"exact {100 * scores.exact / scores.count:6.2f}   {scores.exact} of {scores.count}",
    ]
    return Result(asdict(scores), rows, [" ".join(said.text.splitlines()) for said in found], seconds, scores.count)
