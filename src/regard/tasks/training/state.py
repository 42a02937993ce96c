"""Checkpoint files: weights, optimizer states and counters in one file, as safetensors and JSON.

A state is a tree of dicts, lists, tuples, numbers, texts and tensors. Tensors go into the file as such, the rest of the
tree into its header; one file, so that a stop between two cannot leave halves that do not belong together. Nothing is
ever unpickled.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

import torch
from torch import Tensor

from regard.core import RegardError
from regard.core.files import write_whole
from regard.models.files import (
    import_safetensors,
    name_fault,
    open_file,
    read_header,
    read_tensors,
    tell,
    write_tensors,
)

FORMAT = "regard state 1"
# a tree of this length has millions of numbers
MOST_HEADER_BYTES = 2**26


def save_state(path: pathlib.Path, state: Any) -> None:
    """Write a checkpoint file, atomically.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "state.safetensors")
    ...     save_state(file, {"step": 3, "weights": [torch.ones(2), None]})
    ...     load_state(file)
    {'step': 3, 'weights': [tensor([1., 1.]), None]}
    """
    tensors: dict[str, Tensor] = {}
    tree = _take_apart(state, tensors, "state")
    raw = write_tensors(tensors, {"format": FORMAT, "tree": json.dumps(tree)})
    if int.from_bytes(raw[:8], "little") > MOST_HEADER_BYTES:
        raise RegardError("state is too long to be read again: keep long lists of numbers as tensors.")
    write_whole(path, raw)


def load_state(path: pathlib.Path, device: str | torch.device = "cpu") -> Any:
    """Load a checkpoint file, bit for bit, with its tensors on `device`."""
    # a missing package is no fault of the file's
    import_safetensors()
    with open_file(path, "no run was saved in this place") as opened:
        try:
            _, metadata, _ = read_header(opened, MOST_HEADER_BYTES)
            if metadata.get("format") == FORMAT:
                tensors = {name: x.to(device) for name, x in read_tensors(opened).items()}
                return _put_together(json.loads(metadata["tree"]), tensors)
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            fix = "restore it, or name a new folder"
            raise name_fault(path, "cannot be read as a state", fix, tell(error)) from None
    raise RegardError(f"{path} is not a state of a run: it has no mark {FORMAT!r}.")


def _take_apart(value: Any, tensors: dict[str, Tensor], place: str) -> Any:
    """The state as JSON has it: each value in a list of its kind and content, tensors by name."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return ["int", str(value)]
    if isinstance(value, float):
        # every bit, infinities and all
        return ["float", value.hex()]
    if isinstance(value, Tensor):
        # tensors that share memory would be refused, or bound together when they come back
        kept = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        # counted, since two places may read the same
        name = f"{len(tensors)} {place}"
        tensors[name] = kept
        return ["tensor", name]
    if isinstance(value, dict):
        if odd := [key for key in value if type(key) not in (str, int)]:
            raise RegardError(f"{place} has the key {odd[0]!r}: keys of a state must be texts or integers.")
        parts = [
            [_take_apart(key, tensors, place), _take_apart(x, tensors, f"{place}.{key}")] for key, x in value.items()
        ]
        return ["dict", parts]
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return [kind, [_take_apart(x, tensors, f"{place}.{at}") for at, x in enumerate(value)]]
    raise RegardError(f"{place} is a {type(value).__name__}: a state holds numbers, texts, tensors, lists and dicts.")


def _put_together(tree: Any, tensors: dict[str, Tensor]) -> Any:
    if tree is None or isinstance(tree, bool | str):
        return tree
    if not isinstance(tree, list) or len(tree) != 2:
        raise ValueError(f"{tree!r:.40} is not a kind and its content")
    kind, content = tree
    if kind == "int":
        return int(content)
    if kind == "float":
        return float.fromhex(content)
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {_put_together(key, tensors): _put_together(x, tensors) for key, x in content}
    if kind not in ("list", "tuple"):
        raise ValueError(f"unknown kind {kind!r}")
    found = [_put_together(x, tensors) for x in content]
    return found if kind == "list" else tuple(found)
