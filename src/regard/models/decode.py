"""Decoding (text generation), a batch at once: greedy, sampling, beam search with a length penalty."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core import RegardError
from regard.mask.integer import remember_range


class State(Protocol):
    """The state of a decoder between steps, one row for each sentence or beam.

    `Seq2SeqState` is one; a Transformer's holds its caches, whose `reorder` does what `take` needs.
    """

    @property
    def device(self) -> torch.device:
        """The device of tokens and rows."""

    def __len__(self) -> int:
        """The number of rows."""

    def take(self, rows: Int[Tensor, " rows"]) -> Self:
        """The state whose row i is row `rows[i]` of this one, which is not used any more.

        Rows may repeat and may be left out: beams change places, and sentences that are done are dropped.
        """


class Decoder(Protocol):
    """A decoder: of the last token of each row and the state, the logits of the next token and the next state."""

    def __call__(
        self, X: Int[Tensor, "rows 1"], state: Any, /
    ) -> tuple[Float[Tensor, "rows 1 vocab"], Any]: ...  # fmt: skip


@dataclass(frozen=True, eq=False)
class Decoded:
    """The decoded sentences, one for each row of the state: `tokens` up to and with `eos`, without `bos`, then `pad`.

    `lengths` counts the tokens, `eos` too. `scores` are log-probabilities, a beam's divided by its length penalty.
    """

    tokens: Int[Tensor, "batch steps"]
    lengths: Int[Tensor, " batch"]
    scores: Float[Tensor, " batch"]

    def tolist(self) -> list[list[int]]:
        """The tokens of each sentence, without padding."""
        return [row[:length] for row, length in zip(self.tokens.tolist(), self.lengths.tolist(), strict=True)]


@torch.no_grad()
def decode_greedily(decoder: Decoder, state: State, *, bos: int, eos: int, pad: int, max_len: int) -> Decoded:
    """Greedy decoding: the most likely token at every step.

    >>> from regard.models.seq2seq import Config, Seq2Seq
    >>> model = Seq2Seq.from_config(Config(10, 10, 4, 8, 1)).eval()
    >>> state = model.encode(torch.tensor([[4, 5, 6], [7, 8, 0]]), torch.tensor([3, 2]))
    >>> decode_greedily(model.decoder, state, bos=1, eos=2, pad=0, max_len=7).tokens.shape[0]
    2

    A sentence ends with `eos`, or without after `max_len` tokens. `bos` and `pad` are never said (`eos` may be one).
    """
    # by topk of two, as a beam of one does: ties are broken in the same way
    return _walk(decoder, state, lambda totals, rows: totals.topk(2).indices[:, 0], bos, eos, pad, max_len)


@torch.no_grad()
def sample(
    decoder: Decoder,
    state: State,
    *,
    bos: int,
    eos: int,
    pad: int,
    max_len: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    generator: torch.Generator | None = None,
) -> Decoded:
    """Sampling: a token drawn at every step by softmax(logits / temperature), from the `top_k` most likely where given.

    >>> from regard.models.seq2seq import Config, Seq2Seq
    >>> model = Seq2Seq.from_config(Config(10, 10, 4, 8, 1)).eval()
    >>> state = model.encode(torch.tensor([[4, 5, 6], [7, 8, 0]]), torch.tensor([3, 2]))
    >>> noise = torch.Generator().manual_seed(0)
    >>> sample(model.decoder, state, bos=1, eos=2, pad=0, max_len=7, top_k=5, generator=noise).tokens.shape[0]
    2

    `generator` lies on the logits' device. Scores are the model's own log-probabilities, at temperature one.
    """
    if not temperature > 0 or not math.isfinite(temperature):
        raise RegardError(f"sample temperature must be above 0, got {temperature}: a greedy answer is its limit.")
    if top_k is not None and top_k < 1:
        raise RegardError(f"sample top_k must be None or at least 1, got {top_k}.")
    batch = len(state)

    def choose(totals: Tensor, rows: Tensor) -> Tensor:
        # a number for each sentence, done or not: what one says does not hang on when another ends
        drawn = torch.rand(batch, generator=generator, device=totals.device)[rows, None].double()
        kept, tokens = totals.topk(min(top_k or totals.shape[-1], totals.shape[-1]))
        sums = torch.softmax(kept.double() / temperature, -1).cumsum(-1)
        # the first whose sum exceeds the number: never a token of probability zero
        at = torch.searchsorted(sums, drawn * sums[:, -1:], right=True)
        return tokens.gather(1, at)[:, 0]

    return _walk(decoder, state, choose, bos, eos, pad, max_len)


@torch.no_grad()
def search_beam(
    decoder: Decoder, state: State, *, bos: int, eos: int, pad: int, max_len: int, beam: int = 5, alpha: float = 0.6
) -> Decoded:
    """Beam search: the best sentence among those that follow the `beam` most likely beginnings.

    >>> from regard.models.seq2seq import Config, Seq2Seq
    >>> model = Seq2Seq.from_config(Config(10, 10, 4, 8, 1)).eval()
    >>> state = model.encode(torch.tensor([[4, 5, 6], [7, 8, 0]]), torch.tensor([3, 2]))
    >>> search_beam(model.decoder, state, bos=1, eos=2, pad=0, max_len=7).tokens.shape[0]
    2

    Best is the log-probability divided by ((5 + length) / 6)^alpha, of https://arxiv.org/abs/1609.08144, `eos` counted.
    A sentence is done when `beam` endings were found, when none that is still open can win, or after `max_len` tokens;
    one without `eos` is the answer only where none ended. A beam of one is `decode_greedily`.
    """
    _check("search_beam", state, max_len)
    if beam < 1:
        raise RegardError(f"search_beam beam must be at least 1, got {beam}.")
    if not alpha >= 0:
        raise RegardError(f"search_beam alpha must be at least 0, got {alpha}.")
    found = _Found(len(state), max_len, pad, state.device)
    # which sentences are open, the scores of their beams and what these said; at first all beams but one are empty
    rows = torch.arange(len(state), device=state.device)
    live = torch.tensor([0.0, *[-math.inf] * (beam - 1)], device=state.device).expand(len(rows), beam)
    said = rows.new_zeros(len(rows), beam, 0)
    state = _follow(state, rows.repeat_interleave(beam))
    last = rows.new_full((len(state), 1), bos)
    for length in range(1, max_len + 1):
        log_probs, state = _step(decoder, last, state, bos, eos, pad)
        totals = (live[:, :, None] + log_probs.unflatten(0, (-1, beam))).flatten(1)
        # twice as many as there are beams: where the better half are endings, the other half goes on
        scores, at = totals.topk(2 * beam)
        origin, token = at // log_probs.shape[-1], at % log_probs.shape[-1]
        is_end, each = token == eos, torch.arange(len(rows), device=rows.device)[:, None]
        # endings count in the better half, as they would not be followed in the other; nothing comes of an empty beam
        ends = is_end[:, :beam] & scores[:, :beam].isfinite()
        best, which = scores[:, :beam].masked_fill(~ends, -math.inf).max(-1, keepdim=True)
        path = said[each, origin.gather(1, which)][:, 0]
        penalty = _penalise(length, alpha)
        found.offer(rows, best[:, 0] / penalty, torch.cat((path, torch.full_like(which, eos)), 1))
        found.ends[rows] += ends.sum(-1)
        kept = is_end.long().argsort(dim=-1, stable=True)[:, :beam]
        live = scores.masked_fill(is_end, -math.inf).gather(1, kept)
        origin = origin.gather(1, kept)
        said = torch.cat((said[each, origin], token.gather(1, kept)[:, :, None]), 2)
        # going on a sentence only loses, at most until the last penalty
        is_done = (found.ends[rows] >= beam) | (found.scores[rows] >= live[:, 0] / _penalise(max_len, alpha))
        is_open = (~is_done).nonzero()[:, 0]
        if length == max_len or not len(is_open):
            found.offer(rows, (live[:, 0] / penalty).masked_fill(found.ends[rows] > 0, -math.inf), said[:, 0])
            break
        state = _follow(state, (each * beam + origin)[is_open].flatten())
        rows, live, said = rows[is_open], live[is_open], said[is_open]
        last = said[:, :, -1].reshape(-1, 1)
    return found.read()


class _Found:
    """The best hypothesis so far of each row."""

    def __init__(self, batch: int, max_len: int, pad: int, device: torch.device) -> None:
        self.tokens = torch.full((batch, max_len), pad, device=device)
        self.lengths = torch.zeros(batch, dtype=torch.int64, device=device)
        self.scores = torch.full((batch,), -math.inf, device=device)
        # how many endings there were
        self.ends = torch.zeros_like(self.lengths)

    def offer(self, rows: Tensor, scores: Tensor, tokens: Tensor) -> None:
        """Keep the hypotheses that are better; they are never shorter than what was there."""
        self.scores = self.scores.to(scores.dtype)
        is_better = scores > self.scores[rows]
        chosen, length = rows[is_better], tokens.shape[1]
        self.tokens[chosen, :length] = tokens[is_better]
        self.scores[chosen], self.lengths[chosen] = scores[is_better], length

    def read(self) -> Decoded:
        longest = int(self.lengths.max())
        return Decoded(self.tokens[:, :longest], self.lengths, self.scores)


def _walk(
    decoder: Decoder,
    state: State,
    choose: Callable[[Tensor, Tensor], Tensor],
    bos: int,
    eos: int,
    pad: int,
    max_len: int,
) -> Decoded:
    """Decode token by token: `choose` is given the scores of open sentences with each token, and which."""
    _check("decode", state, max_len)
    rows = torch.arange(len(state), device=state.device)
    tokens = rows.new_full((len(rows), max_len), pad)
    lengths, scores = torch.zeros_like(rows), torch.zeros(len(rows), device=rows.device)
    last = rows.new_full((len(rows), 1), bos)
    for step in range(max_len):
        log_probs, state = _step(decoder, last, state, bos, eos, pad)
        scores = scores.to(log_probs.dtype)
        totals = scores[rows, None] + log_probs
        token = choose(totals, rows)
        tokens[rows, step], lengths[rows] = token, step + 1
        scores[rows] = totals.gather(1, token[:, None])[:, 0]
        is_open = (token != eos).nonzero()[:, 0]
        if not len(is_open) or step + 1 == max_len:
            break
        if len(is_open) < len(rows):
            # numbers of rows: nobody need ask a GPU
            remember_range(is_open, 0, len(rows) - 1)
            state, rows, token = state.take(is_open), rows[is_open], token[is_open]
        last = token[:, None]
    return Decoded(tokens[:, : step + 1], lengths, scores)


def _step(decoder: Decoder, last: Tensor, state: State, bos: int, eos: int, pad: int) -> tuple[Tensor, State]:
    """Log-probabilities of the next token, and the next state."""
    logits, state = decoder(last, state)
    logits = logits[:, -1]
    vocab = logits.shape[-1]
    if not max(bos, eos) < vocab:
        raise RegardError(f"decode bos and eos must be below the {vocab} tokens of the decoder, got {bos} and {eos}.")
    # sums of half-precision numbers would be too coarse to compare
    log_probs = torch.log_softmax(logits if logits.dtype == torch.float64 else logits.float(), -1)
    for token in {bos, pad} - {eos}:
        if 0 <= token < vocab:
            log_probs[:, token] = -math.inf
    return log_probs, state


def _follow(state: State, rows: Tensor) -> State:
    """`state.take(rows)`, or the state itself where nothing moves."""
    is_same = len(rows) == len(state) and torch.equal(rows, torch.arange(len(rows), device=rows.device))
    return state if is_same else state.take(rows)


def _penalise(length: int, alpha: float) -> float:
    return math.pow((5 + length) / 6, alpha)


def _check(called: str, state: State, max_len: int) -> None:
    if max_len < 1:
        raise RegardError(f"{called} max_len must be at least 1, got {max_len}.")
    if len(state) < 1:
        raise RegardError(f"{called} state must have at least one row, got none.")
