"""One query of a sequence after another to the same keys, as a decoder has them: what they share is done once."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import torch
from torch import Tensor

from regard.core import Mask, Score, Weigh
from regard.core.bits import draw_seed
from regard.engine.check import check_call
from regard.engine.fold import fold, lift
from regard.engine.run import OBSERVERS
from regard.engine.transform import is_transformed
from regard.mask import Full
from regard.weigh import Softmax


class Memory:
    """Keys and values (batch, keys, width) that queries (batch, 1, width) come to; the first of them tells the sizes.

    >>> from regard.mask import Lengths
    >>> from regard.score import Dot
    >>> rows = torch.ones(2, 3, 4)
    >>> memory = Memory(rows[:, :1], rows, rows, Dot(), Softmax(), Lengths(torch.tensor([2, 0])))
    >>> memory.attend(rows[:, :1])[:, 0, 0]
    tensor([1., 0.])

    What comes out is what `attend` gives with `backend="reference"`, in the dtype of computation, but where a query of
    NaN sees no key, and stays NaN. Since all queries see the same keys, those under the mask are zeros from the start:
    nobody looks for NaN in them, for which the host would wait for a GPU in each step.
    """

    def __init__(
        self, query: Tensor, key: Tensor, value: Tensor, score: Score, weigh: Weigh, mask: Mask, dropout: float = 0.0
    ) -> None:
        call = check_call(query, key, value, (score, weigh, mask, None), dropout)
        call = replace(call, weigh=weigh.settle(call.sizes))
        self.rows, self.score, self.mask, self.tile = (key, value), score, mask, call.sizes.whole()
        self.call, _, key, value = lift(call, *(fold(x, call.sizes) for x in (query, key, value)))
        self.allowed = self.shift = None
        if type(call.mask) is not Full:
            self.allowed = call.mask.tile(self.tile).expand(self.tile.shape)
            unseen = ~self.allowed.transpose(-1, -2)
            key, value = key.masked_fill(unseen, 0.0), value.masked_fill(unseen, 0.0)
            self.shift = key.new_zeros(()).masked_fill(~self.allowed, -torch.inf)
        # without heads
        self.key, self.value = key, value[:, 0]
        self.uncast = torch.autocast(call.sizes.device.type, enabled=False)

    def attend(self, query: Tensor) -> Tensor:
        """What the next query of each sequence gets."""
        call = self.call if not self.call.dropout else replace(self.call, seed=draw_seed(None))
        # autocast would undo the lift
        with self.uncast if torch.is_autocast_enabled(query.device.type) else nullcontext():
            row = query if call.score.keeps_dtype else query.to(call.compute_dtype)
            weights = self._weigh(call.score(row[:, None], self.key).to(call.compute_dtype))
            if (keep := call.keep(self.tile)) is not None:
                weights = weights * keep
            out = torch.bmm(weights[:, 0], self.value)
        if OBSERVERS:
            given = replace(call, score=self.score, mask=self.mask)
            for observe in tuple(OBSERVERS):
                observe(given, query, *self.rows, out.to(query.dtype))
        return out

    def _weigh(self, scores: Tensor) -> Tensor:
        weigh = self.call.weigh
        if type(weigh) is Softmax and weigh.sink is None:
            # zeros in a row of -inf alone; to add has a gradient for nothing, to fill would cost a launch
            return torch._safe_softmax(scores if self.shift is None else scores + self.shift, -1)
        return weigh(scores, self.allowed, self.tile) if scores.shape[-1] else scores


def can_share() -> bool:
    """Whether calls may share what is made of keys: a compiler and torch's transforms take each call as a whole."""
    return not torch.compiler.is_compiling() and not is_transformed()
