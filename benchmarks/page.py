"""The attention page in a real Chromium: its size, how long it takes to build, to open, and to show a row on hover."""

from __future__ import annotations

import argparse
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from benchmarks.report import describe_machine, table_lines, tell
from regard import mask
from regard.engine.look import Look, look
from regard.views.page import page
from tools.arguments import Parser, read_count
from tools.browser import Visit, find_chromium, open_browser

EXAMPLES = """examples:
  python -m benchmarks.page                    8,192 and 32,768 tokens; about ten minutes, most for the weights
  python -m benchmarks.page --tokens 1024      one small page, to see that all runs
The status is 1 where a page is larger or slower than it may be.
"""
LAYERS, HEADS, WIDTH = 12, 12, 64
# tokens up to which: megabytes and seconds to the first paint; seconds to the row under the pointer
GOALS = ((8192, 10.0, 1.0), (32768, 25.0, 2.0))
HOVER = 0.050
TEXT = "The animal did not cross the street because it was too tired and the street was far too wide"
# a pointer that moves over the picture: from the event to the frame that shows the row
MOVE = """async ({view, places}) => {
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  const told = () => document.querySelector(view === "map" ? "#map-readout" : "#text-summary").textContent;
  const times = [];
  for (const share of places) {
    let target, at;
    if (view === "map") {
      target = document.querySelector("#view-map .map-over");
      const box = target.getBoundingClientRect();
      at = {clientX: box.left + 200, clientY: box.top + 110 + share * 380};
    } else {
      const tokens = document.querySelectorAll("#view-text .token");
      target = tokens[Math.floor(share * tokens.length)];
      at = {};
    }
    const before = told();
    await frame();
    const start = performance.now();
    target.dispatchEvent(new PointerEvent(view === "map" ? "pointermove" : "pointerover", {bubbles: true, ...at}));
    while (told() === before && performance.now() - start < 3000) await frame();
    times.push(performance.now() - start);
  }
  return times;
}"""


@dataclass(frozen=True)
class Reading:
    """One page as measured; seconds and bytes."""

    tokens: int
    size: int
    build: float
    paint: Sequence[float]
    hover: dict[str, Sequence[float]]
    note: str

    @property
    def is_good(self) -> bool:
        _, megabytes, seconds = next((goal for goal in GOALS if self.tokens <= goal[0]), GOALS[-1])
        slowest = max(statistics.median(times) for times in self.hover.values())
        return self.size <= megabytes * 1e6 and statistics.median(self.paint) <= seconds and slowest <= HOVER

    def list_cells(self) -> list[str]:
        hover = [f"{statistics.median(times) * 1e3:.0f} ({max(times) * 1e3:.0f})" for times in self.hover.values()]
        paint = f"{statistics.median(self.paint):.2f} ({max(self.paint):.2f})"
        return [f"{self.tokens:,}", f"{self.size / 1e6:.2f}", f"{self.build:.1f}", paint, *hover]


HEAD = ("tokens", "MB", "build, s", "first paint, s", "hover → row on the map, ms", "in the text, ms")


def look_at(tokens: int, heads: int) -> dict[str, Look]:
    """A model of 144 heads: so many true looks, which the page shows in detail, the others drawn and of no interest."""
    draw = torch.Generator().manual_seed(0)
    query, key = (torch.randn(1, heads, tokens, WIDTH, generator=draw) for _ in range(2))
    parts = []
    for h in range(heads):
        tell(f"{tokens:,} tokens:", f"look {h + 1} of {heads}")
        # sharp, so that these are the ones of interest
        parts.append(look(3 * query[:, h : h + 1], key[:, h : h + 1], mask=mask.Causal(), keep=True))
    names = [name for name, value in vars(parts[0]).items() if isinstance(value, Tensor) and name != "chosen"]
    # one axis of heads, which spans need not have
    true = {name: torch.cat([getattr(part, name) for part in parts], 1) for name in names if name != "spans"}
    whole = replace(parts[0], **true)
    seen = {f"model.layers.{k}.attention": _draw(parts[0], HEADS, draw) for k in range(LAYERS - 1)}
    if heads < HEADS:
        seen[f"model.layers.{LAYERS - 1}.drawn"] = _draw(parts[0], HEADS - heads, draw)
    return {**seen, f"model.layers.{LAYERS - 1}.attention": whole}


def _draw(pattern: Look, heads: int, draw: torch.Generator) -> Look:
    """Heads as those of `pattern` in size, with flat statistics and a noisy map; nothing of them is true."""

    def flat(x: Tensor, low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(1, heads, *x.shape[2:], generator=draw)

    n = pattern.entropy.shape[-1]
    top = float(torch.tensor(float(n)).log())
    cells = flat(pattern.map, 0, 1)
    return replace(
        pattern, top_keys=pattern.top_keys.expand(1, heads, -1, -1), top_weights=flat(pattern.top_weights, 0, 1e-3),
        entropy=flat(pattern.entropy, 0.97 * top, 0.99 * top), peak=flat(pattern.peak, 0, 0.01),
        total=torch.ones(1, heads, n), first=flat(pattern.first, 0, 0.5), local=flat(pattern.local, 0, 0.5),
        distance=flat(pattern.distance, 0, n / 2), received=flat(pattern.received, 0, 2),
        map=cells / cells.sum(-1, keepdim=True) * pattern.block[0], rows=torch.zeros(1, heads, 0, n),
        query=None, key=None, logsumexp=None, spans=None, why="drawn",
    )  # fmt: skip


def measure(browser: Any, folder: pathlib.Path, tokens: int, heads: int, repeat: int) -> Reading:
    seen = look_at(tokens, heads)
    tell(f"{tokens:,} tokens:", "build")
    start = time.perf_counter()
    words = TEXT.split()
    labels = [f"{word} " for word in words * (tokens // len(words) + 1)][:tokens]
    shown = page(seen, labels, folder / f"{tokens}.html", title=f"{tokens:,} tokens", heads=heads)
    build = time.perf_counter() - start
    assert shown.path is not None
    paint, hover = [], dict[str, list[float]]()
    for turn in range(repeat):
        tell(f"{tokens:,} tokens:", f"visit {turn + 1} of {repeat}")
        # a new context has no cache: each time as if for the first time
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        visit = Visit.begin(context)
        opened = visit.open(shown.path)
        paint.append(opened.evaluate("performance.getEntriesByName('regard-first-paint')[0].startTime") / 1e3)
        for view in ("map", "text"):
            opened.click(f"#tab-{view}")
            opened.wait_for_selector(f"#view-{view} .map-over, #view-{view} .token")
            opened.wait_for_timeout(1000)
            places = [0.1 + 0.8 * ((k * 0.377 + 0.1 * turn) % 1) for k in range(20)]
            # the first one unpacks what all others use
            times = opened.evaluate(MOVE, {"view": view, "places": places})[1:]
            hover.setdefault(view, []).extend(t / 1e3 for t in times)
        faults = visit.find_faults()
        assert not faults, faults[:3]
        context.close()
    note = opened_note(shown.html)
    return Reading(tokens, len(shown.html.encode()), build, paint, hover, note)


def opened_note(html: str) -> str:
    """What the page says of itself."""
    start = html.index('"note":{"en":"') + 14
    return html[start : html.index('"', start)]


def read_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(
        prog="python -m benchmarks.page", description=__doc__, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--tokens", type=read_count, nargs="+", default=[8192, 32768], help="lengths of the text")
    parser.add_argument("--heads", type=read_count, default=8, help="heads shown in detail, whose weights are true")
    parser.add_argument("--repeat", type=read_count, default=3, help="visits of each page")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder where the pages stay")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = read_options(arguments)
    program = find_chromium()
    if program is None:
        print("no Chromium is installed: put one on PATH, or its program into REGARD_CHROMIUM", file=sys.stderr)
        return 2
    readings = []
    with tempfile.TemporaryDirectory() as scratch, open_browser() as browser:
        folder = options.keep or pathlib.Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        print(f"{describe_machine(torch.get_num_threads())}; Chromium {browser.version}")
        for tokens in options.tokens:
            readings.append(measure(browser, folder, tokens, options.heads, options.repeat))
            print(f"{tokens:,} tokens: {readings[-1].note}", flush=True)
    print(
        f"a model of {LAYERS} layers of {HEADS} heads of width {WIDTH}, {options.heads} heads in detail; medians, and"
        f" the worst in brackets, of {options.repeat} visits and of {19 * options.repeat} rows\n"
    )
    print("\n".join(table_lines(HEAD, (reading.list_cells() for reading in readings))))
    return 0 if all(reading.is_good for reading in readings) else 1


if __name__ == "__main__":
    sys.exit(main())
