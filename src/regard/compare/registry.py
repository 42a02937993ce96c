"""The parts of a comparison: where each is, in the order they are measured and told; imported when first used."""

from __future__ import annotations

from regard.core.names import refuse_plugin
from regard.plugins import find_plugins

# what is certain first, what takes long last
PARTS = {
    "operations": "regard.compare.parts.operations:OPERATIONS",
    "steps": "regard.compare.parts.steps:STEPS",
    "paths": "regard.compare.parts.paths:PATHS",
    "cost": "regard.compare.parts.cost:COST",
    "recall": "regard.compare.parts.puzzles:RECALL",
    "order": "regard.compare.parts.puzzles:ORDER",
    "digits": "regard.compare.parts.digits:DIGITS",
}


def list_parts() -> dict[str, str]:
    """References by name: regard's own parts, then those of other installed packages (entry points `regard.compare`).

    >>> list(list_parts())[:3]
    ['operations', 'steps', 'paths']
    """
    others = find_plugins("compare")
    if taken := PARTS.keys() & others:
        name = min(taken)
        raise refuse_plugin("compare", name, others[name], "must have another name, which no part of regard has")
    return {**PARTS, **others}
