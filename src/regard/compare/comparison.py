"""What was measured, all of it, as one object: written as a page and as JSON, read again, printed."""

from __future__ import annotations

import json
import os
import pathlib
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from regard.compare.settings import PARTS
from regard.core import RegardError
from regard.views.page.build import write_json
from regard.views.sheet import write_file

# rises when a reader of today could not read what is written
FORMAT = 1
# what a part's lists have in each of their entries
FIELDS: dict[str, dict[str, tuple[str, ...]]] = {
    "operations": {
        "rows": ("kind", "n", "d", "k", "operations", "mixing", "formula"),
        "fits": ("kind", "of", "exponents", "intervals", "textbook", "points"),
    },
    "steps": {
        "rows": ("kind", "d", "k", "n", "chain"),
        "fits": ("kind", "per_token", "constant", "is_exact", "order", "textbook"),
    },
    "paths": {"rows": ("kind", "d", "k", "n", "length", "formula"), "maps": ("kind", "layers", "seen")},
    "cost": {
        "rows": ("kind", "n", "batch", "pass", "seconds", "low", "high", "bytes"),
        "fits": ("kind", "batch", "pass", "of", "exponent", "interval", "from", "to"),
        "crossings": ("one", "other", "batch", "pass", "of", "is_equal", "spans"),
    },
    "recall": {"rows": ("kind", "has_position", "distance", "accuracy", "count", "seed")},
    "order": {"rows": ("kind", "has_position", "distance", "accuracy", "count", "seed")},
    "digits": {"rows": ("kind", "images", "accuracy", "count", "seed")},
}
# those of them that are reckoned with, or None
NUMBERS = (
    "n", "d", "k", "operations", "mixing", "formula", "per_token", "constant", "chain", "length", "layers", "batch",
    "seconds", "low", "high", "bytes", "exponent", "distance", "accuracy", "count", "images",
)  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """What was measured, by part; by which settings, and on what machine.

    >>> made = Comparison({"seed": 0}, describe_machine("cpu"), {})
    >>> json.loads(made.to_json())["settings"]
    {'seed': 0}

    `parts` is plain JSON: what each of the functions `measure_…` returned, under its name.
    """

    settings: dict[str, Any]
    machine: dict[str, Any]
    parts: dict[str, Any]

    def to_json(self) -> str:
        """All numbers, in an order that does not change; what is not finite is null."""
        # cleaned first: JSON has no NaN
        content = json.loads(write_json(vars(self)))
        return json.dumps({"format": FORMAT, **content}, indent=1, sort_keys=True) + "\n"

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Comparison:
        """Reads what `save` wrote as JSON."""
        place = pathlib.Path(path)
        try:
            content = json.loads(place.read_text(encoding="utf-8"))
        except OSError as error:
            raise RegardError(f"{place} cannot be read ({error.strerror}).") from None
        # RecursionError: brackets within brackets, more than any of ours has
        except (ValueError, RecursionError):
            raise RegardError(f"{place} is damaged, it is not JSON: run regard compare again.") from None
        number = content.get("format") if isinstance(content, dict) else None
        if isinstance(number, int) and number > FORMAT:
            raise RegardError(f"{place} has format {number}, this regard reads up to {FORMAT}: install a newer regard.")
        if number != FORMAT or not all(isinstance(content.get(name), dict) for name in cls.__annotations__):
            raise RegardError(f"{place} is not a comparison: give the JSON that regard compare wrote.")
        for name, part in content["parts"].items():
            if not is_whole(name, part):
                raise RegardError(f"{place} is damaged, something is missing in part {name[:40]!r}: compare again.")
        # in the order of the report, whatever order the file has
        parts = {name: content["parts"][name] for name in PARTS if name in content["parts"]}
        return cls(content["settings"], content["machine"], parts)

    def save(self, path: str | os.PathLike[str]) -> tuple[pathlib.Path, pathlib.Path]:
        """Writes the page, a name that ends in .html, and the JSON of the same name beside it; returns both names."""
        from regard.compare.report.page import write_page

        page = pathlib.Path(path)
        if page.suffix.lower() not in (".html", ".htm"):
            raise RegardError(f"{page} must end in .html: the page is written there, and its numbers beside it.")
        data = page.with_suffix(".json")
        # all of the page is made before any of it is written
        content = write_page(self)
        write_file(page, content)
        write_file(data, self.to_json())
        return page, data

    def print(self, console: Any = None) -> None:
        """Prints the tables, to a `Console` of rich or to the terminal."""
        from regard.compare.report.table import print_tables

        print_tables(self, console)


def is_whole(name: str, part: Any) -> bool:
    """Whether a part has all that the report reads.

    >>> is_whole("digits", {"rows": [{"kind": "conv", "images": 50, "accuracy": 0.5, "count": 9, "seed": 0}]})
    True
    >>> is_whole("digits", {"rows": [{"kind": "conv"}]})
    False
    """
    if name not in FIELDS or not isinstance(part, Mapping):
        return False
    lists = [part.get(listed) for listed in FIELDS[name]]
    rows = [row for rows in lists if isinstance(rows, list) for row in rows]
    if not all(isinstance(rows, list) for rows in lists) or not all(isinstance(row, Mapping) for row in rows):
        return False
    if not all(field in row for listed, fields in FIELDS[name].items() for row in part[listed] for field in fields):
        return False
    if not all(isinstance(row[field], int | float | None) for row in rows for field in NUMBERS if field in row):
        return False
    return name not in ("recall", "order") or (
        isinstance(part.get("chance"), int | float) and isinstance(part.get("reach"), Mapping)
    )


def describe_machine(device: str) -> dict[str, Any]:
    """What the numbers that depend on the machine depend on; nothing that tells whose machine it is.

    >>> sorted(describe_machine("cpu"))
    ['cores', 'device', 'processor', 'python', 'regard', 'system', 'threads', 'torch']
    """
    import regard

    kind = torch.device(device).type
    name = torch.cuda.get_device_name(torch.device(device)) if kind == "cuda" else _read_processor()
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "regard": regard.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "device": kind,
        "processor": name,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def _read_processor() -> str:
    """The processor's name as the system gives it: Linux has it in a file, others in `platform`."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
