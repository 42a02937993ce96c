"""Files of a model, read with suspicion: each fault is one line, and found before time or memory is spent on it."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import stat
from typing import Any, BinaryIO

from torch import Tensor

from regard.core import RegardError

# far above what any model here needs, far below what hurts
MOST_CONFIG_BYTES, MOST_HEADER_BYTES = 2**20, 2**23
MOST_CHARACTERS = 200
RESTORE = "restore it, or save the model again"


def read_json(raw: str | bytes) -> Any:
    """JSON as its standard has it, each key once; else a ValueError."""

    def pair_up(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise ValueError("a key stands there twice")
        return found

    def stop(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    try:
        text = raw.decode() if isinstance(raw, bytes) else raw
        return json.loads(text, object_pairs_hook=pair_up, parse_constant=stop)
    except RecursionError:
        raise ValueError("nested too deep") from None


def name_fault(path: pathlib.Path, cause: str, fix: str) -> RegardError:
    """The error of a file as one line of at most 200 characters.

    >>> raise name_fault(pathlib.Path("runs/x/config.json"), "is not there", "name a folder that has one")
    Traceback (most recent call last):
    regard.core.errors.RegardError: runs/x/config.json is not there: name a folder that has one.

    A long path is shown by its end, a long cause by its start.
    """
    name = str(path)
    name = name if len(name) <= 90 else f"…{name[-89:]}"
    room = MOST_CHARACTERS - len(name) - len(fix) - 4
    cause = cause if len(cause) <= room else f"{cause[: room - 1]}…"
    line = f"{name} {cause}: {fix}."
    # names and texts out of files may hold line ends and codes that a terminal obeys
    return RegardError("".join(x if x.isprintable() else "?" for x in line))


def open_file(file: pathlib.Path, fix: str) -> BinaryIO:
    """A file, which must be one: to open a pipe could take forever."""
    try:
        if not stat.S_ISREG(os.stat(file).st_mode):
            raise name_fault(file, "is not a file", fix)
        return open(file, "rb")
    except FileNotFoundError:
        raise name_fault(file, "is not there", fix) from None
    except OSError as error:
        raise name_fault(file, f"cannot be read ({tell(error)})", "check its rights") from None


def read_header(file: pathlib.Path, opened: BinaryIO) -> tuple[dict[str, Any], str | None, int]:
    """What a file of safetensors says of its tensors, its own mark of their hash, and how many bytes they have."""
    size = os.fstat(opened.fileno()).st_size
    length = int.from_bytes(opened.read(8), "little")
    if size < 8 or length > min(size - 8, MOST_HEADER_BYTES):
        raise name_fault(file, f"is not safetensors ({size} bytes, a header of {length})", RESTORE)
    try:
        header = read_json(opened.read(length))
    except ValueError as error:
        raise name_fault(file, f"is not safetensors (header: {tell(error)})", RESTORE) from None
    if not isinstance(header, dict) or not all(isinstance(entry, dict) for entry in header.values()):
        raise name_fault(file, "is not safetensors (header: not an object of objects)", RESTORE)
    # files of others have none
    digest = header.pop("__metadata__", {}).get("sha256")
    return header, digest, size - 8 - length


def read_tensors(file: pathlib.Path, opened: BinaryIO, digest: str | None) -> dict[str, Tensor]:
    """The tensors, finite and as they were written."""
    safetensors = import_safetensors()
    opened.seek(0)
    raw = opened.read()
    start = 8 + int.from_bytes(raw[:8], "little")
    if digest is not None and digest != hashlib.sha256(memoryview(raw)[start:]).hexdigest():
        raise name_fault(file, "is damaged: its numbers do not have the sha256 in its header", RESTORE)
    try:
        tensors: dict[str, Tensor] = safetensors.torch.load(raw)
    except (safetensors.SafetensorError, ValueError, RuntimeError, TypeError, KeyError, OverflowError) as error:
        raise name_fault(file, f"is not safetensors ({tell(error)})", RESTORE) from None
    for name, x in tensors.items():
        if not x.isfinite().all():
            raise name_fault(file, f"has a {name} that is not finite", "take an earlier one")
    return tensors


def import_safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError:
        raise RegardError("Models on disk need the package safetensors: pip install 'regard[train]'.") from None
    return safetensors


def mark_hash(raw: bytearray) -> None:
    """Fill in the sha256 of the tensors where the header holds 64 zeros for it."""
    start = 8 + int.from_bytes(raw[:8], "little")
    at = raw.index(b'"' + b"0" * 64 + b'"', 0, start) + 1
    raw[at : at + 64] = hashlib.sha256(memoryview(raw)[start:]).hexdigest().encode()


def tell(error: BaseException) -> str:
    """What an error says, without its later lines."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
