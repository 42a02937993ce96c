"""How many images attention needs, and how many convolution: handwritten digits of 8×8 pixels, told apart by both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from regard.compare.kinds import ATTENTION, CONV, KINDS, Kind, count_weights
from regard.compare.meters.learning import Batch, Reader, Recipe, Row, Rows, measure_accuracy, run_trials, train
from regard.compare.part import Listing, Part
from regard.compare.report.cells import average, bound_error, name_kind, show_list, show_share, tell_skipped
from regard.compare.report.figures import Sheet, average_by, look_up
from regard.compare.rows import Numbers, group, take
from regard.compare.settings import Advance, Dimensions, Settings
from regard.core import RegardError
from regard.layers import LearnedPositionalEncoding

PATCH, GRID, CLASSES = 2, 4, 10
# the rest of the 1,797 images is for the test
MOST = 1500


@dataclass(frozen=True)
class Course:
    """How digits are learned: from how many images, how often with other images and weights, and by what."""

    images: tuple[int, ...]
    seeds: int
    recipe: Recipe
    width: int = 32
    depth: int = 2


# by whether it is to be quick
COURSES = {
    False: Course((50, 100, 200, 400, 800, MOST), 3, Recipe(600, rate=8e-3)),
    True: Course((50, 200, MOST), 1, Recipe(180, rate=8e-3)),
}


class PlaneConvolution(nn.Module):
    """A convolution of 3×3 over tokens that lie in a square, row by row."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1, bias=False)

    def forward(self, rows: Rows) -> Rows:
        out: Tensor = self.conv(rows.mT.unflatten(-1, (GRID, GRID))).flatten(2).mT
        return out


def make_viewer(kind: Kind, dims: Dimensions, depth: int) -> Reader:
    """Tells digits apart by blocks of one kind over 16 patches of 2×2 pixels with learned positions, and their mean."""
    width = dims.width
    embedding, position = nn.Linear(PATCH**2, width), LearnedPositionalEncoding(width, max_len=GRID**2)
    mixers = (PlaneConvolution(width) if kind.name == CONV.name else kind.build(dims) for _ in range(depth))
    return Reader(embedding, position, mixers, width, CLASSES, by_mean=True)


def load_images() -> tuple[Float[Tensor, "images 16 4"], Int[Tensor, " images"]]:
    """The digits that come with scikit-learn, as patches in units of their deviation, and what they are."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise RegardError("digits come with scikit-learn: pip install scikit-learn, or leave the part out.") from None
    found = load_digits()
    images = torch.tensor(found.images, dtype=torch.float32)
    images = (images - images.mean()) / images.std()
    patches = functional.pixel_unshuffle(images[:, None], PATCH).flatten(2).mT.contiguous()
    return patches, torch.tensor(found.target)


def order_images(labels: Int[Tensor, " images"], generator: torch.Generator) -> Int[Tensor, " images"]:
    """An order drawn at random, in which every beginning has its share of every class."""
    drawn = torch.randperm(len(labels), generator=generator)
    # the members of each class evenly from 0 to 1
    classes = functional.one_hot(labels[drawn]).double()
    place = ((classes.cumsum(0) - 0.5) / classes.sum(0))[classes.bool()]
    # what comes in the same place comes in the order it was drawn in
    return drawn[place.argsort(stable=True)]


def match_viewer(kind: Kind, dims: Dimensions, depth: int) -> Dimensions:
    """The width of the model with about as many parameters as attention has, no wider than twice `dims.width`."""
    wanted = count_viewer(ATTENTION, dims, depth)
    widths = range(dims.heads, 2 * dims.width + 1, 1 if kind.name == CONV.name else dims.heads)
    sizes = [replace(dims, width=width) for width in widths]
    return min(sizes, key=lambda size: abs(count_viewer(kind, size, depth) - wanted))


def count_viewer(kind: Kind, dims: Dimensions, depth: int) -> int:
    """How many numbers a model learns."""
    return count_weights(lambda: make_viewer(kind, dims, depth))


def measure_digits(settings: Settings, advance: Advance, kinds: Mapping[str, Kind] = KINDS) -> dict[str, Any]:
    """How many digits each tells right that it has not learned from, by how many it has.

    Of the images that a seed draws the fewer are always among the more; the test is the same however many there are.
    """
    course = COURSES[settings.is_quick]
    images, labels = load_images()
    dims = settings.dims.widen(course.width)
    compared = {name: kind for name, kind in kinds.items() if name in (CONV.name, ATTENTION.name)}
    sizes = {name: match_viewer(kind, dims, course.depth) for name, kind in compared.items()}

    def learn(trial: Row, generator: torch.Generator, advance: Advance) -> dict[str, list[Row]]:
        name, order = trial["kind"], order_images(labels, generator)
        own, test = order[: trial["images"]], order[MOST:]

        def draw() -> Batch:
            some = own[torch.randint(len(own), (course.recipe.batch,), generator=generator)]
            return images[some], labels[some]

        model = make_viewer(kinds[name], sizes[name], course.depth).to(settings.device)
        told = train(model, draw, course.recipe, advance)
        asked = {"accuracy": measure_accuracy(model, images[test], labels[test]), "count": len(test)}
        return {"training": [{**trial, **told}], "rows": [{**trial, **asked}]}

    seeds = range(settings.seed, settings.seed + course.seeds)
    # all kinds of one size, or none of them: what is there can be compared
    trials = [{"kind": name, "images": n, "seed": seed} for seed in seeds for n in course.images for name in sizes]
    found = run_trials(trials, learn, settings, advance, sizes, together=len(sizes))
    return {
        **{name: found[name] for name in ("rows", "training", "skipped")},
        "parameters": {name: count_viewer(kinds[name], size, course.depth) for name, size in sizes.items()},
        "widths": {name: size.width for name, size in sizes.items()},
        "depth": course.depth,
        "settings": {**asdict(course.recipe), "patch": PATCH},
    }


# --- what is told of it -----------------------------------------------------------------------------------------------


def list_digits(part: Numbers, settings: Numbers) -> Iterator[Listing]:
    """What each tells right, by how many images it has learned from."""
    sizes, seeds = sorted(group(part["rows"], "images")), len(group(part["rows"], "seed"))
    rows = tuple(
        (name_kind(kind), *(show_share(average(take(own, images=size))) for size in sizes))
        for kind, own in group(part["rows"], "kind").items()
    )
    note = f"Right on images that were not learned from; mean over {seeds} seed{'s' if seeds != 1 else ''}."
    columns, title = (
        ("layer", *(f"{size:,} images" for size in sizes)),
        "Digits by how many images there are to learn from",
    )
    yield Listing(title, columns, rows, " ".join([note, *tell_skipped(part)]))


def read_digits(part: Numbers, settings: Numbers) -> Iterator[str]:
    """Who is ahead with few images and with many, and whether that is more than chance."""
    yield "Digits of 8 × 8 pixels (scikit-learn's), read in patches, and how many of them there are to learn from."
    yield "Convolution is of 3 × 3 patches. All have the same depth and recipe; parameters are"
    yield f"{show_list(f'{count:,} for {name_kind(kind)}' for kind, count in part['parameters'].items())}."
    ahead = []
    sizes = group(part["rows"], "images")
    for images in sorted({min(sizes, default=0), max(sizes, default=0)} & sizes.keys()):
        kinds = group(sizes[images], "kind")
        shares = {kind: average(own) for kind, own in kinds.items()}
        ranked = sorted(shares, key=lambda kind: -shares[kind])
        if len(ranked) < 2:
            continue
        one, other = ranked[0], ranked[-1]
        gap, noise = shares[one] - shares[other], _find_noise(list(kinds.values()))
        ahead.append((one, gap))
        yield f"From {images:,} images {name_kind(one)} gets {show_share(shares[one])}, {name_kind(other)}"
        yield f"{show_share(shares[other])}: {100 * gap:.1f} points apart,"
        yield f"{'more than' if gap > noise else 'within'} what seeds and counting may do ({100 * noise:.1f})."
    if len(ahead) == 2:
        (first, few), (last, many) = ahead
        way = f"is {'less' if many < few else 'more'} ahead" if first == last else "overtakes"
        yield f"With more images, {name_kind(last)} {way}."
    yield from tell_skipped(part)


def _find_noise(kinds: Iterable[Sequence[Numbers]]) -> float:
    """How far apart equals may be: twice the error of counting, or the widest spread over seeds if that is more."""
    counted = (2**0.5 * bound_error(row["accuracy"], row["count"], times=2) for rows in kinds for row in rows)
    shares = ([float(row["accuracy"]) for row in rows] for rows in kinds)
    return max(*counted, *(max(found) - min(found) for found in shares))


def draw_digits(sheet: Sheet, part: Numbers, settings: Numbers) -> None:
    """Share of digits told right against the number of images to learn from: mean over seeds, shaded from the worst to
    the best where there are several.
    """
    axes = sheet.begin(7.2, 3.9)[0, 0]
    for kind, own in group(part["rows"], "kind").items():
        x, y = average_by(own, "images")
        sheet.plot(axes, kind, x, y)
        found = [[100 * row["accuracy"] for row in take(own, images=images)] for images in x]
        axes.fill_between(x, [*map(min, found)], [*map(max, found)], color=look_up(kind)[0], alpha=0.2, linewidth=0)
    axes.set_ylim(-2, 104)
    sheet.name(axes, "digits that were not learned from", "images to learn from", "right, %")
    sheet.scale(axes, [row["images"] for row in part["rows"]])
    sheet.explain()


DIGITS = Part(
    "digits", title="How many images it takes", nature="learned", share=12, quick_share=12,
    measure=measure_digits,
    lists={"rows": "kind images# accuracy# count# seed"},
    tables=list_digits,
    read=read_digits,
    pictures=(draw_digits,),
)  # fmt: skip
