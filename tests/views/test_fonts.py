"""Glyphs are found where there are any, and their lack is said."""

import importlib.metadata
import logging
import pathlib
import subprocess
import sys
import warnings

import pytest

from regard.data import phrasebook
from regard.extras import install
from regard.views import draw_alignment, fonts
from regard.views.sheet import open_sheet

matplotlib = pytest.importorskip("matplotlib")


def have_packaged():
    try:
        return bool(importlib.metadata.files(fonts.PACKAGE))
    except importlib.metadata.PackageNotFoundError:
        return False


needs_package = pytest.mark.skipif(not have_packaged(), reason="needs the font of the extra plot")


@pytest.fixture
def bare(monkeypatch):
    """A machine with matplotlib's own fonts alone."""
    monkeypatch.setattr(fonts, "PACKAGE", "no-such-package")
    own = [x for x in matplotlib.font_manager.fontManager.ttflist if "mpl-data" in pathlib.Path(x.fname).parts]
    monkeypatch.setattr(matplotlib.font_manager.fontManager, "ttflist", own)
    monkeypatch.setattr(matplotlib.font_manager, "findSystemFonts", lambda: [])
    matplotlib.font_manager.fontManager._findfont_cached.cache_clear()
    yield monkeypatch
    matplotlib.font_manager.fontManager._findfont_cached.cache_clear()


@pytest.fixture
def packaged_alone(bare):
    """The same with the extra `plot`."""
    bare.setattr(fonts, "PACKAGE", "zhplot")


def list_hanzi(rows):
    """The characters of GB 2312, level 1 in rows 16 to 55 by pronunciation, level 2 behind."""
    codes = [bytes([0xA0 + row, cell]) for row in rows for cell in range(0xA1, 0xFF)]
    return {c for code in codes for c in code.decode("gb2312", "ignore")}


@needs_package
@pytest.mark.usefixtures("packaged_alone")
def test_the_package_covers_chinese():
    said = {c for pair in phrasebook.list_pairs() for text in pair for c in text}
    assert {"西", "安"} <= said
    assert fonts.find_fonts("".join(said)) == (["DejaVu Sans", "Noto Sans SC"], "")
    common = list_hanzi(range(16, 56))
    assert len(common) == 3755
    assert fonts.find_fonts("".join(common)) == (["DejaVu Sans", "Noto Sans SC"], "")
    assert fonts.find_fonts("".join(list_hanzi(range(56, 88))))[1] == ""
    assert fonts.find_fonts("臺灣鐵觀音體驗區，。「」")[1] == ""
    assert fonts.find_fonts("とうきょうへ行きます、カタカナ")[1] == ""


@needs_package
@pytest.mark.usefixtures("packaged_alone")
def test_the_package_is_read_and_not_run():
    # in its own process: what another test imported must not count
    code = (
        "import sys, tempfile, pathlib, matplotlib\n"
        "list_settings = lambda: {x: matplotlib.rcParams[x] for x in matplotlib.rcParams if x != 'backend'}\n"
        "before = list_settings()\n"
        "from regard.views import draw_alignment\n"
        "draw_alignment([[1.0]], ['西'], ['west'], pathlib.Path(tempfile.mkdtemp(), 'a.png'))\n"
        "assert 'zhplot' not in sys.modules and 'matplotlib.pyplot' not in sys.modules\n"
        "assert list_settings() == before\n"
    )
    src = pathlib.Path(fonts.__file__).parents[2]
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd=src)
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("bare")
def test_the_plain_font_serves_many_scripts():
    assert fonts.find_fonts("straße αβγ привет سلام שלום ☺ → ␣ ⇥ ↵ ∅ ◌ …") == (["DejaVu Sans"], "")


@pytest.mark.usefixtures("bare")
def test_what_no_font_has_is_found_missing():
    # the last resort has a box for every character, and does not count
    assert fonts.find_fonts("a西安") == (["DejaVu Sans"], "安西")


@pytest.mark.usefixtures("bare")
def test_fonts_that_claim_what_they_do_not_draw_do_not_count():
    names = fonts._list_installed()
    assert "DejaVu Serif" in names
    assert not {x for x in names if "Last" in x or x.startswith("cm")}


@needs_package
def test_a_font_installed_since_is_seen(bare):
    path = [str(x.locate()) for x in importlib.metadata.files("zhplot") if x.name == fonts.FILE]
    bare.setattr(matplotlib.font_manager, "findSystemFonts", lambda: [*path, "no-such-font.ttf"])
    assert fonts.find_fonts("西安") == (["DejaVu Sans", "Noto Sans SC"], "")


@needs_package
@pytest.mark.usefixtures("packaged_alone")
def test_a_font_that_has_all_comes_before_two(monkeypatch):
    has = {"Apple Symbols": {"a", "b"}, "Noto Sans SC": {"b", "c", "d"}, "Zapfino": {"a", "b", "c", "d"}}
    monkeypatch.setattr(fonts, "_list_installed", lambda: {"Apple Symbols", "Zapfino"})
    monkeypatch.setattr(fonts, "_list_drawn", lambda name, wanted: has.get(name, set()) & wanted)
    assert fonts.find_fonts("abcd") == (["DejaVu Sans", "Zapfino"], "")
    has["Zapfino"] = {"a"}
    # most first, then the first in the order of liking
    assert fonts.find_fonts("abcde") == (["DejaVu Sans", "Noto Sans SC", "Apple Symbols"], "e")


def test_japanese_takes_a_japanese_font_first(monkeypatch):
    monkeypatch.setattr(fonts, "_list_installed", lambda: {"Noto Sans CJK SC", "Noto Sans CJK JP"})
    monkeypatch.setattr(fonts, "_list_drawn", lambda name, wanted: wanted if "Noto" in name else set())
    assert fonts.find_fonts("直す")[0][1] == "Noto Sans CJK JP"
    assert fonts.find_fonts("直")[0][1] == "Noto Sans CJK SC"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "西安",
            "No font here has 安 西, drawn as boxes: install Noto Sans CJK (Debian: fonts-noto-cjk)"
            f" or {install('plot')}.",
        ),
        ("한", "No font here has 한, drawn as boxes: install Noto Sans CJK (Debian: fonts-noto-cjk)."),
        ("ก", "No font here has ก, drawn as boxes: install the Noto fonts of their scripts."),
        (
            "ก한",
            "No font here has ก 한, drawn as boxes: install Noto Sans CJK (Debian: fonts-noto-cjk),"
            " and the Noto fonts of the other scripts.",
        ),
        (
            "一丁七万丈三上下不与丐丑专且丕",
            "No font here has 一 丁 七 万 丈 三 上 下 不 与 丐 丑 and 3 more, drawn as boxes: install Noto Sans CJK"
            f" (Debian: fonts-noto-cjk) or {install('plot')}.",
        ),
    ],
)
@pytest.mark.usefixtures("bare")
def test_the_lack_is_said_once_and_the_picture_drawn(tmp_path, text, said):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        draw_alignment([[1.0]], [text], ["x"], tmp_path / "a.png")
    assert [str(x.message) for x in seen] == [said]
    assert len(said) <= 200
    # it points to who drew
    assert seen[0].filename == __file__
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_the_search_is_silent_and_the_log_comes_back():
    log = logging.getLogger("matplotlib.font_manager")
    level = log.level
    with open_sheet():
        # else matplotlib has a line for every family without a regular weight
        assert not log.isEnabledFor(logging.WARNING)
    assert log.level == level
