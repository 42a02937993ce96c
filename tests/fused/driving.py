"""A CUDA driver that starts nothing: it reads what it is handed as a kernel would, and writes it down."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from ctypes import c_int, c_void_p, string_at
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
import triton

from regard.engine.backends.fused import driver, start

# a type of a kernel's argument, as Triton names it, with that of the parameter and how its bytes are read
WIDTHS = {
    "i1": ("u8", "<?"), "i32": ("u32", "<i"), "i64": ("u64", "<q"), "u64": ("u64", "<Q"), "fp32": ("f32", "<f"),
    "*": ("u64", "<Q"),
}  # fmt: skip
SHARED, THREADS, STREAM = 200_000, 512, 77


class Made:
    """What Triton makes of a kernel, as far as a start needs it."""

    def __init__(self, kinds: Any, shared: int = 64, warps: int = 4, notes: int = 2, name: str = "kernel") -> None:
        """`kinds` are the types of its arguments, in tuples where those are tuples; places for `notes` lie behind."""
        # its binary is itself
        self.name, self.kernel, self.notes = name, self, notes
        self.metadata = SimpleNamespace(shared=shared, num_warps=warps, global_scratch_size=0, profile_scratch_size=0)
        self.src = SimpleNamespace(signature={f"x{at}": kind for at, kind in enumerate(kinds)})
        self.flat = list(_flatten(kinds))
        types = [*(WIDTHS[kind if kind in WIDTHS else "*"][0] for kind in self.flat), *["u64"] * notes]
        self.asm = {"ptx": write_ptx(types)}
        self.log: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda *given: self.log.append(("told", grid, given))


def _flatten(kinds: Any) -> list[str]:
    if isinstance(kinds, str):
        return [] if kinds == "constexpr" else [kinds]
    return [flat for kind in kinds for flat in _flatten(kind)]


def write_ptx(types: Sequence[str]) -> str:
    """The text of a kernel with parameters of these types, beside a function with some of its own."""
    listed = ",\n".join(f"\t.param .{kind} kernel_param_{at}" for at, kind in enumerate(types))
    return (
        ".version 8.7\n.target sm_90a\n.func (.param .b32 out) helper(.param .b64 one)\n;\n"
        f".visible .entry kernel(\n{listed}\n)\n.reqntid 128\n{{\n\tld.param.b64 %rd1, [kernel_param_0];\n"
        "\t.param .b64 of_a_call;\n\tret;\n}\n"
    )


class Kernel:
    """What `triton.jit` makes, as far as it is used; `log` has what was compiled, and what was started by Triton."""

    arg_names = ("rows", "count", "flag", "SIZE", "HEAL")

    def __init__(self, name: str = "kernel", notes: int = 2) -> None:
        self.name, self.notes = name, notes
        self.log: list[tuple[Any, ...]] = []
        self.pre_run_hooks: list[Any] = []
        self.fn = object()

    def warmup(self, *given: Any, grid: tuple[int, ...], **options: Any) -> Made:
        self.log.append(("compile", given, options))
        made = Made((*map(_tell_kind, given), "constexpr", "constexpr"), notes=self.notes, name=self.name)
        made.log = self.log
        return made

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda *given, **options: self.log.append(("seen", grid, given, options))

    @property
    def compiled(self) -> int:
        """How often it was compiled."""
        return sum(entry[0] == "compile" for entry in self.log)


def _tell_kind(x: Any) -> Any:
    """What Triton takes an argument for."""
    if isinstance(x, tuple):
        return tuple(map(_tell_kind, x))
    if x is None or (type(x) is int and x == 1):
        return "constexpr"
    if isinstance(x, torch.Tensor):
        return "*fp32"
    if isinstance(x, bool | float):
        return "i1" if isinstance(x, bool) else "fp32"
    return "i32" if -(2**31) <= x < 2**31 else "i64"


class Launch(NamedTuple):
    """One start: of what, how many programs, on which stream, and what lay in each parameter."""

    name: str
    count: int
    threads: int
    shared: int
    stream: int
    numbers: tuple[Any, ...]
    notes: tuple[int, ...]


class Driver:
    """Stands for Triton's driver and for CUDA's."""

    def __init__(self) -> None:
        self.made: list[Made] = []
        self.loaded: list[int] = []
        self.launches: list[Launch] = []
        self.entered: list[str] = []
        # what the next starts are answered, before all others are zero
        self.codes: list[int] = []
        # while a kernel is started
        self.meanwhile: Callable[[], None] = lambda: None
        self.active = SimpleNamespace(utils=self)

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": SHARED}

    def load_binary(self, name: str, made: Made, shared: int, device: int) -> tuple[int, ...]:
        self.loaded.append(device)
        self.made.append(made)
        # module, function, registers, spills, threads
        return 5, len(self.made), 32, 0, THREADS

    def cuLaunchKernel(  # noqa: N802
        self, handle: c_void_p, x: Any, y: Any, z: Any, wide: Any, high: Any, deep: Any, shared: Any, stream: c_void_p,
        pointers: c_void_p, extra: None,
    ) -> int:  # fmt: skip
        assert [one.value for one in (y, z, high, deep)] == [1, 1, 1, 1]
        assert extra is None
        self.meanwhile()
        if self.codes and (code := self.codes.pop(0)):
            return code
        made = self.made[handle.value - 1]
        count = len(made.flat) + made.notes
        at = struct.unpack(f"<{count}Q", string_at(pointers.value, 8 * count))
        numbers = tuple(_read(kind, place) for kind, place in zip(made.flat, at, strict=False))
        notes = tuple(_read("i64", place) for place in at[len(made.flat) :])
        self.launches.append(Launch(made.name, x.value, wide.value, shared.value, stream.value or 0, numbers, notes))
        return 0

    def cuDeviceGet(self, into: c_void_p, number: c_int) -> int:  # noqa: N802
        self.entered.append(f"device {number.value}")
        c_int.from_address(into.value).value = 40 + number.value
        return 0

    def cuDevicePrimaryCtxRetain(self, into: c_void_p, device: c_int) -> int:  # noqa: N802
        self.entered.append(f"context of {device.value}")
        c_void_p.from_address(into.value).value = 1234
        return 0

    def cuCtxSetCurrent(self, context: c_void_p) -> int:  # noqa: N802
        self.entered.append(f"set {context.value}")
        return 0


def _read(kind: str, place: int) -> Any:
    """A parameter as a kernel reads it: so many bytes."""
    how = WIDTHS[kind if kind in WIDTHS else "*"][1]
    return struct.unpack(how, string_at(place, struct.calcsize(how)))[0]


def lend(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """The driver in the place of both, and a device that is current."""
    found = Driver()
    monkeypatch.setattr(driver, "_load", lambda: found)
    monkeypatch.setattr(triton.runtime, "driver", found)
    monkeypatch.setattr(start.triton, "JITFunction", Kernel)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: None, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: STREAM, raising=False)
    monkeypatch.setattr(triton.knobs.runtime, "launch_enter_hook", None)
    return found
