"""An interactive HTML page of attention weights: one file, with the network off."""

from __future__ import annotations

import html
import os
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from regard.core import RegardError
from regard.engine.look import Look
from regard.views.page.build import assemble, measure_rest
from regard.views.page.payload import Payload
from regard.views.page.scenes import read_graph, read_image
from regard.views.page.sides import Sides, Texts, check_names, name_models
from regard.views.page.start import find_start
from regard.views.page.tokens import Labels, label_encoding, label_tokens
from regard.views.reading import Weights, check_title, is_weights, look_at
from regard.views.sheet import write_file

__all__ = ["Labels", "Page", "label_encoding", "label_tokens", "page"]

Tokens = Labels | Sequence[str] | Mapping[str, Labels | Sequence[str]]
Looks = Look | Weights | Mapping[str, Look] | Mapping[str, Weights]
# cells a side of a map, as `watch` has them
CELLS = 256


@dataclass(frozen=True)
class Page:
    """An HTML page: its text, where it was written, and how a notebook shows it."""

    html: str = field(repr=False)
    path: pathlib.Path | None = None

    def save(self, path: str | os.PathLike[str]) -> pathlib.Path:
        """Write the page to a file, whole or not at all."""
        if not isinstance(path, str | os.PathLike):
            raise RegardError(f"page out must be the name of a file, or None, got {type(path).__name__}.")
        path = pathlib.Path(path)
        write_file(path, self.html)
        return path

    def _repr_html_(self) -> str:
        # a frame of its own origin: the page reaches nothing of the notebook, and many of them stand side by side;
        # in ASCII, so that the script keeps its hash whatever encoding the notebook's page is read in
        text = html.escape(self.html).encode("ascii", "xmlcharrefreplace").decode()
        return (
            '<iframe sandbox="allow-scripts allow-downloads" title="attention" width="100%" height="720"'
            f' style="border: 0" srcdoc="{text}"></iframe>'
        )


def page(
    seen: Looks,
    tokens: Tokens,
    out: str | os.PathLike[str] | None = "attention.html",
    *,
    title: str = "",
    other: Looks | tuple[Looks, Tokens] | None = None,
    image: Any = None,
    grid: tuple[int, int] | None = None,
    skip: int = 0,
    graph: Any = None,
    lang: str = "en",
    heads: int = 8,
    sequence: int = 0,
    sides: Sides | None = None,
    produced: bool = False,
    names: Sequence[str] | None = None,
) -> Page:
    """Write attention weights as one interactive HTML file that needs nothing else: no server, no network.

    >>> import torch
    >>> from regard.engine.look import look
    >>> seen = look(torch.eye(3)[None, None], 9 * torch.eye(3)[None, None], keep=True)
    >>> shown = page({"encoder": seen}, ["to", " be", " or"], out=None, title="a question")
    >>> "<title>a question</title>" in shown.html
    True

    `seen` is what `watch` or `look` gave, or plain weights: (queries, keys), with heads and batch before them, or
    several of these by name. `tokens` are labels, or a mapping such as `{"source": …, "target": …}`; `label_encoding`
    makes labels that join to the text. Where lengths and names do not say whose tokens an attention's queries and keys
    are, `sides` does: `{"decoder.*": ("target", "source")}`. `other` is a second model, or the same with other tokens:
    `(seen, tokens)`. `image` (an array, a PIL image or a PNG file) lies under patches of `grid` rows and columns, after
    `skip` tokens that are no patch. `graph` is edges, or a mapping of `edges` and node positions `at`: a tensor or an
    array (2, count) is from and to, a list is pairs (from, to). `produced` says that labels of a decoder's queries are
    what each step produced, not what it read; `names` are those of the two that are compared. Calls of one module that
    are steps of decoding are shown as one; other calls as they are, named name#2, name#3 and so on.
    """
    if lang not in ("en", "zh"):
        raise RegardError(f"page lang must be 'en' or 'zh', got {lang!r}.")
    if isinstance(heads, bool) or not isinstance(heads, int) or heads < 1:
        raise RegardError(f"page heads must be a whole number above 0, got {heads!r}.")
    if isinstance(other, tuple) and len(other) != 2:
        raise RegardError(
            f"page other must be what was seen, or a pair of that and its tokens, got {len(other)} of them."
        )
    check_title(title, "page title")
    texts = Texts(tokens)
    payload = Payload()
    own = _name(seen)
    payload.read(own, texts, 0, 0, sequence, sides)
    models = [str(getattr(own, "model", ""))]
    names = check_names(names)
    described = texts.describe()
    if other is not None:
        again, words = (other[0], Texts(other[1], " B")) if isinstance(other, tuple) else (other, texts)
        first = len(described) if isinstance(other, tuple) else 0
        theirs = _name(again, "other")
        payload.read(theirs, words, 1, first, sequence, sides)
        models = name_models([*models, str(getattr(theirs, "model", ""))], [texts, words], names)
        described = described + words.describe() if first else texts.describe()
    if not payload.entries:
        raise RegardError("page seen is empty: no attention ran under watch(…), or none was chosen.")
    longest = max(max(entry["n"], entry["m"]) for entry in payload.entries)
    payload.fill(heads, find_limit(longest) - measure_rest({"sides": described, "entries": payload.entries}))
    extra: dict[str, Any] = {}
    if image is not None:
        extra["image"] = read_image(image, grid, skip, [entry["m"] for entry in payload.entries])
    if graph is not None:
        extra["graph"] = read_graph(graph, payload, described)
    text = assemble(
        {
            "version": 1, "title": title or "", "lang": lang, "note": payload.note, "sides": described,
            "models": models, "produced": bool(produced),
            "start": find_start(payload.entries, payload.heads, described, extra, other is not None),
            "entries": payload.entries, "blobs": payload.blobs.entries, **extra,
        },
        payload.blobs.stores,
    )  # fmt: skip
    made = Page(text)
    return made if out is None else Page(text, made.save(out))


def find_limit(tokens: int) -> float:
    """The size limit of a page by its tokens, in characters: 10 MB for 8,192 and fewer, 25 MB for 32,768, then 60 MB.

    >>> [round(find_limit(tokens) / 1e6, 1) for tokens in (20, 8192, 32768, 131072, 1000000)]
    [9.8, 9.8, 24.5, 58.0, 58.0]
    """
    return float(np.interp(tokens, [8192, 32768, 131072], [9.8e6, 24.5e6, 58e6]))


def _name(seen: Any, name: str = "seen") -> Mapping[str, Look]:
    if isinstance(seen, Look) or is_weights(seen):
        seen = {"attention": seen}
    if not isinstance(seen, Mapping) or not all(isinstance(x, Look) or is_weights(x) for x in seen.values()):
        raise RegardError(
            f"page {name} must be a look or weights, or a mapping of names to them, got {type(seen).__name__}."
        )
    if any(map(is_weights, seen.values())):
        return {str(key): look_at(x, CELLS) if is_weights(x) else x for key, x in seen.items()}
    # steps of decoding with a cache are one attention, row by row; calls that do not go on stay as they are
    joined: Mapping[str, Look] = seen.join() if getattr(seen, "steps", None) and hasattr(seen, "join") else seen
    return joined
