"""Matplotlib without pyplot and without the user's style; pictures are written whole or not at all."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import pathlib
import warnings
from collections.abc import Iterator
from typing import Any

from regard.core import RegardError
from regard.core.files import write_whole
from regard.extras import install

# no date: the same picture is the same file
ENDINGS: dict[str, dict[str, Any]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
# numbers beyond this are drawn as if they were infinite: an axis must have a length
LARGEST = 1e100
STYLE = {
    # text comes from data: it is never a formula, and no TeX is called
    "text.parse_math": False,
    "text.usetex": False,
    "svg.hashsalt": "regard",
    "axes.edgecolor": "#888888",
    "axes.labelcolor": "#555555",
    "xtick.color": "#888888",
    "ytick.color": "#888888",
    "xtick.labelcolor": "#222222",
    "ytick.labelcolor": "#222222",
}


@contextlib.contextmanager
def open_sheet() -> Iterator[Any]:
    """The module `matplotlib.figure` under our settings (rcParams); the user's come back at the end."""
    try:
        import matplotlib
        from matplotlib import figure
    except ImportError:
        raise RegardError(f"Pictures need the package matplotlib: {install('plot')}.") from None
    with matplotlib.rc_context(), warnings.catch_warnings(), _quiet("matplotlib.font_manager"):
        # `choose_fonts` says it in one line
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield figure


@contextlib.contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Silence a logger: it has a line for every font that has no regular weight."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def check_path(path: str | os.PathLike[str]) -> pathlib.Path:
    """Check that a file name ends as a picture's, before anything is drawn."""
    if not isinstance(path, str | os.PathLike):
        raise RegardError(f"path must be the name of a file, got {type(path).__name__}.")
    place = pathlib.Path(path)
    if place.suffix[1:].lower() not in ENDINGS:
        raise RegardError(f"{place} must end in .png, .svg or .pdf: the ending says what kind of picture it is.")
    return place


def save_figure(figure: Any, path: pathlib.Path) -> None:
    kind = path.suffix[1:].lower()
    content = io.BytesIO()
    figure.savefig(content, format=kind, dpi=160, bbox_inches="tight", pad_inches=0.15, metadata=ENDINGS[kind])
    write_file(path, content.getvalue())


def write_file(path: pathlib.Path, content: str | bytes) -> None:
    """Write a file, whole or not at all; an error of the system's in one line."""
    try:
        write_whole(path, content)
    # ValueError: a name that no file can have
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise RegardError(f"{path} cannot be written ({reason}): check the folder and its space.") from None
