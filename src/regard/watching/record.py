"""What a watch does with each attention that a model runs: a look, a check, and a name for both."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.core import RegardError
from regard.engine.call import Call
from regard.engine.look import Look, look
from regard.watching.check import Check, Rest, check_rows
from regard.watching.seen import Seen
from regard.watching.steps import Follower, Running


@dataclass(frozen=True)
class Options:
    """What a look is asked for."""

    top: int
    rows: tuple[int, ...]
    map: int
    window: int
    keep: bool


class Recorder:
    """Records calls in `seen`; `taken` are names that later calls cannot have, those of the modules."""

    def __init__(self, seen: Seen, options: Options, wants: Callable[[str], bool], taken: Iterable[str] = ()) -> None:
        self.seen, self.options, self.wants = seen, options, wants
        self.follower, self.running = Follower(), Running()
        # what went wrong in a look or a check, by the name of the call
        self.faults: dict[str, str] = {}
        self._taken = set(taken)
        self._counts: dict[str, int] = {}

    @torch.no_grad()
    def take(
        self, name: str, kind: str, call: Call, query: Tensor, key: Tensor, value: Tensor, out: Tensor | None,
        rest: Rest | None = None,
    ) -> None:  # fmt: skip
        """Record a call whose terms are as they were given."""
        # what autograd runs once more in backward (checkpointing) was seen before
        if torch._C._current_graph_task_id() != -1:
            return
        query, key, value, n = query.detach(), key.detach(), value.detach(), query.shape[-2]
        within = tuple(number for *_, number in self.running.stack)
        if not self.wants(name):
            # whether a decoder went on is seen by all of its attentions
            self.guard(name, lambda: self.follower.follow(name, kind, query, key, within))
            return
        options, numbered = self.options, self._number(name)
        found: list[Look] = []
        steps: list[bool] = []

        def see() -> None:
            steps.append(self.follower.follow(name, kind, query, key, within))
            found.append(look(
                query, key, score=call.score, weigh=call.weigh, mask=call.mask, bias=call.bias, top=options.top,
                # a step of decoding has fewer queries than the text had
                rows=[row for row in options.rows if -n <= row < n], map=options.map, window=options.window,
                keep=options.keep,
            ))  # fmt: skip

        reason = self.guard(numbered, see)
        if reason is not None:
            self.seen.skipped[numbered] = reason
            self.follower.forget(name)
            return
        checks: list[Check] = []
        if out is not None:
            reason = self.guard(
                numbered,
                lambda: checks.append(check_rows(call, query, key, value, out, found[0], options.window, rest)),
            )
        check = checks[0] if checks else Check(why=reason or "its output was not seen")
        self.seen.add(numbered, found[0], kind, steps[0], check, name)

    def guard(self, name: str, act: Callable[[], object]) -> str | None:
        """Run `act`, which must not stop the model; what went wrong, or None."""
        try:
            act()
        except RegardError as error:
            return str(error)
        except Exception as error:
            # out of memory, what torch does not have on this device, a function of the caller's own
            said = str(error).strip().splitlines()
            reason = f"{type(error).__name__}: {said[0]}" if said else type(error).__name__
            self.faults.setdefault(name, reason[:200])
            return self.faults[name]
        return None

    def skip(self, name: str, reason: str) -> None:
        """Record that a call was seen and not looked at."""
        if self.wants(name) and torch._C._current_graph_task_id() == -1:
            self.seen.skipped[self._number(name)] = reason
            self.follower.forget(name)

    def _number(self, name: str) -> str:
        count = self._counts[name] = self._counts.get(name, 0) + 1
        if count == 1:
            return name
        # a module may be called as a later call of another would be
        while f"{name}#{count}" in self._taken:
            count += 1
        self._counts[name] = count
        return f"{name}#{count}"


def choose(
    layers: Sequence[int | str] | int | str | None, attentions: Sequence[str], names: Sequence[str]
) -> Callable[[str], bool]:
    """Which module names a watch is for; `attentions` are those known to attend, in module order."""
    if layers is None:
        return lambda name: True
    if isinstance(layers, int | str) or not isinstance(layers, Iterable):
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
