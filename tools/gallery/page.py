"""The page, and its pictures."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence

from torch import Tensor

from tools.gallery.entries import Entry

HEAD = """# Gallery

Every term of `attend` and every encoding: what it computes, how it is called, and its weights. Rows are queries,
columns are keys, dark is much. Scores and weighers see 24 positions on a path that comes near itself again; masks,
biases and encodings are shown alone, where all else is equal. Made by `make gallery`.
"""


def write_page(sections: Mapping[str, Sequence[Entry]], folder: str) -> str:
    """The page, with pictures in `folder` beside it."""
    parts = [HEAD]
    for title, entries in sections.items():
        parts += [f"## {title}\n", "| | | |", "|---|---|---|"]
        for entry in entries:
            # a bar would end the cell
            formula, call = (text.replace("|", "\\|") for text in (entry.formula, entry.call))
            parts.append(f"| ![{entry.name}]({folder}/{entry.file}) | **{entry.name}**<br>{formula} | `{call}` |")
        parts.append("")
    return "\n".join(parts)


def save_picture(weights: Tensor, path: pathlib.Path) -> None:
    """A heat map of (queries, keys), without axes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(1.6, 1.6), dpi=100)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.02, 0.02, 0.96, 0.96))
    axes.imshow(weights.numpy(), cmap="Blues", vmin=0, interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    # without the version of the library that drew it, so that the same picture is the same file
    figure.savefig(path, metadata={"Software": None})
