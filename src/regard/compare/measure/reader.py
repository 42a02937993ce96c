"""A small model around any kind of layer, the same but for that layer: it reads tokens and answers at the last."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.compare.kinds import Dimensions, Kind
from regard.layers import AddNorm, PositionalEncoding, PositionWiseFFN

Rows = Float[Tensor, "batch positions width"]


class Block(nn.Module):
    """A layer in which tokens meet, and a network for each of them, both with a residual connection and a norm.

    >>> import torch
    >>> Block(nn.Linear(8, 8), width=8)(torch.ones(2, 5, 8)).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, mixer: nn.Module, width: int) -> None:
        super().__init__()
        self.mixer, self.mixed = mixer, AddNorm(width)
        self.network, self.worked = PositionWiseFFN(width, 2 * width, width), AddNorm(width)

    def forward(self, rows: Rows) -> Rows:
        rows = self.mixed(rows, self.mixer)
        out: Tensor = self.worked(rows, self.network)
        return out


class Reader(nn.Module):
    """Reads tokens by `depth` blocks of one kind, and answers by what the last token has become.

    >>> import torch
    >>> from regard.compare.kinds import KINDS
    >>> model = Reader(KINDS["conv"], Dimensions(width=8), depth=2, num_tokens=5, num_answers=3, has_position=True)
    >>> model(torch.tensor([[0, 1, 2, 4]])).shape
    torch.Size([1, 3])

    Without `has_position` it is told of no order but that in which its layers take the tokens.
    """

    def __init__(
        self, kind: Kind, dims: Dimensions, depth: int, num_tokens: int, num_answers: int, has_position: bool
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_tokens, dims.width)
        self.position = PositionalEncoding(dims.width) if has_position else nn.Identity()
        self.blocks = nn.Sequential(*(Block(kind.build(dims), dims.width) for _ in range(depth)))
        self.head = nn.Linear(dims.width, num_answers)

    def read(self, rows: Rows) -> Rows:
        """What embedded tokens become: all but the embedding and the answer, for a look at who depends on whom."""
        out: Tensor = self.blocks(self.position(rows))
        return out

    def forward(self, tokens: Int[Tensor, "batch positions"]) -> Float[Tensor, "batch num_answers"]:
        answers: Tensor = self.head(self.read(self.embedding(tokens))[:, -1])
        return answers
