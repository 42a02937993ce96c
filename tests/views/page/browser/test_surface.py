"""Language, theme, address, frames, and what axe has to say."""

import json
import pathlib
import re

import pytest

from regard.views.page import build
from tests.views.page.browser import pages
from tests.views.page.browser.hands import WORDS, read_png, read_state, wait_until
from tests.wide import thin, wide
from tools.browser import Visit

VOCABULARY = {
    key: word
    for name in build.WORDS
    for key, word in json.loads((build.FOLDER / name).read_text(encoding="utf-8")).items()
}


def make_pattern(template: str) -> str:
    return re.sub(r"\\\{\w+\\\}", ".*", re.escape(template))


def find_english(texts: list[str]) -> list[str]:
    """Texts that are English words of the surface, or keys that have no words."""
    same = {word["en"] for word in VOCABULARY.values() if word["en"] == word["zh"]}
    english = [
        word["en"] for word in VOCABULARY.values() if word["en"] not in same and re.search("[a-z]{3}", word["en"])
    ]
    # templates that are all place say nothing
    patterns = [make_pattern(text) for text in english if re.search("[a-z]{3}", re.sub(r"\{\w+\}", "", text))]
    whole = re.compile("|".join(f"(?:{pattern})" for pattern in patterns))
    return [text for text in texts if whole.fullmatch(text) or text in VOCABULARY]


def read_words(page) -> list[str]:
    """All that is said, but for the words of the text itself, which are nobody's to translate."""
    return [text for text in page.evaluate(WORDS) if text not in pages.TEXT.split()]


def test_every_word_is_there_in_both_languages():
    for key, word in VOCABULARY.items():
        assert set(word) == {"en", "zh"}, key
        places = [sorted(re.findall(r"\{\w+\}", word[language])) for language in ("en", "zh")]
        assert places[0] == places[1], key
    used = {
        key
        for path in build.FOLDER.glob("*.js")
        for key in re.findall(
            r'(?:R\.t|say|kit\.press)\([^"()]*(?:\([^()]*\))?[^"()]*"([a-z]+\.[a-zA-Z.]+)"',
            path.read_text(encoding="utf-8"),
        )
    }
    # those that are made of parts end in a dot; the note comes with the data
    assert not [key for key in used - {"page.note"} if key not in VOCABULARY and not key.endswith(".")]
    assert len(used) > 40


@pytest.mark.parametrize("name", thin(["self", "translation", "image", "graph"], 3))
def test_chinese_leaves_no_english_word(visit, name):
    page = visit(name, "lang=zh")
    assert page.get_attribute("html", "lang") == "zh-Hans"
    tabs = page.eval_on_selector_all("[role=tab]", "all => all.map((tab) => tab.id.slice(4))")
    for tab in tabs if name != "self" else [*tabs, "help", "export"]:
        if tab in ("help", "export"):
            page.keyboard.press({"help": "?", "export": "e"}[tab])
        else:
            page.click(f"#tab-{tab}")
        page.wait_for_timeout(100)
        texts = read_words(page)
        assert not find_english(texts), tab
        assert sum(bool(re.search("[\u4e00-\u9fff]", text)) for text in texts) > 15
        if tab == "help":
            page.keyboard.press("Escape")


@wide
def test_changing_the_language_changes_what_is_shown(visit):
    page = visit("self", "view=text")
    page.wait_for_selector("#view-text .token")
    assert not [text for text in page.evaluate(WORDS) if re.search("[\u4e00-\u9fff]", text) and text != "中文"]
    page.select_option("select:has(option[value=zh])", "zh")
    assert page.inner_text("#tab-text") == "文本"
    assert not find_english(read_words(page))
    page.select_option("select:has(option[value=zh])", "en")
    assert page.inner_text("#tab-text") == "Text"


def test_dark_follows_the_system_and_the_reader(visit):
    page = visit("self", color_scheme="dark")
    assert page.get_attribute("html", "data-theme") == "dark"
    dark = page.screenshot(clip={"x": 2, "y": 2, "width": 8, "height": 8})
    page.select_option("select:has(option[value=dark])", "light")
    light = page.screenshot(clip={"x": 2, "y": 2, "width": 8, "height": 8})
    levels = [max(read_png(picture)[0, 1:4]) for picture in (dark, light)]
    assert levels[0] < 64 < 200 < levels[1]


def test_the_address_keeps_what_is_shown(visit):
    page = visit("self", "view=grid&entry=0&query=0")
    page.keyboard.press("3")
    page.keyboard.press("Shift+ArrowDown")
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    for key in "slgd":
        page.keyboard.press(key)
    kept = read_state(page)
    assert kept == {
        "view": "text", "entry": "4", "query": "5", "key": "5", "sinks": "1", "lang": "zh", "log": "1", "theme": "dark",
        "pinned": "1",
    }  # fmt: skip
    again = visit("self", page.evaluate("location.hash").lstrip("#"))
    again.wait_for_selector("#view-text .token.query[data-index='5']")
    assert read_state(again) == kept
    assert again.text_content(".status h2") == page.text_content(".status h2")
    assert again.inner_text("#view-text") == page.inner_text("#view-text")


@wide
def test_two_frames_of_a_notebook_at_once(browser, tmp_path):
    host = tmp_path / "notebook.html"
    frames = "".join(pages.make(name).page._repr_html_() for name in ("self", "translation"))
    host.write_text(f"<!DOCTYPE html><title>host</title><script>window.mine = 1</script>{frames}", encoding="utf-8")
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    visit = Visit.begin(context)
    visit.own.add(host.as_uri())
    visit.page.goto(host.as_uri())
    for number, (frame, title) in enumerate(zip(visit.page.frames[1:], ("Self-attention", "Translation"), strict=True)):
        frame.wait_for_selector("html[data-ready]", state="attached")
        assert frame.text_content("h1") == title
        frame.click("#tab-text")
        frame.wait_for_selector("#view-text .token")
        frame.locator("#view-text .token").nth(2).click()
        frame.wait_for_selector("#view-text .token.query[data-index='2']")
        visit.page.keyboard.press("l")
        wait_until(frame, "document.documentElement.lang === 'zh-Hans'")
        visit.page.keyboard.press("e")
        with visit.page.expect_download() as found:
            frame.click("#export-row")
        assert found.value.suggested_filename.endswith(".csv")
        # a frame of its own origin reaches nothing of its host
        reach = "(() => { try { return String(parent.mine); } catch { return 'refused'; } })()"
        assert frame.evaluate(reach) == "refused", number
    visit.page.wait_for_timeout(350)
    faults = visit.find_faults()
    context.close()
    assert not faults, faults


AXE = """async ([place, only]) => {
  const options = {resultTypes: ["violations"], ...(only ? {runOnly: {type: "rule", values: [only]}} : {})};
  const found = await axe.run(place, options);
  const tell = (node) => node.html.slice(0, 140) + " | " + node.failureSummary;
  return found.violations.filter((one) => ["serious", "critical"].includes(one.impact)).map((one) =>
    one.id + ": " + one.nodes.slice(0, 3).map(tell).join("\\n    "));
}"""


@pytest.mark.parametrize("name", thin(["self", "translation", "image", "graph"], 3))
def test_axe_finds_nothing_serious(visit, name):
    package = pytest.importorskip("axe_playwright_python")
    axe = (pathlib.Path(package.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    # axe is a script of ours: the policy is asked for nothing here
    page = visit(name, "theme=light&query=2&key=1", bypass_csp=True)
    page.evaluate(axe)
    tabs = page.eval_on_selector_all("[role=tab]", "all => all.map((tab) => tab.id.slice(4))")
    for tab in {"self": tabs[1:], "translation": ["align"]}.get(name, [name]):
        page.click(f"#tab-{tab}")
        # in the dark nothing but colours is new
        for theme, only in (("light", ""), ("dark", "color-contrast")):
            page.wait_for_timeout(100)
            assert not page.evaluate(AXE, [f"#view-{tab}", only]), f"{tab} in {theme}"
            page.keyboard.press("d")
    if name == "self":
        for key, place in (("?", "#help"), ("e", "#export")):
            page.keyboard.press(key)
            assert not page.evaluate(AXE, [place, ""]), place
            page.keyboard.press("Escape")
        # the whole of it, in Chinese, with the search open
        page.keyboard.press("1")
        page.keyboard.press("l")
        page.keyboard.press("d")
        page.keyboard.press("/")
        # colours change by and by
        page.wait_for_timeout(400)
        assert not page.evaluate(AXE, ["html", ""]), "the frame in the dark"


def test_what_gauges_the_page_notices_faults(browser, tmp_path):
    """A page with every fault that the visits look for: each is found."""
    path = tmp_path / "bad.html"
    text = """<!DOCTYPE html><html data-ready>
      <meta http-equiv="Content-Security-Policy" content="img-src 'none'"><img src="data:image/png;base64,x">
      <script>canary("ran"); console.error("loud"); fetch("https://example.com/x").catch(() => 0);
      setTimeout(() => { throw new Error("late"); }); alert("dialog");</script>"""
    path.write_text(text, encoding="utf-8")
    context = browser.new_context()
    visit = Visit.begin(context)
    visit.open(path)
    visit.page.wait_for_timeout(100)
    faults = "\n".join(visit.find_faults())
    context.close()
    for word in (
        "policy: img-src",
        "a payload ran: ran",
        "loud",
        "request: https://example.com/x",
        "late",
        "dialog: dialog",
    ):
        assert word in faults, word
