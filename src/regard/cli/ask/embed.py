"""`regard embed`: text embeddings, and the nearest texts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from regard.cli.ask import answers as asking
from regard.cli.options.files import Force, check_place, read_lines, show_progress
from regard.cli.options.spread import Some

if TYPE_CHECKING:
    from torch import Tensor

EXAMPLES = """\
  regard embed runs/sst "a first text" "and another"
  regard embed hf:some/bert --input texts.txt --output vectors.npy
  regard embed hf:some/bert "a film to remember" --input texts.txt --nearest 3"""
# what is written, by the end of the file's name
SUFFIXES = (".npy", ".safetensors", ".jsonl")


class Embedded(NamedTuple):
    """A text, its embedding, and how many of its tokens were truncated, are unknown, and were read."""

    text: str
    vector: Tensor
    num_left_out: int
    unknown: int
    num_tokens: int


def embed(
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help="Folder of a trained run, or hf:FOLDER with a BERT.", show_default=False),
    ],
    text: asking.Text = None,
    input: asking.Input = None,
    output: Annotated[
        Path | None,
        Some("FILE", f"Write to a file ({', '.join(SUFFIXES)}); one that exists needs --force.  [default: stdout]"),
    ] = None,
    nearest: Annotated[
        int | None,
        Some(
            "K",
            "Print the K sentences of --input nearest to each text, by cosine similarity.  [default: vectors]",
            min=1,
        ),
    ] = None,
    force: Force = False,
    batch_size: asking.BatchSize = 512,
    device: asking.Device = "auto",
    as_json: asking.AsJson = False,
) -> None:
    """Turn texts into embeddings (vectors), and find the nearest ones.

    Prints one vector per line on stdout, as a JSON list; with --nearest one line per sentence found: its cosine
    similarity, the sentence and the text, separated by tabs. Notes go to stderr.
    """
    _check(text, input, output, nearest, force)
    asking.check_run(run, device)
    stored = None if nearest is None or input is None else read_lines(input)
    lines = asking.read_asked(text, input if stored is None else None, is_typed=output is None)

    from regard.tasks.text.embedder import Embedder

    embedder = Embedder.load(run, device)

    def ask(texts: Sequence[str], on_progress: Callable[[int, int], None] | None = None) -> list[Embedded]:
        encoded = embedder.read(texts)
        vectors = embedder.embed_read(encoded, batch_size=batch_size, on_progress=on_progress)
        unknown = embedder.lexicon.unk_id
        return [
            # an empty text stands as one token that is unknown
            Embedded(text, vector, one.num_left_out, one.ids.count(unknown) if text.strip() else 0, len(one.ids))
            for text, vector, one in zip(texts, vectors, encoded, strict=True)
        ]

    beyond = asking.name_beyond(run)

    def note(found: Sequence[Embedded]) -> None:
        beyond(found)
        cut = [number for number, one in enumerate(found, 1) if one.num_left_out]
        if cut:
            which, most = asking.name_some(cut, len(found)), embedder.reading.max_len
            print(f"The end of {which} is not read: this model reads {most} tokens of a text.", file=sys.stderr)

    if output is not None and output.suffix != ".jsonl":
        with show_progress("embedding", len(lines or ())) as on_progress:
            found = ask(lines or (), on_progress)
        _save(output, found, embedder.size)
        print(f"{len(found)} vectors of {embedder.size} in {output}", file=sys.stderr)
        note(found)
        return
    write = partial(_write, as_json=as_json)
    if stored is not None and nearest is not None:
        with show_progress("embedding", len(stored)) as on_progress:
            others = ask(stored, on_progress)
        write = partial(_write_nearest, others=others, count=nearest, as_json=as_json)
    asking.answer(lines, ask, write, note, title="embedding", output=output)


def _check(text: list[str] | None, input: Path | None, output: Path | None, nearest: int | None, force: bool) -> None:
    """Check that the options go together, before there is work to lose."""
    if nearest is None:
        asking.check_asked(text, input, output, force)
    elif input is None:
        raise typer.BadParameter("--nearest is among the sentences of a file, add --input")
    check_place("--output", output, force)
    if output is not None and output.suffix not in SUFFIXES:
        raise typer.BadParameter(f"--output must end in {', '.join(SUFFIXES)}, got {output.name}")
    if nearest is not None and output is not None and output.suffix != ".jsonl":
        raise typer.BadParameter("--nearest gives lines, let --output end in .jsonl")


def _write(found: Sequence[Embedded], as_json: bool) -> Iterator[str]:
    for one in found:
        # as many digits as float32 has
        numbers = [float(f"{x:.9g}") for x in one.vector.tolist()]
        yield json.dumps({"text": one.text, "vector": numbers} if as_json else numbers, ensure_ascii=False)


def _write_nearest(found: Sequence[Embedded], others: Sequence[Embedded], count: int, as_json: bool) -> Iterator[str]:
    import torch
    from torch.nn import functional

    if not others or not found:
        return
    table, rows = (functional.normalize(torch.stack([one.vector for one in x]), dim=-1) for x in (others, found))
    for one, row in zip(found, rows, strict=True):
        best = (table @ row).topk(min(count, len(others)))
        near = [(round(cosine, 4), others[i].text) for cosine, i in zip(*(x.tolist() for x in best), strict=True)]
        if as_json:
            answer = {"text": one.text, "nearest": [{"text": other, "cosine": cosine} for cosine, other in near]}
            yield json.dumps(answer, ensure_ascii=False)
        else:
            # a line for a line, and three columns, whatever the texts hold
            yield from (f"{x:.4f}\t{' '.join(other.split())}\t{' '.join(one.text.split())}" for x, other in near)


def _save(output: Path, found: Sequence[Embedded], size: int) -> None:
    """Write the embeddings to .npy or .safetensors, a row for each text; whole or not at all."""
    import io

    import numpy
    import torch

    from regard.core.files import write_whole
    from regard.models.files import write_tensors

    vectors = torch.stack([one.vector for one in found]) if found else torch.zeros(0, size)
    if output.suffix == ".npy":
        stream = io.BytesIO()
        numpy.save(stream, vectors.numpy(), allow_pickle=False)
        raw = stream.getvalue()
    else:
        raw = write_tensors({"vectors": vectors}, {"format": "pt"})
    try:
        write_whole(output, raw)
    except OSError as error:
        # by the name the user gave, not that of the file on the way
        raise OSError(error.errno, error.strerror, str(output)) from None
