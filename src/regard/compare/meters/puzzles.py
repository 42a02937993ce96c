"""Puzzles that cannot be solved without what stands far away, or without the order in which it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from regard.compare.kinds import ATTENTION, KINDS, Kind, match_attention
from regard.compare.meters.learning import Batch, Reader, Recipe, Row, measure_accuracy, run_trials, train
from regard.compare.meters.sight import find_reach
from regard.compare.settings import Advance, Dimensions, Settings
from regard.layers import PositionalEncoding


@dataclass(frozen=True, eq=False)
class Puzzle:
    """Noise, somewhere in it a few tokens that tell the answer, and at the end the question.

    >>> recall = Puzzle(noise=8, tellers=torch.arange(8)[:, None])
    >>> recall.write(6, torch.tensor([2]), torch.tensor([4]), torch.Generator().manual_seed(0))
    tensor([[ 4,  7,  5, 12,  3, 16]])

    Tokens are first the `noise`, then those that tell, then the question. `tellers` are those that spell each answer,
    the nearest to the question first; it stands at the distance that is meant.
    """

    noise: int
    tellers: Int[Tensor, "answers extent"]

    @property
    def question(self) -> int:
        return self.noise + int(self.tellers.max()) + 1

    def find_farthest(self, length: int) -> int:
        """The greatest distance that a sequence has room for."""
        return length - self.tellers.shape[1]

    def write(
        self,
        length: int,
        distances: Int[Tensor, " batch"],
        answers: Int[Tensor, " batch"],
        generator: torch.Generator,
        times: int = 1,
    ) -> Int[Tensor, "batch length"]:
        """One sequence for each distance and answer; noise comes so many times before other noise does."""
        tokens = torch.randint(self.noise, (len(answers) // times, length), generator=generator).repeat(times, 1)
        tokens[:, -1] = self.question
        columns = length - 1 - distances[:, None] - torch.arange(self.tellers.shape[1])
        return tokens.scatter_(1, columns, self.noise + self.tellers[answers])

    def draw(self, count: int, length: int, generator: torch.Generator) -> Batch:
        """As many sequences and their answers; near and far alike, which is as many from 1 to 2 as from 50 to 100."""
        share = torch.rand(count, generator=generator, dtype=torch.float64)
        distances = ((self.find_farthest(length) + 1) ** share).long()
        answers = torch.randint(len(self.tellers), (count,), generator=generator)
        return self.write(length, distances, answers, generator), answers

    def ask(self, count: int, length: int, distance: int, generator: torch.Generator) -> Batch:
        """The same `count` sequences once for each answer: who does not see what tells is right exactly by chance."""
        answers = torch.arange(len(self.tellers)).repeat_interleave(count)
        distances = torch.full_like(answers, distance)
        return self.write(length, distances, answers, generator, times=len(self.tellers)), answers


@dataclass(frozen=True)
class Course:
    """How a puzzle is learned and asked: `contexts` at each distance, each with every answer."""

    puzzle: Puzzle
    length: int
    distances: tuple[int, ...]
    contexts: int
    recipe: Recipe
    width: int = 32
    depth: int = 2

    def make_reader(self, kind: Kind, dims: Dimensions, has_position: bool) -> Reader:
        """A model that reads the puzzle's tokens; without positions it is told of no order but that of its layers."""
        puzzle, width = self.puzzle, dims.width
        embedding = nn.Embedding(puzzle.question + 1, width)
        position = PositionalEncoding(width) if has_position else nn.Identity()
        mixers = (kind.build(dims) for _ in range(self.depth))
        return Reader(embedding, position, mixers, width, len(puzzle.tellers))

    def ask(self, model: Reader, distance: int, seed: int) -> dict[str, Any]:
        """How right a model is at a distance; the questions are the same for all models."""
        # none that it was trained on: these are drawn by the seed itself. Torch keeps 32 bits of the product, in which
        # seeds below 2**32 still differ, as the factor is odd
        generator = torch.Generator().manual_seed((seed + 1) * 1_000_003 + distance)
        tokens, answers = self.puzzle.ask(self.contexts, self.length, distance, generator)
        accuracy = measure_accuracy(model, tokens, answers)
        return {"distance": distance, "accuracy": accuracy, "count": len(answers), "seed": seed}


def measure_course(
    courses: Mapping[bool, Course], settings: Settings, advance: Advance, kinds: Mapping[str, Kind] = KINDS
) -> dict[str, Any]:
    """One model for each kind, with positions and without, learns all distances and is asked by distance.

    `reach` is how far the question sees, None where it sees all and 0 where it sees nothing but itself; `edges` say, of
    every kernel, how right those between are at the end of their reach and one token beyond.
    """
    course = courses[settings.is_quick]
    puzzle, length, dims = course.puzzle, course.length, settings.dims.widen(course.width)
    reaches: dict[str, int | None] = {}

    def learn(trial: Row, generator: torch.Generator, advance: Advance) -> dict[str, list[Row]]:
        kind, has_position = kinds[trial["kind"]], trial["has_position"]
        sizes = match_attention(kind, replace(dims, kernel=trial["k"] or dims.kernel), settings)
        model = course.make_reader(kind, sizes, has_position).to(settings.device)
        told = train(model, lambda: puzzle.draw(course.recipe.batch, length, generator), course.recipe, advance)
        model.eval()
        seen = find_reach(model.read, length, sizes.width, dtype=torch.float32, device=settings.device) or 0
        reach = seen if seen < puzzle.find_farthest(length) else None
        made = {"training": [{**trial, **told}]}
        if reach:
            within, beyond = (course.ask(model, t, settings.seed)["accuracy"] for t in (reach, reach + 1))
            made["edges"] = [{**trial, "reach": reach, "within": within, "beyond": beyond}]
        if trial["k"] in (None, dims.kernel):
            reaches[kind.name] = reach
            asked = {"kind": kind.name, "has_position": has_position}
            made["rows"] = [{**asked, **course.ask(model, t, settings.seed)} for t in course.distances]
        return made

    kernels = sorted({dims.kernel, *(() if settings.is_quick else settings.kernels)})
    trials = [
        {"kind": kind.name, "has_position": has_position, "k": kernel}
        # where time is short: with positions before without, and first what all others are compared with
        for has_position in (True, False)
        for kind in sorted(kinds.values(), key=lambda kind: kind.name != ATTENTION.name)
        for kernel in (kernels if "k" in kind.powers else [None])
    ]
    used = {**asdict(course.recipe), "width": course.width, "contexts": course.contexts, "noise": puzzle.noise}
    found = run_trials(trials, learn, settings, advance, kinds)
    return {
        "chance": 1 / len(puzzle.tellers), "length": length, "depth": course.depth, "settings": used,
        "reach": {name: reaches[name] for name in kinds if name in reaches}, **found,
    }  # fmt: skip
