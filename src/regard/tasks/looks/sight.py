"""The recorded attention weights of one forward pass, with the labels of its tokens."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from regard.core import RegardError
from regard.tasks.looks.best_head import find_best_head, list_labels
from regard.tasks.looks.scenes import Scene
from regard.views.page import Labels, page
from regard.views.sheet import check_path, open_sheet, save_figure
from regard.watching import Seen

Pair = tuple[str, str]
# a text that looks at itself: as it is, with tags, with guesses
OWN = {("text", "text"), ("tags", "text"), ("words", "text")}
# the name that the pooling of an encoder goes by
POOLING = "pooling"
# characters of a text in a title
SHORT = 120


@dataclass(frozen=True, eq=False)
class Sight:
    """The attention weights of all layers in one forward pass, and the tokens of their queries and keys.

    `tokens` are the labels of each side, `sides` the two sides of each attention by name: whose queries, whose keys.
    Of a model that speaks, row i is of the step that produced token i: the queries of a decoder are "target", what was
    produced, the keys of its own attention are "inputs", what it had before it. `notes` are for the reader.
    """

    seen: Seen
    tokens: Mapping[str, Labels]
    sides: Mapping[str, Pair]
    text: str = ""
    said: str | None = None
    notes: tuple[str, ...] = ()
    # queries that are worth more than the others; none: all are worth the same
    rows: tuple[int, ...] = ()
    # what lies under the weights
    scene: Scene = field(default_factory=Scene)

    @property
    def title(self) -> str:
        """The input and the output, each shortened to one line."""
        parts = [" ".join(part.split()) for part in (self.text, self.said) if part is not None]
        return " → ".join(part if len(part) <= SHORT else f"{part[: SHORT - 1]}…" for part in parts)

    def page(
        self, out: str | os.PathLike[str] | None, *, title: str | None = None, lang: str = "en", heads: int = 8,
        other: Sight | None = None, names: tuple[str, str] | None = None,
    ) -> Any:  # fmt: skip
        """Write a page by `regard.views.page`; `other` is compared with this one, `names` are those of the two."""
        theirs = other.sides if other else {}
        sides = {**theirs, **self.sides}
        for name in [name for name in theirs if {sides[name], theirs[name]} <= OWN and sides[name] != theirs[name]]:
            # both are of a text that looks at itself, whatever was said of its words
            sides[name], theirs = ("text", "text"), {**theirs, name: ("text", "text")}
        # the page knows an attention by its name, in both
        for name in [name for name, pair in theirs.items() if pair != sides[name]][:1]:
            raise RegardError(f"look other has {name[:60]!r} between other texts than this one: write two pages.")
        # a file's name, or a terminal's bytes, may be no text
        shown = (self.title if title is None else title).encode(errors="replace").decode()
        return page(
            self.seen, self.tokens, out, title=shown, lang=lang, heads=heads,
            other=None if other is None else (other.seen, other.tokens), sides=sides, names=names,
            produced=self.said is not None and "inputs" in self.tokens, **self.scene.parts,
        )  # fmt: skip

    def draw(self, path: str | os.PathLike[str], *, title: str | None = None) -> None:
        """Draw the most informative head: as its scene has it, a heat map or bars, over the image, along the edges."""
        place = check_path(path)
        name, head = find_best_head(self)
        labels = [list_labels(self.tokens[side]) for side in self.sides[name]]
        shown = f"{title or self.title} — {name}, head {head}".encode(errors="replace").decode()
        axes = self.scene.draw(self.seen[name], head, self.sides[name], labels, shown)
        with open_sheet():
            save_figure(axes.figure, place)


def place_sides(seen: Seen) -> dict[str, Pair]:
    """Which texts the queries and keys of an encoder-decoder's attentions belong to."""
    sides = {}
    for name in seen:
        if "decoder" not in name.partition("#")[0].split("."):
            sides[name] = ("source", "source")
        else:
            sides[name] = ("target", "source" if seen.kinds[name] == "cross" else "inputs")
    return sides


def place_pooled(seen: Seen, side: str) -> dict[str, Pair]:
    """Which texts the queries and keys of an encoder's attentions belong to, attention pooling of `side` included.

    What pools goes by the name of its module, "pooling"; its query is learned, and none of what is pooled.
    """
    if POOLING in seen:
        seen.kinds[POOLING] = "cross"
    return {name: ("label" if name == POOLING else side, side) for name in seen}
