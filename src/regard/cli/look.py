"""`regard look`: the attention weights of a run, or of a Hugging Face checkpoint on disk."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.ask import answers as asking
from regard.cli.options.files import Force, check_place, name_program, read_lines, read_stream
from regard.cli.options.spread import Some, drop_none, join_options, spread
from regard.tasks.registry import list_tasks

if TYPE_CHECKING:
    from regard.tasks.looks.sight import Sight

EXAMPLES = """\
  regard look runs/demo "介绍一下西安" --out attention.html
  regard look runs/demo "介绍一下西安" --target "tell me about xi'an"
  regard look runs/demo "介绍一下西安" --other runs/mine --out both.html
  regard look runs/polite "could you please help me" --out polite.html
  regard look hf:models/minilm "The cat sat on the mat" --out cat.html
  regard look hf:models/vit --image cat.png --out cat.html"""

# sides with the tokens of another, or with none
AGAIN = ("inputs", "tags", "words", "label")
# tokens whose rows the terminal lists
MOST_ROWS = 40
# and weights that are not worth a word
LEAST = 0.005
# bars of a label's weights, and the width of the largest
MOST_BARS, BAR = 8, 24
# the options of all tasks
Options: Any = join_options([entry.open("looking") for entry in list_tasks().values() if entry.looking])


@spread
def look(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="Folder of a trained run, or hf:FOLDER of a checkpoint.", show_default=False
        ),
    ],
    text: Annotated[
        str | None,
        typer.Argument(
            metavar="INPUT",
            help="What the run is asked, such as a text.  [default: all of stdin]",
            show_default=False,
        ),
    ] = None,
    input: Annotated[Path | None, Some("FILE", "Read the text from a file, plain or .gz.  [default: stdin]")] = None,
    *,
    options: Options,
    image: Annotated[Path | None, Some("FILE", "Image, for a vision model.  [default: none]")] = None,
    out: Annotated[
        Path | None,
        Some("FILE", "Write a page of all heads: one .html that needs no network.  [default: the terminal]"),
    ] = None,
    picture: Annotated[
        Path | None,
        Some(
            "FILE",
            "Draw the most telling head (low entropy, not on the diagonal or the first token): .png, .svg or .pdf."
            "  [default: none]",
        ),
    ] = None,
    save: Annotated[
        Path | None,
        Some("FILE", "Save all statistics as .safetensors, which regard.watching.Seen.load reads.  [default: none]"),
    ] = None,
    force: Force = False,
    other: Annotated[
        str | None, Some("RUN", "With --out: compare with this run, side by side.  [default: none]")
    ] = None,
    other_text: Annotated[
        str | None, Some("TEXT", "With --out: compare with this text, side by side.  [default: none]", "--with")
    ] = None,
    layers: Annotated[
        str | None,
        Some("NAMES", "Attention layers: indices from 0, names, or patterns as *.2, by commas.  [default: all]"),
    ] = None,
    heads: Annotated[
        int, typer.Option(metavar="N", min=1, help="Heads of which the page has the whole attention matrix.")
    ] = 8,
    top: Annotated[int, typer.Option(metavar="N", min=1, help="Largest weights to keep of each query token.")] = 16,
    query: Annotated[
        int | None, Some("K", "Show the weights of this token alone in the terminal, from 0.  [default: all tokens]")
    ] = None,
    title: Annotated[str | None, Some("TEXT", "Title of the page and the picture.  [default: the text]")] = None,
    lang: Annotated[str, typer.Option(metavar="NAME", help="Language of the page: en or zh.")] = "en",
    device: asking.Device = "auto",
) -> None:
    """Show the attention weights of a model on a text, a picture or a graph.

    A translator decodes its own translation, or --target; a tagger tags, a classifier labels, a pre-trained encoder
    predicts what ___ stands for; all its attention layers are recorded. Without --out the terminal shows the most
    telling head, or the weights that pooled the text into a label. Nothing is downloaded, and no code from a folder is
    run.
    """
    _check(text, input, image, out, picture, save, other, other_text, query, title, lang, force)
    entry = asking.check_run(run, device)
    if other is not None:
        asking.check_run(other, device)
    is_typed = entry is None or entry.open("scene").is_typed
    given = _read(text, input) if input is not None or (is_typed and image is None) else text

    from regard.tasks.looks.look import look_at

    if picture is not None:
        from regard.views.sheet import check_path

        check_path(picture)
    shared = {"device": device, "top": top, "layers": _list(layers), **drop_none(asdict(options))}
    with _wait("looking", given):
        sight = look_at(run, given, image=image, **shared)
        again = None
        if other is not None or other_text is not None:
            again = look_at(other or run, given if other_text is None else other_text, image=image, **shared)
    for note in dict.fromkeys([*sight.notes, *(again.notes if again else ())]):
        print(note, file=sys.stderr)
    for name, reason in sight.seen.skipped.items():
        print(f"{name} is not shown: {reason}", file=sys.stderr)
    for name, reason in again.seen.skipped.items() if again else ():
        print(f"{name} of the other is not shown: {reason}", file=sys.stderr)
    if save is not None:
        sight.seen.save(save)
        print(f"All looks are in {save}: regard.watching.Seen.load reads them.", file=sys.stderr)
    if picture is not None:
        sight.draw(picture, title=title)
        print(f"The most telling head is in {picture}.", file=sys.stderr)
    if out is not None:
        with _wait("writing the page", given):
            names = None if other is None else (Path(run).name, Path(other).name)
            sight.page(out, title=title, lang=lang, heads=heads, other=again, names=names)
        print(f"{_summarise(sight)}. The page is {out} ({_measure(out)}): open it in a browser.")
    elif picture is None and save is None:
        _show(sight, query)
        print(f"All heads, on one page: {name_program()} look … --out attention.html", file=sys.stderr)


def _check(
    text: str | None, input: Path | None, image: Path | None, out: Path | None, picture: Path | None,
    save: Path | None, other: str | None, other_text: str | None, query: int | None, title: str | None, lang: str,
    force: bool,
) -> None:  # fmt: skip
    if sum(x is not None for x in (text, input, image)) > 1:
        raise typer.BadParameter("give one of a text, --input and --image")
    if lang not in ("en", "zh"):
        raise typer.BadParameter(f"--lang must be en or zh, got {lang}")
    if other is not None and other_text is not None:
        raise typer.BadParameter("give --other or --with, not both")
    if (other is not None or other_text is not None) and out is None:
        raise typer.BadParameter("a comparison is for the page, add --out attention.html")
    if query is not None and (out is not None or picture is not None or save is not None):
        raise typer.BadParameter("--query is for the terminal, leave it out or the files")
    for option, path, ending in (("--out", out, ".html"), ("--save", save, ".safetensors")):
        check_place(option, path, force)
        if path is not None and path.suffix.lower() != ending:
            raise typer.BadParameter(f"{option} must end in {ending}, got {path}")
    check_place("--picture", picture, force)


def _read(text: str | None, input: Path | None) -> str:
    if text is not None:
        return text
    if input is not None:
        return "\n".join(read_lines(input))
    if sys.stdin.isatty():
        print("One text; Ctrl-D ends.", file=sys.stderr)
    return "\n".join(line.rstrip("\r\n") for line in read_stream())


def _list(layers: str | None) -> list[int | str] | None:
    if layers is None:
        return None
    names = [name.strip() for name in layers.split(",") if name.strip()]
    if not names:
        raise typer.BadParameter("--layers must name an attention")
    return [int(name) if name.removeprefix("-").isdecimal() else name for name in names]


@contextmanager
def _wait(title: str, text: str | None) -> Iterator[None]:
    """A spinner on stderr, where that is a terminal and the text is long."""
    if len(text or "") < 2000 or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(f"{title}, {len(text or ''):,} characters"):
        yield


def _summarise(sight: Sight) -> str:
    counts = [look.entropy.shape[-2] if look.entropy.ndim > 2 else 1 for look in sight.seen.values()]
    tokens = " and ".join(f"{len(x)}" for side, x in sight.tokens.items() if side not in AGAIN)
    heads, attentions = sum(counts), len(counts)
    return (
        f"{heads} head{'s' if heads != 1 else ''} of {attentions} attention{'s' if attentions != 1 else ''}"
        f" over {tokens} {sight.scene.unit}"
    )


def _measure(path: Path) -> str:
    size = path.stat().st_size
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"


def _show(sight: Sight, query: int | None) -> None:
    from regard.tasks.looks.best_head import find_best_head, list_labels
    from regard.views.labels import show_line, show_token
    from regard.views.reading import check_query
    from regard.views.terminal import show

    # a query is a token of the text, which the label of one is not
    name, head = find_best_head(sight, is_queried=query is not None)
    look, (queries, keys) = sight.seen[name], sight.sides[name]
    tokens = {side: list_labels(sight.tokens[side]) for side in (queries, keys)}
    # a name's spaces need no sign
    say = show_token if sight.scene.unit == "tokens" else show_line
    shown = {side: [say(label) for label in labels] for side, labels in tokens.items()}
    count = sum(look.entropy.shape[-2] if look.entropy.ndim > 2 else 1 for look in sight.seen.values())
    if query is not None:
        check_query(look, query)
    print(show_line(sight.title))
    if queries == "label":
        print(f"{name}: the weights by which the text was pooled for its label")
    else:
        print(f"{name}, head {head}: the most telling of {count}" if count > 1 else name)
    if sketch := sight.scene.sketch(look, head, query):
        print("\n".join(sketch))
    elif queries == "label":
        show(look, tokens[keys])
        for line in _list_bars(look, shown[keys]):
            print(line)
    elif query is None and (queries != keys or len(tokens[keys]) <= MOST_ROWS):
        for line in _list_rows(look, head, shown[queries], shown[keys], sight.rows):
            print(line)
    else:
        show(look, tokens[keys], query=query, head=head)


def _list_bars(look: Any, keys: list[str]) -> Iterator[str]:
    """A bar chart of the tokens with the largest weights."""
    from rich.cells import cell_len

    from regard.views.reading import take
    from regard.views.terminal import format_weight

    places, weights = (take(look, name, 0)[0, :MOST_BARS].tolist() for name in ("top_keys", "top_weights"))
    found = [(keys[int(k)], w) for k, w in zip(places, weights, strict=True) if k >= 0 and w >= LEAST]
    wide = max((cell_len(label) for label, _ in found), default=0)
    for label, weight in found:
        eighths = round(8 * BAR * weight / found[0][1])
        bar = "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()
        yield f"  {label}{' ' * (wide - cell_len(label))}  {bar.ljust(BAR)} {format_weight(weight)}"


def _list_rows(look: Any, head: int, queries: list[str], keys: list[str], rows: Sequence[int] = ()) -> Iterator[str]:
    """A line for each query token, or for these: the keys that it attends to most."""
    from rich.cells import cell_len

    from regard.views.reading import take
    from regard.views.terminal import format_weight

    places, weights = take(look, "top_keys", head), take(look, "top_weights", head)
    chosen = list(rows or range(len(queries)))
    labels = {i: queries[i] for i in chosen[:MOST_ROWS]}
    wide = max(map(cell_len, labels.values()))
    for i, label in labels.items():
        pairs = [(int(k), w) for k, w in zip(places[i], weights[i], strict=True) if k >= 0 and abs(w) >= LEAST][:4]
        seen = "  ".join(f"{keys[k]} {format_weight(w)}" for k, w in pairs)
        yield f"  {label}{' ' * (wide - cell_len(label))}  {seen}"
    if len(chosen) > MOST_ROWS:
        yield f"  … and {len(chosen) - MOST_ROWS} more"
