"""Line plots for a terminal, in Braille characters of eight dots each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

# the bit of each dot, by row and column
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
BLANK = 0x2800

Points = Sequence[tuple[float, float]]


def plot(
    curves: Mapping[str, Points], width: int, height: int, span: tuple[float, float] | None = None
) -> tuple[list[list[tuple[str, str]]], tuple[float, ...]]:
    """Plot curves as text: lines of (character, name of the curve on top), and the limits left, right, low, high.

    >>> lines, limits = plot({"loss": [(0, 2.0), (1, 1.0)]}, 4, 2)
    >>> ["".join(letter for letter, _ in line) for line in lines], limits
    (['⠑⢄⠀⠀', '⠀⠀⠑⢄'], (0, 1, 1.0, 2.0))

    A point that is not a number parts its curve. Where curves cross, the later lies on top. `span` is low and high,
    where they are not those of the points.
    """
    finite = [point for curve in curves.values() for point in curve if math.isfinite(point[1])]
    if not finite:
        return [[(chr(BLANK), "")] * width for _ in range(height)], (0.0, 1.0, 0.0, 1.0)
    (left, right), (low, high) = ((min(x), max(x)) for x in zip(*finite, strict=True))
    low, high = (low, high) if span is None else span
    across, down = 2 * width - 1, 4 * height - 1
    cells: dict[tuple[int, int], tuple[int, str]] = {}

    def place(point: tuple[float, float]) -> tuple[int, int]:
        x = round((point[0] - left) / ((right - left) or 1) * across)
        y = round((high - point[1]) / ((high - low) or 1) * down) if high > low else down // 2
        return x, y

    def dot(x: int, y: int, name: str) -> None:
        bits = cells.get((y // 4, x // 2), (0, ""))[0]
        cells[y // 4, x // 2] = (bits | DOTS[y % 4][x % 2], name)

    for name, curve in curves.items():
        before = None
        for point in curve:
            here = place(point) if math.isfinite(point[1]) else None
            if here is not None:
                for x, y in _walk(before or here, here):
                    dot(x, y, name)
            before = here
    lines = []
    for row in range(height):
        line = (cells.get((row, column), (0, "")) for column in range(width))
        lines.append([(chr(BLANK + bits), name) for bits, name in line])
    return lines, (left, right, low, high)


def _walk(start: tuple[int, int], stop: tuple[int, int]) -> list[tuple[int, int]]:
    """The dots of a line from one point to another, both ends included."""
    steps = max(abs(stop[0] - start[0]), abs(stop[1] - start[1]), 1)
    return [
        (round(start[0] + (stop[0] - start[0]) * k / steps), round(start[1] + (stop[1] - start[1]) * k / steps))
        for k in range(steps + 1)
    ]
