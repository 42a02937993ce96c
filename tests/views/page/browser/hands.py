"""Reading a page as its user does: numbers, tokens, pixels, words."""

from __future__ import annotations

import re
import struct
import time
import zlib
from typing import Any

import numpy as np

# text of the document that a reader or a screen reader meets, without what the page's author gave
WORDS = """() => {
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (node.nodeType === Node.TEXT_NODE) {
      const parent = node.parentElement;
      if (parent.closest("script, style, noscript") || parent.closest("[hidden]")) continue;
      if (node.data.trim()) found.push(node.data.trim());
    } else {
      if (node.closest("[hidden]")) continue;
      for (const name of ["aria-label", "title", "placeholder", "alt"]) {
        if (node.getAttribute(name)) found.push(node.getAttribute(name).trim());
      }
    }
  }
  return found;
}"""


def wait_until(page: Any, condition: str, seconds: float = 8) -> None:
    """Until a JavaScript expression is true; playwright's own waiting needs `eval`, which the page's policy refuses."""
    end = time.monotonic() + seconds
    while not page.evaluate(condition):
        assert time.monotonic() < end, f"never came true: {condition}"
        page.wait_for_timeout(15)


def read_number(text: str) -> float:
    """The last number of a text, as the page prints numbers.

    >>> read_number("Entropy of the row: 1.2e−4 nats."), read_number("1,234")
    (0.00012, 1234.0)
    """
    plain = text.replace("\N{MINUS SIGN}", "-").replace(",", "")
    return float(re.findall(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?", plain)[-1])


def is_near(shown: float, true: float) -> bool:
    """Equal up to half precision and the digits that are printed: three, and two of what is below a thousandth."""
    return abs(shown - true) <= (0.006 if abs(true) >= 0.00099 else 0.056) * abs(true) + 2e-7


def assert_near(shown: float, true: float, what: str) -> None:
    assert is_near(shown, true), f"{what}: the page says {shown}, true is {true:.6g}"


def read_titles(page: Any, selector: str = "#view-text .token") -> dict[int, float]:
    """What the tokens' tool tips say: key → number."""
    pairs = page.eval_on_selector_all(selector, "all => all.map((one) => [Number(one.dataset.index), one.title])")
    return {key: read_number(title.split(":", 1)[1]) for key, title in pairs if ":" in title}


def read_table(page: Any, id: str) -> list[list[str]]:
    """The cells of a table's body."""
    script = "all => all.map((row) => [...row.children].map((cell) => cell.textContent))"
    return page.eval_on_selector_all(f"#{id} tbody tr", script)


# on a canvas made for reading: a canvas that is read in place is slower afterwards, and says so
PIXEL = """(canvas, [x, y]) => {
  const twin = document.createElement("canvas");
  const pen = twin.getContext("2d", {willReadFrequently: true});
  pen.drawImage(canvas, -Math.floor(x * canvas.width), -Math.floor(y * canvas.height));
  return [...pen.getImageData(0, 0, 1, 1).data];
}"""


def read_pixel(canvas: Any, x: float, y: float) -> tuple[int, ...]:
    """The colour of a canvas at a place, as shares of its width and height."""
    return tuple(canvas.evaluate(PIXEL, [x, y]))


def read_png(raw: bytes) -> np.ndarray:
    """The lines of a PNG file of bytes, each as its filter left it after the filter's number."""
    assert raw.startswith(b"\x89PNG\r\n\x1a\n")
    at, data = 8, b""
    while at < len(raw):
        size, kind = struct.unpack(">I4s", raw[at : at + 8])
        body = raw[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            width, height, depth, colour, *_ = struct.unpack(">IIBBBBB", body)
        data += body if kind == b"IDAT" else b""
        at += size + 12
    assert depth == 8
    lines = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, -1)
    assert lines.shape[1] == 1 + width * {2: 3, 6: 4}[colour]
    return lines


def find_cividis(x: float) -> np.ndarray:
    """The colour that matplotlib has for a share."""
    import matplotlib

    return np.array(matplotlib.colormaps["cividis"](x)[:3]) * 255


def read_state(page: Any) -> dict[str, str]:
    """What the address says, once it has been written."""
    page.wait_for_timeout(330)
    return dict(part.split("=", 1) for part in page.evaluate("location.hash").lstrip("#").split("&") if "=" in part)
