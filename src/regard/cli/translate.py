"""`regard translate`: sentences through a trained run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli import asking
from regard.cli.files import check_place

if TYPE_CHECKING:
    from regard.tasks.translator import Translation, Translator

EXAMPLES = """\
  regard translate runs/demo "介绍一下西安" --look attention.png
  regard translate runs/demo --input chinese.txt --output english.txt --beam 1
  echo "介绍一下西安" | regard translate runs/demo --json"""


def translate(
    run: asking.Run,
    text: asking.Text = None,
    input: asking.Input = None,
    output: asking.Output = None,
    beam: Annotated[int, typer.Option(metavar="N", min=1, help="Beginnings to follow; 1 is greedy.")] = 5,
    alpha: Annotated[float, typer.Option(metavar="X", min=0, help="Length penalty of the beam.")] = 0.6,
    max_len: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Most tokens to say.  [default: by the source]", show_default=False),
    ] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw words in place of a beam.")] = False,
    temperature: Annotated[
        float | None, typer.Option(metavar="X", help="With --sample: below 1 surer, above 1 bolder.  [default: 1]")
    ] = None,
    top_k: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="With --sample: from so many words only.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(metavar="N", min=0, max=2**63 - 1, help="With --sample: draw the same again.")
    ] = None,
    batch_size: asking.BatchSize = 64,
    device: asking.Device = "auto",
    as_json: asking.AsJson = False,
    look: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Draw the alignment, or as .html a page of all heads; of several sentences, NAME-1.png and so on.",
        ),
    ] = None,
    layer: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, help="With --look: the decoder layer of a Transformer.  [default: the last but one]"
        ),
    ] = None,
) -> None:
    """Translate sentences with a trained run.

    A translation a line goes to stdout, whatever else is said to stderr.
    """
    asking.check_asked(text, input, output)
    for name, value in (("--temperature", temperature), ("--top-k", top_k), ("--seed", seed)):
        if value is not None and not sample:
            raise typer.BadParameter(f"{name} is for drawing words, add --sample")
    if layer is not None and look is None:
        raise typer.BadParameter("--layer is for pictures, add --look attention.png")
    check_place("--look", look)
    is_page = look is not None and look.suffix.lower() == ".html"
    if is_page and layer is not None:
        raise typer.BadParameter("--layer is for pictures, a page has all layers")

    options: dict[str, Any] = {"beam": beam, "alpha": alpha, "max_len": max_len, "batch_size": batch_size}
    options |= {"looks": look is not None, "layer": layer}
    if sample:
        options |= {"temperature": 1.0 if temperature is None else temperature, "top_k": top_k, "seed": seed}
    # what is given is read before the model: a wrong name shows at once
    lines = asking.read_asked(text, input, is_typed=output is None and look is None)
    asking.check_run(run, device, "translate")

    from regard.tasks.translator import Translator

    if look is not None and not is_page:
        from regard.views.sheet import check_path

        check_path(look)
    translator = Translator.load(run, device)
    ask, write = partial(translator.translate, **options), partial(_list_lines, as_json=as_json)
    found = asking.answer(lines, ask, write, asking.name_unknown, title="translating", output=output)
    if look is not None:
        _draw(found, look, translator if is_page else None)


def _list_lines(found: Sequence[Translation], as_json: bool) -> Iterator[str]:
    for said in found:
        if not as_json:
            # a line for a line, whatever the model says
            yield " ".join(said.text.splitlines())
            continue
        row: dict[str, Any] = {"source": said.source, "translation": said.text, "score": round(said.score, 6)}
        if said.weights is not None:
            row |= {"source_tokens": said.source_tokens, "target_tokens": said.target_tokens}
            row["weights"] = [[round(x, 6) for x in line] for line in said.weights.tolist()]
        yield json.dumps(row, ensure_ascii=False)


def _draw(found: Sequence[Translation], look: Path, translator: Translator | None) -> None:
    """A picture of each, or with the translator a page."""
    from regard.views import draw_alignment

    for number, said in enumerate(found, 1):
        path = look if len(found) == 1 else look.with_stem(f"{look.stem}-{number}")
        if said.weights is None:
            print(f"Sentence {number} is empty: no picture.", file=sys.stderr)
            continue
        if translator is None:
            draw_alignment(said.weights, said.source_tokens, said.target_tokens, path)
            print(f"The alignment of sentence {number} is in {path}.", file=sys.stderr)
            continue
        from regard.tasks.look import look_at_run

        look_at_run(translator, said).page(path)
        print(f"What sentence {number} attends to is in {path}: open it in a browser.", file=sys.stderr)
