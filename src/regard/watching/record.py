"""What a watch does with each attention that a model runs: a look, a check, and a name for both."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.core import RegardError
from regard.engine.call import Call
from regard.engine.look import look
from regard.watching.check import check_rows
from regard.watching.seen import Seen


@dataclass(frozen=True)
class Options:
    """What a look is asked for."""

    top: int
    rows: tuple[int, ...]
    map: int
    window: int
    keep: bool


class Recorder:
    """Takes calls and fills `seen`."""

    def __init__(self, seen: Seen, options: Options, wants: Callable[[str], bool]) -> None:
        self.seen, self.options, self.wants = seen, options, wants
        self._counts: dict[str, int] = {}
        # the first key of a module's last call, and how many keys it had
        self._last: dict[str, tuple[Tensor, int]] = {}

    @torch.no_grad()
    def take(
        self, name: str, kind: str, call: Call, query: Tensor, key: Tensor, value: Tensor, out: Tensor | None
    ) -> None:
        """Record a call whose terms are as they were given."""
        # what autograd runs once more on its way back was seen before
        if not self.wants(name) or torch._C._current_graph_task_id() != -1:
            return
        options, n, numbered = self.options, query.shape[-2], self._number(name)
        query, key, value = query.detach(), key.detach(), value.detach()
        try:
            found = look(
                query, key, score=call.score, weigh=call.weigh, mask=call.mask, bias=call.bias, top=options.top,
                # a step of decoding has fewer queries than the text had
                rows=[row for row in options.rows if -n <= row < n], map=options.map, window=options.window,
                keep=options.keep,
            )  # fmt: skip
            if out is not None:
                self.seen.checks[numbered] = check_rows(call, query, key, value, out)
        except RegardError as error:
            self.seen.skipped[numbered] = str(error)
            return
        self.seen.add(numbered, found, kind, self._continues(name, kind, key, n))

    def skip(self, name: str, reason: str) -> None:
        """Record that a call was seen and not looked at."""
        if self.wants(name) and torch._C._current_graph_task_id() == -1:
            self.seen.skipped[self._number(name)] = reason

    def _number(self, name: str) -> str:
        count = self._counts[name] = self._counts.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"

    def _continues(self, name: str, kind: str, key: Tensor, n: int) -> bool:
        """Whether this call goes on where the module's last one ended, over the keys of one cache."""
        m = key.shape[-2]
        first, before = key[..., :1, :].clone(), self._last.get(name)
        self._last[name] = first, m
        if before is None or before[0].shape != first.shape or not m:
            return False
        grown = m - before[1]
        return (grown == n if kind == "self" else grown == 0) and torch.equal(before[0], first)


def choose(
    layers: Sequence[int | str] | int | str | None, attentions: Sequence[str], names: Sequence[str]
) -> Callable[[str], bool]:
    """Which module names a watch is for; `attentions` are those known to attend, in module order."""
    if layers is None:
        return lambda name: True
    if isinstance(layers, int | str):
        layers = [layers]
    patterns: list[str] = []
    for layer in layers:
        if isinstance(layer, bool) or not isinstance(layer, int | str):
            raise RegardError(f"watch layers must be numbers, names or patterns, got {type(layer).__name__}.")
        if isinstance(layer, int):
            if not -len(attentions) <= layer < len(attentions):
                raise RegardError(f"watch layers: there is no attention {layer}, the model has {len(attentions)}.")
            patterns.append(attentions[layer])
            continue
        if not any(_fits(name, layer) for name in attentions or names):
            shown = ", ".join(list(attentions or names)[:3])
            raise RegardError(f"watch layers: no attention is called {layer[:40]!r}; there are {shown[:100]}, …")
        patterns.append(layer)
    return lambda name: any(_fits(name, pattern) for pattern in patterns)


def _fits(name: str, pattern: str) -> bool:
    """A name fits itself, what it lies within, and patterns; the model itself has the name ''."""
    return name == pattern or name.startswith(f"{pattern}.") or fnmatch.fnmatchcase(name, pattern)
