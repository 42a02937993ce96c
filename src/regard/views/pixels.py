"""Images, in the forms that a caller may give them, for every view."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from regard.core import RegardError

# kinds of PIL images whose array is not their colours, and what they are read as
KINDS = {"P": "RGBA", "PA": "RGBA", "LA": "RGBA", "CMYK": "RGB", "YCbCr": "RGB", "HSV": "RGB", "LAB": "RGB"}


def read_pixels(image: Any, name: str = "image") -> npt.NDArray[np.float64]:
    """The pixels of an image as fractions (height, width, channels), of 1, 3 or 4 channels.

    >>> read_pixels(np.full((3, 4, 6), 255, np.uint8)).shape, read_pixels([[0.5]]).tolist()
    ((4, 6, 3), [[[0.5]]])
    """
    try:
        if getattr(image, "mode", None) in KINDS:
            image = image.convert(KINDS[image.mode])
        pixels = np.asarray(image)
        if isinstance(image, Tensor):
            pixels = (image.detach().cpu() if not image.is_floating_point() else image.detach().cpu().double()).numpy()
        is_whole = pixels.dtype.kind in "iu"
        pixels = pixels.astype(np.float64)
    except (TypeError, ValueError, RuntimeError):
        raise RegardError(f"{name} must be an array of pixels or a PIL image.") from None
    if pixels.ndim == 2:
        pixels = pixels[..., None]
    if pixels.ndim == 3 and pixels.shape[-1] not in (1, 3, 4) and pixels.shape[0] in (1, 3, 4):
        pixels = np.moveaxis(pixels, 0, -1)
    if pixels.ndim != 3 or pixels.shape[-1] not in (1, 3, 4) or not pixels.size:
        raise RegardError(f"{name} must be (height, width), or that with 3 or 4 colours, got {pixels.shape}.")
    pixels = pixels / 255 if is_whole else pixels
    # rounding may leave a fraction a little outside
    if not np.isfinite(pixels).all() or pixels.min() < -1e-6 or pixels.max() > 1 + 1e-6:
        raise RegardError(
            f"{name} must be fractions from 0 to 1 or whole numbers from 0 to 255: undo its normalisation."
        )
    return pixels.clip(0, 1)
