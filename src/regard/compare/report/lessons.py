"""What the numbers of the parts that learn say, a paragraph each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from regard.compare.report.cells import (
    average,
    bound_error,
    list_kinds,
    name_edge,
    name_kind,
    show_list,
    show_share,
    take,
    take_reached,
    tell_skipped,
)

Part = Mapping[str, Any]


def read_recall(part: Part, settings: Part) -> str:
    rows, chance = part["rows"], part["chance"]
    far = max((row["distance"] for row in rows), default=0)
    text = f"A token stands t places before the question that asks for it; a guess is right in {show_share(chance)}. "
    text += describe_models(part)
    for kind in list_kinds(rows):
        placed = take(rows, kind=kind, has_position=True) or take(rows, kind=kind)
        text += _read_kind(name_kind(kind), placed, part["reach"].get(kind), chance, far)
    return (text + read_edges(part) + tell_skipped(part)).strip()


def describe_models(part: Part) -> str:
    """What was trained; nothing where the numbers do not say."""
    used = part.get("settings") or {}
    if not {"width", "steps"} <= used.keys() or not {"depth", "length"} <= part.keys():
        return ""
    layers = f"{part['depth']} layer{'s' if part['depth'] != 1 else ''}"
    text = f"Models of {layers} of width {used['width']} read {part['length']} tokens and learn for at most"
    return f"{text} {used['steps']} steps, one model for all distances. "


def find_middle(chance: float) -> float:
    """Half way from guessing to knowing: what is above it counts as learned.

    >>> find_middle(0.5)
    0.75
    """
    return (1 + chance) / 2


def read_edges(part: Part) -> str:
    """Whether the last distance that a model reaches is where it stops to know."""
    edges = [edge for edge in part.get("edges", []) if None not in (edge["within"], edge["beyond"])]
    if not edges:
        return ""
    chance = part["chance"]
    sharp = [edge for edge in edges if edge["within"] > find_middle(chance) and edge["beyond"] <= chance + 0.05]
    text = f"Of {len(edges)} models that do not reach all, {len(sharp)} are right at the last distance they reach"
    text += " and guess one place beyond it"
    other = [edge for edge in edges if edge not in sharp]
    if other:
        first = other[0]
        text += f"; {name_edge(first)}, does not ({show_share(first['within'])}, then {show_share(first['beyond'])})"
    return text + ". "


def _read_kind(name: str, rows: Sequence[Part], reach: int | None, chance: float, far: int) -> str:
    share = average(take(rows, distance=far))
    if share is None:
        return ""
    if reach is not None and reach < far:
        inside = average(row for row in rows if row["distance"] <= reach)
        beyond = [row for row in rows if row["distance"] > reach]
        outside = average(beyond)
        if outside is None:
            return ""
        count = sum(row["count"] for row in beyond)
        at = "at chance" if abs(outside - chance) <= bound_error(chance, count) else "not at chance"
        within = "" if inside is None else f"{show_share(inside)} within it and "
        return f"{name[0].upper()}{name[1:]} reaches {reach}: {within}{show_share(outside)} beyond it, {at}. "
    near = min(row["distance"] for row in rows)
    first = average(take(rows, distance=near))
    text = f"{name[0].upper()}{name[1:]} recalls {show_share(share)} at distance {far}"
    if first is None or near == far:
        return text + ". "
    count = sum(row["count"] for row in take(rows, distance=far))
    fades = first - share > bound_error(0.5, count)
    return text + (
        f", down from {show_share(first)} at {near}. " if fades else f", as at {near} ({show_share(first)}). "
    )


# of what is learned with positions and without; None was not measured
SAID = {
    (True, True): "With or without positions, it is learned by {}.",
    (True, False): "Only with positions by {}.",
    (False, True): "Only without positions by {}.",
    (True, None): "With positions it is learned by {}; without was not measured.",
    (None, True): "Without positions it is learned by {}; with was not measured.",
    (False, None): "With positions it is not learned by {}; without was not measured.",
    (None, False): "Without positions it is not learned by {}; with was not measured.",
    (False, False): "Not learned here by {}.",
    (None, None): "Nothing that it reaches was asked of {}.",
}


def read_order(part: Part, settings: Part) -> str:
    chance = part["chance"]
    found: dict[tuple[bool | None, ...], list[str]] = {}
    for kind in list_kinds(part["rows"]):
        placed, bare = (average(take_reached(part, kind=kind, has_position=has)) for has in (True, False))
        knows = tuple(None if share is None else share > find_middle(chance) for share in (placed, bare))
        both = ((placed, "with"), (bare, "without"))
        shares = ", ".join(f"{show_share(share)} {how}" for share, how in both if share is not None)
        found.setdefault(knows, []).append(name_kind(kind) + (f" ({shares})" if shares else ""))
    text = f"“a b c” against “c b a”, the same tokens in another order; a guess is right in {show_share(chance)}. "
    text += describe_models(part)
    text += (
        f"Shares are over the distances that a layer reaches; above {show_share(find_middle(chance))} it is learned. "
    )
    text += "".join(f"{said.format(show_list(found[knows]))} " for knows, said in SAID.items() if knows in found)
    return (text + read_edges(part) + tell_skipped(part)).strip()


def read_digits(part: Part, settings: Part) -> str:
    rows = part["rows"]
    sizes = sorted({row["images"] for row in rows})
    text = "Digits of 8 × 8 pixels (scikit-learn's), read in patches, and how many of them there are to learn from. "
    if part.get("parameters"):
        sizes_of = [f"{count:,} for {name_kind(kind)}" for kind, count in part["parameters"].items()]
        text += "Convolution is of 3 × 3 patches. All have the same depth and recipe; parameters are"
        text += f" {show_list(sizes_of)}. "
    gaps = []
    for images in sizes[:1] + sizes[1:][-1:]:
        at = take(rows, images=images)
        shares = {kind: share for kind in list_kinds(at) if (share := average(take(at, kind=kind))) is not None}
        ranked = sorted(shares, key=lambda kind: -shares[kind])
        if len(ranked) < 2:
            continue
        one, other = ranked[0], ranked[-1]
        gap, noise = shares[one] - shares[other], _find_noise([row for row in at if row["kind"] in (one, other)])
        gaps.append((one, gap))
        text += f"From {images:,} images {name_kind(one)} gets {show_share(shares[one])}, {name_kind(other)}"
        text += f" {show_share(shares[other])}: {100 * gap:.1f} points apart, "
        text += f"{'more than' if gap > noise else 'within'} what seeds and counting may do ({100 * noise:.1f}). "
    if len(gaps) == 2 and gaps[0][0] == gaps[1][0]:
        way = "less" if gaps[1][1] < gaps[0][1] else "more"
        text += f"With more images, {name_kind(gaps[0][0])} is {way} ahead. "
    elif len(gaps) == 2:
        text += f"With more images, {name_kind(gaps[1][0])} overtakes. "
    return (text + tell_skipped(part)).strip()


def _find_noise(rows: Sequence[Part]) -> float:
    """How far apart equals may be: twice the error of counting, or the widest spread over seeds if that is more."""
    counted: float = max(2**0.5 * bound_error(row["accuracy"], row["count"], times=2) for row in rows)
    shares: list[list[float]] = [[row["accuracy"] for row in take(rows, kind=kind)] for kind in list_kinds(rows)]
    return max(counted, *(max(found) - min(found) for found in shares))
