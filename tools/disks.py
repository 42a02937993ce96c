"""Disks that are full, truly or as far as one process sees."""

from __future__ import annotations

import errno
import os
import pathlib
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager


def fill_disk(room: int) -> None:
    """Let writes of this process fail after so many bytes, as on a full disk."""
    inner, left = os.fsync, [room]

    def refuse(handle: int) -> None:
        left[0] -= os.fstat(handle).st_size
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        inner(handle)

    os.fsync = refuse


@contextmanager
def mount_disk(folder: pathlib.Path, size: int) -> Iterator[pathlib.Path]:
    """A disk of so many bytes where that is allowed; else a folder."""
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        is_mounted = subprocess.run(["mount", *options], capture_output=True).returncode == 0
    except OSError:
        is_mounted = False
    try:
        yield folder
    finally:
        if is_mounted:
            subprocess.run(["umount", str(folder)], check=True)
        shutil.rmtree(folder)
