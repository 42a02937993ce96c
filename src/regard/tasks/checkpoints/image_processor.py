"""Image preprocessing as preprocessor_config.json has it: resize, centre crop, rescale, normalise."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from regard.core import RegardError
from regard.models.files import name_fault, tell
from regard.tasks.checkpoints.configs import ANY, read_object

# more pixels than this are a bomb, or a scan to be cut first
MOST_PIXELS = 2**27
MOST_SIDE = 2**13
# a class, a distillation, registers
MOST_LEADING = 64
RULES = "preprocessor_config.json"
# how pixels are mixed where nothing is said, by PIL's number
BILINEAR = 2


def read_picture(path: str | os.PathLike[str]) -> Any:
    """Read an image file as RGB, turned upright by its EXIF orientation."""
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise RegardError("Pictures need the package pillow: pip install pillow.") from None
    file = pathlib.Path(path)
    if not file.is_file():
        raise name_fault(file, "is not a picture on this machine", "check the name")
    try:
        with Image.open(file) as opened:
            if opened.width * opened.height > MOST_PIXELS:
                raise name_fault(file, f"has more than {MOST_PIXELS:,} pixels", "make it smaller")
            return ImageOps.exif_transpose(opened).convert("RGB")
    except RegardError:
        raise
    # a picture of others, read by others: whatever is wrong with it
    except Exception as error:
        raise name_fault(file, "is not a picture", "save it as PNG or JPEG", tell(error)) from None


def fit_picture(picture: Any, rules: Mapping[str, Any], size: tuple[int, int]) -> tuple[Any, Tensor]:
    """Preprocess an image: as the model sees it, and its pixel values (1, 3, height, width).

    >>> from PIL import Image
    >>> seen, numbers = fit_picture(Image.new("RGB", (60, 40), "white"), {"image_std": 0.5}, (32, 32))
    >>> seen.size, numbers.shape, numbers.max()
    ((32, 32), torch.Size([1, 3, 32, 32]), tensor(1.))

    `rules` are those of preprocessor_config.json; `size` (height, width) stands in for one they do not have.
    """
    if rules.get("do_resize", True):
        width, height = _measure(picture, rules.get("size"), size)
        picture = picture.resize((width, height), rules.get("resample", BILINEAR))
    if rules.get("do_center_crop", False):
        height, width = _read_size(rules.get("crop_size"), size)
        left, top = (picture.width - width) // 2, (picture.height - height) // 2
        picture = picture.crop((left, top, left + width, top + height))
    numbers = torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8)
    numbers = numbers.reshape(picture.height, picture.width, 3).permute(2, 0, 1).float()
    if rules.get("do_rescale", True):
        numbers = numbers * float(rules.get("rescale_factor") or 1 / 255)
    if rules.get("do_normalize", True):
        mean, std = (_spread(rules.get(name)) for name in ("image_mean", "image_std"))
        numbers = (numbers - mean) / std
    return picture, numbers[None]


def read_rules(folder: pathlib.Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The settings of preprocessor_config.json, and a note where there is none."""
    file = folder / RULES
    if not file.exists():
        return {}, (f"The folder has no {RULES}: the picture is made to fit and scaled to -1 … 1.",)
    rules = {name: value for name, value in read_object(file).items() if value is not None}
    for name in ("image_mean", "image_std"):
        value = rules.get(name, 0.5)
        numbers = value if isinstance(value, list) else [value] * 3
        if len(numbers) != 3 or not all(type(x) in (int, float) for x in numbers):
            raise name_fault(file, f"needs three numbers as {name}", "correct it")
        if name == "image_std" and not all(numbers):
            raise name_fault(file, "has an image_std of zero", "correct it")
    for name in ("size", "crop_size"):
        value = rules.get(name)
        sizes = list(value.values()) if isinstance(value, dict) else [] if value is None else [value]
        if not all(type(x) is int and 0 < x <= MOST_SIDE for x in sizes):
            raise name_fault(file, f"needs a {name} of 1 to {MOST_SIDE} pixels", "correct it")
    mixing, factor = rules.get("resample", BILINEAR), rules.get("rescale_factor", 1.0)
    if type(mixing) is not int or not 0 <= mixing <= 5:
        raise name_fault(file, "needs a resample from 0 to 5", "correct it")
    if type(factor) not in (int, float):
        raise name_fault(file, "needs a number as rescale_factor", "correct it")
    return rules, ()


def list_patches(
    folder: pathlib.Path, config: Any, picture: Any, seen: Mapping[str, Any]
) -> tuple[tuple[int, int], int]:
    """The grid of patches as (rows, columns), and how many tokens, such as [CLS], stand before them."""
    patch = getattr(config, "patch_size", None)
    height, width = patch if isinstance(patch, list | tuple) else (patch, patch)
    counts = {look.received.shape[-1] for look in seen.values()}
    if type(height) is int and type(width) is int and len(counts) == 1:
        grid = picture.height // height, picture.width // width
        skip = counts.pop() - grid[0] * grid[1]
        if 0 <= skip <= MOST_LEADING:
            return grid, skip
    raise name_fault(folder, "does not attend patch by patch over the whole picture", ANY)


def _measure(picture: Any, given: Any, size: tuple[int, int]) -> tuple[int, int]:
    """Width and height to resize to."""
    if isinstance(given, Mapping) and "shortest_edge" in given:
        edge = given["shortest_edge"]
        scale = edge / min(picture.width, picture.height)
        return max(edge, int(picture.width * scale)), max(edge, int(picture.height * scale))
    height, width = _read_size(given, size)
    return width, height


def _read_size(given: Any, size: tuple[int, int]) -> tuple[int, int]:
    if isinstance(given, Mapping):
        return given.get("height", size[0]), given.get("width", size[1])
    return size if given is None else (given, given)


def _spread(given: Any) -> Tensor:
    numbers = given if isinstance(given, list) else [0.5 if given is None else given] * 3
    return torch.tensor(numbers, dtype=torch.float32)[:, None, None]
