"""Who looks on while the operators run, and graphs of them."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

FORWARD, BACKWARD, WHOLE = (f"regard::attend_fused{name}" for name in ("", "_back", "_call"))
# what records graphs hands its functions on as they are
RECORDS = pytest.mark.filterwarnings("ignore:Your compiler for AOTAutograd")


class Grab(TorchDispatchMode):
    """The calls of the operators inside, with their arguments."""

    def __init__(self):
        super().__init__()
        self.calls = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls[func.name()] = func, args
        return func(*args, **(kwargs or {}))


def detach(x):
    if isinstance(x, list | tuple):
        return type(x)([detach(one) for one in x])
    return x.detach() if isinstance(x, torch.Tensor) else x


def compile_whole(function, backend="aot_eager"):
    torch._dynamo.reset()
    return torch.compile(function, backend=backend, fullgraph=True)
