"""Word vectors from hashed character n-grams, as in fastText: https://arxiv.org/abs/1607.04606."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from regard.core import RegardError
from regard.layers.positional import check_count
from regard.layers.spelling import check_letters

# a prime below 2**31, and a factor that keeps products of the two within 64 bits
MODULUS, FACTOR = 2**31 - 1, 1_000_003


class Grams(nn.Module):
    """A vector for each word from its character n-grams: their sum, divided by the root of their number.

    >>> layer = Grams(num_grams=100, num_hiddens=8)
    >>> layer(torch.tensor([[[1, 7, 5, 2], [1, 7, 2, 0]]])).shape
    torch.Size([1, 2, 8])

    Letters are ids, 0 is padding behind a word; a word of no letters is zeros. N-grams of each of `sizes` are
    hashed into `num_grams` rows, so that no list of them is kept and none is unknown: word forms that share a stem
    or an ending share its vector. With marks at both ends of a word, prefixes and suffixes are n-grams of their own.
    """

    def __init__(self, num_grams: int, num_hiddens: int, *, sizes: Sequence[int] = (2, 3, 4, 5)) -> None:
        super().__init__()
        check_count(self, "num_hiddens", num_hiddens)
        if num_grams < 2:
            raise RegardError(f"Grams num_grams must be at least 2, a row for padding and more, got {num_grams}.")
        if not sizes or min(sizes) < 1:
            raise RegardError(f"Grams sizes must name at least one, each 1 or more, got {tuple(sizes)}.")
        self.num_grams, self.num_hiddens, self.sizes = num_grams, num_hiddens, tuple(sizes)
        self.embedding = nn.Embedding(num_grams, num_hiddens, padding_idx=0)

    def forward(self, letters: Int[Tensor, "batch words letters"]) -> Float[Tensor, "batch words num_hiddens"]:
        check_letters(self, letters, None)
        batch, n, _ = letters.shape
        numbers = self.number(letters).flatten(0, 1)
        if not numbers.numel():
            return self.embedding.weight.new_zeros(batch, n, self.num_hiddens)
        found = functional.embedding_bag(numbers, self.embedding.weight, mode="sum", padding_idx=0)
        count = (numbers > 0).sum(-1, keepdim=True).clamp(min=1)
        return (found / count.to(found.dtype).sqrt()).view(batch, n, self.num_hiddens)

    def number(self, letters: Tensor) -> Int[Tensor, "batch words runs"]:
        """The embedding row of each n-gram; 0 where padding is part of it."""
        found = []
        for size in self.sizes:
            if size > letters.shape[-1]:
                break
            runs = letters.long().unfold(-1, size, 1)
            code = torch.full_like(runs[..., 0], size)
            for place in range(size):
                code = (code * FACTOR + runs[..., place]) % MODULUS
            found.append((1 + code % (self.num_grams - 1)).masked_fill((runs == 0).any(-1), 0))
        return torch.cat(found, -1) if found else letters.new_zeros(*letters.shape[:2], 0)

    def extra_repr(self) -> str:
        return f"num_grams={self.num_grams}, num_hiddens={self.num_hiddens}, sizes={self.sizes}"
