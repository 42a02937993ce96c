"""The names of watches in transformers' registries and configs: watches nest, and end in any order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

# one watch at a time begins or ends
LOCK = threading.RLock()
# ours -> what it stands upon: an implementation, or the name of a watch that began before
BELOW: dict[str, str] = {}
# names of watches that are over: another thread may have read one just before, so they go with the last watch
OVER: set[str] = set()


class Name(str):
    """A name of ours in a config; copies of the config, which outlive the watch, have the implementation instead."""

    __slots__ = ()

    def __deepcopy__(self, memo: Any) -> str:
        return str(find_base(self))

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (find_base(self),)


def find_base(kind: Any) -> Any:
    """The implementation behind a name of ours, else the name itself."""
    while kind in BELOW:
        kind = BELOW[kind]
    return kind


def register(kind: str, name: str, function: Callable[..., Any]) -> None:
    """Register an attention function under a name of ours, with the mask function of what it wraps, `kind`."""
    from transformers import AttentionInterface, AttentionMaskInterface

    BELOW[name] = kind
    AttentionInterface.register(name, function)
    AttentionMaskInterface.register(name, AttentionMaskInterface._global_mapping[kind])


def restore(configs: Sequence[Any], before: Sequence[str], ours: Mapping[str, str]) -> None:
    """Remove a watch, wherever it stands among those of the same configs."""
    from transformers import AttentionInterface, AttentionMaskInterface

    # what it stood upon when it began may be over by now
    back = {kind: BELOW.get(name, kind) for kind, name in ours.items()}
    for kind, name in ours.items():
        for other, below in BELOW.items():
            if below == name:
                BELOW[other] = back[kind]
    for config, kind in zip(configs, before, strict=False):
        present = config._attn_implementation
        # a watch that began later and is not over stays on top
        if kind in ours and (present == ours[kind] or present not in BELOW or present in OVER):
            config._attn_implementation_internal = back[kind]
    OVER.update(name for name in ours.values() if name in BELOW)
    if set(BELOW) == OVER:
        for name in OVER:
            AttentionInterface._global_mapping.pop(name, None)
            AttentionMaskInterface._global_mapping.pop(name, None)
        BELOW.clear()
        OVER.clear()
