"""How many images attention needs, and how many convolution: handwritten digits of 8×8 pixels, told apart by both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.compare.kinds import ATTENTION, CONV, KINDS, Dimensions, Kind
from regard.compare.measure.budget import WHY, Budget
from regard.compare.measure.learning import Recipe, measure_accuracy, portion, seeded, train
from regard.compare.measure.reader import Block, Rows
from regard.compare.settings import Advance, Settings
from regard.core import RegardError
from regard.layers import LearnedPositionalEncoding

SIDE, PATCH, CLASSES = 8, 2, 10
GRID = SIDE // PATCH
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
    """A convolution of 3×3 over tokens that lie in a square, row by row.

    >>> PlaneConvolution(width=8)(torch.ones(2, 16, 8)).shape
    torch.Size([2, 16, 8])
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1, bias=False)

    def forward(self, rows: Rows) -> Rows:
        out: Tensor = self.conv(rows.mT.unflatten(-1, (GRID, GRID))).flatten(2).mT
        return out


class Viewer(nn.Module):
    """Tells digits apart by blocks of one kind over 16 patches of 2×2 pixels, with learned positions, and their mean.

    >>> Viewer(ATTENTION, Dimensions(width=8), depth=1)(torch.ones(3, 8, 8)).shape
    torch.Size([3, 10])
    """

    def __init__(self, kind: Kind, dims: Dimensions, depth: int) -> None:
        super().__init__()
        width = dims.width
        self.embedding = nn.Linear(PATCH**2, width)
        self.position = LearnedPositionalEncoding(width, max_len=GRID**2)
        mixers = (PlaneConvolution(width) if kind.name == CONV.name else kind.build(dims) for _ in range(depth))
        self.blocks = nn.Sequential(*(Block(mixer, width) for mixer in mixers))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, images: Float[Tensor, "batch 8 8"]) -> Float[Tensor, "batch 10"]:
        patches = images.unflatten(2, (GRID, PATCH)).unflatten(1, (GRID, PATCH)).transpose(2, 3)
        rows = self.position(self.embedding(patches.reshape(len(images), GRID**2, PATCH**2)))
        classes: Tensor = self.head(self.blocks(rows).mean(1))
        return classes


def read_digits() -> tuple[Float[Tensor, "images 8 8"], Int[Tensor, " images"]]:
    """The digits that come with scikit-learn, in units of their deviation, and what they are."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise RegardError("digits come with scikit-learn: pip install scikit-learn, or leave the part out.") from None
    found = load_digits()
    images = torch.tensor(found.images, dtype=torch.float32)
    return (images - images.mean()) / images.std(), torch.tensor(found.target)


def order_images(labels: Int[Tensor, " images"], generator: torch.Generator) -> Int[Tensor, " images"]:
    """An order drawn at random, in which every beginning has its share of every class.

    >>> order = order_images(torch.tensor([0, 0, 0, 0, 1, 1]), torch.Generator().manual_seed(0))
    >>> sorted(torch.tensor([0, 0, 0, 0, 1, 1])[order[:3]].tolist())
    [0, 0, 1]
    """
    drawn = torch.randperm(len(labels), generator=generator)
    place = torch.empty(len(labels), dtype=torch.float64)
    for label in labels.unique():
        members = drawn[labels[drawn] == label]
        # its members evenly from 0 to 1
        place[members] = (torch.arange(len(members), dtype=torch.float64) + 0.5) / len(members)
    # what comes in the same place comes in the order it was drawn in
    return drawn[place[drawn].argsort(stable=True)]


def match_viewer(kind: Kind, dims: Dimensions, depth: int, wanted: int) -> Dimensions:
    """The width of the model with about `wanted` parameters, no wider than twice `dims.width`.

    >>> match_viewer(CONV, Dimensions(), 2, count_viewer(ATTENTION, Dimensions(width=32), 2)).width
    25
    """
    widths = range(dims.heads, 2 * dims.width + 1, 1 if kind.name == CONV.name else dims.heads)
    sizes = [replace(dims, width=width) for width in widths]
    return min(sizes, key=lambda size: abs(count_viewer(kind, size, depth) - wanted))


def count_viewer(kind: Kind, dims: Dimensions, depth: int) -> int:
    """How many numbers a model learns."""
    with torch.device("meta"):
        return sum(weight.numel() for weight in Viewer(kind, dims, depth).parameters())


def measure_digits(settings: Settings, advance: Advance, kinds: Mapping[str, Kind] = KINDS) -> dict[str, Any]:
    """How many digits each tells right that it has not learned from, by how many it has.

    Both have as many layers and about as many parameters, and learn by the same recipe. A seed draws the first weights
    and the images, of which the fewer are always among the more; the test is the same however many there are to learn.
    """
    course = COURSES[settings.is_quick]
    images, labels = read_digits()
    width = -(-course.width // settings.dims.heads) * settings.dims.heads
    dims = replace(settings.dims, width=width)
    wanted = count_viewer(ATTENTION, dims, course.depth)
    sizes = {
        name: match_viewer(kind, dims, course.depth, wanted)
        for name, kind in kinds.items()
        if name in (CONV.name, ATTENTION.name)
    }
    seeds = range(settings.seed, settings.seed + course.seeds)
    # all kinds of one size, or none of them: what is there can be compared
    runs = [(name, seed, count) for seed in seeds for count in course.images for name in sizes]
    rows, training, skipped = (list[dict[str, Any]]() for _ in range(3))
    budget, is_in_time = Budget(settings.seconds), True
    for at, (name, seed, count) in enumerate(runs):
        named = {"kind": name, "images": count, "seed": seed}
        is_in_time = budget.allows() if at % len(sizes) == 0 else is_in_time
        if not is_in_time:
            skipped.append({**named, "why": WHY})
            continue
        with seeded(seed, settings.device) as generator:
            order = order_images(labels, generator)
            model = Viewer(kinds[name], sizes[name], course.depth).to(settings.device)
            draw = partial(draw_batch, images, labels, order[:count], course.recipe.batch, generator)
            told = train(model, draw, course.recipe, portion(advance, at, len(runs)))
            test = order[MOST:]
            accuracy = measure_accuracy(model, images[test], labels[test])
        rows.append({**named, "accuracy": accuracy, "count": len(test)})
        training.append({**named, **told})
    names = list(sizes)
    for found in (rows, training, skipped):
        found.sort(key=lambda row: (names.index(row["kind"]), row["seed"], row["images"]))
    return {
        "rows": rows, "training": training, "skipped": skipped,
        "parameters": {name: count_viewer(kinds[name], size, course.depth) for name, size in sizes.items()},
        "widths": {name: size.width for name, size in sizes.items()},
        "depth": course.depth, "settings": {**asdict(course.recipe), "patch": PATCH},
    }  # fmt: skip


def draw_batch(
    images: Tensor, labels: Tensor, own: Tensor, count: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """A batch of those there are to learn from."""
    some = own[torch.randint(len(own), (count,), generator=generator)]
    return images[some], labels[some]
