"""What a run, or a Hugging Face checkpoint on disk, attends to: a look at one text, with the labels of its tokens."""

from __future__ import annotations

import os
from typing import Any

import torch

from regard.core import RegardError
from regard.models.layout import PREFIX
from regard.tasks.checkpoints.open import open_checkpoint
from regard.tasks.looks.of_checkpoint import look_at_picture, look_at_text
from regard.tasks.looks.of_encoder import find_head, look_at_labels
from regard.tasks.looks.of_translator import look_at_run
from regard.tasks.looks.sight import Sight
from regard.tasks.text.translator import Translator


def look_at(
    run: str | os.PathLike[str], text: str | None = None, *, target: str | None = None,
    image: str | os.PathLike[str] | None = None, device: str | torch.device = "auto", beam: int | None = None,
    layers: Any = None, top: int = 16,
) -> Sight:  # fmt: skip
    """What the run in a folder, or the checkpoint of "hf:FOLDER", attends to; `beam` is 5 for those that speak."""
    name, width = os.fspath(run), 5 if beam is None else beam
    if name.startswith(PREFIX):
        checkpoint = open_checkpoint(os.path.expanduser(name.removeprefix(PREFIX)), device)
        if checkpoint.kind == "image":
            return look_at_picture(checkpoint, _need(image, "image"), layers=layers, top=top)
        if image is not None:
            raise RegardError("look image is for models that see: this checkpoint reads text, leave it out.")
        return look_at_text(checkpoint, _need(text, "text"), target=target, beam=width, layers=layers, top=top)
    if image is not None:
        raise RegardError("look image is for checkpoints that see (hf:FOLDER): a run reads text, leave it out.")
    head = find_head(name)
    if head is not None:
        if target is not None:
            raise RegardError("look target is for runs that translate: this one reads, leave it out.")
        if beam is not None:
            raise RegardError("look beam is for runs that translate: this one reads, leave it out.")
        return look_at_labels(name, _need(text, "text"), head, device=device, layers=layers, top=top)
    translator = Translator.load(name, device)
    return look_at_run(translator, _need(text, "text"), target=target, beam=width, layers=layers, top=top)


def _need(given: Any, name: str) -> Any:
    if given is None:
        raise RegardError(f"look needs {'a picture: give image' if name == 'image' else 'a text: give one'}.")
    return given
