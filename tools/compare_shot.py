"""The screenshot of a comparison for the docs: `python -m tools.compare_shot report.html docs/images/compare.png`."""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Sequence
from functools import partial

from tools.arguments import Parser, read_path
from tools.browser import Visit, find_chromium, open_browser

EXAMPLES = """examples:
  regard compare --out report.html
  python -m tools.compare_shot report.html docs/images/compare.png
  python -m tools.compare_shot report.html dark.png --scheme dark --at cost
"""
# a picture of a page is read on a page: small enough to load with it
LARGEST = 250_000
SIZE = (1128, 1030)


def shoot(source: pathlib.Path, out: pathlib.Path, scheme: str, at: str) -> int:
    """Takes the picture of the page from its top, or from a heading on; how many bytes it has."""
    with open_browser() as browser:
        context = browser.new_context(viewport={"width": SIZE[0], "height": SIZE[1]}, color_scheme=scheme)
        visit = Visit.begin(context)
        page = visit.open(source, at)
        page.wait_for_timeout(300)
        out.parent.mkdir(parents=True, exist_ok=True)
        picture = page.screenshot(path=out)
        faults = visit.find_faults()
    assert not faults, faults
    return len(picture)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = Parser(
        prog="python -m tools.compare_shot", description=__doc__, epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("report", type=partial(read_path, ".html"), help="the page that regard compare wrote")
    parser.add_argument("picture", type=partial(read_path, ".png"), help="where the picture goes")
    parser.add_argument("--scheme", choices=("light", "dark"), default="light", help="the reader's colours")
    parser.add_argument("--at", default="", help="the part it begins with, such as cost")
    options = parser.parse_args(arguments)
    if not options.report.is_file():
        parser.error(f"there is no file '{options.report}'")
    if find_chromium() is None:
        print("no Chromium is installed: put one on PATH, or its program into REGARD_CHROMIUM", file=sys.stderr)
        return 2
    size = shoot(options.report, options.picture, options.scheme, options.at)
    print(f"{options.picture}: {size / 1e3:.0f} kB" + (" (too large)" if size > LARGEST else ""))
    return 1 if size > LARGEST else 0


if __name__ == "__main__":
    sys.exit(main())
