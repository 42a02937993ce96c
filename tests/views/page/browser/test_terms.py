"""What the page explains, folds and leaves unsaid: terms, details, long titles, a classifier's pooling, colours."""

import pathlib

import pytest
import torch

from regard.engine.look import look
from regard.views.page import build, page
from tests.views.page.browser.hands import read_state, wait_until
from tests.views.page.browser.test_surface import AXE, VOCABULARY
from tests.wide import wide

TIP = "#regard-tip"


def make(n, heads=2, **terms):
    draw = torch.Generator().manual_seed(n)
    query, key = torch.randn(1, heads, n, 8, generator=draw), torch.randn(1, heads, n, 8, generator=draw)
    return look(query, key, keep=True, **terms)


def make_pooling(path):
    row = look(torch.ones(1, 1, 1, 4), torch.randn(1, 1, 4, 4, generator=torch.Generator().manual_seed(1)))
    tokens = {"text": ["i", " thank", " you", " ."], "label": ["polite"]}
    return page({"pooling": row}, tokens, path, sides={"pooling": ("label", "text")}).path


def test_terms_are_explained_to_pointer_keyboard_and_finger(visit):
    shown = visit("translation", "view=align&entry=4")
    term = shown.locator(".status .term", has_text="queries")
    told = VOCABULARY["term.query"]["en"]
    assert shown.locator(TIP).is_hidden()
    term.hover()
    assert shown.inner_text(TIP) == told
    # whoever moves into the explanation may read on; whoever leaves it, leaves it
    shown.hover(TIP)
    shown.wait_for_timeout(300)
    assert shown.locator(TIP).is_visible()
    shown.mouse.move(1200, 880)
    wait_until(shown, "document.querySelector('#regard-tip').hidden")
    # by keyboard: there when it is reached, gone by Escape, which does nothing else
    shown.keyboard.press("p")
    shown.locator(".status summary").focus()
    shown.keyboard.press("Shift+Tab")
    assert shown.inner_text(TIP) == VOCABULARY["term.key"]["en"]
    shown.keyboard.press("Escape")
    assert shown.locator(TIP).is_hidden()
    assert read_state(shown)["pinned"] == "1"
    shown.keyboard.press("Enter")
    assert shown.locator(TIP).is_visible()
    # and to a reader aloud, in the language of the page
    named = shown.locator(f"#{term.get_attribute('aria-describedby')}")
    assert named.text_content() == told
    shown.keyboard.press("l")
    assert named.text_content() == VOCABULARY["term.query"]["zh"]
    touched = visit("translation", "view=align&entry=4", has_touch=True, viewport={"width": 390, "height": 800})
    touched.tap("#align-source-title .term")
    assert touched.inner_text(TIP) == VOCABULARY["term.key"]["en"]
    box = touched.locator(TIP).bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390


def test_controls_with_an_explanation_work_all_the_same(visit):
    shown = visit("self", "view=text&entry=0")
    sinks = shown.locator(".toggles button", has_text="Hide sinks")
    sinks.hover()
    assert shown.inner_text(TIP) == VOCABULARY["term.sink"]["en"]
    sinks.click()
    assert read_state(shown)["sinks"] == "1"


def test_every_term_has_a_name_and_an_explanation():
    script = build.read_asset("terms.js").partition("R.terms = [")[2].partition("]")[0]
    names = {name.strip(' "') for name in script.replace("\n", "").split(",") if name.strip()}
    assert names == {key.removeprefix("term.") for key in VOCABULARY if key.startswith("term.")}
    assert names == {key.removeprefix("name.") for key in VOCABULARY if key.startswith("name.")}
    marked = {part.partition("]")[0] for word in VOCABULARY.values() for part in word["en"].split("|")[1:]}
    assert {"query", "key", "entropy", "sink"} <= marked <= names


def test_how_it_was_made_is_folded_and_what_is_wrong_is_not(visit, tmp_path):
    made = page({"layer": make(6)}, list("abcdef"), None)
    path = tmp_path / "page.html"
    good = '"check":{"en":"six rows agree"}'
    wrong = '"check":{"en":"OFF","holds":false}'
    path.write_text(made.html.replace('"check":{}', good, 1).replace('"check":{}', wrong, 1), encoding="utf-8")
    shown = visit(path, "view=map&entry=0")
    assert "6 queries × 6 keys" in shown.inner_text(".status")
    assert "six rows agree" not in shown.inner_text(".status")
    shown.click(".details summary")
    for part in ("Module", "layer", "Terms", "Softmax()", "Self-check", "six rows agree"):
        assert part in shown.inner_text(".details")
    # what does not hold is seen without asking
    shown = visit(path, "view=map&entry=1")
    assert "OFF" in shown.inner_text(".status")
    assert "OFF" not in shown.text_content(".details")


def test_a_long_title_is_folded_until_it_is_asked_for(visit, tmp_path):
    long = "word " * 120
    shown = visit(page({"layer": make(6)}, list("abcdef"), tmp_path / "page.html", title=long).path)
    shown.wait_for_selector(".brand button:visible")
    assert shown.locator("h1").bounding_box()["height"] < 80
    assert shown.text_content("h1") == long
    shown.click(".brand button")
    wait_until(shown, "document.querySelector('h1').getBoundingClientRect().height > 120")
    assert shown.get_attribute(".brand button", "aria-expanded") == "true"
    short = visit(page({"layer": make(6)}, list("abcdef"), tmp_path / "short.html", title="short").path)
    assert short.locator(".brand button").is_hidden()


def test_pooling_is_told_in_its_own_words(visit, tmp_path):
    path = make_pooling(tmp_path / "page.html")
    shown = visit(path)
    shown.wait_for_selector("#text-keys .token")
    assert shown.text_content(".status h2") == "pooling"
    assert "weighted mean of 4 tokens" in shown.inner_text(".status")
    assert "What the label “polite” was read from" in shown.inner_text("#text-summary")
    assert shown.locator("#text-jump").is_hidden()
    # neither an alignment nor a comparison of one row is worth a tab
    tabs = shown.eval_on_selector_all("[role=tab]", "all => all.map((tab) => tab.id.slice(4))")
    assert tabs == ["grid", "map", "text", "arcs", "table"]
    for language, words in (("en", ("quer", "key")), ("zh", ("查询", "键"))):
        for tab in tabs:
            shown.click(f"#tab-{tab}")
            shown.wait_for_timeout(120)
            told = shown.inner_text("#regard-main").lower()
            assert not [word for word in words if word in told], (language, tab)
        shown.keyboard.press("l")


@pytest.mark.parametrize("m", [64, 65])
def test_colours_are_linear_until_rows_are_long(visit, tmp_path, m):
    shown = visit(page({"layer": make(m)}, [f"w{k}" for k in range(m)], tmp_path / "page.html").path, "view=map")
    log = shown.locator(".toggles button", has_text="Log colours")
    assert log.get_attribute("aria-pressed") == str(m > 64).lower()
    log.click()
    assert read_state(shown)["log"] == str(int(m <= 64))


@wide
def test_axe_finds_nothing_serious_in_what_unfolds(visit, tmp_path):
    package = pytest.importorskip("axe_playwright_python")
    axe = (pathlib.Path(package.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    shown = visit(make_pooling(tmp_path / "page.html"), bypass_csp=True)
    shown.evaluate(axe)
    shown.click(".details summary")
    for theme in ("light", "dark"):
        shown.locator(".status h2 .term").focus()
        shown.wait_for_timeout(400)
        assert not shown.evaluate(AXE, ["html", ""]), theme
        shown.keyboard.press("d")
