"""Files of safetensors and JSON that are not trusted: checked before time or memory is spent on them."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import stat
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

from regard.core import RegardError
from regard.core.errors import plain
from regard.extras import install

if TYPE_CHECKING:
    from torch import Tensor

MOST_CHARACTERS = 200


def name_fault(path: pathlib.Path, cause: str, fix: str, detail: str = "") -> RegardError:
    """An error about a file, in one line of at most 200 characters.

    >>> raise name_fault(pathlib.Path("runs/x/config.json"), "is not JSON", "restore it", "line 1")
    Traceback (most recent call last):
    regard.core.errors.RegardError: runs/x/config.json is not JSON (line 1): restore it.

    A long path is shown by its end, a long detail by its start.
    """
    room = MOST_CHARACTERS - len(cause) - len(fix) - len(" : .")
    name = str(path)
    # some words of the detail stay in any case
    most = max(room - (24 if detail else 0), 20)
    name = name if len(name) <= most else f"…{name[1 - most :]}"
    room -= len(name) + len(" ()")
    detail = detail if len(detail) <= max(room, 0) else f"{detail[: room - 1]}…"
    line = f"{name} {cause} ({detail}): {fix}." if detail else f"{name} {cause}: {fix}."
    # names and texts out of files may hold line ends and codes that a terminal obeys
    return RegardError(plain(line[:MOST_CHARACTERS]))


def check_folder(place: pathlib.Path, fix: str = "name one that holds config.json") -> None:
    """Check that a folder is there."""
    if not place.is_dir():
        what = "is a file, not a folder" if place.exists() else "is not a folder on this machine"
        raise name_fault(place, what, f"{fix}; nothing is fetched")


def open_file(file: pathlib.Path, fix: str) -> BinaryIO:
    """Open a file, which must be a regular one: to open a pipe could take forever."""
    try:
        if not stat.S_ISREG(os.stat(file).st_mode):
            raise name_fault(file, "is not a file", fix)
        return open(file, "rb")
    except FileNotFoundError:
        raise name_fault(file, "is not there", fix) from None
    except OSError as error:
        raise name_fault(file, "cannot be read", "check its rights", tell(error)) from None


def read_json(raw: str | bytes) -> Any:
    """Parse JSON by its standard, each key once; else a ValueError."""

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
    except UnicodeDecodeError:
        raise ValueError("not UTF-8") from None
    except RecursionError:
        raise ValueError("nested too deep") from None


def read_object(opened: BinaryIO, file: pathlib.Path, most: int, large: str, restore: str) -> dict[str, Any]:
    """Read a JSON object from an opened file of at most `most` bytes; `large` and `restore` are the ways out."""
    raw = opened.read(most + 1)
    if len(raw) > most:
        raise name_fault(file, f"has more than {most:,} bytes", large)
    try:
        entries = read_json(raw)
    except ValueError as error:
        raise name_fault(file, "is not JSON", restore, tell(error)) from None
    if not isinstance(entries, dict):
        raise name_fault(file, f"is a {type(entries).__name__}, not an object of keys", restore)
    return entries


def write_tensors(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """The bytes of a safetensors file, with a hash of its numbers among its metadata."""
    raw = import_safetensors().torch.save(dict(tensors))
    start = 8 + int.from_bytes(raw[:8], "little")
    numbers = memoryview(raw)[start:]
    # safetensors itself would write metadata in any order: the same model, another file
    marked = {**metadata, "sha256": hashlib.sha256(numbers).hexdigest()}
    header = json.dumps({"__metadata__": marked, **json.loads(raw[8:start])}, separators=(",", ":")).encode()
    # numbers begin at a multiple of eight
    header += b" " * (-len(header) % 8)
    return b"".join((len(header).to_bytes(8, "little"), header, numbers))


def read_header(opened: BinaryIO, most: int) -> tuple[dict[str, Any], dict[str, Any], int]:
    """The header of a safetensors file: its tensors, its metadata, and the bytes after them; else a ValueError."""
    size = os.fstat(opened.fileno()).st_size
    length = int.from_bytes(opened.read(8), "little")
    if size < 8 or length > min(size - 8, most):
        raise ValueError(f"{size} bytes, a header of {length}")
    header = read_json(opened.read(length))
    if not isinstance(header, dict) or not all(isinstance(entry, dict) for entry in header.values()):
        raise ValueError("the header is not an object of objects")
    return header, header.pop("__metadata__", {}), size - 8 - length


def read_tensors(opened: BinaryIO) -> dict[str, Tensor]:
    """Load the tensors of a safetensors file, checked by its hash; else a ValueError."""
    opened.seek(0)
    metadata = read_header(opened, os.fstat(opened.fileno()).st_size)[1]
    start = opened.tell()
    opened.seek(0)
    raw = opened.read()
    # files of others have no hash
    if metadata.get("sha256") not in (None, hashlib.sha256(memoryview(raw)[start:]).hexdigest()):
        raise ValueError("damaged, its sha256 is another")
    safetensors = import_safetensors()
    try:
        tensors: dict[str, Tensor] = safetensors.torch.load(raw)
    except (safetensors.SafetensorError, RuntimeError, TypeError, KeyError, OverflowError) as error:
        raise ValueError(tell(error)) from None
    return tensors


def import_safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError:
        raise RegardError(f"Models on disk need the package safetensors: {install('train')}.") from None
    return safetensors


def tell(error: BaseException) -> str:
    """The message of an error, in one line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).strip().partition("\n")[0].rstrip(".") or type(error).__name__
