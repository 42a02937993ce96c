"""What the kinds learn of puzzles, by distance: recall, and order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from regard.compare.kinds import ATTENTION, KINDS, Dimensions, Kind, count_parameters, match_width
from regard.compare.measure.budget import WHY, Budget
from regard.compare.measure.learning import Recipe, measure_accuracy, portion, seeded, train
from regard.compare.measure.paths import find_reach
from regard.compare.measure.puzzles import Puzzle, make_order, make_recall
from regard.compare.measure.reader import Reader
from regard.compare.settings import Advance, Settings


@dataclass(frozen=True)
class Course:
    """How a puzzle is learned and asked: `contexts` at each distance, each with every answer."""

    puzzle: Puzzle
    length: int
    distances: tuple[int, ...]
    contexts: int
    recipe: Recipe
    width: int = 32
    depth: int = 2


# by whether it is to be quick
RECALLS = {
    False: Course(make_recall(16), 112, (1, 2, 4, 8, 16, 32, 48, 64, 80, 100), 25, Recipe(800, rate=4e-3)),
    True: Course(make_recall(8), 104, (1, 2, 4, 16, 32, 64, 100), 16, Recipe(110, rate=1e-2), depth=1),
}
ORDERS = {
    False: Course(make_order(16), 40, (1, 2, 4, 8, 16, 24, 32, 36), 64, Recipe(600)),
    True: Course(make_order(16), 12, (1, 2, 4, 8), 64, Recipe(120, rate=1e-2), depth=1),
}


def measure_recall(settings: Settings, advance: Advance, kinds: Mapping[str, Kind] = KINDS) -> dict[str, Any]:
    """Which symbol was marked, by how far it is from the question."""
    return measure_course(RECALLS[settings.is_quick], settings, advance, kinds)


def measure_order(settings: Settings, advance: Advance, kinds: Mapping[str, Kind] = KINDS) -> dict[str, Any]:
    """Whether it was a b c or c b a, by how far it is from the question."""
    return measure_course(ORDERS[settings.is_quick], settings, advance, kinds)


def measure_course(
    course: Course, settings: Settings, advance: Advance, kinds: Mapping[str, Kind] = KINDS
) -> dict[str, Any]:
    """One model for each kind, with positions and without, learns all distances and is asked by distance.

    `reach` is how far the question sees, None where it sees all and 0 where it sees nothing but itself. `edges` says
    of those between, and of every kernel, how right they are at the end of their reach and one token beyond; `rows` are
    of the kernel of `settings.dims` alone. A model that `settings.seconds` has no time for is in `skipped`: a shorter
    training would say less of its kind than of the machine.
    """
    puzzle = course.puzzle
    farthest = puzzle.find_farthest(course.length)
    runs = [
        (kind, dims, has_position)
        for kind in kinds.values()
        for dims in list_dims(kind, course.width, settings)
        for has_position in (False, True)
    ]
    rows, edges, training, skipped = (list[dict[str, Any]]() for _ in range(4))
    reaches: dict[str, int | None] = {}
    budget = Budget(settings.seconds)
    # where time is short: with positions before without, and first what all others are compared with
    runs.sort(key=lambda run: (not run[2], run[0].name != ATTENTION.name))
    for at, (kind, dims, has_position) in enumerate(runs):
        named = {"kind": kind.name, "has_position": has_position}
        kernel = dims.kernel if "k" in kind.powers else None
        if not budget.allows():
            skipped.append({**named, "k": kernel, "why": WHY})
            continue
        # a layer may draw numbers, and sum by threads, where it is asked as well
        with seeded(settings.seed, settings.device) as generator:
            tell = portion(advance, at, len(runs))
            model, told = learn(course, kind, dims, has_position, settings.device, generator, tell)
            training.append({**named, "k": kernel, **told})
            seen = find_reach(model.read, course.length, dims.width, dtype=torch.float32, device=settings.device) or 0
            reach = seen if seen < farthest else None
            if reach:
                within, beyond = (ask(model, course, t, settings.seed)["accuracy"] for t in (reach, reach + 1))
                edges.append({**named, "k": kernel, "reach": reach, "within": within, "beyond": beyond})
            if kernel in (None, settings.dims.kernel):
                reaches[kind.name] = reach
                rows += [{**named, **ask(model, course, t, settings.seed)} for t in course.distances]
    order = [kind.name for kind in kinds.values()]
    for found in (rows, edges, training, skipped):
        found.sort(key=lambda row: (order.index(row["kind"]), row.get("k") or 0, row["has_position"]))
    used = {**asdict(course.recipe), "width": course.width, "contexts": course.contexts, "noise": puzzle.noise}
    return {
        "chance": 1 / puzzle.num_answers, "length": course.length, "depth": course.depth, "settings": used,
        "reach": {name: reaches[name] for name in order if name in reaches},
        "rows": rows, "edges": edges, "training": training, "skipped": skipped,
    }  # fmt: skip


def learn(
    course: Course,
    kind: Kind,
    dims: Dimensions,
    has_position: bool,
    device: str,
    generator: torch.Generator,
    advance: Advance,
) -> tuple[Reader, dict[str, Any]]:
    """A reader that has learned the puzzle as far as it could, and what `train` says of it."""
    puzzle = course.puzzle
    model = Reader(kind, dims, course.depth, puzzle.num_tokens, puzzle.num_answers, has_position).to(device)
    batch = course.recipe.batch
    told = train(model, lambda: puzzle.draw(batch, course.length, generator), course.recipe, advance)
    return model.eval(), told


def ask(model: Reader, course: Course, distance: int, seed: int) -> dict[str, Any]:
    """How right a model is at a distance; the questions are the same for all models."""
    # none that it was trained on: these are drawn by the seed itself. Torch keeps 32 bits of the product, in which
    # seeds below 2**32 still differ, as the factor is odd
    generator = torch.Generator().manual_seed((seed + 1) * 1_000_003 + distance)
    tokens, answers = course.puzzle.ask(course.contexts, course.length, distance, generator)
    share = measure_accuracy(model, tokens, answers)
    return {"distance": distance, "accuracy": share, "count": len(answers), "seed": seed}


def list_dims(kind: Kind, width: int, settings: Settings) -> list[Dimensions]:
    """The sizes that a kind learns with: once for every kernel, if it has one.

    >>> [dims.kernel for dims in list_dims(KINDS["conv"], 32, Settings())]
    [3, 5, 7]

    In a hurry there is one kernel. The width is the given one, or the next that heads share evenly; or that of as many
    parameters as attention has.
    """
    dims = replace(settings.dims, width=-(-width // settings.dims.heads) * settings.dims.heads)
    has_more = "k" in kind.powers and not settings.is_quick
    kernels = {dims.kernel, *settings.kernels} if has_more else {dims.kernel}
    made = [replace(dims, kernel=kernel) for kernel in sorted(kernels)]
    if settings.has_equal_parameters:
        wanted = count_parameters(ATTENTION, dims)
        return [match_width(kind, one, wanted) for one in made]
    return made
