"""The report as a browser reads it: balanced, escaped, complete by itself, legible in light and dark."""

import base64
import hashlib
import html.parser
import json
import pathlib
import re
import xml.etree.ElementTree as ElementTree

import pytest

from regard.compare.comparison import Comparison
from regard.compare.page import LISTS, raise_powers, write_command
from regard.compare.registry import PARTS
from regard.compare.settings import Dimensions, Settings
from regard.compare.tables import list_tables
from tests.compare.sample import draw_page, make_sample
from tests.wide import wide
from tools import compare_shot
from tools.browser import Visit

# elements that are never closed
VOID = {"meta", "img", "source", "br", "link", "hr", "input"}
HOSTILE = "</script></style><img src=x onerror=canary(1)><b>&\"'"


class Reader(html.parser.HTMLParser):
    """Elements in order with their attributes, what is in each of them, and whether each end has its beginning."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.tags, self.texts = [], [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.texts.append("")
        assert len({name for name, _ in attrs}) == len(attrs)
        if tag not in VOID:
            self.open.append((tag, len(self.tags) - 1))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        for _, at in self.open:
            self.texts[at] += data

    def find(self, name):
        return [(attrs, text) for (tag, attrs), text in zip(self.tags, self.texts, strict=True) if tag == name]


@pytest.fixture(scope="module")
def sample():
    return make_sample()


@pytest.fixture(scope="module")
def written(sample):
    return draw_page(sample)


@pytest.fixture(scope="module")
def reader(written):
    return Reader(written)


def test_it_is_one_document(written, reader):
    assert written.startswith('<!DOCTYPE html>\n<html lang="en"')
    names = [attrs["id"] for _, attrs in reader.tags if "id" in attrs]
    assert len(names) == len(set(names))
    links = [attrs["href"] for attrs, _ in reader.find("a")]
    assert links == ["#content", "#textbook", *(f"#{name}" for name in PARTS)]
    assert {link[1:] for link in links} <= set(names)
    assert [tag for tag, _ in reader.tags if re.fullmatch("h[1-6]", tag)][:2] == ["h1", "h2"]


def test_nothing_is_fetched_and_nothing_runs(reader):
    sources = [attrs.get(key) for _, attrs in reader.tags for key in ("src", "srcset", "href") if attrs.get(key)]
    assert all(source.startswith(("data:image/svg+xml;base64,", "#")) for source in sources)
    assert [attrs["type"] for attrs, _ in reader.find("script")] == ["application/json"]
    assert not [name for _, attrs in reader.tags for name in attrs if name.startswith("on") or name == "style"]


def test_the_policy_allows_this_style_and_no_script(reader):
    (policy,) = [attrs["content"] for attrs, _ in reader.find("meta") if "http-equiv" in attrs]
    ((_, style),) = reader.find("style")
    own = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{own}'; img-src data:; base-uri 'none'; form-action 'none'"
    )


def test_all_numbers_are_in_it(sample, reader):
    ((_, data),) = reader.find("script")
    assert json.loads(data) == {"format": 1, **json.loads(json.dumps(vars(sample)))}


def test_drawn_again_it_is_the_same_page(tmp_path):
    page, data = make_sample("order", "digits").save(tmp_path / "report.html")
    assert draw_page(Comparison.load(data)) == page.read_text(encoding="utf-8")


def test_pictures_are_whole_and_said_in_words(reader):
    images = [attrs for attrs, _ in reader.find("img")]
    sources = [attrs for attrs, _ in reader.find("source")]
    assert len(images) == len(sources) == 9
    for image, source in zip(images, sources, strict=True):
        assert source["media"] == "(prefers-color-scheme: dark)"
        assert len(image["alt"]) > 60
        pair = [base64.b64decode(text.split(",")[1]).decode() for text in (image["src"], source["srcset"])]
        assert all(ElementTree.fromstring(svg).tag.endswith("svg") for svg in pair)
        assert "#1b1e24" in pair[1]
        assert "#1b1e24" not in pair[0]
        assert 300 < int(image["width"]) < 1200


def test_the_textbooks_table_comes_first(reader):
    attrs, text = reader.find("section")[0]
    assert attrs["id"] == "textbook"
    assert "O(k·n·d²)n1.00 d2.00 k1.00" in text
    assert reader.find("table")[0][1] in text


def test_every_row_is_in_a_table(sample, reader):
    listed = [rows for part in sample.parts.values() for name, rows in part.items() if name in LISTS and rows]
    listed += [table.rows for tables in list_tables(sample.parts, sample.settings).values() for table in tables]
    tables = sum(tag == "table" for tag, _ in reader.tags)
    assert tables == len(listed)
    # and one for the heads of each
    assert sum(tag == "tr" for tag, _ in reader.tags) == sum(map(len, listed)) + tables


def test_how_it_was_made():
    made = make_sample("order")
    ((_, text),) = Reader(draw_page(made)).find("footer")
    command = "regard compare --lengths 32,64,128,256,512,1024"
    assert all(fact in text for fact in (command, "a processor", "2.13.0", "seed0", "kernel 3", "32, 64, 128"))


def test_the_command_has_every_setting():
    import inspect

    from regard.cli.compare import compare

    assert write_command(Settings().to_dict()) == "regard compare"
    dims = Dimensions(width=96, kernel=5, heads=3, window=8)
    given = {"lengths": (2, 4, 8), "widths": (6, 9), "kernels": (3, 9), "batches": (2,), "device": "cuda", "seed": 7}
    settings = Settings(dims, has_equal_parameters=True, is_quick=True, parts=("cost", "paths"), **given)
    command = write_command(settings.to_dict())
    assert command == (
        "regard compare --quick --equal-parameters --lengths 2,4,8 --width 96 --kernel 5 --heads 3 --window 8"
        " --widths 6,9 --kernels 3,9 --batches 2 --parts paths,cost --seed 7 --device cuda"
    )
    # and each is an option of the command, which has no other that decides what is measured
    options = {name.replace("-", "_") for name in re.findall("--([a-z-]+)", command)}
    assert options == set(inspect.signature(compare).parameters) - {"out", "force", "numbers"}


def test_hostile_text_stays_text():
    made = make_sample("order", "digits")
    for part in made.parts.values():
        for row in part["rows"]:
            row["kind"] = HOSTILE if row["kind"] == "conv" else row["kind"]
    made.parts["order"]["reach"][HOSTILE] = None
    made.machine["processor"] = HOSTILE + "\ud800"
    made.settings["device"] = HOSTILE
    made.settings[HOSTILE] = {HOSTILE: [HOSTILE]}
    text = draw_page(made)
    reader = Reader(text)
    plain = Reader(draw_page(make_sample("order", "digits")))
    assert {tag for tag, _ in reader.tags} <= {tag for tag, _ in plain.tags} | {"code"}
    assert "onerror=" not in re.sub(r"&lt;img src=x onerror=|\\u003cimg src=x onerror=", "", text)
    assert any(HOSTILE in cell for _, cell in reader.find("th"))
    text.encode()


def test_parts_that_are_missing_are_left_out():
    reader = Reader(draw_page(make_sample("order", "digits")))
    assert [attrs["id"] for attrs, _ in reader.find("section")] == ["order", "digits"]
    assert len(reader.find("img")) == 2


def test_one_kind_alone_has_no_figure_of_what_is_learned():
    made = make_sample("order")
    rows = made.parts["order"]["rows"]
    made.parts["order"]["rows"] = [row for row in rows if row["kind"] == "attention"]
    text = draw_page(made)
    assert "<img" not in text
    assert "No figure: it sets layers side by side, and self-attention alone was measured." in text


def test_lengths_listed_are_those_measured():
    made = make_sample("cost")
    cost = made.parts["cost"]
    assert "<td>never</td>" in draw_page(made)
    cost["crossings"] = [cross for cross in cost["crossings"] if cross["batch"]]
    cost["rows"] = [row for row in cost["rows"] if row["n"] == 32]
    text = draw_page(made)
    assert "<td>never</td>" not in text
    # in the table, and in the list of all numbers
    assert text.count("<td>not at 32</td>") == 2


def test_no_part_at_all():
    made = make_sample("order")
    made.parts.clear()
    reader = Reader(draw_page(made))
    assert not reader.find("section")
    assert reader.find("footer")


@pytest.mark.parametrize(
    ("text", "raised"),
    [("n^1.98", "n<sup>1.98</sup>"), ("n^-0.10 ", "n<sup>-0.10</sup> "), ("on^2", "on^2"), ("n^x", "n^x")],
)
def test_exponents(text, raised):
    assert raise_powers(text) == raised


# --- in Chromium ------------------------------------------------------------------------------------------------------

AXE = """async (only) => {
  const options = {resultTypes: ["violations"], ...(only ? {runOnly: {type: "rule", values: [only]}} : {})};
  const found = await axe.run("html", options);
  const tell = (node) => node.html.slice(0, 140) + " | " + node.failureSummary;
  return found.violations.map((one) => one.id + ": " + one.nodes.slice(0, 3).map(tell).join("; "));
}"""


@pytest.fixture(scope="module")
def file(written, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(written, encoding="utf-8")
    return path


def visit(browser, file, **options):
    context = browser.new_context(**options)
    context.set_default_timeout(30_000)
    visit = Visit.begin(context)
    return visit, visit.open(file), context


@wide
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 360)])
def test_chromium_shows_it_without_a_fault(browser, file, scheme, width):
    viewport = {"width": width, "height": 900}
    seen, page, context = visit(browser, file, color_scheme=scheme, viewport=viewport)
    images = "all => all.map((one) => one.complete && one.naturalWidth > 0 && one.currentSrc === one.{})"
    kind = "src" if scheme == "light" else "parentNode.querySelector('source').srcset"
    assert page.eval_on_selector_all("img", images.replace("{}", kind)) == 9 * [True]
    # wide tables scroll in their own place
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    paper = page.evaluate("getComputedStyle(document.querySelector('section')).backgroundColor")
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(27, 30, 36)"}[scheme]
    faults = seen.find_faults()
    context.close()
    assert not faults


@wide
def test_axe_finds_nothing(browser, file):
    package = pytest.importorskip("axe_playwright_python")
    axe = (pathlib.Path(package.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    # axe is a script of ours: the policy is asked for nothing here
    _, page, context = visit(browser, file, color_scheme="light", bypass_csp=True)
    page.evaluate(axe)
    # of the lists of numbers, which are all alike, a short one
    page.evaluate("document.querySelectorAll('section:not(#digits) details').forEach((list) => list.remove())")
    page.evaluate("document.querySelector('#digits details').open = true")
    # in the dark nothing but colours is new
    for scheme, only in (("light", ""), ("dark", "color-contrast")):
        page.emulate_media(color_scheme=scheme)
        found = page.evaluate(AXE, only)
        assert not found, "\n".join([scheme, *found])
    context.close()


def test_the_screenshot(browser, file, tmp_path, monkeypatch, capsys):
    from contextlib import nullcontext

    monkeypatch.setattr(compare_shot, "open_browser", lambda: nullcontext(browser))
    assert compare_shot.main([str(file), str(tmp_path / "images" / "compare.png")]) == 0
    assert (tmp_path / "images" / "compare.png").read_bytes().startswith(b"\x89PNG")
    assert capsys.readouterr().out.endswith(" kB\n")


def test_the_screenshot_of_nothing(tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit) as stop:
        compare_shot.main([str(tmp_path / "report.html"), "compare.png"])
    assert stop.value.code == 2
    assert "there is no file" in capsys.readouterr().err
    monkeypatch.setattr(compare_shot, "find_chromium", lambda: None)
    (tmp_path / "report.html").write_text("")
    assert compare_shot.main([str(tmp_path / "report.html"), "compare.png"]) == 2
    assert capsys.readouterr().err.startswith("no Chromium is installed")
