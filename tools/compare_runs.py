"""Whether two runs learned the same, to the bit."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any

import torch

from regard.tasks.training.state import load_state


class DifferenceError(Exception):
    """What two runs do not have in common."""


def compare(folder: pathlib.Path, whole: pathlib.Path) -> None:
    """All that was learned is the same to the bit, and nothing is left over."""
    if (folder / "model.safetensors").read_bytes() != (whole / "model.safetensors").read_bytes():
        raise DifferenceError(f"{folder.name}/model.safetensors differs from that of the run without a stop")
    rows = [
        [{**json.loads(line), "seconds": 0} for line in (place / "metrics.jsonl").read_text().splitlines()]
        for place in (folder, whole)
    ]
    if rows[0] != rows[1] or not rows[0]:
        raise DifferenceError(f"{folder.name}/metrics.jsonl differs: {rows[0]} and {rows[1]}")
    states = [load_state(place / "resume.safetensors") for place in (folder, whole)]
    for state in states:
        state["standing"]["seconds"] = 0.0
        for row in state["standing"]["history"]:
            row["seconds"] = 0
    if place := find_difference(*states, "state"):
        raise DifferenceError(f"{folder.name}/resume.safetensors differs in {place}")
    if names := set(os.listdir(folder)) ^ set(os.listdir(whole)):
        raise DifferenceError(f"{folder.name} has or lacks {sorted(names)}")


def find_difference(one: Any, other: Any, place: str) -> str:
    """Where two trees differ first, in as much as a bit."""
    # torch makes lists of an optimiser's tuples
    one, other = (list(x) if isinstance(x, tuple) else x for x in (one, other))
    if type(one) is not type(other):
        return f"{place}: {one!r:.40} and {other!r:.40}"
    if isinstance(one, torch.Tensor):
        is_same = one.dtype == other.dtype and one.shape == other.shape
        return "" if is_same and one.numpy().tobytes() == other.numpy().tobytes() else place
    if isinstance(one, dict):
        if list(one) != list(other):
            return place
        return next(filter(None, (find_difference(one[key], other[key], f"{place}.{key}") for key in one)), "")
    if isinstance(one, list):
        if len(one) != len(other):
            return place
        pairs = enumerate(zip(one, other, strict=True))
        return next(filter(None, (find_difference(*pair, f"{place}.{at}") for at, pair in pairs)), "")
    return "" if one == other else place
