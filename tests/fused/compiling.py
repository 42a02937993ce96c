"""A call compiled for sm_90 where there is no GPU, and what its kernel would have been started on, as JSON.

For a process of its own: where tests run without a GPU, kernels are interpreted.
"""

from __future__ import annotations

import gc
import json
import re
import struct
import weakref
from ctypes import string_at
from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget

from regard import attend
from regard.core.bits import draw_seed
from regard.engine.backends import fused
from regard.engine.backends.fused import driver, passes, start
from regard.mask import Causal

# how a parameter of a type is read
FORMS = {"u32": "<i", "u64": "<q", "f32": "<f", "b32": "<i", "b64": "<q"}


def find_compiler() -> str | None:
    """Why there is none, or None."""
    if "nvidia" not in triton.backends.backends:
        return "this Triton compiles for no CUDA device"
    try:
        return None if triton.knobs.nvidia.ptxas.path else "there is no ptxas"
    except RuntimeError as error:
        return str(error)


def main() -> dict[str, Any]:
    seen: dict[str, Any] = {"launches": [], "expected": []}

    def launch(handle: Any, count: Any, *given: Any) -> int:
        pointers = given[-2]
        forms = [FORMS[kind] for kind in seen["types"]]
        places = struct.unpack(f"<{len(forms)}Q", string_at(pointers.value, 8 * len(forms)))
        read = [
            struct.unpack(form, string_at(at, struct.calcsize(form)))[0] for form, at in zip(forms, places, strict=True)
        ]
        seen["launches"].append([count.value, *read])
        return 0

    class Ready(driver.Ready):
        def __init__(self, function: driver.Function, count: int, leaves: Any) -> None:
            head = re.search(r"\.entry\s+\w+\(([^)]*)\)", function.made.asm["ptx"])
            assert head is not None
            seen["types"] = re.findall(r"\.param\s+\.(\w+)", head[1])
            seen["kinds"] = [kind for kind, _ in leaves]
            super().__init__(function, count, leaves)

    utils = SimpleNamespace(
        get_device_properties=lambda device: {"max_shared_mem": 232_448}, load_binary=lambda *given: (0, 1, 0, 0, 1024)
    )
    target = GPUTarget("cuda", 90, 32)
    triton.runtime.driver.set_active(SimpleNamespace(
        utils=utils, get_current_target=lambda: target, get_current_device=lambda: 0,
        get_current_stream=lambda device=None: 0, get_active_torch_device=lambda: torch.device("cpu"),
    ))  # fmt: skip
    driver._load = lambda: SimpleNamespace(cuLaunchKernel=launch)
    start.Ready = Ready
    passes.find_stream = start.find_stream = lambda: None
    torch.cuda.current_device = lambda: 0
    # the index of the CPU
    torch._C._cuda_getDevice = lambda: None
    fused.refuse = lambda call: None

    held = []
    for seed in (3, 4):
        rows = [torch.zeros(1, heads, 48, 16, dtype=torch.bfloat16) for heads in (4, 2, 2)]
        # the step along an axis of one may be anything: here one that 32 bits do not hold, and no multiple of 16
        rows[1] = rows[1].as_strided(rows[1].shape, (2**33 + 5, *rows[1].stride()[1:]))
        generators = [torch.Generator().manual_seed(seed) for _ in range(2)]
        out = attend(*rows, mask=Causal(-9), dropout=0.25, generator=generators[0], backend="fused")
        # rows with their strides, of which one is a constant; twice the scale; the mask; dropout; sizes
        drawn = draw_seed(generators[1]) % 2**32
        seen["expected"].append([
            8, *(number for x in (*rows, out) for number in (x.data_ptr(), *x.stride()[:3])), 0.25 * 1.4426950408889634,
            0.25, -9, drawn - 2**32 * (drawn >= 2**31), 0.25, 4 / 3, 4, 2, 48, 48,
        ])  # fmt: skip
        held += [weakref.ref(x) for x in (*rows, out)]
    del rows, out
    gc.collect()
    seen["kept"] = sum(ref() is not None for ref in held)
    return seen


if __name__ == "__main__":
    why = find_compiler()
    print(json.dumps({"why": why} if why else main()))
