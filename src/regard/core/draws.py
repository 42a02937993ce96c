"""Random numbers that a score draws in its forward pass, replayed in the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from regard.core.errors import RegardError

# how many numbers of a result are kept, and what they may differ by in parts of their mean size: bits of half precision
# may come out otherwise where torch computes with gradients in another way than without
SAMPLED, CLOSE, CLOSE_IN_HALF = 64, 1e-4, 1e-2


class Source(NamedTuple):
    """A random generator: how its state is read, and set."""

    read: Callable[[], Tensor]
    write: Callable[[Tensor], object]


class Draws:
    """The random numbers of a function's forward pass, to replay them in backward and see that results are the same.

    >>> draws = Draws("noise", list_sources(torch.device("cpu")))
    >>> with draws.record(may_replay=True):
    ...     once = torch.rand(3)
    >>> with draws.replay():
    ...     again = torch.rand(3)
    >>> torch.equal(once, again)
    True

    Without sources there is nothing to draw from; what is noted of results is compared all the same.
    """

    def __init__(self, name: str = "", sources: Iterable[Source] = ()) -> None:
        self.name = name
        self.sources = list(sources)
        self.before: list[Tensor] = []
        self.after: list[Tensor] = []
        self.noted: list[Tensor] = []
        # where `note` writes, while the function runs
        self.notes: list[Tensor] | None = None

    @property
    def drew(self) -> bool:
        return not all(map(torch.equal, self.before, self.after))

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Restore the states of all sources at the end of the block."""
        before = self._read()
        try:
            yield
        finally:
            self._write(before)

    @contextmanager
    def record(self, may_replay: bool, is_noted: bool = False) -> Iterator[None]:
        """Record the forward pass; raise where it draws and cannot be replayed."""
        # compiling takes a while: complain before it
        if self.sources and not may_replay:
            raise RegardError(
                f"score function {self.name} draws random numbers, and backend='compiled' would draw others on the way"
                " back. Use backend='tiled'."
            )
        self.before, self.noted = self._read(), []
        self.notes = self.noted if is_noted else None
        try:
            yield
        finally:
            self.notes = None
        self.after = self._read()

    def note(self, result: Tensor) -> None:
        """Note a few numbers of a result, to compare them in backward."""
        if self.notes is not None:
            self.notes.append(_sketch(result.detach()))

    @contextmanager
    def replay(self) -> Iterator[None]:
        """Replay the recorded random numbers in the backward pass; the sources' states are restored afterwards."""
        noted: list[Tensor] = []
        self.notes = noted
        try:
            if self.sources:
                with self.undone():
                    self._write(self.before)
                    yield
                    if not all(map(torch.equal, self.after, self._read())):
                        raise RegardError(
                            f"score function {self.name} drew other random numbers in backward than in forward: let it"
                            " draw as many on each tile, and change nothing between (train() or eval()), or use"
                            " backend='reference'."
                        )
            else:
                yield
        finally:
            self.notes = None
        if not _agree(self.noted, noted):
            raise RegardError(
                f"score function {self.name} gave other scores in backward than in forward, so the gradient would be"
                " wrong: let it draw from torch's own generators, on each tile alike, and change nothing it reads in"
                " between, or use backend='reference'."
            )

    def refuse_strips(self) -> None:
        """Raise for second derivatives of what drew: they cut a call into other tiles, which cannot replay it."""
        if self.drew:
            raise RegardError(
                f"score function {self.name} draws random numbers, which second derivatives cannot draw again."
                " Use backend='reference'."
            )

    def _read(self) -> list[Tensor]:
        return [source.read() for source in self.sources]

    def _write(self, states: list[Tensor]) -> None:
        for source, state in zip(self.sources, states, strict=True):
            source.write(state)


def list_moved(sources: Sequence[Source], run: Callable[[], object]) -> list[Source]:
    """The sources that a function draws from; their states are restored afterwards."""
    before = [source.read() for source in sources]
    try:
        run()
    finally:
        moved = [not torch.equal(old, source.read()) for old, source in zip(before, sources, strict=True)]
        # others may draw from them in other threads: what was not touched is not written
        for old, source, is_moved in zip(before, sources, moved, strict=True):
            if is_moved:
                source.write(old)
    return [source for source, is_moved in zip(sources, moved, strict=True) if is_moved]


def list_sources(device: torch.device) -> list[Source]:
    """torch's default generators, of the CPU and of a device."""
    sources = [Source(torch.get_rng_state, torch.set_rng_state)]
    if device.type == "cuda":
        sources.append(
            Source(partial(torch.cuda.get_rng_state, device), partial(torch.cuda.set_rng_state, device=device))
        )
    return sources


def _sketch(result: Tensor) -> Tensor:
    """A few of its numbers, the mean of all, and what these may be off by: neither many nor few change unseen."""
    flat = torch.nan_to_num(result.flatten(), nan=0.0, posinf=0.0, neginf=0.0)
    if not flat.numel():
        return flat.float()
    close = CLOSE if result.dtype in (torch.float32, torch.float64) else CLOSE_IN_HALF
    means = torch.stack([flat.mean(dtype=torch.float32), close * flat.abs().mean(dtype=torch.float32)])
    return torch.cat([flat[:: max(1, flat.numel() // SAMPLED)].float(), means])


def _agree(ones: list[Tensor], others: list[Tensor]) -> bool:
    """Whether two runs came out alike, but for the order of sums."""
    if not ones:
        return True
    if [x.shape for x in ones] != [x.shape for x in others]:
        return False
    # one look at all of them, since on a GPU each is a wait
    off = [(one - other).abs().max() > one[-1] for one, other in zip(ones, others, strict=True) if one.numel()]
    return not off or not bool(torch.stack(off).any())
