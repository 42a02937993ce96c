"""Which processor instructions torch may use, found out before torch is loaded.

Some virtual machines show AMX and forbid it: torch's products of half precision then die of an illegal instruction.
That is tried out in a process of its own, once for each machine and version of torch, and kept in `REGARD_CACHE`, or
in ~/.cache/regard.
"""

from __future__ import annotations

import os
import pathlib
import sys
from contextlib import suppress

# oneDNN, which multiplies for torch, looks here when it is loaded
VARIABLE = "ONEDNN_MAX_CPU_ISA"
# from the most that is left without AMX to what every processor of today has
CAPS = ("AVX512_CORE_FP16", "AVX512_CORE_BF16", "AVX512_CORE", "AVX2")
TRIAL = """
import torch
for dtype in (torch.bfloat16, torch.float16):
    ones = torch.ones(64, 64, dtype=dtype)
    float((ones @ ones)[0, 0])
"""
CPUINFO = pathlib.Path("/proc/cpuinfo")


def cap_instructions() -> str | None:
    """Keep torch, not loaded yet, from instructions that crash it on this machine; what was done, in one line.

    >>> cap_instructions()  # torch is there already, and does as it likes

    Nothing is tried out where the processor shows no AMX, or where the variable is set by hand.
    """
    if "torch" in sys.modules or VARIABLE in os.environ:
        return None
    shown = read_processor()
    if "amx" not in shown:
        return None
    cap = recall(shown)
    if not cap:
        return None
    os.environ[VARIABLE] = cap
    return f"This machine shows AMX and forbids it: {VARIABLE}={cap} is set, or torch's half precision would crash."


def read_processor() -> str:
    """The first core's entry in /proc/cpuinfo; empty where there is none."""
    try:
        # speeds change from look to look, and cores are alike
        lines = CPUINFO.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0].splitlines()
    except OSError:
        return ""
    return "\n".join(line for line in lines if line.startswith(("model name", "stepping", "microcode", "flags")))


def recall(shown: str) -> str:
    """The cap that a machine needs, empty for none: from the cache, or tried out now and cached."""
    # few machines come here, and help waits for whatever is imported at the top
    import hashlib
    import json
    import platform
    from importlib.metadata import PackageNotFoundError, version

    file = find_cache() / "processor.json"
    facts = [shown, platform.release()]
    with suppress(PackageNotFoundError):
        facts.append(version("torch"))
    key = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    known: dict[str, str] = {}
    with suppress(OSError, ValueError):
        found = json.loads(file.read_text(encoding="utf-8"))
        known = found if isinstance(found, dict) else {}
    if known.get(key) not in (*CAPS, ""):
        known[key] = find_cap()
        # where nothing can be kept, it is tried out each time
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            half = file.with_name(f".{file.name}.{os.getpid()}")
            half.write_text(json.dumps(known), encoding="utf-8")
            half.replace(file)
    return known[key]


def find_cap() -> str:
    """The highest cap under which torch does not crash; empty where it needs none, or crashes under any."""
    return next((cap for cap in ("", *CAPS) if not dies(cap)), "")


def dies(cap: str) -> bool:
    """Whether half precision ends in an illegal instruction under this cap; another failure does not count."""
    import signal
    import subprocess

    env = {**os.environ, **({VARIABLE: cap} if cap else {})}
    try:
        done = subprocess.run([sys.executable, "-c", TRIAL], env=env, capture_output=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == -signal.SIGILL


def find_cache() -> pathlib.Path:
    """The cache folder for measurements of this machine."""
    return pathlib.Path(os.environ.get("REGARD_CACHE") or pathlib.Path.home() / ".cache" / "regard")
