"""What the numbers of the parts that learn say, a paragraph each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from regard.compare.cells import average, err, list_kinds, name_kind, show_list, show_share, take

Part = Mapping[str, Any]


def read_recall(part: Part, settings: Part) -> str:
    rows, chance = part["rows"], part["chance"]
    far = max((row["distance"] for row in rows), default=0)
    text = f"A token stands t places before the question that asks for it; a guess is right in {show_share(chance)}. "
    for kind in list_kinds(rows):
        placed = take(rows, kind=kind, has_position=True) or take(rows, kind=kind)
        text += _read_kind(name_kind(kind), placed, part["reach"].get(kind), chance, far)
    return text.strip()


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
        at = "at chance" if abs(outside - chance) <= err(chance, count) else "not at chance"
        within = "" if inside is None else f"{show_share(inside)} within it and "
        return f"{name[0].upper()}{name[1:]} reaches {reach}: {within}{show_share(outside)} beyond it, {at}. "
    near = min(row["distance"] for row in rows)
    first = average(take(rows, distance=near))
    text = f"{name[0].upper()}{name[1:]} recalls {show_share(share)} at distance {far}"
    if first is None or near == far:
        return text + ". "
    count = sum(row["count"] for row in take(rows, distance=far))
    fades = first - share > err(0.5, count)
    return text + (
        f", down from {show_share(first)} at {near}. " if fades else f", as at {near} ({show_share(first)}). "
    )


def read_order(part: Part, settings: Part) -> str:
    chance = part["chance"]
    told: list[str] = []
    lost: list[str] = []
    cannot: list[str] = []
    for kind in list_kinds(part["rows"]):
        rows = take(part["rows"], kind=kind)
        count = sum(row["count"] for row in take(rows, has_position=False))
        placed, bare = (average(take(rows, has_position=has)) for has in (True, False))
        knows = [share is not None and share > chance + max(err(chance, count), 0.05) for share in (placed, bare)]
        shown = f"{name_kind(kind)} ({show_share(placed)} with, {show_share(bare)} without)"
        (told if all(knows) else lost if knows[0] else cannot).append(shown)
    text = f"“a b c” against “c b a”, the same tokens in another order; a guess is right in {show_share(chance)}. "
    if told:
        text += f"With or without positions, the order is seen by {show_list(told)}. "
    if lost:
        text += f"Only with positions by {show_list(lost)}: without them the tokens are a set. "
    if cannot:
        text += f"Not learned here by {show_list(cannot)}. "
    return text.strip()


def read_digits(part: Part, settings: Part) -> str:
    rows = part["rows"]
    sizes, kinds = sorted({row["images"] for row in rows}), list_kinds(rows)
    text = "Digits of 8 × 8 pixels, and how many of them there are to learn from. "
    for images in sizes[:1] + sizes[1:][-1:]:
        at = {kind: take(rows, kind=kind, images=images) for kind in kinds}
        shares = {kind: share for kind in kinds if (share := average(at[kind])) is not None}
        ranked = sorted(shares, key=lambda kind: -shares[kind])
        if len(ranked) < 2:
            continue
        one, other = ranked[0], ranked[-1]
        gap = shares[one] - shares[other]
        spread = max(max(r["accuracy"] for r in at[k]) - min(r["accuracy"] for r in at[k]) for k in (one, other))
        text += f"From {images:,} images {name_kind(one)} gets {show_share(shares[one])}, {name_kind(other)}"
        text += f" {show_share(shares[other])}: {100 * gap:.1f} points apart, "
        text += "more than" if gap > spread else "within"
        text += f" the spread over seeds ({100 * spread:.1f}). "
    return text.strip()
