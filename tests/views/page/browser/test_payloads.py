"""Whatever tokens, titles, sides, modules, models and nodes are called, a page shows the name and nothing happens."""

import re

import pytest

from tests.views.page.browser.hands import wait_until
from tests.views.page.payloads import PAYLOADS

VIEWS = ["grid", "map", "text", "arcs", "compare", "graph", "table"]
# elements that no part of the page makes
FOREIGN = "iframe, object, embed, base, form, math, meta[http-equiv=refresh], link, textarea, video, audio"
MARKS = {"\n": "↵", "\t": "→", "\r": "␍", " ": "·", "\u00a0": "⍽", "\u3000": "□"}


def show(text: str) -> str:
    """A label as the page documents it: white space as marks, what cannot be seen by its number."""

    def mark(found: re.Match[str]) -> str:
        return MARKS.get(found[0], f"⟨{ord(found[0]):04X}⟩")

    return re.sub("[\x00-\x20\x7f-\xa0\xad\u200b-\u200f\u2028-\u202e\u2060-\u2069\u3000\ufeff]", mark, text)


def test_there_are_forty():
    assert len(PAYLOADS) == len(set(PAYLOADS)) == 40


def count_elements(page) -> dict[str, int]:
    return page.evaluate("""(foreign) => ({
      foreign: document.querySelectorAll(foreign).length, bold: document.querySelectorAll("#regard b").length,
      scripts: [...document.scripts].filter((one) => !one.type).length,
      styles: document.querySelectorAll("style").length,
      images: document.querySelectorAll("#regard img").length,
      handlers: [...document.querySelectorAll("*")].filter((one) =>
        [...one.attributes].some((name) => name.name.startsWith("on"))).length,
    })""", FOREIGN)  # fmt: skip


@pytest.fixture
def hostile(visit):
    return visit("hostile")


def test_no_payload_runs_or_becomes_an_element_in_any_view(hostile):
    page = hostile
    plain = {"foreign": 0, "bold": 0, "scripts": 1, "styles": 1, "images": 0, "handlers": 0}
    for view in VIEWS:
        page.click(f"#tab-{view}")
        page.wait_for_timeout(80)
        # the last key, which names a payload in readouts and spoken text
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Shift+ArrowDown")
        assert count_elements(page) == plain, view
    page.keyboard.press("e")
    page.keyboard.press("Escape")
    assert page.evaluate("[window.__ran.length, Object.prototype.polluted, ({}).canary]") == [0, None, None]


def test_tokens_are_shown_literally(hostile):
    page = hostile
    page.click("#tab-text")
    page.wait_for_selector("#view-text .token")
    shown = page.eval_on_selector_all("#view-text .token", "all => all.map((one) => one.textContent)")
    assert shown == [show(payload) for payload in PAYLOADS]
    page.click("#tab-arcs")
    page.wait_for_selector("#arcs-picture .arc-token")
    script = "all => all.map((one) => one.querySelector('title').textContent.replace(/ · \\d+$/, ''))"
    assert page.eval_on_selector_all("#arcs-picture .arc-token", script) == [show(payload) for payload in PAYLOADS]
    page.click("#tab-table")
    page.wait_for_selector("#table-queries tbody tr")
    cells = page.eval_on_selector_all("#table-queries tbody tr", "all => all.map((row) => row.children[1].textContent)")
    assert cells == [show(payload) for payload in PAYLOADS]


def test_titles_sides_and_modules_are_shown_literally(hostile):
    page = hostile
    assert page.title() == PAYLOADS[0]
    assert page.text_content("h1") == PAYLOADS[0]
    options = page.eval_on_selector_all(
        ".pickers select:first-of-type option", "all => all.map((one) => one.textContent)"
    )
    for number, payload in enumerate(PAYLOADS):
        assert any(flatten(payload) in flatten(option) for option in options), number
    facts = page.text_content(".facts dd")
    assert flatten(facts) in {flatten(payload) for payload in PAYLOADS}


def flatten(text: str) -> str:
    """Without what HTML or the page may show otherwise: white space and signs that cannot be seen."""
    return re.sub("[\\s·\x00\ufffd]|⟨[0-9A-F]{4}⟩|[\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\xad]", "", text)


def test_nodes_are_shown_literally(hostile):
    page = hostile
    page.click("#tab-graph")
    page.wait_for_selector("#graph-picture .node")
    nodes = page.eval_on_selector_all("#graph-picture .node", "all => all.map((one) => one.getAttribute('aria-label'))")
    assert [flatten(node) for node in nodes] == [flatten(payload) for payload in PAYLOADS]


def test_a_hostile_address_is_only_an_address(visit):
    evil = "view=%3Cscript%3E&entry=__proto__&other=1e999&query=-5&zoom=9,1,a,2&lang=constructor&theme=toString"
    page = visit("self", evil + "&find=%3Cimg%3E&__proto__=1&constructor=2")
    assert page.locator("[role=tabpanel]:visible").count() == 1
    assert page.get_attribute("html", "lang") == "en"
    page.keyboard.press("2")
    wait_until(page, "document.querySelector('#tab-map').getAttribute('aria-selected') === 'true'")


@pytest.mark.parametrize("payload", [PAYLOADS[1], "__proto__", "=1+1"])
def test_models_and_sides_are_shown_literally(visit, tmp_path, payload):
    from regard.views.page import page as write
    from tests.views.page.browser.pages import Model

    model = Model().add(payload, 1, 4, 3, 0)
    sides = {payload: ["a", "b", "c", "d"], payload + "2": ["x", "y", "z"]}
    path = tmp_path / "names.html"
    write(model.seen, sides, path, title=payload, other=model.seen)
    page = visit(path, "view=text")
    page.wait_for_selector("#view-text .flow-title")
    assert page.locator("#view-text .flow-title").first.text_content().endswith(payload)
    assert payload in page.text_content(".facts")
    assert count_elements(page)["images"] == 0
