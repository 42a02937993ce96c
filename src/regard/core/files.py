"""Atomic writing of files."""

from __future__ import annotations

import os
import pathlib
import tempfile
from contextlib import suppress


def write_whole(path: pathlib.Path, content: str | bytes) -> None:
    """Write a file atomically, and make its folders: after a crash it has the old content or the new.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(pathlib.Path(folder, "runs", "a.txt"), "all of it")
    ...     pathlib.Path(folder, "runs", "a.txt").read_text()
    'all of it'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp keeps its file private; this one is as readable as any other
        os.chmod(name, 0o666 & ~_read_umask())
        os.replace(name, path)
    except BaseException:
        # an interrupt may come when it has its new name already
        with suppress(FileNotFoundError):
            os.unlink(name)
        raise
    _keep_name(path.parent)


def _read_umask() -> int:
    # there is no way to read it but to set it
    umask = os.umask(0o022)
    os.umask(umask)
    return umask


def _keep_name(folder: pathlib.Path) -> None:
    """The folder, too, must know of its file after a power cut; not every system lets a folder be opened."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
