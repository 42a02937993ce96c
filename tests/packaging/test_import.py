"""`import regard` is quick, and brings nothing optional with it."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

SRC = pathlib.Path(__file__).parents[2] / "src"
MOST_SECONDS = 0.5
# imported where they are used; torch's compiler alone costs seconds
LATE = {
    "matplotlib", "sklearn", "scipy", "torchdiffeq", "tokenizers", "triton", "lightning", "transformers",
    "rich", "IPython", "torch._dynamo", "torch._inductor",
}  # fmt: skip

PROBE = """
import importlib, json, sys, time
base, package = sys.argv[1:]
importlib.import_module(base)
before = set(sys.modules)
start = time.perf_counter()
importlib.import_module(package)
seconds = time.perf_counter() - start
print(json.dumps([seconds, sorted(set(sys.modules) - before)]))
"""


def cold_import(package: str, *, base: str, path: pathlib.Path) -> tuple[float, set[str]]:
    """Seconds and modules that importing `package` from `path` costs on top of `base`, in a fresh process."""
    env = {**os.environ, "PYTHONPATH": str(path)}
    command = [sys.executable, "-c", PROBE, base, package]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    seconds, modules = json.loads(done.stdout.splitlines()[-1])
    return seconds, set(modules)


def too_early(modules: set[str]) -> set[str]:
    return {name for name in modules if any(name == late or name.startswith(f"{late}.") for late in LATE)}


def test_import_is_quick_and_lean():
    # the machine may be busy: the best of three counts, and one good run is enough
    for _ in range(3):
        seconds, modules = cold_import("regard.engine", base="torch", path=SRC)
        assert "regard.core" in modules
        assert too_early(modules) == set()
        if seconds < MOST_SECONDS:
            break
    assert seconds < MOST_SECONDS


def test_the_name_alone_does_not_wait_for_torch():
    _, modules = cold_import("regard", base="json", path=SRC)
    assert "torch" not in modules
    assert "regard" in modules


def test_every_name_is_there_when_asked_for():
    import regard

    assert all(getattr(regard, name).__name__.rpartition(".")[2] == name for name in regard.__all__)
    assert set(regard.__all__) <= set(dir(regard))
    with pytest.raises(AttributeError, match="has no attribute 'behold'"):
        regard.behold  # noqa: B018


def test_the_probe_sees_a_slow_and_heavy_import(tmp_path):
    (tmp_path / "matplotlib.py").write_text("")
    (tmp_path / "heavy.py").write_text(f"import time, matplotlib\ntime.sleep({MOST_SECONDS})\n")
    seconds, modules = cold_import("heavy", base="json", path=tmp_path)
    assert seconds >= MOST_SECONDS
    assert too_early(modules) == {"matplotlib"}


def test_the_list_of_late_modules_is_by_whole_name():
    assert too_early({"torch._dynamo.utils", "triton", "tritonic", "torch._dynamo_x"}) == {
        "torch._dynamo.utils",
        "triton",
    }
