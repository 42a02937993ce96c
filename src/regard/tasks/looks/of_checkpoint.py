"""The attention weights of a Hugging Face checkpoint on a text or an image."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import torch

from regard.core import RegardError
from regard.models.files import name_fault, tell
from regard.tasks.checkpoints.configs import ANY, CONFIG, RESTORE
from regard.tasks.checkpoints.image_processor import fit_picture, list_patches, read_picture, read_rules
from regard.tasks.checkpoints.open import TOKENIZER, Checkpoint, hush
from regard.tasks.looks.scenes import ImageScene
from regard.tasks.looks.sight import Sight, place_sides
from regard.tasks.looks.token_labels import Speaker, check_text, label_patches, label_said, shift
from regard.views.page import Labels, label_encoding
from regard.watching import Seen, watch


@torch.no_grad()
def look_at_text(
    checkpoint: Checkpoint, text: str, *, target: str | None = None, beam: int = 5, layers: Any = None, top: int = 16
) -> Sight:
    """The attention weights of a checkpoint on a text; an encoder-decoder decodes `target`, or else its own output."""
    model, tokenizer = checkpoint.model, checkpoint.tokenizer
    encoding, notes = _encode(checkpoint, text, "text")
    ids = torch.tensor([encoding.ids], device=model.device)
    given = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    if checkpoint.kind == "text":
        if target is not None:
            raise RegardError("look target is for models with a decoder beside an encoder: leave it out.")
        seen = _run(checkpoint, layers, top, **given)
        labels = {"text": label_encoding(text, encoding)}
        return Sight(seen, labels, dict.fromkeys(seen, ("text", "text")), text, None, notes)
    start = _find_start(checkpoint)
    if target is not None:
        spoken, more = _encode(checkpoint, target, "target")
        said, said_ids, produced = target, spoken.ids, label_encoding(target, spoken)
        notes += more
    elif not checkpoint.can_speak:
        said, said_ids, produced = None, [start], Labels(("?",), (True,), (False,), True)
        notes += ("The folder has no output layer: the decoder is looked at before its first word.",)
    else:
        # a decoder's own positions end somewhere too
        limit = min(2 * len(encoding.ids) + 20, (checkpoint.positions or 2**31) - 1)
        with hush(), _blame(checkpoint):
            found = model.generate(**given, do_sample=False, num_beams=beam, max_new_tokens=max(limit, 1))
        said_ids = found[0, 1:].tolist()
        speaker = Speaker(lambda ids: tokenizer.decode(ids), _list_special(tokenizer))
        produced = label_said(said_ids, speaker)
        said = produced.text.strip()
    inputs = torch.tensor([[start, *said_ids[:-1]]], device=model.device)
    seen = _run(checkpoint, layers, top, **given, decoder_input_ids=inputs, use_cache=False)
    tokens = {"source": label_encoding(text, encoding), "target": produced,
              "inputs": shift(produced, str(tokenizer.id_to_token(start)))}  # fmt: skip
    return Sight(seen, tokens, place_sides(seen), text, said, notes)


@torch.no_grad()
def look_at_picture(
    checkpoint: Checkpoint, image: str | os.PathLike[str], *, layers: Any = None, top: int = 16
) -> Sight:
    """The attention weights of a vision model on an image, patch by patch."""
    model = checkpoint.model
    rules, notes = read_rules(checkpoint.folder)
    side = model.config.image_size if hasattr(model.config, "image_size") else 224
    size = (side, side) if isinstance(side, int) else tuple(side)
    picture, numbers = fit_picture(read_picture(image), rules, size)
    seen = _run(checkpoint, layers, top, pixel_values=numbers.to(model.device, model.dtype))
    grid, skip = list_patches(checkpoint.folder, model.config, picture, seen)
    tokens, sides = {"patches": label_patches(grid, skip)}, dict.fromkeys(seen, ("patches", "patches"))
    scene = ImageScene(picture, grid, skip)
    return Sight(seen, tokens, sides, pathlib.Path(image).name, None, notes, scene=scene)


def _run(checkpoint: Checkpoint, layers: Any, top: int, **given: Any) -> Seen:
    with hush(), watch(checkpoint.model, layers=layers, top=top, keep=True) as seen, _blame(checkpoint):
        checkpoint.model(**given)
    return seen


@contextlib.contextmanager
def _blame(checkpoint: Checkpoint) -> Iterator[None]:
    """Turn any error of a checkpoint's own model into one line that names its folder."""
    try:
        yield
    except RegardError:
        raise
    except (ValueError, TypeError, IndexError, KeyError, AttributeError, RuntimeError) as error:
        raise name_fault(checkpoint.folder, "cannot be run", ANY, tell(error)) from None


def _encode(checkpoint: Checkpoint, text: str, name: str) -> tuple[Any, tuple[str, ...]]:
    """The encoding of a text, truncated to the model's positions, and a note where it was."""
    check_text(text, name)
    encoding, most = checkpoint.tokenizer.encode(text), checkpoint.positions
    known = checkpoint.model.get_input_embeddings().num_embeddings
    if not encoding.ids or max(encoding.ids) >= known:
        cause = "cuts the text into no tokens" if not encoding.ids else f"has ids beyond the model's {known} tokens"
        raise name_fault(checkpoint.folder / TOKENIZER, cause, RESTORE)
    if most is None or len(encoding.ids) <= most:
        return encoding, ()
    count = len(encoding.ids)
    checkpoint.tokenizer.enable_truncation(most)
    encoding = checkpoint.tokenizer.encode(text)
    checkpoint.tokenizer.no_truncation()
    return encoding, (f"The {name} has {count:,} tokens and the model {most:,} positions: the rest is cut off.",)


def _find_start(checkpoint: Checkpoint) -> int:
    config, more = checkpoint.model.config, getattr(checkpoint.model, "generation_config", None)
    for holder in (more, config):
        for name in ("decoder_start_token_id", "bos_token_id"):
            if isinstance(found := getattr(holder, name, None), int):
                return found
    raise name_fault(checkpoint.folder / CONFIG, "has no decoder_start_token_id", "add it")


def _list_special(tokenizer: Any) -> dict[int, str]:
    return {k: token.content for k, token in tokenizer.get_added_tokens_decoder().items() if token.special}
