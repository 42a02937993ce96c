"""`regard demo`: train a translator in minutes, and look at its attention."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options.files import name_program
from regard.cli.options.training import close, hush

EXAMPLES = """\
  regard demo
  regard demo --out runs/mine --seed 1"""
SENTENCE = "介绍一下西安"


def demo(
    out: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder of the run; a run that is there is resumed.")
    ] = Path("runs/demo"),
    seed: Annotated[
        int, typer.Option(metavar="N", min=0, help="Random seed of initial weights, data order and dropout.")
    ] = 0,
    max_steps: Annotated[int, typer.Option(metavar="N", min=1, help="Optimizer steps.")] = 1400,
) -> None:
    """Train a small translator on the built-in phrasebook and show what it attends to.

    A GRU with Bahdanau's attention learns Chinese to English in about two minutes on two cores. If it is stopped, the
    same command resumes it.
    """
    from regard.tasks.looks.of_translator import look_at_translation
    from regard.tasks.reading.pairs import open_pairs
    from regard.tasks.registry import find_task
    from regard.tasks.text.translate_job import TranslateJob
    from regard.tasks.text.translator import Translator
    from regard.tasks.text.translator_scores import evaluate
    from regard.tasks.training.machine import Machine
    from regard.tasks.training.run import train
    from regard.views import draw_alignment

    recipe = {"lr": 4e-3, "schedule": "cosine", "warmup": 50, "max_steps": max_steps, "epochs": 10, "seed": seed,
              "validate_every": max(max_steps // 5, 1), "average": 0.0}  # fmt: skip
    job = TranslateJob.default("bahdanau", recipe=recipe, batch_size=128, label_smoothing=0.0)
    was_there = _is_done(out, max_steps)
    if not was_there:
        print(f"Training a translator (GRU with Bahdanau's attention) on the phrasebook's travel sentences, in {out}.")
    with hush():
        standing = train(job, out, Machine(accelerator="cpu"))
    if was_there:
        print(f"A trained translator was in {out} already: nothing is trained again.")
    if standing.ended.startswith("SIG"):
        raise typer.Exit(close(standing, out, find_task(job.task), is_shown=True))
    translator, start = Translator.load(out, "cpu"), time.monotonic()
    asked = list(open_pairs(["phrasebook"]))
    scores, found = evaluate(translator, asked, beam=1)
    print(f"\nTrained for {standing.seconds:.0f} s. Of {scores.count} sentences it never saw, {scores.exact} come out"
          f" exactly right (in {time.monotonic() - start:.1f} s). The first of them:\n")  # fmt: skip
    for said in found[:5]:
        print(f"  {said.source}  →  {said.text}")
    (look,) = translator.translate([SENTENCE], beam=1, looks=True)
    print(f"  {look.source}  →  {look.text}\n")
    assert look.weights is not None
    picture = out / "attention.png"
    draw_alignment(look.weights, look.source_tokens, look.target_tokens, picture, title=f"{look.source} → {look.text}")
    page = out / "attention.html"
    look_at_translation(translator, look).page(page)
    print(f"What it attended to:   {picture}")
    print(f"Token by token:        {page} (open it in a browser)")
    print(f"How it learned:        {out / 'curves.png'}")
    print(f"The model:             {out}")
    print(f'Ask it yourself:       {name_program()} translate {out} "请问火车站在哪里" --look look.html')


def _is_done(out: Path, max_steps: int) -> bool:
    """Whether a run is there whose training has ended."""
    from regard.tasks.training.folder import RunFolder

    folder = RunFolder(out)
    folder.check()
    try:
        return folder.is_begun() and bool(folder.load()["standing"]["step"] >= max_steps)
    except (KeyError, TypeError):
        # a state of something else, as training says in its own words
        return False
