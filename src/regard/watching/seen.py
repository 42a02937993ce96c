"""What a watch saw: looks by the names of the modules that attended, and files of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Self

import torch

from regard.core.errors import plain
from regard.engine.look import Look
from regard.watching.check import Check
from regard.watching.files import read_looks, write_looks
from regard.watching.join import list_runs, stack


class Seen(Mapping[str, Look]):
    """Looks by module name, in the order in which attentions ran; `watch` makes it.

    >>> import torch
    >>> from regard.layers import SelfAttention
    >>> from regard.watching import watch
    >>> layer = SelfAttention(num_hiddens=8, num_heads=2)
    >>> with watch(layer) as seen:
    ...     out = layer(torch.ones(1, 3, 8))
    >>> seen["SelfAttention"].entropy.shape
    torch.Size([1, 2, 3])

    A module that ran again has `name#2`, `name#3` and so on, and `modules` says whose calls they are. `checks` has a
    `Check` for each name, `kinds` "self" or "cross", `skipped` the reason why an attention that ran was not looked at,
    `steps` the names that go on where the module's call before them ended, as in decoding.
    """

    def __init__(self, model: str = "", cells: int = 256) -> None:
        self.model = model
        # how many cells a side a map may have, for the maps of `join`
        self.cells = cells
        self.checks: dict[str, Check] = {}
        self.kinds: dict[str, str] = {}
        self.modules: dict[str, str] = {}
        self.skipped: dict[str, str] = {}
        self.steps: set[str] = set()
        self._looks: dict[str, Look] = {}

    def add(
        self,
        name: str,
        look: Look,
        kind: str,
        is_step: bool = False,
        check: Check | None = None,
        module: str | None = None,
    ) -> None:
        """Put a look after those so far."""
        self._looks[name], self.kinds[name] = look, kind
        self.modules[name] = name if module is None else module
        self.checks[name] = check or Check(why="its output was not seen")
        if is_step:
            self.steps.add(name)

    def __getitem__(self, name: str) -> Look:
        return self._looks[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._looks)

    def __len__(self) -> int:
        return len(self._looks)

    def __repr__(self) -> str:
        """A table: a line for each attention."""
        # names, and texts of files, come from elsewhere
        lines = [f"Seen({len(self)} attentions of {plain(self.model) or 'a model'})"]
        wide = min(max((len(name) for name in (*self, *self.skipped)), default=0), 60)
        for name, look in self.items():
            *lead, n = look.entropy.shape
            size = f"{' × '.join(map(str, lead))}: {n} × {look.received.shape[-1]}" if lead else f"{n}"
            lines.append(f"  {plain(name):{wide}}  {self.kinds[name]:5}  {size}  {plain(self.checks[name].text())}")
        lines += [f"  {plain(name):{wide}}  not looked at: {plain(reason)}" for name, reason in self.skipped.items()]
        if len(lines) > 40:
            lines[30:] = [f"  … {len(lines) - 30} more"]
        return "\n".join(lines)

    def to(self, device: str | torch.device) -> Self:
        """The same, all tensors on another device."""
        moved = self._blank()
        for name, look in self.items():
            is_step = name in self.steps
            moved.add(name, look.to(device), self.kinds[name], is_step, self.checks[name], self.modules[name])
        moved.skipped = dict(self.skipped)
        return moved

    def join(self) -> Self:
        """Calls of one module in steps, as in decoding by a cache or a loop, as one look each, with all their queries.

        The look has the name of its first call. A call that does not go on where the module's last one ended stays
        apart, under its own name: another text, another pass, or beams that changed places, as the rows of different
        beams are not those of one text. Single queries that a caller's own loop puts to the same keys are joined as the
        steps of a decoder are: nothing tells them apart. `name in seen.steps` says which calls are joined to the ones
        before them.

        Keys that a step did not have yet are padded at the end. A map whose steps were counted in blocks of different
        sizes shares the weight of a block evenly among its pairs; its sum is exact.
        """
        joined = self._blank()
        for name, steps in list_runs(self.modules, self.steps).items():
            look = stack([self[step] for step in steps], self.cells)
            check = max((self.checks[step] for step in steps), key=lambda x: (x.is_done, not x.holds, x.ratio))
            if check.is_done:
                check = replace(check, rows=sum(self.checks[step].rows for step in steps))
            joined.add(name, look, self.kinds[name], check=check, module=self.modules[name])
        joined.skipped = dict(self.skipped)
        return joined

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all to one file: tensors as safetensors, names and texts as JSON in its head."""
        entries = [
            {
                "name": name,
                "module": self.modules[name],
                "kind": self.kinds[name],
                "step": name in self.steps,
                "terms": look.terms,
                "why": look.why,
                "check": asdict(self.checks[name]),
            }
            for name, look in self.items()
        ]
        head = {"model": self.model, "cells": self.cells, "entries": entries, "skipped": self.skipped}
        write_looks(path, head, self.values())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what `save` wrote; nothing in it is run or unpickled, and all sizes are checked."""
        head, looks = read_looks(path)
        seen = cls(head["model"], head["cells"])
        seen.skipped = dict(head["skipped"])
        for entry, look in zip(head["entries"], looks, strict=True):
            # a frozen check is made of what JSON has, whose kinds were seen
            check = Check(**entry["check"])
            seen.add(entry["name"], look, entry["kind"], entry["step"], check, entry["module"])
        return seen

    def _blank(self) -> Self:
        return type(self)(self.model, self.cells)
