"""`regard translate`: translate sentences by a trained run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.ask import answers as asking
from regard.cli.options.files import Force, check_place
from regard.cli.options.spread import Some

if TYPE_CHECKING:
    from regard.tasks.text.translator import Translation, Translator

EXAMPLES = """\
  regard translate runs/demo "介绍一下西安" --look attention.png
  regard translate runs/demo --input chinese.txt --output english.txt --beam 1
  echo "介绍一下西安" | regard translate runs/demo --json"""


def translate(
    run: asking.Run,
    text: asking.Text = None,
    input: asking.Input = None,
    output: asking.Output = None,
    force: Force = False,
    beam: Annotated[int, typer.Option(metavar="N", min=1, help="Beam size; 1 is greedy decoding.")] = 5,
    alpha: Annotated[
        float,
        typer.Option(metavar="X", min=0, help="Length penalty of beam search: 0 for none, higher for longer output."),
    ] = 0.6,
    max_len: Annotated[
        int | None,
        Some("N", "Maximum tokens per translation.  [default: about twice the source's, plus 20]", min=1),
    ] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Sample from the model instead of beam search.")] = False,
    temperature: Annotated[
        float | None,
        Some("X", "With --sample: temperature, above 0; lower is more conservative.  [default: 1]"),
    ] = None,
    top_k: Annotated[
        int | None, Some("N", "With --sample: from the N most probable tokens only.  [default: all]", min=1)
    ] = None,
    seed: Annotated[
        int | None,
        Some("N", "With --sample: random seed.  [default: a new one each time]", min=0, max=2**63 - 1),
    ] = None,
    batch_size: asking.BatchSize = 64,
    device: asking.Device = "auto",
    as_json: asking.AsJson = False,
    look: Annotated[
        Path | None,
        Some(
            "FILE",
            "Draw the alignment (attention of target tokens to source tokens): .png, .svg or .pdf; or .html, a page of"
            " all heads. Several sentences give NAME-1.png, NAME-2.png, …  [default: no picture]",
        ),
    ] = None,
    layer: Annotated[
        int | None,
        Some("N", "With --look: decoder layer of a Transformer, from 0.  [default: the last but one]", min=0),
    ] = None,
) -> None:
    """Translate sentences with a trained run.

    Prints one translation per line on stdout, and notes on stderr.
    """
    asking.check_asked(text, input, output, force)
    for name, value in (("--temperature", temperature), ("--top-k", top_k), ("--seed", seed)):
        if value is not None and not sample:
            raise typer.BadParameter(f"{name} is for sampling, add --sample")
    if layer is not None and look is None:
        raise typer.BadParameter("--layer is for pictures, add --look attention.png")
    check_place("--look", look, force=True)
    is_page = look is not None and look.suffix.lower() == ".html"
    if is_page and layer is not None:
        raise typer.BadParameter("--layer is for pictures, a page has all layers")

    options: dict[str, Any] = {"beam": beam, "alpha": alpha, "max_len": max_len, "batch_size": batch_size}
    options |= {"looks": look is not None, "layer": layer}
    if sample:
        options |= {"temperature": 1.0 if temperature is None else temperature, "top_k": top_k, "seed": seed}
    # what is given is read before the model: a wrong name shows at once
    lines = asking.read_asked(text, input, is_typed=output is None and look is None)
    if look is not None and lines is not None:
        for number in range(1, len(lines) + 1):
            check_place("--look", _place(look, number, len(lines)), force)
    asking.check_run(run, device, "translate")

    from regard.tasks.text.translator import Translator

    if look is not None and not is_page:
        from regard.views.sheet import check_path

        check_path(look)
    translator = Translator.load(run, device)
    ask, write = partial(translator.translate, **options), partial(_list_lines, as_json=as_json)
    found = asking.answer(lines, ask, write, asking.name_beyond(run), title="translating", output=output)
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


def _place(look: Path, number: int, total: int) -> Path:
    """The name of the picture of one of several sentences."""
    return look if total == 1 else look.with_stem(f"{look.stem}-{number}")


def _draw(found: Sequence[Translation], look: Path, translator: Translator | None) -> None:
    """Draw the alignment of each sentence, or with the translator write a page of all heads."""
    from regard.views import draw_alignment

    for number, said in enumerate(found, 1):
        path = _place(look, number, len(found))
        if said.weights is None:
            print(f"Sentence {number} is empty: no picture.", file=sys.stderr)
            continue
        if translator is None:
            draw_alignment(said.weights, said.source_tokens, said.target_tokens, path)
            print(f"The alignment of sentence {number} is in {path}.", file=sys.stderr)
            continue
        from regard.tasks.looks.of_translator import look_at_translation

        look_at_translation(translator, said).page(path)
        print(f"What sentence {number} attends to is in {path}: open it in a browser.", file=sys.stderr)
