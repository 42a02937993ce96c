"""A task of one's own that is not text: pictures as sequences of pixels, and a label for each picture."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from own.digits_job import LABELS, SIDE, DigitsJob
from regard.data.collated import Collated
from regard.data.split import Split
from regard.models.encoder import Encoder
from regard.models.pretrained import load_pretrained
from regard.tasks.checkpoints.image_processor import read_picture
from regard.tasks.looks.scenes import ImageScene
from regard.tasks.looks.sight import Sight, place_pooled
from regard.tasks.looks.token_labels import label_names, label_patches
from regard.tasks.metrics.labels import report_labels
from regard.tasks.metrics.result import Bar, Result, hide, time_answers
from regard.tasks.training.classification import ClassTask
from regard.tasks.training.device import find_device
from regard.tasks.training.run import describe_parts
from regard.watching import watch


class Batch(NamedTuple):
    """Pictures as sequences of pixels, (batch, 64, 1), and their labels by number."""

    pixels: Tensor
    labels: Tensor

    def to(self, device: Any) -> Batch:
        return Batch(self.pixels.to(device), self.labels.to(device))


def collate(examples: Sequence[tuple[Any, str]]) -> Batch:
    """A batch of pictures, scaled to [0, 1]."""
    pixels = torch.from_numpy(np.stack([picture for picture, _ in examples])).float() / 16
    return Batch(pixels.flatten(1)[..., None], torch.tensor([LABELS.index(label) for _, label in examples]))


class DigitsTask(ClassTask):
    """Pictures and an encoder of vectors, as the training loop wants them."""

    unit = "pictures"

    def __init__(self, job: DigitsJob, model: Encoder, parts: Split) -> None:
        job, self.parts = job.fit_batches(len(parts.train)), parts
        train, valid = ([LABELS.index(label) for _, label in part] for part in (parts.train, parts.valid))
        super().__init__(model, job, parts[:2], labels=LABELS, train=train, valid=valid)
        self.test_digest = job.corpus.digest(parts.test)
        self.notes = [f"{describe_parts(parts, 'pictures')}."]

    def _batch(self, part: Any, rank: int = 0, world_size: int = 1, **options: Any) -> Collated:
        size = self.job.batch_size
        return Collated(part, collate, batch_size=size, rank=rank, world_size=world_size, what="picture", **options)

    def batches(self, rank: int, world_size: int) -> Collated:
        return self._batch(self.parts.train, rank, world_size, seed=self.job.recipe.seed)

    def batches_to_validate(self, rank: int, world_size: int) -> Collated:
        return self._batch(self.parts.valid, rank, world_size, shuffle=False)

    def batches_to_judge(self) -> Collated:
        return self._batch((self.parts.test or self.parts.valid)[:200], shuffle=False)

    def predict(self, model: Any, batch: Batch) -> Tensor:
        logits: Tensor = model(batch.pixels)
        return logits


def prepare(job: DigitsJob, parts: Split, folder: Any) -> DigitsTask:
    """An encoder and pictures, ready to be trained in a folder."""
    torch.manual_seed(job.recipe.seed)
    return DigitsTask(job, Encoder(job.configure()[0]), parts)


@dataclass(frozen=True)
class Digit:
    """The digit on a picture, and how sure the model is."""

    label: str
    score: float

    def __str__(self) -> str:
        return f"{self.label} {self.score:.2f}"


class Reader:
    """A trained model, and what it reads in pictures."""

    def __init__(self, model: Encoder) -> None:
        self.model = model

    @classmethod
    def load(cls, folder: Any, device: Any = "auto") -> Reader:
        """That of a run; "auto" is a GPU where there is one."""
        return cls(load_pretrained(folder, find_device(device), kinds=(Encoder,)))

    @torch.no_grad()
    def read(self, pictures: Sequence[Any], *, batch_size: int = 64, on_progress: Any = None) -> list[Digit]:
        """The digit on each picture, (8, 8) numbers from 0 to 16."""
        found: list[Digit] = []
        for start in range(0, len(pictures), batch_size):
            batch = collate([(picture, LABELS[0]) for picture in pictures[start : start + batch_size]])
            scores, best = self.model(batch.pixels.to(self.model.embedding.weight.device)).softmax(-1).max(-1)
            found += [Digit(LABELS[k], score) for score, k in zip(scores.tolist(), best.tolist(), strict=True)]
            if on_progress is not None:
                on_progress(len(found), len(pictures))
        return found

    def answer(self, names: Sequence[str], **options: Any) -> list[Digit]:
        """The digits on pictures in files."""
        return self.read([open_picture(name) for name in names], **options)


def open_picture(name: Any) -> Any:
    """A picture of any size in a file, as those of the data are."""
    grey = read_picture(name).convert("L").resize((SIDE, SIDE))
    return np.asarray(grey, dtype=np.float32) * (16 / 255)


def score(run: Any, asked: Sequence[Any], *, device: Any = "auto", batch_size: int = 64, bar: Bar = hide) -> Result:
    """The scores of a run on pictures of digits: accuracy and F1, also of each digit."""
    reader, pictures = Reader.load(run, device), [picture for picture, _ in asked]
    found, seconds = time_answers(bar, "reading", len(asked), partial(reader.read, pictures, batch_size=batch_size))
    return report_labels([one.label for one in found], [label for _, label in asked], LABELS, seconds)


@torch.no_grad()
def look(reader: Reader, name: Any, *, layers: Any = None, top: int = 16) -> Sight:
    """What a reader attends to in the picture of a file: pixels to pixels, and the weights that it pools them by."""
    picture = open_picture(name)
    with watch(reader.model, layers=layers, top=top, keep=True) as seen:
        (found,) = reader.read([picture])
    tokens = {"pixels": label_patches((SIDE, SIDE)), "label": label_names([found.label])}
    scene = ImageScene(picture / 16, (SIDE, SIDE))
    return Sight(seen, tokens, place_pooled(seen, "pixels"), pathlib.Path(name).name, str(found), scene=scene)
