"""What the environment asks of a fuzz run; README.md says what for."""

from __future__ import annotations

import os

from tests.wide import ALL as IS_WIDE


def read(name: str, default: str) -> str:
    return os.environ.get(f"REGARD_FUZZ_{name}", default)


def read_shard(text: str) -> tuple[int, int]:
    """
    >>> read_shard("3/8")
    (2, 8)
    """
    at, of = (int(x) for x in text.split("/"))
    if not 1 <= at <= of:
        raise ValueError(f"REGARD_FUZZ_SHARD goes from 1/{of} to {of}/{of}, got {text}")
    return at - 1, of


def read_reference(text: str) -> str:
    if text not in ("auto", "oracle", "formulas"):
        raise ValueError(f"REGARD_FUZZ_REFERENCE is auto, oracle or formulas, got {text}")
    return text


SEED = int(read("SEED", "20240607"))
CALLS = int(read("CALLS", "2000" if IS_WIDE else "500"))
DEVICE = read("DEVICE", "cpu")
ALL = "reference,tiled,sdpa,auto"
BACKENDS = tuple(read("BACKENDS", ALL).split(","))
# which of so many processes this is, the first being 0; each has every so-manieth call
SHARD = read_shard(read("SHARD", "1/1"))
# how many choices of all that a kernel is compiled for, in each process; zero: every call chooses anew
KINDS = int(read("KINDS", "0"))
# no call begins after so many seconds
SECONDS = float(read("SECONDS", "inf"))
# where the oracle computes
ORACLE = read("ORACLE", DEVICE)
# whose answer counts as exact: that of `oracle`, of `formulas`, or of these for float64 alone, which the oracle's own
# float64 cannot judge
REFERENCE = read_reference(read("REFERENCE", "auto"))

ON_GPU = DEVICE != "cpu"
IS_PLAIN = not ON_GPU and not KINDS and read("BACKENDS", ALL) == ALL and REFERENCE == "auto"


def show() -> str:
    """What another process needs to draw and judge the same calls."""
    named = {"DEVICE": DEVICE, "BACKENDS": ",".join(BACKENDS), "SEED": SEED, "KINDS": KINDS, "REFERENCE": REFERENCE}
    named["SHARD"] = f"{SHARD[0] + 1}/{SHARD[1]}"
    return " ".join(f"REGARD_FUZZ_{name}={value}" for name, value in named.items())
