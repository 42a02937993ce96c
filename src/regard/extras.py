"""How optional packages are installed, from a clone or from the package registry; known before torch is loaded."""

from __future__ import annotations

import os
import pathlib
import shlex


def install(extra: str, file: str | os.PathLike[str] = __file__) -> str:
    """The command that installs an extra of this regard, which lies in `file`.

    >>> install("train", "/usr/lib/python3/site-packages/regard/extras.py")
    "pip install 'regard[train]'"

    In a clone, installed as it stands or run from its folder, it is that folder which is installed: the registry may
    have another regard, or none.
    """
    source = pathlib.Path(file).resolve().parents[1]
    if source.name != "src" or not (source.parent / "pyproject.toml").is_file():
        return f"pip install 'regard[{extra}]'"
    # os.path: the folder that a program is in may be gone
    place = "." if os.path.exists(".") and os.path.samefile(source.parent, ".") else str(source.parent)
    return f"pip install {shlex.quote(f'{place}[{extra}]')}"
