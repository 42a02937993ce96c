"""Fonts with the glyphs of a text, in any script: installed ones, or that in the package of the extra `plot`."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import sys
import unicodedata
import warnings
from typing import Any

from regard.extras import install

# matplotlib's own, on every machine: Latin, Greek, Cyrillic, Arabic, Hebrew, signs
PLAIN = "DejaVu Sans"
# a package on PyPI that carries Noto Sans SC (SIL Open Font License); its code changes matplotlib's settings and is
# never imported
PACKAGE, FILE = "zhplot", "NotoSansSC-Regular.ttf"
# sans-serif fonts that look well beside the plain one, before any other that is installed
KNOWN = (
    "Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "Source Han Sans CN", "PingFang SC", "Hiragino Sans GB",
    "Microsoft YaHei", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Droid Sans Fallback", "SimHei", "Heiti SC",
    "Noto Sans CJK TC", "Noto Sans TC", "Microsoft JhengHei", "Noto Sans CJK KR", "Noto Sans KR", "Apple SD Gothic Neo",
    "Malgun Gothic", "NanumGothic", "Noto Sans Arabic", "Noto Sans Devanagari", "Noto Sans Thai", "Noto Sans Hebrew",
    "Noto Sans Symbols", "Noto Sans Symbols 2", "Noto Emoji", "Segoe UI", "Segoe UI Symbol", "Segoe UI Emoji",
    "Apple Symbols", "Arial Unicode MS", "Noto Sans",
)  # fmt: skip
JAPANESE = (
    "Noto Sans CJK JP", "Noto Sans JP", "Source Han Sans JP", "Hiragino Sans", "Yu Gothic", "Meiryo", "IPAexGothic",
    "IPAGothic",
)  # fmt: skip
# fonts that claim characters they do not draw: boxes for all, nothing for all, TeX's own encodings
FALSE = ("last resort", "adobe blank", "adobe notdef", "stixsize", "stixnonunicode", "cmb10", "cmex10", "cmmi10",
         "cmr10", "cmss10", "cmsy10", "cmti10", "cmtt10")  # fmt: skip


def find_fonts(text: str) -> tuple[list[str], str]:
    """Font families that together draw a text, the plain one first, and the characters that no font here has.

    >>> find_fonts("xi'an")
    (['DejaVu Sans'], '')

    For matplotlib's `family=`, which takes each glyph from the first family that has it.
    """
    missing = {c for c in text if not c.isspace()}
    missing -= _list_drawn(PLAIN, missing)
    families = [PLAIN]
    if not missing:
        return families, ""
    known = [*JAPANESE, *KNOWN] if any("\u3041" <= c <= "\u30ff" for c in missing) else [*KNOWN, *JAPANESE]
    _cover(missing, families, known)
    # matplotlib keeps a list of the machine's fonts and does not see what was installed since
    if missing and _add_new():
        _cover(missing, families, known)
    return families, "".join(sorted(missing))


def _cover(missing: set[str], families: list[str], known: list[str]) -> None:
    """Add fonts to `families`, and remove what they have from `missing`."""
    installed, packaged = _list_installed(), _add_packaged()
    candidates = [name for name in known if name in installed]
    candidates += [*packaged, *sorted(installed.difference(known, packaged))]
    while missing and candidates:
        # the first that has all, else the one that has most; fonts behind the first are not opened
        drawn: dict[str, set[str]] = {}
        for name in candidates:
            drawn[name] = _list_drawn(name, missing)
            if drawn[name] == missing:
                break
        best = max(drawn, key=lambda name: len(drawn[name]))
        if not drawn[best]:
            break
        families.append(best)
        missing -= drawn[best]
        candidates = [name for name in candidates if drawn.get(name) and name != best]


def choose_fonts(text: str) -> tuple[list[str], str]:
    """As `find_fonts`, with one warning of the characters that no font has, and the way out."""
    families, missing = find_fonts(text)
    if missing:
        shown = " ".join(c if c.isprintable() else f"U+{ord(c):04X}" for c in missing[:12])
        more = f" and {len(missing) - 12} more" if len(missing) > 12 else ""
        warnings.warn(
            f"No font here has {shown}{more}, drawn as boxes: {_find_way_out(missing)}.",
            stacklevel=_count_own_frames() + 1,
        )
    return families, missing


def _count_own_frames() -> int:
    """The stack level of the user's own line, at which a warning points."""
    frame, count = sys._getframe(1), 0
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("regard."):
        frame, count = frame.f_back, count + 1
    return count


def _find_way_out(missing: str) -> str:
    scripts = {unicodedata.name(c, "").split(" ")[0].split("-")[0] for c in missing}
    ways = []
    if scripts & {"CJK", "HIRAGANA", "KATAKANA", "HANGUL"}:
        ways.append("install Noto Sans CJK (Debian: fonts-noto-cjk)")
    if scripts & {"CJK", "HIRAGANA", "KATAKANA"} and not _add_packaged():
        ways[0] += f" or {install('plot')}"
    if scripts - {"CJK", "HIRAGANA", "KATAKANA", "HANGUL"}:
        ways.append("install the Noto fonts of their scripts" if not ways else "the Noto fonts of the other scripts")
    return ", and ".join(ways)


def _list_installed() -> set[str]:
    from matplotlib import font_manager

    # names that begin with a point belong to the system
    names = {entry.name for entry in font_manager.fontManager.ttflist}
    return {name for name in names if not name.startswith(".") and not name.lower().startswith(FALSE)} - {PLAIN}


def _add_packaged() -> list[str]:
    """Register the packaged font with matplotlib, under its name; nothing else is changed."""
    from matplotlib import font_manager

    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    paths = [os.fspath(file.locate()) for file in files if file.name == FILE]
    names = []
    for path in filter(os.path.isfile, paths):
        known = [entry.name for entry in font_manager.fontManager.ttflist if entry.fname == path]
        if not known:
            font_manager.fontManager.addfont(path)
            known = [entry.name for entry in font_manager.fontManager.ttflist if entry.fname == path]
        names += known[:1]
    return names


def _add_new() -> bool:
    """Register fonts that were installed after matplotlib wrote its list; whether there were any."""
    from matplotlib import font_manager

    known = {os.fspath(entry.fname) for entry in font_manager.fontManager.ttflist}
    before = len(font_manager.fontManager.ttflist)
    for path in sorted({*font_manager.findSystemFonts()} - known):
        # matplotlib's own list leaves out what it cannot read, too
        with contextlib.suppress(Exception):
            font_manager.fontManager.addfont(path)
    return len(font_manager.fontManager.ttflist) > before


def _list_drawn(family: str, characters: set[str]) -> set[str]:
    font = _open(family)
    return set() if font is None else {c for c in characters if _has_ink(font, c)}


def _has_ink(font: Any, c: str) -> bool:
    if not font.get_char_index(ord(c)):
        return False
    try:
        glyph = font.load_char(ord(c))
    except RuntimeError:
        # colour emoji are pictures, which matplotlib does not draw
        return False
    return bool(glyph.width and glyph.height) or unicodedata.category(c) == "Cf"


def _open(family: str) -> Any:
    """The font file that matplotlib would take for a family, or None where it cannot."""
    from matplotlib import font_manager, ft2font

    try:
        found = font_manager.findfont(font_manager.FontProperties(family=[family]), fallback_to_default=False)
        # a collection holds several fonts; matplotlib before 3.11 knows the first alone
        place: dict[str, Any] = {"face_index": found.face_index} if getattr(found, "face_index", 0) else {}
        font = ft2font.FT2Font(os.fspath(found), **place)
        font.set_size(12.0, 72.0)
    except (ValueError, RuntimeError, OSError):
        return None
    return font
