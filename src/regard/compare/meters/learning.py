"""Small models, the same but for the layer in them, and how they learn: the same again for the same seed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from regard.compare.meters.spending import WHY, Budget
from regard.compare.settings import Advance, Settings
from regard.layers import AddNorm, PositionWiseFFN

Rows = Float[Tensor, "batch positions width"]
# inputs and their answers
Batch = tuple[Tensor, Tensor]
Row = dict[str, Any]
# the rate rises for this share of the steps, then falls to nothing
WARMUP = 0.1
# a loss below this, for as many batches in a row, has nothing left to learn
LEARNED, PATIENCE = 0.02, 25
# examples at once where nothing is learned from them
CHUNK = 256
# of the rows of one kind, what comes first
ORDER = ("k", "has_position", "seed", "images")


class Block(nn.Module):
    """A layer in which tokens meet, and a network for each of them, both with a residual connection and a norm."""

    def __init__(self, mixer: nn.Module, width: int) -> None:
        super().__init__()
        self.mixer, self.mixed = mixer, AddNorm(width)
        self.network, self.worked = PositionWiseFFN(width, 2 * width, width), AddNorm(width)

    def forward(self, rows: Rows) -> Rows:
        rows = self.mixed(rows, self.mixer)
        out: Tensor = self.worked(rows, self.network)
        return out


class Reader(nn.Module):
    """Reads what the embedding makes rows of, by a block for each mixer; answers by the last row, or by the mean."""

    def __init__(
        self,
        embedding: nn.Module,
        position: nn.Module,
        mixers: Iterable[nn.Module],
        width: int,
        num_answers: int,
        by_mean: bool = False,
    ) -> None:
        super().__init__()
        self.embedding, self.position, self.by_mean = embedding, position, by_mean
        self.blocks = nn.Sequential(*(Block(mixer, width) for mixer in mixers))
        self.head = nn.Linear(width, num_answers)

    def read(self, rows: Rows) -> Rows:
        """What embedded tokens become: all but the embedding and the answer, for a look at who depends on whom."""
        out: Tensor = self.blocks(self.position(rows))
        return out

    def forward(self, tokens: Tensor) -> Float[Tensor, "batch num_answers"]:
        rows = self.read(self.embedding(tokens))
        answers: Tensor = self.head(rows.mean(1) if self.by_mean else rows[:, -1])
        return answers


@dataclass(frozen=True)
class Recipe:
    """How long and how fast: at most so many batches by AdamW, with gradients no longer than 1."""

    steps: int
    batch: int = 32
    rate: float = 3e-3


def train(model: nn.Module, draw: Callable[[], Batch], recipe: Recipe, advance: Advance) -> dict[str, Any]:
    """Trains by batches that are drawn; returns how many `steps` it took, the `loss` of late and the `seconds`.

    >>> model, examples = nn.Linear(2, 2), (torch.eye(2), torch.arange(2))
    >>> told = train(model, lambda: examples, Recipe(steps=400, rate=0.1), lambda share: None)
    >>> told["steps"] < 400, measure_accuracy(model, *examples)
    (True, 1.0)
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


@torch.no_grad()
def measure_accuracy(model: nn.Module, inputs: Tensor, answers: Tensor) -> float:
    """The share of answers that are right."""
    device = next(model.parameters(), inputs).device
    model.eval()
    guesses = torch.cat([model(some.to(device)).argmax(-1).cpu() for some in inputs.split(CHUNK)])
    return int((guesses == answers).sum()) / len(answers)


def run_trials(
    trials: Sequence[Row],
    learn: Callable[[Row, torch.Generator, Advance], Mapping[str, list[Row]]],
    settings: Settings,
    advance: Advance,
    order: Iterable[str],
    together: int = 1,
) -> dict[str, list[Row]]:
    """All rows that `learn` returns of the trials, in the order of the kinds, and what there was no time for.

    A training is whole or left out: a shorter one would say less of its kind than of the machine. So many that come
    `together` are all done or none is. All chance depends on the seed, and none of it is felt outside.
    """
    found: dict[str, list[Row]] = {"rows": [], "edges": [], "training": [], "skipped": []}
    budget, is_in_time = Budget(settings.seconds), True
    devices = [settings.device] if torch.device(settings.device).type == "cuda" else []
    for at, trial in enumerate(trials):

        def tell(share: float, at: int = at) -> None:
            advance((at + share) / len(trials))

        is_in_time = budget.allows() if at % together == 0 else is_in_time
        if not is_in_time:
            found["skipped"].append({**trial, "why": WHY})
            continue
        with torch.random.fork_rng(devices=devices):
            seed = trial.get("seed", settings.seed)
            torch.manual_seed(seed)
            for name, rows in learn(trial, torch.Generator().manual_seed(seed), tell).items():
                found[name] += rows
    ranks = {kind: rank for rank, kind in enumerate(order)}
    for rows in found.values():
        rows.sort(key=lambda row: (ranks[row["kind"]], *(row.get(key) or 0 for key in ORDER)))
    return found
