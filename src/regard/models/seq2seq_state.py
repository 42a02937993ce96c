"""The states of a `Seq2Seq`: what its encoder returns, and what its decoder carries from step to step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.mask.integer import recall_range, remember_range


class Encoded(NamedTuple):
    """The outputs and hidden state of a `Seq2SeqEncoder`; unlike a plain pair, it says that its batch comes first."""

    outputs: Float[Tensor, "batch steps num_hiddens"]
    hidden: Float[Tensor, "layers batch num_hiddens"]


@dataclass(frozen=True, eq=False)
class Seq2SeqState:
    """The state of the decoder between steps; a `regard.models.decode.State`."""

    memory: Float[Tensor, "batch source num_hiddens"]
    # what queries meet: the memory, or its projection, made once
    keys: Float[Tensor, "batch source width"]
    hidden: Float[Tensor, "layers batch num_hiddens"]
    valid_lens: Tensor | None
    # which sentence of `init_state` a row belongs to: rows of one sentence have equal memories
    owner: Int[Tensor, " batch"]

    @property
    def device(self) -> torch.device:
        return self.memory.device

    def __len__(self) -> int:
        return len(self.owner)

    def take(self, rows: Tensor) -> Self:
        """The state whose row i is row `rows[i]` of this one."""
        owner, moved = self.owner[rows], replace(self, hidden=self.hidden[:, rows])
        if torch.equal(owner, self.owner):
            # beams change places within their sentence: the memories stay
            return moved
        memory = self.memory[rows]
        keys = memory if self.keys is self.memory else self.keys[rows]
        lens = None if self.valid_lens is None else self.valid_lens[rows]
        if self.valid_lens is not None and lens is not None and (known := recall_range(self.valid_lens)):
            # some of the same numbers: the next step need not wait for a GPU to tell
            remember_range(lens, *known)
        return replace(moved, memory=memory, keys=keys, valid_lens=lens, owner=owner)
