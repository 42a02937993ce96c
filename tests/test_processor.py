"""Instructions that kill torch: tried out in a child, kept, and capped before torch is loaded."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

from regard import processor

# a torch that dies of an illegal instruction unless it is capped to what is left without AMX and FP16
FAKE = """
import os, signal
bfloat16 = float16 = None
def ones(*sizes, dtype):
    open(os.environ["TRIALS"], "a").write("x")
    if os.environ.get("ONEDNN_MAX_CPU_ISA") not in {lives}:
        os.kill(os.getpid(), signal.SIGILL)
    class Product(list):
        def __matmul__(self, other): return {{(0, 0): 64.0}}
    return Product()
"""
CPUINFO = "model name : Xeon\nflags : fpu amx_bf16 amx_tile\ncpu MHz : {}\n\nmodel name : another core\n"
SHOW = """
import os, pathlib, sys
from regard import processor
processor.CPUINFO = pathlib.Path(os.environ["CPUINFO"])
print(processor.cap_instructions())
print(os.environ.get(processor.VARIABLE))
assert "torch" not in sys.modules
"""


@pytest.fixture
def machine(tmp_path):
    """Runs `SHOW` on a machine of a kind: what it says, the variable afterwards, and how often torch was tried out."""

    def run(lives: tuple[str | None, ...], speed: int = 2000, flags: str = CPUINFO, **env: str) -> tuple[str, str, int]:
        (tmp_path / "torch.py").write_text(FAKE.format(lives=lives))
        (tmp_path / "cpuinfo").write_text(flags.format(speed))
        (tmp_path / "trials").write_text("")
        given = {name: value for name, value in os.environ.items() if name != processor.VARIABLE}
        given |= {"CPUINFO": str(tmp_path / "cpuinfo"), "TRIALS": str(tmp_path / "trials"), **env}
        given |= {"REGARD_CACHE": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
        given["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{pathlib.Path(processor.__file__).parents[1]}"
        done = subprocess.run([sys.executable, "-c", SHOW], env=given, text=True, capture_output=True, timeout=60)
        said, variable = done.stdout.splitlines()
        return said, variable, len((tmp_path / "trials").read_text())

    return run


def test_a_machine_that_forbids_what_it_shows_is_capped(machine):
    said, variable, trials = machine(("AVX512_CORE_BF16",))
    assert variable == "AVX512_CORE_BF16"
    assert said == (
        "This machine shows AMX and forbids it: ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 is set, or torch's half precision"
        " would crash."
    )
    # without a cap, with the first, with the second for two dtypes
    assert trials == 4
    # kept, whatever speed the processor runs at now
    assert machine(("AVX512_CORE_BF16",), speed=3000) == (said, variable, 0)


def test_a_machine_that_can_is_left_alone(machine):
    assert machine((None, "AVX2")) == ("None", "None", 2)
    assert machine((None, "AVX2"))[2] == 0


@pytest.mark.parametrize("flags", ["model name : Ryzen\nflags : fpu avx512_bf16\n\n", ""], ids=["no AMX", "no word"])
def test_without_amx_nothing_is_tried(machine, flags):
    assert machine((), flags=flags) == ("None", "None", 0)


def test_a_cap_set_by_hand_is_kept(machine):
    assert machine((), ONEDNN_MAX_CPU_ISA="AVX2") == ("None", "AVX2", 0)


def test_where_nothing_helps_nothing_is_claimed(machine):
    assert machine(())[:2] == ("None", "None")


@pytest.mark.parametrize("content", ["half a f", "[1]", '{"x": 3}'])
def test_a_broken_memory_is_made_anew(machine, tmp_path, content):
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "processor.json").write_text(content)
    assert machine(("AVX2",))[1] == "AVX2"
    assert "AVX2" in json.loads((tmp_path / "cache" / "processor.json").read_text()).values()


def test_torch_that_is_there_is_not_touched(monkeypatch):
    monkeypatch.delenv(processor.VARIABLE, raising=False)
    assert processor.cap_instructions() is None
    assert processor.VARIABLE not in os.environ
