"""python -m tools.gallery: the page and its pictures."""

from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile
from collections.abc import Sequence

from regard.core.files import write_whole
from tools.gallery.entries import list_sections
from tools.gallery.page import save_picture, write_page

DOCS = pathlib.Path(__file__).parents[2] / "docs"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.gallery",
        description="Draw every score, weigher, mask, bias and encoding, and write the page that shows them.",
        epilog=(
            "examples:\n  python -m tools.gallery                   into docs/"
            "\n  python -m tools.gallery --out pictures    elsewhere"
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=pathlib.Path, default=DOCS, metavar="FOLDER", help="where to (default docs)")
    out: pathlib.Path = parser.parse_args(arguments).out
    sections = list_sections()
    entries = [entry for section in sections.values() for entry in section]
    try:
        (out / "gallery").mkdir(parents=True, exist_ok=True)
        # all or nothing: pictures are moved to their place when the last is drawn
        with tempfile.TemporaryDirectory(dir=out) as place:
            for done, entry in enumerate(entries, 1):
                save_picture(entry.draw(), pathlib.Path(place) / entry.file)
                print(f"\r[{done}/{len(entries)}] {entry.name:24}", end="", file=sys.stderr, flush=True)
            print(file=sys.stderr)
            for entry in entries:
                (pathlib.Path(place) / entry.file).replace(out / "gallery" / entry.file)
        write_whole(out / "gallery.md", write_page(sections, "gallery"))
    except OSError as error:
        print(f"python -m tools.gallery: error: cannot write to {out}: {error.strerror}.", file=sys.stderr)
        return 2
    print(f"wrote {out / 'gallery.md'} and {len(entries)} pictures")
    return 0


if __name__ == "__main__":
    sys.exit(main())
