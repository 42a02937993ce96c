"""`regard evaluate`: the scores of a trained run on sentence pairs."""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.corpus import Columns, Data, Keys, Member, Swap, read_columns, read_two
from regard.cli.files import check_place, show_progress, write_lines

EXAMPLES = """\
  regard evaluate runs/demo
  regard evaluate runs/de --data test.de --data test.en --lowercase --json"""


def evaluate(
    run: Annotated[Path, typer.Argument(help="The folder of a trained run.", show_default=False)],
    data: Data = None,
    columns: Columns = "1,2",
    keys: Keys = "source,target",
    swap: Swap = False,
    member: Member = None,
    limit: Annotated[int | None, typer.Option(metavar="N", min=1, help="The first so many pairs only.")] = None,
    beam: Annotated[int, typer.Option(metavar="N", min=1, help="Beginnings to follow; 1 is greedy.")] = 5,
    alpha: Annotated[float, typer.Option(metavar="X", min=0, help="Length penalty of the beam.")] = 0.6,
    batch_size: Annotated[int, typer.Option(metavar="N", min=1, help="Sentences at once.")] = 64,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Case does not count.")] = False,
    tokenize: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="How BLEU cuts words: 13a, intl, zh, char or none; auto is none for a run with a --joiner, zh for"
            " Chinese, char for other scripts without spaces, else 13a.",
        ),
    ] = "auto",
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the translations to a file, one a line.")
    ] = None,
    device: Annotated[str, typer.Option(metavar="NAME", help="auto, cpu, cuda or cuda:1.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Score a trained run on sentence pairs.

    Says BLEU and chrF with their sacreBLEU signatures, how many translations are exact, and how long it took.
    """
    numbers, names = read_columns(columns), read_two("--keys", keys)
    check_place("--output", output)

    from regard.tasks.corpus import open_pairs
    from regard.tasks.evaluate import check_cut, choose_cut
    from regard.tasks.evaluate import evaluate as ask
    from regard.tasks.translator import Translator

    cut = None if tokenize == "auto" else check_cut(tokenize)
    pairs = open_pairs(data, columns=numbers, keys=names, swap=swap, member=member) if data else _find_test(run)
    # what is asked is read before the model: a wrong name shows at once
    asked = list(itertools.islice(pairs, limit))
    translator = Translator.load(run, device)
    if cut is None:
        cut = choose_cut([target for _, target in asked], translator.joiner)
    start = time.perf_counter()
    with show_progress("translating", len(asked)) as on_progress:
        scores, found = ask(
            translator,
            asked,
            beam=beam,
            alpha=alpha,
            batch_size=batch_size,
            lowercase=lowercase,
            tokenize=cut,
            on_progress=on_progress,
        )
    seconds = time.perf_counter() - start
    if output is not None:
        write_lines(output, (" ".join(said.text.splitlines()) for said in found))
    speed = len(found) / seconds
    if as_json:
        timing = {"seconds": round(seconds, 3), "sentences_per_second": round(speed, 1)}
        print(json.dumps({**asdict(scores), **timing}, ensure_ascii=False))
        return
    print(f"BLEU  {scores.bleu:6.2f}   {scores.bleu_signature}")
    print(f"chrF2 {scores.chrf:6.2f}   {scores.chrf_signature}")
    print(f"exact {100 * scores.exact / scores.count:6.2f}   {scores.exact} of {scores.count}")
    print(f"{scores.count} sentences in {seconds:.1f} s, {speed:.1f} a second")
    sys.stdout.flush()


def _find_test(run: Path) -> Iterable[tuple[str, str]]:
    """The pairs that a run held out of its own data."""
    from regard.core import RegardError
    from regard.models.pretrained import CONFIG, read_config
    from regard.tasks.corpus import Corpus

    entries = read_config(run).get("training", {}).get("corpus")
    if not isinstance(entries, dict):
        raise RegardError(f"{run} does not say what it was trained on: name pairs by --data.")
    try:
        corpus = Corpus.from_dict(entries)
    except RegardError as error:
        cause = str(error).removesuffix(".")
        raise RegardError(f"{run / CONFIG} is damaged ({cause}): restore it, or name pairs by --data.") from None
    test = corpus.part().test
    if not test:
        raise RegardError(f"{run} held no pairs out of {' and '.join(corpus.data)}: name others by --data.")
    return test
