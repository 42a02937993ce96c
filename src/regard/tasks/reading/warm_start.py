"""Fine-tuning: starting from a pretrained encoder; and loading trained encoders with their tokenizers."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from regard.core import RegardError
from regard.data.wordpiece import WordPiece
from regard.models.encoder import Encoder
from regard.models.files import name_fault
from regard.models.layout import PREFIX, read_config
from regard.models.pretrained import load_pretrained
from regard.tasks.checkpoints.configs import RESTORE
from regard.tasks.reading.vocabulary import LETTERS_FILE, Lexicon
from regard.tasks.training.device import find_device
from regard.tasks.training.folder import RunFolder, is_same_start

if TYPE_CHECKING:
    from regard.tasks.reading.encoder_job import EncoderJob


def open_start(start: str) -> tuple[Encoder, Lexicon]:
    """The pretrained encoder of a run, or of hf:FOLDER with a BERT in it, and its tokenizer."""
    folder = pathlib.Path(os.path.expanduser(start.removeprefix(PREFIX)))
    if start.startswith(PREFIX):
        return open_bert(folder)
    model = load_pretrained(folder)
    if not isinstance(model, Encoder):
        raise RegardError(f"{folder} is of a {type(model).__name__}, which is no encoder: name a run of pretrain.")
    return model, load_lexicon(folder, model)


def open_bert(folder: pathlib.Path, device: str | torch.device = "cpu") -> tuple[Encoder, Lexicon]:
    """The BERT in a Hugging Face folder, and its tokenizer."""
    from regard.models.bert import Bert

    model, tokenizer = Bert.from_pretrained(folder, device), WordPiece.load(folder)
    if tokenizer.vocab_size > model.config.vocab_size:
        cause = f"has {tokenizer.vocab_size} pieces in its tokenizer, {model.config.vocab_size} in its model"
        raise name_fault(folder, cause, RESTORE)
    return model, Lexicon(tokenizer)


def prepare_reading(job: EncoderJob, folder: RunFolder, texts: Sequence[Any]) -> tuple[Encoder | None, Lexicon]:
    """A job's pretrained encoder, if any, and its tokenizer: the resumed run's, the encoder's, or a new one."""
    before = folder.read_settings() if folder.is_begun() else None
    if before is not None and not is_same_start(before.get("start"), job.start):
        was, now = (json.dumps(x, ensure_ascii=False)[:40] for x in (before.get("start"), job.start))
        raise RegardError(
            f"{folder.path} was begun with start={was}, now it is {now}: name a new folder, or give the same."
        )
    trunk, lexicon = (None, None) if job.start is None else open_start(job.start)
    has_letters, is_framed = job.reads_letters(texts), job.is_framed
    if trunk is not None:
        has_letters = trunk.config.num_characters > 0
        is_framed = job.changes.get("pooling", trunk.config.pooling) == "first"
    if before is not None:
        if trunk is None and any(before.get(name) != getattr(job, name) for name in ("tokens", "has_letters")):
            # whoever compares settings says so; what is read is still as it was
            has_letters = (folder.path / LETTERS_FILE).exists()
        lexicon = Lexicon.load(folder.path, has_letters=has_letters)
    elif lexicon is None:
        lexicon = job.train_lexicon(texts)
    lexicon.is_framed = is_framed
    return trunk, lexicon


def load_lexicon(folder: pathlib.Path, model: Encoder) -> Lexicon:
    """The tokenizer of a run, checked against its model."""
    config = model.config
    lexicon = Lexicon.load(folder, has_letters=config.num_characters > 0, is_framed=config.pooling == "first")
    for name in ("vocab_size", "num_characters"):
        own, theirs = getattr(config, name), getattr(lexicon, name)
        # tables of BERT may have rows to spare
        if own != theirs and not (own > theirs and isinstance(lexicon.tokenizer, WordPiece)):
            raise RegardError(
                f"{folder}: the tokenizer has {name}={theirs} and the model {own}: they are not of one run, restore the"
                " one that is."
            )
    return lexicon


def load_labeller(folder: pathlib.Path, device: str | torch.device, *heads: str) -> tuple[Encoder, Lexicon]:
    """The model of a run with one of these heads, on a device, and its tokenizer."""
    place = find_device(device)
    model = load_pretrained(folder, device=place)
    if not isinstance(model, Encoder) or model.config.head not in heads:
        raise RegardError(f"{folder} is no run that gives {heads[0]}, it is one of {name_task(folder)}: name another.")
    return model.eval(), load_lexicon(folder, model)


def name_task(folder: pathlib.Path) -> str:
    """The name of the task that a run was trained for."""
    name = read_config(folder).get("training", {}).get("task")
    return name if isinstance(name, str) else "another task"


def find_limit(folder: pathlib.Path, model: Encoder) -> int | None:
    """The maximum tokens of a text that a run's model was trained to read."""
    given = read_config(folder).get("training", {}).get("max_length")
    return limit_length(given if type(given) is int and given > 0 else None, model)


def limit_length(given: int | None, model: Encoder) -> int | None:
    """The given maximum length, or the model's number of positions where that is smaller."""
    positions = model.config.max_len if model.config.position == "learned" else None
    return min((x for x in (given, positions) if x is not None), default=None)


@contextmanager
def pause_training(model: nn.Module) -> Iterator[None]:
    """Evaluation mode within the block; training mode as it was afterwards."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
