"""Triton kernels: to come."""

from __future__ import annotations

from torch import Tensor

from regard.engine.call import Call, Cost

LIFTS, HEALS = False, True


def refuse(call: Call) -> str | None:
    return "it needs a CUDA device."


def decline(call: Call) -> str | None:
    return None


def estimate(call: Call) -> Cost:
    raise NotImplementedError


def run(call: Call, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    raise NotImplementedError
