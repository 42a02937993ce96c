"""A look at a run, by its task, or at a Hugging Face checkpoint: its attention weights on an input."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

import torch

from regard.core import RegardError
from regard.models.layout import PREFIX
from regard.tasks.looks.sight import Sight
from regard.tasks.registry import find_entry


def look_at(
    run: str | os.PathLike[str], text: str | None = None, *, image: str | os.PathLike[str] | None = None,
    device: str | torch.device = "auto", **options: Any,
) -> Sight:  # fmt: skip
    """The attention weights of a run, or of the checkpoint in "hf:FOLDER", on an input; `options` are of its look.

    All have `layers`, which are looked at, and `top`, how many of a query's largest weights are kept; what translates
    has `target` and `beam`, too.
    """
    name = os.fspath(run)
    if name.startswith(PREFIX):
        return _look_at_checkpoint(name, text, image, device, options)
    entry = find_entry(name)
    given, look = entry.open("scene").take(text, image), entry.open("look")
    _check_options(look, options, f"{name}, which {entry.does}")
    sight: Sight = look(entry.open("loader").load(name, device), given, **options)
    return sight


def _look_at_checkpoint(name: str, text: str | None, image: Any, device: Any, options: dict[str, Any]) -> Sight:
    from regard.tasks.checkpoints.open import open_checkpoint
    from regard.tasks.looks.of_checkpoint import look_at_picture, look_at_text
    from regard.tasks.looks.scenes import ImageScene, Scene

    checkpoint = open_checkpoint(os.path.expanduser(name.removeprefix(PREFIX)), device)
    scene, look = (ImageScene, look_at_picture) if checkpoint.kind == "image" else (Scene, look_at_text)
    given = scene.take(text, image)
    _check_options(look, options, f"{name}, which sees" if checkpoint.kind == "image" else name)
    return look(checkpoint, given, **options)


def _check_options(look: Callable[..., Sight], given: dict[str, Any], called: str) -> None:
    for name in given:
        if name not in inspect.signature(look).parameters:
            raise RegardError(f"look {name} is not for {called}: leave it out.")
