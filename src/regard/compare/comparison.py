"""A comparison, as one object: measured part by part and kept, written as a page and as JSON, read again, printed."""

from __future__ import annotations

import json
import os
import pathlib
import platform
import re
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

import regard
from regard.compare.kinds import KINDS, Kind
from regard.compare.page import write_page
from regard.compare.part import find_part
from regard.compare.registry import list_parts
from regard.compare.settings import Settings
from regard.compare.tables import print_tables
from regard.core import RegardError
from regard.views.page.build import write_json
from regard.views.sheet import write_file

# rises when a reader of today could not read what is written
FORMAT = 1


@dataclass(frozen=True)
class Comparison:
    """What `measure` of each part returned, plain JSON by its name; by which settings, and on what machine.

    >>> json.loads(Comparison({"seed": 0}, {}, {}).to_json())["settings"]
    {'seed': 0}
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
            if not find_part(name).accepts(part):
                raise RegardError(f"{place} is damaged, something is missing in part {name[:40]!r}: compare again.")
        # in the order of the report, whatever order the file has
        parts = {name: content["parts"][name] for name in list_parts() if name in content["parts"]}
        return cls(content["settings"], content["machine"], parts)

    def save(self, path: str | os.PathLike[str]) -> tuple[pathlib.Path, pathlib.Path]:
        """Writes the page, a name that ends in .html, and the JSON of the same name beside it; returns both names."""
        page = pathlib.Path(path)
        if page.suffix.lower() not in (".html", ".htm"):
            raise RegardError(f"{page} must end in .html: the page is written there, and its numbers beside it.")
        data, numbers = page.with_suffix(".json"), self.to_json()
        # all of the page is made before any of it is written
        content = write_page(self.parts, self.settings, self.machine, numbers)
        write_file(page, content)
        write_file(data, numbers)
        return page, data

    def print(self, console: Any = None) -> None:
        """Prints the tables, to a `Console` of rich or to the terminal."""
        print_tables(self.parts, self.settings, console)


def measure(
    settings: Settings | None = None,
    kinds: Mapping[str, Kind] = KINDS,
    *,
    keep: str | os.PathLike[str] | None = None,
    on_progress: Callable[[str, float], None] | None = None,
) -> Comparison:
    """Measure every part of `settings`, for each kind of layer.

    >>> found = measure(Settings(parts=("paths",), widths=(8, 12, 16)).quicken())
    >>> [row["length"] for row in found.parts["paths"]["rows"] if row["kind"] == "attention"][:3]
    [1, 1, 1]

    With `keep`, the name of a .json file, each part is written there when it is done, and parts that are found there,
    of the same settings on the same machine, are not measured again. `on_progress` is told the part and how much of all
    is done, from 0 to 1.
    """
    settings = settings or Settings()
    check_device(settings.device)
    if wrong := [(name, kind.name) for name, kind in kinds.items() if kind.name != name]:
        raise RegardError("kinds must be by their names: {!r} is the key of {!r}.".format(*wrong[0]))
    found = (keep is not None and find_kept(keep, settings, kinds)) or _begin(settings, kinds)
    # where nothing can be written, nothing is measured in vain
    _keep(found, keep)
    parts = [find_part(name) for name in settings.parts]
    shares = [part.quick_share if settings.is_quick else part.share for part in parts]
    tell, begun = on_progress or (lambda name, share: None), time.monotonic()
    for at, part in enumerate(parts):
        if part.name in found.parts:
            continue

        def advance(inner: float, name: str = part.name, at: int = at) -> None:
            tell(name, (sum(shares[:at]) + min(max(inner, 0.0), 1.0) * shares[at]) / sum(shares))

        advance(0.0)
        given = settings
        if settings.seconds is not None:
            # its share of the time that is left: what one part does not need, the others have
            rest = settings.seconds - (time.monotonic() - begun)
            given = replace(settings, seconds=max(rest * shares[at] / sum(shares[at:]), 1e-3))
        with nullcontext() if part.nature == "timed" else one_thread():
            made = part.measure(given, advance, kinds)
        found = replace(found, parts={**found.parts, part.name: made})
        _keep(found, keep)
    tell("", 1.0)
    return found


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch computes by one thread within: a second gains nothing here, and sums are the same on every machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def check_device(device: str) -> None:
    """Refuse a device that is not there, or has no clock of ours."""
    try:
        if torch.device(device).type not in ("cpu", "cuda"):
            raise RuntimeError("it is neither cpu nor cuda")
        torch.empty(1, device=device)
    # torch says it in one of many ways
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = textwrap.shorten(str(error).strip().splitlines()[0].split(". ")[0], 90, placeholder=" …")
        raise RegardError(f"device {device!r} cannot be used ({reason}): take cpu, or see what torch finds.") from None


def find_kept(keep: str | os.PathLike[str], settings: Settings, kinds: Mapping[str, Kind] = KINDS) -> Comparison | None:
    """What `measure` left there when it was stopped, unless it is damaged or of other settings or another machine."""
    try:
        kept = Comparison.load(keep)
    except RegardError:
        # it is not there, or would be measured anew all the same
        return None
    return kept if replace(kept, parts={}) == _begin(settings, kinds) else None


def _begin(settings: Settings, kinds: Mapping[str, Kind]) -> Comparison:
    return Comparison({**settings.to_dict(), "kinds": list(kinds)}, describe_machine(settings.device), {})


def _keep(found: Comparison, keep: str | os.PathLike[str] | None) -> None:
    if keep is not None:
        write_file(pathlib.Path(keep), found.to_json())


def describe_machine(device: str) -> dict[str, Any]:
    """What the numbers that depend on the machine depend on; nothing that tells whose machine it is.

    >>> sorted(describe_machine("cpu"))
    ['cores', 'device', 'processor', 'python', 'regard', 'system', 'threads', 'torch']
    """
    kind = torch.device(device).type
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "regard": regard.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "device": kind,
        "processor": torch.cuda.get_device_name(device) if kind == "cuda" else _read_processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def _read_processor() -> str:
    """The processor's name as the system gives it: Linux has it in a file, others in `platform`."""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    found = re.search(r"^model name[^:]*:(.*)$", text, re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()
