"""All that the page does is done from the keyboard, and the focus is never lost."""

import pytest

from tests.views.page.browser.hands import wait_until
from tests.wide import thin, wide

# what has the keyboard: its identity, and whether it can be seen that it has
FOCUS = """() => {
  const one = document.activeElement;
  if (!one || one === document.body) return null;
  const look = () => {
    const part = getComputedStyle(one.querySelector("circle") || one), whole = getComputedStyle(one);
    return [whole.outlineStyle, whole.outlineWidth, whole.boxShadow, part.stroke, part.strokeWidth].join();
  };
  const [box, focused] = [one.getBoundingClientRect(), look()];
  const name = one.outerHTML.slice(0, 120);
  one.dataset.visited = "1";
  // as it looks without the keyboard
  one.blur();
  const plain = look();
  one.focus({preventScroll: true});
  return {name, seen: plain !== focused, inView: box.bottom > 0 && box.top < innerHeight};
}"""
# what the keyboard must reach: all that is visible and can be used
LEFT = """() => [...document.querySelectorAll("button, input, select, textarea, a[href], [tabindex]")].filter((one) =>
  !one.disabled && one.tabIndex >= 0 && one.checkVisibility({visibilityProperty: true}) && !one.dataset.visited
  && !one.closest("dialog:not([open])")).map((one) => one.outerHTML.slice(0, 120))"""


def view(page) -> str:
    return page.get_attribute("[role=tab][aria-selected=true]", "id").removeprefix("tab-")


def chosen(page) -> str:
    return page.text_content(".status h2")


def query(page) -> int:
    """Of the text view."""
    return int(page.input_value("#text-jump"))


def pressed(page, number: int) -> bool:
    """Whether a toggle of the header is on: colours, sinks, pin."""
    return page.locator(".toggles .button").nth(number).get_attribute("aria-pressed") == "true"


def listed(page) -> dict[str, str]:
    """The help dialog's keys and what it says of them."""
    page.keyboard.press("?")
    page.wait_for_selector("#help[open]")
    rows = page.eval_on_selector_all(
        "#help-keys tbody tr",
        """all => all.map((row) => [
      [...row.querySelectorAll("kbd")].map((one) => one.textContent).join("+"), row.lastElementChild.textContent])""",
    )
    page.keyboard.press("Escape")
    wait_until(page, "!document.querySelector('#help')")
    return dict(rows)


@wide
def test_every_key_of_the_help_works(visit):
    page = visit("translation", "view=text&entry=2&query=3")
    page.wait_for_selector("#view-text .token.query")
    left = set(listed(page))

    def press(name: str, *keys: str) -> None:
        left.discard(name)
        for key in keys or [name]:
            page.keyboard.press(key)

    press("→", "ArrowRight")
    wait_until(page, "document.querySelector('#text-jump').value === '4'")
    press("←", "ArrowLeft", "ArrowLeft")
    wait_until(page, "document.querySelector('#text-jump').value === '2'")
    press("End")
    assert query(page) == 11
    press("Home")
    assert query(page) == 0
    press("→", "ArrowRight", "ArrowRight")
    press("↓", "ArrowDown", "ArrowDown")
    page.wait_for_selector("#view-text .token.cursor[data-index='3']")
    press("↑", "ArrowUp")
    page.wait_for_selector("#view-text .token.cursor[data-index='2']")
    press("Shift+→", "Shift+ArrowRight")
    assert "layer 1 · head 1" in chosen(page)
    press("Shift+←", "Shift+ArrowLeft")
    assert "layer 1 · head 0" in chosen(page)
    press("Shift+↓", "Shift+ArrowDown")
    assert "layer 2 · head 0" in chosen(page)
    press("Shift+↑", "Shift+ArrowUp")
    assert "layer 1 · head 0" in chosen(page)
    for number, key in ((0, "g"), (1, "s"), (2, "p")):
        before = pressed(page, number)
        press(key)
        assert pressed(page, number) != before, key
    press("w")
    assert page.is_checked("#text-words") == page.is_enabled("#text-words")
    press("r")
    assert page.is_checked("#text-received")
    press("r")
    assert not page.is_checked("#text-received")
    press("l")
    assert page.get_attribute("html", "lang") == "zh-Hans"
    press("l")
    assert page.get_attribute("html", "lang") == "en"
    press("d")
    assert page.get_attribute("html", "data-theme") == "dark"
    press("d")
    assert page.get_attribute("html", "data-theme") == "light"
    press("/")
    assert page.evaluate("document.activeElement.id") == "search-text"
    page.keyboard.type("o")
    page.wait_for_selector("#view-text .token.found")
    assert page.inner_text("#search-count").startswith("1 of ")
    page.locator("#search-text").evaluate("one => one.blur()")
    first = query(page)
    press("n")
    assert query(page) > first
    press("Shift+N")
    assert query(page) == first
    press("Esc", "Escape")
    assert not page.is_visible("#search")
    press("t")
    assert view(page) == "table"
    press("t")
    assert view(page) == "text"
    press("c")
    assert view(page) == "compare"
    before = page.input_value("#view-compare select")
    press("x")
    assert page.input_value("#view-compare select") != before
    press("1…9", "2")
    assert view(page) == "map"
    for number, name in enumerate(["grid", "map", "text", "arcs", "align", "compare", "table"], 1):
        page.keyboard.press(str(number))
        assert view(page) == name
    page.keyboard.press("2")
    press("z")
    page.wait_for_timeout(330)
    assert "zoom=" in page.evaluate("location.hash")
    press("0")
    page.wait_for_timeout(330)
    assert "zoom=" not in page.evaluate("location.hash")
    press("+")
    page.wait_for_timeout(330)
    assert "zoom=" in page.evaluate("location.hash")
    press("-")
    page.wait_for_timeout(330)
    assert "zoom=" not in page.evaluate("location.hash")
    press("e")
    assert page.is_visible("#export")
    page.keyboard.press("Escape")
    wait_until(page, "!document.querySelector('#export')")
    left.discard("?")
    assert not left, f"keys of the help that no test presses: {left}"


def test_no_key_works_while_a_word_is_typed(visit):
    page = visit("self", "view=text&query=2")
    page.wait_for_selector("#view-text .token.query")
    page.keyboard.press("/")
    page.keyboard.type("zcsetldp?g/nwr139+-0x")
    page.keyboard.press("ArrowLeft")
    assert page.input_value("#search-text") == "zcsetldp?g/nwr139+-0x"
    assert view(page) == "text"
    assert page.get_attribute("html", "lang") == "en"
    assert page.get_attribute("html", "data-theme") == "light"
    assert not page.locator("dialog").count()
    assert query(page) == 2
    # nor in another field
    page.keyboard.press("Escape")
    page.focus("#text-jump")
    page.keyboard.type("1")
    assert view(page) == "text"


@wide
def test_search_finds_words_across_tokens(visit):
    page = visit("self", "view=text")
    page.wait_for_selector("#view-text .token")
    page.keyboard.press("/")
    page.keyboard.type("the street")
    page.wait_for_selector("#view-text .token.found")
    found = page.eval_on_selector_all("#view-text .token.found", "all => all.map((one) => Number(one.dataset.index))")
    assert found == [5, 6, 13, 14]
    assert page.inner_text("#search-count") == "1 of 2"
    assert query(page) == 5
    page.keyboard.press("Enter")
    assert page.inner_text("#search-count") == "2 of 2"
    assert query(page) == 13
    page.keyboard.press("Shift+Enter")
    assert query(page) == 5
    page.fill("#search-text", "nowhere")
    assert page.inner_text("#search-count") == "0 of 0"


@wide
@pytest.mark.parametrize("name", thin(["self", "translation", "image", "graph"], 3))
def test_tab_reaches_everything_and_is_seen(visit, name):
    page = visit(name)
    tabs = page.eval_on_selector_all("[role=tab]", "all => all.map((tab) => tab.id.slice(4))")
    wanted = {"self": ["grid", "map", "text", "arcs", "compare", "table"], "translation": ["align"]}.get(name, [name])
    for tab in [tab for tab in tabs if tab in wanted]:
        page.click(f"#tab-{tab}")
        page.wait_for_timeout(150)
        page.evaluate("document.querySelectorAll('[data-visited]').forEach((one) => delete one.dataset.visited)")
        # the first of all, from which Tab goes on
        page.focus(".skip")
        assert page.evaluate(FOCUS)["name"].startswith("<a")
        last = None
        for _ in range(150):
            page.keyboard.press("Tab")
            focus = page.evaluate(FOCUS)
            if focus is None:
                # past the last one, back in the browser's own frame
                break
            assert focus["seen"], f"{tab}: no outline on {focus['name']}"
            assert focus["inView"], f"{tab}: out of sight: {focus['name']}"
            last = focus
        assert last is not None
        left = page.evaluate(LEFT)
        assert not left, f"{tab}: Tab does not reach {left}"


@wide
@pytest.mark.parametrize(
    ("name", "hash", "selector", "keys"),
    thin([
        ("self", "view=grid", "#view-grid .thumb[tabindex='0']", ["ArrowRight", "Shift+ArrowDown", "g", "l", "d"]),
        ("self", "view=map", "#view-map .map-over", ["ArrowDown", "z", "0", "Shift+ArrowRight", "l", "d", "s"]),
        ("self", "view=text", "#text-tokens", ["ArrowRight", "ArrowDown", "Shift+ArrowRight", "w", "r", "d", "l"]),
        ("self", "view=text", "#text-words", ["w", "l"]),
        ("self", "view=table", "#table-queries .sorter", ["ArrowRight", "Shift+ArrowDown", "s", "l"]),
        ("self", "view=compare", "#view-compare .map-over", ["ArrowRight", "x", "Shift+ArrowRight", "l"]),
        ("self", "view=grid", "#tab-grid", ["ArrowRight", "ArrowRight", "ArrowLeft", "l"]),
        ("self", "view=map", "#open-help", ["?", "Escape", "e", "Escape", "/", "Escape", "l"]),
        ("translation", "view=align&entry=4", "#align-targets button", ["ArrowRight", "s", "Shift+ArrowRight", "l"]),
        ("image", "view=image", "#image-layer", ["ArrowRight", "ArrowDown", "Shift+ArrowRight", "l"]),
        ("graph", "view=graph", "#graph-picture .node", ["ArrowRight", "Enter", "Shift+ArrowRight", "l", "d"]),
    ], 3),
)  # fmt: skip
def test_the_focus_is_never_lost(visit, name, hash, selector, keys):
    page = visit(name, hash)
    page.wait_for_selector(selector)
    page.locator(selector).first.focus()
    lost = []
    for key in keys:
        page.keyboard.press(key)
        page.wait_for_timeout(60)
        if page.evaluate("document.activeElement === document.body || !document.activeElement"):
            lost.append(key)
            page.locator(selector).first.focus()
    assert not lost


@wide
def test_the_listbox_names_its_chosen_token(visit):
    page = visit("self", "view=text&query=3")
    page.wait_for_selector("#view-text .token.query")
    page.focus("#text-tokens")
    page.keyboard.press("ArrowRight")
    wait_until(page, "document.querySelector('#text-tokens').getAttribute('aria-activedescendant') === 'text-tokens-4'")
    assert page.get_attribute("#text-tokens-4", "aria-selected") == "true"


@wide
def test_a_row_is_said_aloud(visit):
    page = visit("self", "view=text&query=3")
    page.wait_for_selector("#view-text .token.query")
    page.keyboard.press("ArrowRight")
    wait_until(page, "document.querySelector('#regard-live').textContent.includes('(4) attends to')")
