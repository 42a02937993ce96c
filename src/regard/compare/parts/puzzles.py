"""Recall from far away, and order: what the kinds learn of puzzles, by distance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from math import isnan

import torch

from regard.compare.meters.learning import Recipe
from regard.compare.meters.puzzles import Course, Puzzle, measure_course
from regard.compare.part import Listing, Part
from regard.compare.report.cells import NOTHING, average, bound_error, name_kind, show_list, show_share, tell_skipped
from regard.compare.report.figures import Sheet, average_by, look_up
from regard.compare.rows import Numbers, group, take

# which of as many symbols was the marked one? The rest are noise of the same symbols
RECALL_16, RECALL_8 = (Puzzle(values, torch.arange(values)[:, None]) for values in (16, 8))
# was it a b c, which is answer 0, or c b a?
ORDER_16 = Puzzle(16, torch.tensor([[2, 1, 0], [0, 1, 2]]))
# by whether it is to be quick
RECALLS = {
    False: Course(RECALL_16, 112, (1, 2, 4, 8, 16, 32, 48, 64, 80, 100), 25, Recipe(800, rate=4e-3)),
    True: Course(RECALL_8, 104, (1, 2, 4, 16, 32, 64, 100), 16, Recipe(110, rate=1e-2), depth=1),
}
ORDERS = {
    False: Course(ORDER_16, 40, (1, 2, 4, 8, 16, 24, 32, 36), 64, Recipe(600)),
    True: Course(ORDER_16, 12, (1, 2, 4, 8), 64, Recipe(120, rate=1e-2), depth=1),
}
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


def list_distances(name: str, title: str, part: Numbers, settings: Numbers) -> Iterator[Listing]:
    """How right each is at each distance; and what does not reach all, at the last one it reaches and at the next."""
    distances, filled = sorted({row["distance"] for row in part["rows"]}), []
    for kind, own in group(part["rows"], "kind").items():
        for placed in (True, False):
            if here := take(own, has_position=placed):
                shares = (average(take(here, distance=distance)) for distance in distances)
                # halves go up, as one learns it at school
                numbers = (NOTHING if isnan(share) else str(int(100 * share + 0.5)) for share in shares)
                reach = part["reach"][kind]
                label = _name_model(kind, placed)
                filled.append((label, "all" if reach is None else f"{reach:,}", *numbers))
    note = f"Percent right at each distance; by guessing {100 * part['chance']:.3g}. Reach: from the boolean Jacobian."
    columns = ("layer", "reach", *map(str, distances))
    yield Listing(title, columns, tuple(filled), " ".join([note, *tell_skipped(part)]))
    edges = tuple(
        (_name_edge(edge), f"{edge['reach']:,}", show_share(edge["within"]), show_share(edge["beyond"]))
        for edge in part["edges"]
    )
    columns, note = ("layer", "reach", "at it", "one beyond"), f"By guessing {show_share(part['chance'])}."
    yield Listing(f"{name} at the edge", columns, edges, note)


def _name_model(kind: str, has_position: bool, k: int | None = None) -> str:
    return name_kind(kind) + ("" if k is None else f", k = {k}") + ("" if has_position else ", no position")


def _name_edge(edge: Numbers) -> str:
    return _name_model(edge["kind"], edge["has_position"], edge["k"])


def read_recall(part: Numbers, settings: Numbers) -> Iterator[str]:
    """How far each recalls, and whether it guesses beyond what it reaches."""
    chance = part["chance"]
    yield f"A token stands t places before the question that asks for it; a guess is right in {show_share(chance)}."
    yield _describe_models(part)
    far = max((row["distance"] for row in part["rows"]), default=0)
    for kind, own in group(part["rows"], "kind").items():
        rows = take(own, has_position=True) or own
        share, reach = average(take(rows, distance=far)), part["reach"][kind]
        if isnan(share):
            continue
        name = name_kind(kind)[0].upper() + name_kind(kind)[1:]
        if reach is not None and reach < far:
            beyond = [row for row in rows if row["distance"] > reach]
            outside, inside = average(beyond), average(row for row in rows if row["distance"] <= reach)
            is_chance = abs(outside - chance) <= bound_error(chance, sum(row["count"] for row in beyond))
            within = "" if isnan(inside) else f"{show_share(inside)} within it and "
            at = "at chance" if is_chance else "not at chance"
            yield f"{name} reaches {reach}: {within}{show_share(outside)} beyond it, {at}."
            continue
        near = min(row["distance"] for row in rows)
        first = average(take(rows, distance=near))
        fades = first - share > bound_error(0.5, sum(row["count"] for row in take(rows, distance=far)))
        before = f", down from {show_share(first)} at {near}" if fades else f", as at {near} ({show_share(first)})"
        yield f"{name} recalls {show_share(share)} at distance {far}{before if near < far else ''}."
    yield from _read_edges(part)


def _describe_models(part: Numbers) -> str:
    """What was trained."""
    layers, used = f"{part['depth']} layer{'s' if part['depth'] != 1 else ''}", part["settings"]
    read = f"Models of {layers} of width {used['width']} read {part['length']} tokens"
    return f"{read} and learn for at most {used['steps']} steps, one model for all distances."


def _read_edges(part: Numbers) -> Iterator[str]:
    """Whether the last distance that a model reaches is where it stops to know; and what was left out."""
    edges, chance = part["edges"], part["chance"]
    other = [edge for edge in edges if edge["within"] <= (1 + chance) / 2 or edge["beyond"] > chance + 0.05]
    first = ""
    for edge in other[:1]:
        first = f"; {_name_edge(edge)}, does not ({show_share(edge['within'])}, then {show_share(edge['beyond'])})"
    if edges:
        yield f"Of {len(edges)} models that do not reach all, {len(edges) - len(other)} are right at the last distance"
        yield f"they reach and guess one place beyond it{first}."
    yield from tell_skipped(part)


def _take_reached(part: Numbers, kind: str, has_position: bool) -> list[Numbers]:
    """The rows at distances that the kind reaches at all."""
    reach = part["reach"][kind]
    rows = take(part["rows"], kind=kind, has_position=has_position)
    return [row for row in rows if reach is None or row["distance"] <= reach]


def read_order(part: Numbers, settings: Numbers) -> Iterator[str]:
    """Who learns the order with positions, and who without."""
    chance, found = part["chance"], dict[tuple[bool | None, ...], list[str]]()
    # half way from guessing to knowing
    middle = (1 + chance) / 2
    for kind in group(part["rows"], "kind"):
        shares = {how: average(_take_reached(part, kind, how == "with")) for how in ("with", "without")}
        knows = tuple(None if isnan(share) else share > middle for share in shares.values())
        told = ", ".join(f"{show_share(share)} {how}" for how, share in shares.items() if not isnan(share))
        found.setdefault(knows, []).append(name_kind(kind) + (f" ({told})" if told else ""))
    yield f"“a b c” against “c b a”, the same tokens in another order; a guess is right in {show_share(chance)}."
    yield _describe_models(part)
    yield f"Shares are over the distances that a layer reaches; above {show_share(middle)} it is learned."
    yield from (said.format(show_list(found[knows])) for knows, said in SAID.items() if knows in found)
    yield from _read_edges(part)


def draw_recall(sheet: Sheet, part: Numbers, settings: Numbers) -> None:
    """Share of tokens recalled against their distance, for each layer: filled marks with positions, open marks without.
    The dotted line is chance; the dashed vertical one is the farthest distance that the model reaches.
    """
    kinds, theme = group(part["rows"], "kind"), sheet.theme
    across = min(max(len(kinds), 1), 3)
    panels = sheet.begin(3.6, 2.7, down=max(-(-len(kinds) // across), 1), across=across)
    distances = [row["distance"] for row in part["rows"]]
    for axes, (kind, own) in zip(panels.flat, kinds.items(), strict=False):
        for has_position in (False, True):
            here = take(own, has_position=has_position)
            how = {} if has_position else {"linestyle": (0, (1, 1.5)), "markersize": 8, "markerfacecolor": theme.paper}
            label = f"_{kind} {'with' if has_position else 'without'} positions"
            sheet.plot(axes, kind, *average_by(here, "distance"), label, markeredgecolor=look_up(kind)[0], **how)
        reach = part["reach"][kind]
        # what reaches nothing has no place on an axis of distances
        if reach and reach <= max(distances):
            axes.axvline(reach, color=theme.ink, linestyle=(0, (4, 3)), linewidth=1.2, label="_reach", zorder=1)
            sheet.note(axes, f"reach {reach}", (reach, 0.4), axes.get_xaxis_transform(), ha="right")
        place = (0, 100 * part["chance"])
        axes.axhline(place[1], color=theme.quiet, linestyle=(0, (1, 2)), linewidth=1.2, label="_chance", zorder=1)
        sheet.note(axes, "chance", place, axes.get_yaxis_transform())
        axes.set_ylim(-2, 104)
        sheet.name(axes, name_kind(kind), "distance", "recalled, %")
        sheet.scale(axes, distances)
    for axes in panels.flat[len(kinds) :]:
        axes.set_visible(False)


def draw_order(sheet: Sheet, part: Numbers, settings: Numbers) -> None:
    """Share of orders told right by each layer at the distances it reaches, with positions and without; the dotted line
    is chance.
    """
    kinds, theme = list(group(part["rows"], "kind")), sheet.theme
    axes = sheet.begin(7.2, 3.6)[0, 0]
    sheet.name(axes, "a b c or c b a: filled with positions, outlined without", "", "right, %")
    beside = {"textcoords": "offset points", "fontsize": 8}
    for number, kind in enumerate(kinds):
        colour = look_up(kind)[0]
        for side, has_position in ((-0.19, True), (0.19, False)):
            share = average(_take_reached(part, kind, has_position))
            if not isnan(share):
                place, fill = (number + side, 100 * share), colour if has_position else theme.paper
                axes.bar(*place, width=0.34, facecolor=fill, edgecolor=colour, linewidth=1.6)
                axes.annotate(f"{100 * share:.0f}", place, xytext=(0, 2), ha="center", color=theme.ink, **beside)
    axes.set_xticks(range(len(kinds)), [name_kind(kind).replace(" ", "\n", 1) for kind in kinds])
    axes.set_ylim(0, 112)
    axes.set_yticks(range(0, 101, 25))
    chance = 100 * part["chance"]
    axes.axhline(chance, color=theme.quiet, linestyle=(0, (1, 2)), linewidth=1.4, label="_chance")
    axes.annotate(
        "chance", (1, chance), xycoords=axes.get_yaxis_transform(), xytext=(2, 0), va="center", color=theme.quiet,
        annotation_clip=False, **beside,
    )  # fmt: skip
    if not kinds:
        sheet.leave_empty(axes)


RECALL = Part(
    "recall", title="Recall from far away", nature="learned", share=32, quick_share=45,
    measure=partial(measure_course, RECALLS),
    lists={"rows": "kind has_position distance# accuracy# count# seed"},
    facts={"chance": int | float, "reach": Mapping},
    tables=partial(list_distances, "Recall", "Recall by distance"),
    read=read_recall,
    pictures=(draw_recall,),
)  # fmt: skip
ORDER = replace(
    RECALL, name="order", title="Order", share=13, quick_share=8,
    measure=partial(measure_course, ORDERS),
    tables=partial(list_distances, "Order", "Order, a b c or c b a, by distance"),
    read=read_order,
    pictures=(draw_order,),
)  # fmt: skip
