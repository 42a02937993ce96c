"""A comparison as it is measured, but small and made up of formulas: for tests of what is made of one."""

from __future__ import annotations

import math
from typing import Any

from regard.compare.comparison import Comparison
from regard.compare.kinds import KINDS, Kind
from regard.compare.meters.curves import list_leads
from regard.compare.page import write_page
from regard.compare.part import find_part
from regard.compare.settings import Dimensions, Settings
from regard.compare.tables import read_textbook

LENGTHS = (32, 64, 128, 256, 512, 1024)
WIDTHS = (32, 64, 128)
KERNELS = (3, 5, 7)
STEPS = {"conv": (0, 1), "rnn": (3, 1), "gru": (8, 1), "attention": (0, 6), "windowed": (0, 6), "linear": (0, 9)}
# nanoseconds by n and by n², and a constant
TIMES = {
    "conv": (400, 0, 2e4), "rnn": (6000, 0, 5e4), "gru": (9000, 0, 6e4), "attention": (300, 2.0, 4e4),
    "windowed": (900, 0, 9e4), "linear": (700, 0, 6e4),
}  # fmt: skip
REACH = {"conv": 12, "rnn": None, "gru": None, "attention": None, "windowed": 64, "linear": None}


def ignore(share: float) -> None:
    """Nobody is told how far it is."""


def pick(rows: list[dict[str, Any]], **wanted: Any) -> list[dict[str, Any]]:
    """The rows that have all of these values; the comparison has its own way to find them."""
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def list_kernels(kind: Kind) -> tuple[int | None, ...]:
    return KERNELS if "k" in kind.powers else (None,)


def list_sizes() -> list[tuple[str, Kind, int, int | None, int]]:
    return [
        (name, kind, d, k, n)
        for name, kind in KINDS.items() for d in WIDTHS for k in list_kernels(kind) for n in LENGTHS[1:4]
    ]  # fmt: skip


def measure_operations() -> dict[str, Any]:
    rows, fits = [], []
    for name, kind, d, k, n in list_sizes():
        dims = Dimensions(width=d, kernel=k or 3)
        formula = kind.mixing(dims, n) if kind.mixing else None
        mixing = formula or 4 * n * d * 96
        row = {"kind": name, "n": n, "d": d, "k": k, "operations": mixing + kind.projecting(dims, n)}
        rows.append({**row, "mixing": mixing, "formula": formula})
    for name, kind in KINDS.items():
        exponents = {axis: float(power) for axis, power in kind.powers.items()}
        intervals = {axis: [power - 0.004, power + 0.004] for axis, power in exponents.items()}
        whole = {"n": 1.31, "d": 1.62} if name == "attention" else exponents
        fit = {"kind": name, "intervals": intervals, "textbook": dict(kind.powers), "points": 9}
        fits += [{**fit, "of": "mixing", "exponents": exponents}, {**fit, "of": "whole", "exponents": whole}]
    return {"rows": rows, "fits": fits}


def measure_steps() -> dict[str, Any]:
    rows = [
        {"kind": name, "d": d, "k": k, "n": n, "chain": STEPS[name][0] * n + STEPS[name][1]}
        for name, _, d, k, n in list_sizes()
    ]
    fits = [
        {"kind": name, "per_token": slope, "constant": constant, "is_exact": True, "order": "n" if slope else "1",
         "textbook": KINDS[name].textbook[1]} for name, (slope, constant) in STEPS.items()
    ]  # fmt: skip
    return {"rows": rows, "fits": fits}


def see(kind: str, layers: int, i: int, j: int) -> bool:
    if kind in ("rnn", "gru"):
        return j <= i
    radius = {"conv": 1, "windowed": 4}.get(kind, 99)
    return abs(i - j) <= radius * layers


def measure_paths() -> dict[str, Any]:
    rows = []
    for name, kind, d, k, n in list_sizes():
        length = kind.path(Dimensions(width=d, kernel=k or 3), n)
        rows.append({"kind": name, "d": d, "k": k, "n": n, "length": length, "formula": length})
    maps = [
        {"kind": name, "layers": layers,
         "seen": ["".join("01"[see(name, layers, i, j)] for j in range(16)) for i in range(16)]}
        for name in KINDS for layers in (1, 2, 4)
    ]  # fmt: skip
    return {"rows": rows, "maps": maps}


def measure_cost() -> dict[str, Any]:
    rows, fits = [], []
    for name, (linear, square, constant) in TIMES.items():
        for batch in (1, 16):
            for number, doing in enumerate(("forward", "training")):
                for n in LENGTHS:
                    seconds = 3**number * 1e-9 * (constant + batch**0.8 * (linear * n + square * n * n))
                    size = (2 + number) * 4 * batch * n * 64
                    row = {"kind": name, "n": n, "batch": batch, "pass": doing, "seconds": seconds, "bytes": size}
                    rows.append({**row, "low": 0.9 * seconds, "high": 1.2 * seconds, "fastest": 0.9 * seconds})
                power = 1.7 if square else 0.9
                fit = {"kind": name, "batch": batch, "pass": doing, "from": 128, "to": 1024}
                fits.append({**fit, "of": "seconds", "exponent": power, "interval": [power - 0.1, power + 0.1]})
                fits.append({**fit, "of": "bytes", "exponent": 1.0, "interval": [0.99, 1.01]})
    case = {"one": "attention", "batch": None, "pass": None, "is_equal": False}
    timed = {"one": "attention", "batch": 16, "pass": "forward", "of": "seconds", "is_equal": False}
    crossings = [
        {**case, "other": "conv", "of": "textbook", "spans": [[None, 96.0]]},
        {**case, "other": "rnn", "of": "textbook", "spans": [[None, 64.0]]},
        {**case, "other": "rnn", "of": "operations", "spans": []},
        {**case, "other": "gru", "of": "operations", "spans": [[None, 64.0]]},
        {**timed, "other": "conv", "spans": []},
        {**timed, "other": "rnn", "spans": [[None, 2850.0]]},
    ]
    return {
        "device": "cpu", "threads": 1, "rows": rows, "fits": fits, "crossings": crossings,
        "skipped": [{"kind": "gru", "n": 4096, "batch": 16, "pass": "training", "why": "would take too long"}],
        "leads": list_leads(crossings), "parameters": {"conv": 12288, "rnn": 8192},
        "widths": dict.fromkeys(KINDS, 64),
    }  # fmt: skip


def learn(kind: str, has_position: bool, distance: int, chance: float) -> float:
    reach = REACH[kind]
    if reach is not None and distance > reach:
        return chance
    if kind == "rnn":
        return chance + (1 - chance) * math.exp(-distance / 20)
    return 0.5 if kind == "attention" and not has_position else 1.0


def measure_learning(chance: float, distances: tuple[int, ...]) -> dict[str, Any]:
    rows = [
        {"kind": kind, "has_position": placed, "distance": distance, "seed": seed, "count": 256,
         "accuracy": min(1.0, max(0.0, learn(kind, placed, distance, chance) + 0.004 * seed))}
        for kind in KINDS for placed in (True, False) for distance in distances for seed in (0, 1)
    ]  # fmt: skip
    training = [
        {"kind": kind, "has_position": placed, "steps": 400, "loss": 0.02, "seconds": 3.5}
        for kind in KINDS for placed in (True, False)
    ]  # fmt: skip
    settings = {"width": 32, "steps": 400}
    edges = [
        {"kind": "conv", "k": k, "has_position": placed, "reach": k - 1, "within": 0.98, "beyond": chance}
        for k in KERNELS for placed in (True, False)
    ]  # fmt: skip
    return {
        "edges": edges, "chance": chance, "length": 128, "depth": 2, "settings": settings, "reach": dict(REACH),
        "rows": rows, "training": training,
    }  # fmt: skip


def measure_digits() -> dict[str, Any]:
    best = {"attention": 0.55, "conv": 0.7}
    rows = [
        {"kind": kind, "images": images, "count": 297, "seed": seed,
         "accuracy": best[kind] + 0.05 * math.log2(images / 50) + 0.01 * seed}
        for kind in best for images in (50, 200, 800, 1500) for seed in (0, 1)
    ]  # fmt: skip
    training = [{"kind": kind, "images": 50, "seed": 0, "steps": 300} for kind in best]
    return {"rows": rows, "parameters": {"attention": 9000, "conv": 9100}, "training": training}


def make_sample(*parts: str) -> Comparison:
    """All parts, or those that are named; a new one at every call."""
    made = {
        "operations": measure_operations, "steps": measure_steps, "paths": measure_paths, "cost": measure_cost,
        "recall": lambda: measure_learning(0.125, (1, 2, 4, 8, 12, 16, 32, 64, 100)),
        "order": lambda: measure_learning(0.5, (1, 4, 8, 16)), "digits": measure_digits,
    }  # fmt: skip
    machine = {"python": "3.12.1", "torch": "2.13.0", "regard": "0.1.0", "processor": "a processor", "cores": 2}
    settings = Settings(lengths=LENGTHS).to_dict()
    return Comparison(settings, machine, {name: made[name]() for name in parts or made})


def draw_page(comparison: Comparison) -> str:
    """The page as `save` writes it."""
    return write_page(comparison.parts, comparison.settings, comparison.machine, comparison.to_json())


def read_part(comparison: Comparison, part: str) -> str:
    """What is said of a part."""
    if part == "textbook":
        return read_textbook(comparison.parts)
    return " ".join(find_part(part).read(comparison.parts[part], comparison.settings))
