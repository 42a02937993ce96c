"""The backward pass of a kind of call: gradients of rows, and of whatever its terms learn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.engine.backends.fused.borrowed import LOG2E
from regard.engine.backends.fused.features import list_features, list_turns, make_rooms, shape_features
from regard.engine.backends.fused.forward import make_flags, share_out
from regard.engine.backends.fused.kernels.bias import Part as BiasPart
from regard.engine.backends.fused.kernels.bias import pull_bias
from regard.engine.backends.fused.kernels.keys import pull_keys
from regard.engine.backends.fused.kernels.pull import Features
from regard.engine.backends.fused.kernels.queries import pull_queries, take_means
from regard.engine.backends.fused.kernels.tiles import ILL
from regard.engine.backends.fused.kind import Kind
from regard.engine.backends.fused.passes import Pass, Room, make_room, share
from regard.engine.backends.fused.shapes import LEAST, Shape, divide_up, round_up
from regard.engine.backends.fused.start import Starter
from regard.engine.backends.fused.terms import LEARNED, Spots, as_rows, as_stat, make_noise, make_terms

_ROWS = 32


class Backward:
    """A backward pass, and what torch makes of its sums."""

    def __init__(self, kind: Kind, held: dict[str, Tensor], wants: Sequence[bool]) -> None:
        """`held` are the tensors of the call, the gradient, the output and the statistic; `wants` is of its terms."""
        self.kind, recipe = kind, kind.recipe
        wanted = dict(zip([name for name in LEARNED[3:] if name in held], wants, strict=True))
        self.wanted = wanted
        self.bias = held["bias"].shape if wanted.get("bias") else None
        self.weight = held["weight"].shape if wanted.get("weight") else None
        rooms = {
            f"d{name}": make_room(held, name, held[name].shape[-1], held[name].dtype)
            for name in ("query", "key", "value")
        }
        if recipe.takes_means or kind.takes_own_means:
            rooms["means"] = Room((kind.b, kind.h, kind.n))
        features, parts = make_rooms(kind, held["query"], held["key"])
        # whether the forward pass left them
        self.has_features = "features" in held
        if self.has_features:
            features = {}
        keys = kind.b * kind.g * kind.m
        rooms |= features | make_flags(kind, query_flags=kind.count * kind.n, key_flags=keys)
        if not recipe.is_dot:
            sums: dict[str, tuple[int, ...]] = {f"{name}_sums": shape_features(held[name]) for name in ("query", "key")}
            if self.weight is not None:
                sums["weight_sums"] = sums["query_sums"]
            more, places = share("sums", sums)
            rooms, parts = rooms | more, parts | places
        if self.bias is not None:
            rooms["dbias"] = Room(self._shape_bias())
        work = Pass(kind.device, [*held], rooms, parts, self._list)
        self.run, self.find = work.run, work.find

    def _shape_bias(self) -> tuple[int, ...]:
        """Of slopes and buckets, one row of sums for each head and block of queries, added up in the end."""
        assert self.bias is not None
        if self.kind.recipe.bias == "dense":
            return tuple(self.bias)
        return (self.kind.h * (self.kind.n // LEAST + 1) * self._buckets,)

    @property
    def _buckets(self) -> int:
        """Numbers to a block of queries: one for slopes."""
        assert self.bias is not None
        return round_up(self.bias[1]) if self.kind.recipe.bias == "buckets" else 1

    def _list(self, spots: Spots, tensors: Sequence[Any]) -> Iterator[Starter]:
        kind = self.kind
        if not self.has_features:
            yield from list_features(kind, spots)
        if kind.recipe.takes_means and not kind.takes_own_means:
            e = kind.constants["e"]
            given = as_rows(spots["out"]), as_rows(spots["grad"]), spots["means"], kind.size
            constants = {"e": e, "E": round_up(e), "ROWS": _ROWS}
            yield Starter(take_means, kind.count * divide_up(kind.n, _ROWS), constants, given)
        for heal in kind.goes:
            yield _pull_queries(kind, spots, tensors, heal)
        for heal in kind.goes:
            yield _pull_keys(kind, spots, tensors, heal)
        yield from list_turns(kind, spots)
        if self.bias is not None:
            yield self._pull_bias(spots, tensors)

    def _pull_bias(self, spots: Spots, tensors: Sequence[Any]) -> Starter:
        kind, what, bias = self.kind, self.kind.recipe.bias, self.bias
        assert bias is not None
        constants = {**kind.constants, "E": max(16, kind.constants["E"]), "KIND": what, "BUCKETS": self._buckets}
        b, h, i, j = bias if what == "dense" else (1, kind.h, kind.n, 1)
        place = None if what == "dense" else kind.recipe.place
        part = BiasPart(spots["dbias"], b, h, i, j, spots.get("buckets"), place)
        rows = _list_rows(spots, is_borrowed=False)
        given = *rows[:4], *rows[5:], part, *make_terms(kind, spots), make_noise(kind.recipe, spots), kind.size, kind.b

        def make(shape: Shape) -> Starter:
            blocks = divide_up(kind.n, shape.rows)
            grid = kind.h * blocks
            if what == "dense":
                wide = divide_up(kind.m, shape.keys) if j > 1 else 1
                grid = b * h * (blocks if i > 1 else 1) * wide
            return Starter(pull_bias, grid, {**constants, **shape.constants}, given)

        starter = kind.ask("bias", make, tensors)
        self._blocks = starter.count // kind.h
        return starter

    def sum_up(self, held: dict[str, Tensor], stat: Tensor | None, made: Sequence[Tensor]) -> Iterator[Tensor | None]:
        """The gradients of what terms learn, those that are wanted, in the order of what is there."""
        for name, wants in self.wanted.items():
            if not wants:
                yield None
            elif name == "sink":
                assert stat is not None, "softmax keeps rows"
                yield self._pull_sink(held[name], stat, made).to(held[name].dtype)
            else:
                found = self._sum_weights(made) if name == "weight" else self._sum_bias(made)
                yield found.to(held[name].dtype)

    def _sum_bias(self, made: Sequence[Tensor]) -> Tensor:
        """The gradient of a bias."""
        found, what, bias = made[-1], self.kind.recipe.bias, self.bias
        assert bias is not None
        if what == "dense":
            return found
        total = found[: self.kind.h * self._blocks * self._buckets].view(self.kind.h, self._blocks, -1).sum(1)
        return total.flatten() if what == "slopes" else total[:, : bias[1]]

    def _sum_weights(self, made: Sequence[Tensor]) -> Tensor:
        """The gradient of a score's weight."""
        assert self.weight is not None
        heads, width = self.weight
        # at once over the heads that share a weight
        found = self.find("weight_sums", made).sum((0, 3) if heads > 1 else (0, 1, 3))
        return found[..., :width].view(heads, width)

    def _pull_sink(self, sink: Tensor, stat: Tensor, made: Sequence[Tensor]) -> Tensor:
        """The gradient of the sink, from its share of each row."""
        share = torch.exp2(sink.float().reshape(-1, 1) * LOG2E - stat[0]) * stat[1]
        means = made[3]
        return -(share * means).sum((0, 2)).sum_to_size(sink.numel()).view(sink.shape)


def make_backward_heal(kind: Kind, given: Sequence[Tensor]) -> Pass:
    """Blocks done again where the gradients that cuDNN made are ill."""
    names = "query", "key", "value", "grad", "out", "stat", "dquery", "dkey", "dvalue"

    def list_starters(spots: Spots, tensors: Sequence[Any]) -> Iterator[Starter]:
        yield _pull_queries(kind, spots, tensors, ILL.value)
        yield _pull_keys(kind, spots, tensors, ILL.value)

    return Pass(kind.device, names, {}, {}, list_starters)


def _pull_queries(kind: Kind, spots: Spots, tensors: Sequence[Any], heal: int) -> Starter:
    is_borrowed = heal == ILL.value
    made = (
        as_rows(spots["dquery"]),
        spots.get("query_flags"),
        Features(spots.get("query_sums"), spots.get("weight_sums")),
    )
    terms = *make_terms(kind, spots), make_noise(kind.recipe, spots), kind.size
    given = *_list_rows(spots, is_borrowed), *made, *terms
    owns = kind.takes_own_means and not is_borrowed

    def make(shape: Shape) -> Starter:
        count, cares = share_out(kind.count * divide_up(kind.n, shape.rows), heal)
        constants = {**kind.constants, "HIDES": kind.recipe.hides, "OWN": owns, **cares, **shape.constants}
        return Starter(pull_queries, count, constants, given)

    return kind.ask("queries", make, tensors, is_borrowed)


def _pull_keys(kind: Kind, spots: Spots, tensors: Sequence[Any], heal: int) -> Starter:
    is_borrowed = heal == ILL.value
    made = as_rows(spots["dkey"]), as_rows(spots["dvalue"]), spots.get("key_flags"), Features(spots.get("key_sums"))
    terms = *make_terms(kind, spots), make_noise(kind.recipe, spots), kind.size
    given = *_list_rows(spots, is_borrowed), *made, *terms

    def make(shape: Shape) -> Starter:
        count, cares = share_out(kind.b * kind.g * divide_up(kind.m, shape.keys), heal)
        own = {"HIDES": kind.recipe.hides, "IS_GROUPED": kind.h != kind.g}
        return Starter(pull_keys, count, {**kind.constants, **own, **cares, **shape.constants}, given)

    return kind.ask("keys", make, tensors, is_borrowed)


def _list_rows(spots: Spots, is_borrowed: bool) -> tuple[Any, ...]:
    """What the kernels of a backward pass read alike."""
    rows = (as_rows(spots[name]) for name in ("query", "key", "value", "grad"))
    out = as_rows(spots["out"]) if is_borrowed else None
    return *rows, out, as_stat(spots.get("stat")), spots.get("means")
