"""Puzzles that cannot be solved without what stands far away, or without the order in which it stands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from regard.core import RegardError

LETTERS = torch.arange(3)


@dataclass(frozen=True)
class Puzzle:
    """Noise, somewhere in it a few tokens that tell the answer, and at the end the question.

    >>> make_recall(8).write(6, torch.tensor([2]), torch.tensor([4]), torch.Generator().manual_seed(0))
    tensor([[ 4,  7,  5, 12,  3, 16]])

    Tokens are first the `noise`, then those that tell, `num_tellers`, then the question. `tell` spells an answer by
    `extent` tellers, the nearest to the question first; it stands at the distance that is meant.
    """

    name: str
    noise: int
    num_tellers: int
    num_answers: int
    extent: int
    tell: Callable[[Int[Tensor, " batch"]], Int[Tensor, "batch extent"]]

    @property
    def num_tokens(self) -> int:
        return self.noise + self.num_tellers + 1

    def find_farthest(self, length: int) -> int:
        """The greatest distance that a sequence has room for."""
        if length <= self.extent:
            raise RegardError(f"{self.name} needs a length of more than {self.extent}, got {length}.")
        return length - self.extent

    def write(
        self, length: int, distances: Int[Tensor, " batch"], answers: Int[Tensor, " batch"], generator: torch.Generator
    ) -> Int[Tensor, "batch length"]:
        """One sequence for each distance and answer."""
        farthest = self.find_farthest(length)
        if len(distances) and not 1 <= distances.min() <= distances.max() <= farthest:
            raise RegardError(f"{self.name} distances must be from 1 to {farthest}, for a length of {length}.")
        tokens = torch.randint(self.noise, (len(answers), length), generator=generator)
        tokens[:, -1] = self.num_tokens - 1
        columns = length - 1 - distances[:, None] - torch.arange(self.extent)
        return tokens.scatter_(1, columns, self.noise + self.tell(answers))

    def draw(self, count: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """As many sequences and their answers; near and far alike, which is as many from 1 to 2 as from 50 to 100."""
        share = torch.rand(count, generator=generator, dtype=torch.float64)
        distances = ((self.find_farthest(length) + 1) ** share).long()
        answers = torch.randint(self.num_answers, (count,), generator=generator)
        return self.write(length, distances, answers, generator), answers

    def ask(self, count: int, length: int, distance: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """The same `count` sequences once for each answer: who does not see what tells is right exactly by chance."""
        answers = torch.arange(self.num_answers).repeat_interleave(count)
        distances = torch.full_like(answers, distance)
        tokens = self.write(length, distances, answers, generator).unflatten(0, (-1, count))
        # the noise of the first everywhere, but for what tells
        told = torch.arange(length) - (length - 1 - distance)
        told = (told <= 0) & (told > -self.extent)
        return torch.where(told, tokens, tokens[0]).flatten(0, 1), answers


def make_recall(values: int) -> Puzzle:
    """Which of as many symbols was the marked one? The rest are noise of the same symbols.

    >>> make_recall(8).num_tokens
    17
    """
    return Puzzle("recall", values, values, values, 1, lambda answers: answers[:, None])


def make_order(noise: int) -> Puzzle:
    """Was it a b c, which is answer 0, or c b a?

    >>> make_order(16).write(5, torch.tensor([1]), torch.tensor([0]), torch.Generator())[0, -4:]
    tensor([16, 17, 18, 19])
    """
    return Puzzle("order", noise, 3, 2, 3, lambda answers: torch.where(answers[:, None] == 0, 2 - LETTERS, LETTERS))
