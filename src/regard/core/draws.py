"""Random numbers that a score draws on its way forward, drawn again on its way back."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.core.errors import RegardError


class Source(NamedTuple):
    """Where random numbers come from: how its state is read, and set."""

    read: Callable[[], Any]
    write: Callable[[Any], object]


class Draws:
    """All sources that a function may draw from, and their states before and after it ran forward.

    >>> draws = Draws("noise", list_sources(torch.device("cpu")))
    >>> with draws.record(may_replay=True):
    ...     once = torch.rand(3)
    >>> with draws.replay():
    ...     again = torch.rand(3)
    >>> torch.equal(once, again)
    True

    Without sources there is nothing to draw from, and nothing to keep.
    """

    def __init__(self, name: str = "", sources: Iterable[Source] = (), is_random: bool = False) -> None:
        self.name = name
        self.sources = list(sources)
        # whether it is known already that something will be drawn
        self.is_random = is_random
        self.before: list[Any] = []
        self.after: list[Any] = []

    @property
    def drew(self) -> bool:
        return not all(map(_equal, self.before, self.after))

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Whatever is drawn within, the sources are as they were afterwards."""
        before = self._read()
        try:
            yield
        finally:
            self._write(before)

    @contextmanager
    def record(self, may_replay: bool) -> Iterator[None]:
        """The way forward, noted; a complaint where it draws and cannot be gone again."""
        # compiling takes a while: complain before it, where that is known
        self._refuse_compiled(not may_replay and self.is_random)
        self.before = self._read()
        yield
        self.after = self._read()
        self._refuse_compiled(not may_replay and self.drew)

    def _refuse_compiled(self, must: bool) -> None:
        if must:
            raise RegardError(
                f"score function {self.name} draws random numbers, and backend='compiled' would draw others on the way"
                " back. Use backend='tiled'."
            )

    @contextmanager
    def replay(self) -> Iterator[None]:
        """The way back, with the same numbers; the sources are as they were afterwards."""
        if not self.sources:
            yield
            return
        with self.undone():
            self._write(self.before)
            yield
            if not all(map(_equal, self.after, self._read())):
                raise RegardError(
                    f"score function {self.name} drew other random numbers in backward than in forward: let it draw as"
                    " many on each tile, and change nothing between (train() or eval()), or use backend='reference'."
                )

    def refuse_strips(self) -> None:
        """Second derivatives cut a call otherwise than the first: what was drawn for one tile fits no other."""
        if self.drew:
            raise RegardError(
                f"score function {self.name} draws random numbers, which second derivatives cannot draw again."
                " Use backend='reference'."
            )

    def _read(self) -> list[Any]:
        return [source.read() for source in self.sources]

    def _write(self, states: list[Any]) -> None:
        for source, state in zip(self.sources, states, strict=True):
            source.write(state)


def list_sources(device: torch.device, generators: Iterable[torch.Generator] = ()) -> list[Source]:
    """Python's and NumPy's generators, torch's own of the CPU and of a device, and these."""
    sources = [
        Source(random.getstate, random.setstate),
        Source(_read_numpy, _write_numpy),
        Source(torch.get_rng_state, torch.set_rng_state),
    ]
    if device.type == "cuda":
        sources.append(
            Source(partial(torch.cuda.get_rng_state, device), partial(torch.cuda.set_rng_state, device=device))
        )
    return sources + [Source(generator.get_state, generator.set_state) for generator in generators]


def _read_numpy() -> tuple[Any, ...]:
    """NumPy's global state, its numbers as bytes: two arrays have no one truth value, two states do."""
    state: Any = np.random.get_state()
    name, numbers, *rest = state
    return name, numbers.tobytes(), *rest


def _write_numpy(state: tuple[Any, ...]) -> None:
    name, numbers, *rest = state
    np.random.set_state((name, np.frombuffer(numbers, np.uint32), *rest))


def _equal(one: Any, other: Any) -> bool:
    return torch.equal(one, other) if isinstance(one, Tensor) else one == other
