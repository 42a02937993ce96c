"""One call as the kernels take it: the terms as named tuples of pointers and numbers."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from regard.engine.backends.fused.kernels.biases import Bias
from regard.engine.backends.fused.kernels.bits import Noise
from regard.engine.backends.fused.kernels.masks import Mask
from regard.engine.backends.fused.kernels.prepare import flag_blocks, lay_out_features, measure_rows
from regard.engine.backends.fused.kernels.scores import BLOCK, Score
from regard.engine.backends.fused.kernels.tiles import Rows
from regard.engine.backends.fused.kernels.weighs import Stat, Weigh
from regard.engine.backends.fused.kind import Kind
from regard.engine.backends.fused.read import Order
from regard.engine.backends.fused.shapes import LEAST, divide_up, round_up
from regard.engine.backends.fused.start import POINT, At, Give, Starter, start_all

# no block has more positions
_BEHIND = 1024


class Job:
    """An order at work, with its kind and seeds for dropout and for draws: what each kernel is handed."""

    def __init__(self, kind: Kind, order: Order, seeds: tuple[int, int], is_borrowed: bool | None = None) -> None:
        self.kind, self.order = kind, order
        self.recipe, self.query, self.key, self.value, self.weight, self.sink, self.bias, self.marks = order
        self.seed, self.draw_seed = seeds
        if is_borrowed is None:
            # its gradients differ by rounding from run to run, and a caller may have switched it off
            is_borrowed = kind.is_borrowed and not torch.are_deterministic_algorithms_enabled()
            is_borrowed = is_borrowed and torch.backends.cuda.cudnn_sdp_enabled()
        self.is_borrowed = is_borrowed
        # a kernel of ours, and where a mask may hide NaN or infinity, the same once more to heal what came out ill
        self.passes = (True,) if self.is_borrowed else (False, True) if self.recipe.hides else (False,)

    def terms(self, at: At) -> tuple[Score, Weigh, Mask, Bias]:
        """Score, weigher, mask and bias, with `at` of each tensor in them."""
        parts = self.kind.parts
        score = parts.get("score") or self._keep("score", self._make_score(at), self.recipe.is_dot)
        weigh = parts.get("weigh") or self._keep("weigh", self._make_weigh(at), self.sink is None)
        mask = parts.get("mask") or self._keep("mask", self._make_mask(at), not self.recipe.marks)
        added = parts.get("added") or self._keep("added", self._make_bias(at), self.bias is None)
        return score, weigh, mask, added

    def _keep(self, name: str, part: Any, has_no_tensor: bool) -> Any:
        if has_no_tensor:
            self.kind.parts[name] = part
        return part

    def _make_score(self, at: At) -> Score:
        recipe = self.recipe
        if recipe.is_dot:
            scale = recipe.scale if recipe.cap is not None else recipe.scale * self.kind.unit
            return Score(scale=scale, slope=recipe.scale, cap=recipe.cap)
        weight = self._rows_of_weight
        wide = 0 if weight.shape[0] == 1 else weight.shape[1]
        return Score(weight=at(weight), weight_h=wide, **{name: at(x) for name, x in self.features.items()})

    @cached_property
    def _rows_of_weight(self) -> Tensor:
        assert self.weight is not None, "a score that is no dot product has a weight"
        return self.weight.contiguous()

    @cached_property
    def features(self) -> dict[str, Tensor]:
        """Query and key feature by feature; for tanh also its form, and the largest numbers block by block."""
        kind, d = self.kind, self.query.shape[-1]
        high = divide_up(d, 4) * 4
        # room behind, since blocks read past the last position without looking
        sizes = [x.shape[0] * x.shape[1] * high * x.shape[2] for x in (self.query, self.key)]
        laid_out = [self.query.new_empty(size + _BEHIND, dtype=torch.float32) for size in sizes]
        counts = [x.shape[0] * x.shape[1] * divide_up(x.shape[2], BLOCK.value) for x in (self.query, self.key)]
        # those of keys begin at an aligned place, however many there are of queries
        room = divide_up(counts[0], 4) * 4
        is_tanh = self.recipe.score == "tanh"
        most = self.query.new_zeros(room + counts[1], dtype=torch.float32) if is_tanh else None
        form = self.query.new_empty(1, dtype=torch.int32) if is_tanh else None

        def measure(at: At) -> tuple[Any, ...]:
            assert most is not None
            return as_rows(self.query, at), as_rows(self.key, at), at(most), kind.size, counts[0], room

        def lay_out(at: At) -> tuple[Any, ...]:
            rows = as_rows(self.query, at), as_rows(self.key, at), *map(at, laid_out)
            maybe = (None if x is None else at(x) for x in (most, form))
            return *rows, *maybe, kind.size, counts[0], room + counts[1]

        constants = {"d": d, "D": max(round_up(d), high)}
        more = {"COUNT": BLOCK.value, "IS_HALF": kind.is_half, "BEHIND": _BEHIND}
        first = kind.find("measure", partial(Starter, measure_rows, sum(counts), constants))
        second = kind.find("lay out", partial(Starter, lay_out_features, sum(counts), constants | more))
        start_all(*([(first, measure)] if is_tanh else []), (second, lay_out))
        names = zip(("queries", "keys"), (self.query, self.key), laid_out, sizes, strict=True)
        found = {name: x[:size].view(*rows.shape[:2], high, rows.shape[2]) for name, rows, x, size in names}
        if most is None or form is None:
            return found
        # float32 would feel the roundings of a shared division
        near = {"most_queries": most[: counts[0]], "most_keys": most[room:]} if kind.is_half else {}
        return found | {"form": form, **near}

    def _make_weigh(self, at: At) -> Weigh:
        kind, number = self.recipe.weigh, self.recipe.power
        if kind.startswith("relu"):
            return Weigh(scale=number)
        if kind == "sigmoid":
            return Weigh(shift=number)
        if kind.startswith("entmax"):
            return Weigh(steep=number - 1, power=1 / (number - 1))
        if self.sink is not None:
            return Weigh(sink=at(self._flat_sink), sink_h=0 if self.sink.numel() == 1 else 1)
        return Weigh()

    @cached_property
    def _flat_sink(self) -> Tensor:
        assert self.sink is not None
        return self.sink.reshape(-1)

    def _make_mask(self, at: At) -> Mask:
        recipe, marks = self.recipe, self.marks
        fields: dict[str, Any] = {"before": recipe.before, "after": recipe.after}
        if recipe.grid is not None:
            fields |= dict(zip(("width", "rows", "columns"), recipe.grid, strict=True))
        for name, x in marks.items():
            if name in ("lengths", "row_lengths"):
                fields |= {"lengths": at(x), "lengths_b": x.stride(0)}
                fields["lengths_i"] = x.stride(1) if name == "row_lengths" else None
            elif name == "bits":
                b, h, _, _ = _list_strides(x)
                fields |= {"bits": at(x), "bits_b": b, "bits_h": h, "words": x.shape[-1]}
            elif name != "buckets":
                fields[name] = at(x)
        for name, of in (
            ("query_ids_b", "query_ids"),
            ("key_ids_b", "key_ids"),
            ("ends_b", "first"),
            ("heads_b", "top"),
        ):
            if of in marks:
                fields[name] = 0 if marks[of].shape[0] == 1 else marks[of].shape[1]
        return Mask(**fields)

    def _make_bias(self, at: At) -> Bias:
        if self.bias is None:
            return Bias()
        if self.recipe.bias == "slopes":
            return Bias(slopes=at(self.bias), place=self.recipe.place)
        if self.recipe.bias == "buckets":
            return Bias(diagonals=at(self._diagonals))
        return Bias(at(self.bias), *_list_strides(self.bias))

    @cached_property
    def _diagonals(self) -> Tensor:
        assert self.bias is not None
        return self.bias.float()[:, self.marks["buckets"]].contiguous()

    @property
    def noise(self) -> Noise:
        dropout = self.recipe.dropout
        return Noise(_as_word(self.seed), dropout, 1 / (1 - dropout)) if dropout else Noise()

    @property
    def draws(self) -> Noise:
        return Noise(_as_word(self.draw_seed)) if self.recipe.draws else Noise()

    def make_flags(self, count: int) -> Tensor | None:
        """Room for a word from each block of rows whether it has NaN or infinity, where a mask may hide some."""
        blocks = self.query.shape[0] * self.query.shape[1] * divide_up(count, LEAST)
        return self.query.new_empty(blocks, dtype=torch.int32) if self.recipe.hides else None

    def flag(self, name: str, flags: Tensor | None, heal: Starter, *rows: Tensor) -> tuple[Starter, Give]:
        """What marks the blocks that a borrowed kernel made, for the kernel that is to heal them."""
        one, *others = rows
        side = heal.constants["KEYS" if name == "keys" else "ROWS"]

        def give(at: At) -> tuple[Any, ...]:
            other = as_rows(others[0], at) if others else None
            return as_rows(one, at), other, None if flags is None else at(flags), one.shape[1], one.shape[2]

        width = one.shape[3]
        constants = {"WIDTH": width, "D": round_up(width), "COUNT": side}
        return self.kind.find(("flag", name), partial(Starter, flag_blocks, heal.count, constants)), give


def _as_word(seed: int) -> int:
    """The 32 bits of a seed that its random bits are made from, as an int of 32 bits: no seed needs another kernel."""
    return (seed + 2**31) % 2**32 - 2**31


def as_rows(x: Tensor, at: At) -> Any:
    # a launch knows fields by their order, and Triton by their names
    rows = at(x), *x.stride()
    return rows if at is POINT else Rows(*rows)


def _list_strides(x: Tensor) -> list[int]:
    """Strides, zero along axes of one."""
    return [0 if size == 1 else stride for size, stride in zip(x.shape, x.stride(), strict=True)]


def as_stat(stat: Tensor | None, at: At, is_logsumexp: bool = False) -> Stat | None:
    return None if stat is None else Stat(at(stat), 0 if is_logsumexp else stat.numel() // 2)
