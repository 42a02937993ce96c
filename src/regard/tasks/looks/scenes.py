"""Scenes: what attention weights are drawn on, a text, an image in patches or a graph, and how.

What a run is asked, and whether torch is needed to know it, is told here, so nothing of torch is imported at the top.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from regard.core import RegardError

# more tokens than this are drawn as a map of blocks, not cell by cell
FEW = 120
# cells of a picture in the terminal, from the least weight to the largest
SHADES = " ░▒▓█"


@dataclass(frozen=True, eq=False)
class Scene:
    """The scene of text: tokens of one text (self-attention) or of two (cross-attention)."""

    # what a query or a key is
    unit: ClassVar[str] = "tokens"
    # whether what is not given is read from stdin
    is_typed: ClassVar[bool] = True

    @classmethod
    def take(cls, text: str | None, image: Any) -> Any:
        """The input of a look, out of the text and the image file that were given; checked."""
        if image is not None:
            raise RegardError("look image is for models that see: this one does not, leave it out.")
        if text is None:
            raise RegardError("look needs a text: give one.")
        return text

    @property
    def parts(self) -> dict[str, Any]:
        """What the page shows beside the heads: options of `regard.views.page`."""
        return {}

    def draw(self, look: Any, head: int, sides: tuple[str, str], labels: Sequence[Sequence[str]], title: str) -> Any:
        """Draw one head by matplotlib, with labels of its queries and keys; returns Axes."""
        from regard.views.figures import align, map, row

        (queries, keys), (rows, columns) = sides, labels
        if queries == "label":
            return row(look, 0, head=head, keys=columns, title=title)
        if queries != keys and keys != "text" and max(len(rows), len(columns)) <= FEW:
            return align(look, columns, rows, head=head, title=title)
        return map(look, head=head, tokens=rows, keys=columns, title=title)

    def sketch(self, look: Any, head: int, query: int | None) -> list[str]:
        """One head as lines of text, where that says more than a list of its rows."""
        return []


@dataclass(frozen=True, eq=False)
class ImageScene(Scene):
    """The scene of an image as the model saw it, in patches of `grid` rows and columns, after `skip` special tokens."""

    unit: ClassVar[str] = "patches"
    is_typed: ClassVar[bool] = False

    image: Any = field(default=None, repr=False)
    grid: tuple[int, int] | None = None
    skip: int = 0

    @classmethod
    def take(cls, text: str | None, image: Any) -> Any:
        given = text if image is None else image
        if given is None:
            raise RegardError("look needs a picture: give image.")
        return given

    @property
    def parts(self) -> dict[str, Any]:
        return {"image": self.image, "grid": self.grid, "skip": self.skip}

    def draw(self, look: Any, head: int, sides: tuple[str, str], labels: Sequence[Sequence[str]], title: str) -> Any:
        import numpy as np

        from regard.views.figures import patches

        return patches(self.read_row(look, head), np.asarray(self.image), self.grid, skip=self.skip)

    def read_row(self, look: Any, head: int, query: int | None = None) -> Any:
        """The weights of a query, or else of the class token, or else the mean over all queries."""
        from regard.views.reading import read_row, take

        count = look.entropy.shape[-1]
        if query is not None or self.skip or count == 1:
            return read_row(look, query or 0, head)[0]
        return take(look, "received", head) / count

    def sketch(self, look: Any, head: int, query: int | None) -> list[str]:
        weights = abs(self.read_row(look, head, query)[self.skip :])
        table = weights.reshape(self.grid or (1, -1)) / (weights.max() or 1.0)
        # a cell is as wide as it is high
        return ["".join(2 * SHADES[round(x * (len(SHADES) - 1))] for x in row).rstrip() for row in table.tolist()]


@dataclass(frozen=True, eq=False)
class GraphScene(Scene):
    """The scene of a graph: `edges` from and to, (2, count) or pairs, drawn with the weight of `to` for `from`."""

    unit: ClassVar[str] = "nodes"
    is_typed: ClassVar[bool] = False

    edges: Any = field(default=(), repr=False)
    at: Any = field(default=None, repr=False)

    @classmethod
    def take(cls, text: str | None, image: Any) -> Any:
        # without one it is the graph that the run learned from
        return None if text is None and image is None else super().take(text, image)

    @property
    def parts(self) -> dict[str, Any]:
        return {"graph": {"edges": self.edges, "at": self.at}}

    def draw(self, look: Any, head: int, sides: tuple[str, str], labels: Sequence[Sequence[str]], title: str) -> Any:
        if sides[0] != sides[1]:
            return super().draw(look, head, sides, labels, title)
        import numpy as np

        from regard.views.figures import edges
        from regard.views.page.heads import split
        from regard.views.page.scenes import weigh_edges
        from regard.views.pairs import read_pairs

        pairs = read_pairs(self.edges, "graph edges")
        weights = weigh_edges(split(look, 0)[head], pairs)
        known = np.isfinite(weights)
        return edges(weights[known], pairs[known].tolist(), self.at, labels=labels[1], title=title)
