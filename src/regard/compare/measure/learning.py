"""The training loop of what is compared: small, the same for all, and the same again for the same seed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.compare.measure.threads import one_thread
from regard.compare.settings import Advance

# the inputs and answers of a batch
Draw = Callable[[], tuple[Tensor, Tensor]]
# the rate rises for this share of the steps, then falls to nothing
WARMUP = 0.1
# a loss below this, for as many batches in a row, has nothing left to learn
LEARNED, PATIENCE = 0.02, 25
# examples at once where nothing is learned from them
CHUNK = 256


@dataclass(frozen=True)
class Recipe:
    """How long and how fast: at most so many batches by AdamW, with gradients no longer than 1."""

    steps: int
    batch: int = 32
    rate: float = 3e-3


@contextmanager
def seeded(seed: int, device: str) -> Iterator[torch.Generator]:
    """All chance within depends on the seed, and none of it is felt outside; one thread; yields a generator for data.

    >>> with seeded(0, "cpu") as generator:
    ...     torch.rand(1, generator=generator) == torch.rand(1)
    tensor([True])
    """
    devices = [device] if torch.device(device).type == "cuda" else []
    # sums come out the same however many cores there are
    with one_thread(), torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield torch.Generator().manual_seed(seed)


def train(model: nn.Module, draw: Draw, recipe: Recipe, advance: Advance) -> dict[str, Any]:
    """Trains by batches that are drawn; returns how many `steps` it took, the last `loss` and the `seconds`.

    >>> model, examples = nn.Linear(2, 2), (torch.eye(2), torch.arange(2))
    >>> told = train(model, lambda: examples, Recipe(steps=400, rate=0.1), lambda share: None)
    >>> told["steps"] < 400, measure_accuracy(model, *examples)
    (True, 1.0)

    The loss is a mean over the last twenty steps or so.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.rate, weight_decay=0.01)
    warm = max(round(WARMUP * recipe.steps), 1)
    device = next(model.parameters()).device
    model.train()
    begun, mean, learned, step = time.perf_counter(), 0.0, 0, 0
    while step < recipe.steps and learned < PATIENCE:
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate * min((step + 1) / warm, (recipe.steps - step) / (recipe.steps - warm + 1))
        inputs, answers = draw()
        loss = functional.cross_entropy(model(inputs.to(device)), answers.to(device))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        now, step = loss.item(), step + 1
        mean += (now - mean) / min(step, 20)
        learned = learned + 1 if now < LEARNED else 0
        if step % 10 == 0:
            advance(step / recipe.steps)
    advance(1.0)
    return {"steps": step, "loss": mean, "seconds": time.perf_counter() - begun}


def portion(advance: Advance, at: int, count: int) -> Advance:
    """Tells of the one at `at` as a share of all `count`.

    >>> portion(print, at=1, count=4)(0.5)
    0.375
    """
    return lambda share: advance((at + share) / count)


@torch.no_grad()
def measure_accuracy(model: nn.Module, inputs: Tensor, answers: Tensor) -> float:
    """The share of answers that are right.

    >>> measure_accuracy(nn.Identity(), torch.tensor([[0.0, 1.0], [0.0, 1.0]]), torch.tensor([0, 1]))
    0.5
    """
    device = next(model.parameters(), inputs).device
    model.eval()
    right = 0
    for some, wanted in zip(inputs.split(CHUNK), answers.split(CHUNK), strict=True):
        right += int((model(some.to(device)).argmax(-1).cpu() == wanted).sum())
    return right / len(answers)
