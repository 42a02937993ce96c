"""The tiles of `tiled` through torch.compile, by explicit choice."""

from __future__ import annotations

from torch import Tensor

from regard.engine.call import Call, Cost, has_compiler
from regard.engine.tiles.cost import estimate_tiles


def refuse(call: Call) -> str | None:
    if call.sizes.device.type == "cpu" and not has_compiler():
        return "torch.compile needs a C++ compiler (g++ or clang++) on the PATH."
    return None


def estimate(call: Call) -> Cost:
    return estimate_tiles(call, 2**18)


def run(call: Call, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    raise AssertionError
