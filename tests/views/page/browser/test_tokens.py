"""Tokens in every view: whose they are, how they are written, and which way they run."""

import json
import re

import pytest

from tests.views.page.browser import pages
from tests.views.page.browser.hands import assert_near, read_table, read_titles, wait_until
from tests.wide import wide


def change_data(page, change) -> str:
    """The page's text with its data changed."""

    def rewrite(found):
        data = json.loads(found[2])
        change(data)
        return found[1] + json.dumps(data).replace("<", "\\u003c") + found[3]

    return re.sub(r'(id="regard-data">)(.*?)(</script>)', rewrite, page.html, count=1, flags=re.DOTALL)


def read_tokens(page, selector="#view-text .token"):
    script = "all => all.map((one) => one.textContent)"
    return page.eval_on_selector_all(selector, script)


def read_chosen(page, id):
    return page.eval_on_selector_all(f"#{id} .token.query", "all => all.map((one) => one.textContent)")


def test_words_are_joined_and_taken_apart_again(visit):
    weights = pages.make("scripts").head(0, 0)
    page = visit("scripts", "view=text&entry=0&query=5")
    page.wait_for_selector("#view-text .token.query")
    assert page.locator("#view-text .token").count() == len(weights)
    page.check("#text-words")
    wait_until(page, f"document.querySelectorAll('#view-text .token').length < {len(weights)}")
    page.uncheck("#text-words")
    wait_until(page, f"document.querySelectorAll('#view-text .token').length === {len(weights)}")
    # and the next row is shown too
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#view-text .token.query[data-index='6']")
    shown = read_titles(page)
    assert len(shown) == len(weights)
    for key, weight in shown.items():
        assert_near(weight, float(weights[6, key]), f"key {key}")


def test_text_follows_to_a_head_of_a_longer_text(visit):
    page = visit("translation", "view=text&entry=2&query=3")
    page.wait_for_selector("#view-text .token.query")
    page.keyboard.press("Shift+ArrowUp")
    wait_until(page, "document.querySelectorAll('#text-tokens .token').length === 14 + 1")
    wait_until(page, "[...document.querySelectorAll('#text-tokens .token')].every((one) => one.title.includes(':'))")
    weights = pages.make("translation").weights["encoder.0.self"][0]
    for key, weight in read_titles(page).items():
        assert_near(weight, float(weights[3, key]), f"key {key}")


@wide
def test_keys_that_are_shifted_have_their_own_labels(visit):
    made = pages.make("shifted")
    page = visit("shifted", "view=text&entry=2&query=0")
    page.wait_for_selector("#text-queries .token.query")
    assert read_tokens(page, "#text-queries .token") == ["the", "street", "was", "wide", "</s>"]
    assert read_tokens(page, "#text-keys .token") == ["</s>", "the", "street", "was", "wide"]
    assert read_chosen(page, "text-queries") == ["the"]
    assert read_chosen(page, "text-keys") == []
    # a causal row has one key: what was read first
    assert page.inner_text("#text-strongest li").split() == ["</s>", "1"]
    for key, weight in read_titles(page, "#text-keys .token").items():
        assert_near(weight, float(made.weights["decoder.0"][0, 0, key]), f"key {key}")
    page.click("#tab-arcs")
    page.wait_for_selector("#arcs-picture .arc")
    script = "all => all.map((one) => [one.getAttribute('text-anchor'), one.firstChild.textContent, one.dataset.index])"
    names = page.eval_on_selector_all("#arcs-picture .arc-token", script)
    assert ["end", "the", "0"] in names
    assert [None, "</s>", "0"] in names
    assert len(names) == 10
    assert page.locator("#arcs-picture .arc-title").all_text_contents() == ["target", "inputs"]


@wide
@pytest.mark.parametrize("produced", [True, False, None])
def test_alignment_says_what_its_rows_are(visit, tmp_path, produced):
    def tell(data):
        data.pop("produced", None)
        if produced is not None:
            data["produced"] = produced

    path = tmp_path / "page.html"
    path.write_text(change_data(pages.make("translation").page, tell), encoding="utf-8")
    page = visit(path, "view=align&entry=4")
    rule = page.inner_text("#align-rule")
    assert ("produced token i" in rule) == bool(produced)
    assert ("read at step i" in rule) != bool(produced)
    page.keyboard.press("l")
    wait_until(page, "document.documentElement.lang.startsWith('zh')")
    assert ("产生第 i 个词元" in page.inner_text("#align-rule")) == bool(produced)
    # names that the page knows are in its language too
    assert page.inner_text("#align-source-title") == "键：源文本"


@wide
def test_weights_that_are_no_numbers_are_marked(visit):
    page = visit("broken", "view=text&entry=0&query=4")
    page.wait_for_selector("#view-text .token.unknown")
    assert page.locator("#view-text .token.unknown").count() == 9
    assert "NaN" in page.inner_text("#text-broken")
    assert page.get_attribute("#view-text .token[data-index='2']", "title") == "2: NaN"
    page.keyboard.press("ArrowRight")
    wait_until(page, "!document.querySelector('#view-text .token.unknown')")
    assert page.locator("#text-broken").is_hidden()
    page.click("#tab-table")
    page.wait_for_selector("#table-queries tbody tr")
    rows = read_table(page, "table-queries")
    assert [row[2] == "NaN" for row in rows] == [k == 4 for k in range(9)]
    assert [row[3] == "NaN" for row in read_table(page, "table-heads")] == [True, False]
    page.click("#table-queries tbody tr:nth-child(5) .sorter")
    page.wait_for_selector("#table-broken:visible")
    page.click("#tab-arcs")
    page.wait_for_selector("#arcs-broken:visible")
    # nothing is not what it attends to
    assert page.inner_text("#arcs-readout") == "Token “w4” (4) attends to NaN"
    page.click("#regard h1")
    page.keyboard.press("Shift+ArrowRight")
    page.wait_for_selector("#arcs-broken", state="hidden")


@wide
def test_a_text_from_right_to_left_runs_so(visit):
    page = visit("persian", "view=text&entry=0&query=1")
    page.wait_for_selector("#view-text .token.query")
    assert page.evaluate("document.querySelector('#text-tokens').dir") == "rtl"
    left = page.eval_on_selector_all("#text-tokens .token", "all => all.map((one) => one.getBoundingClientRect().left)")
    assert left == sorted(left, reverse=True)
    assert len(left) == 7
    assert visit("scripts", "view=text").get_attribute("#text-tokens", "dir") == "ltr"


def test_joiners_are_marked_only_where_they_stand_alone(visit, tmp_path):
    word = "\u200c".join(["می", "خواهم"])
    shown = {
        word: word,
        " 👩\u200d👩\u200d👧": "👩\u200d👩\u200d👧",
        "❤\ufe0f\u200d🔥": "❤\ufe0f\u200d🔥",
        "\u200d": "⟨200D⟩",
        "می\u200c": "می⟨200C⟩",
        "\ufe0f": "⟨FE0F⟩",
        "a\u200bb\u202e": "a⟨200B⟩b⟨202E⟩",
    }

    def tell(data):
        data["sides"] = [{"name": "text", "labels": [*shown, "x", "∅"], "joined": False, "marks": [8]}]

    path = tmp_path / "page.html"
    path.write_text(change_data(pages.make("broken").page, tell), encoding="utf-8")
    page = visit(path, "view=text&entry=1&query=0")
    page.wait_for_selector("#view-text .token.query")
    # bytes of a character that never came are part of one, not nothing
    assert read_tokens(page) == [*shown.values(), "x", "⟨…⟩"]


PIECES = ["The", " anim", "al", " did", " not", "\n", " ", " cross ", "."]


def test_spaces_are_marked_only_where_words_are_in_pieces(visit, tmp_path):
    def tell(data, labels):
        data["sides"] = [{"name": "text", "labels": labels, "joined": True}]

    def read(name, labels):
        path = tmp_path / f"{name}.html"
        path.write_text(change_data(pages.make("broken").page, lambda data: tell(data, labels)), encoding="utf-8")
        page = visit(path, "view=text&entry=1&query=1")
        page.wait_for_selector("#view-text .token.query")
        return page

    page = read("pieces", PIECES)
    assert read_tokens(page) == ["The", "·anim", "al", "·did", "·not", "↵", "·", "·cross·", "."]
    # quotes hold no sign of a space
    assert "“anim”" in page.inner_text("#text-summary")
    # joined, the pieces are words, and what parts them is no longer worth a sign
    page.check("#text-words")
    wait_until(page, "document.querySelectorAll('#view-text .token').length < 9")
    assert {"animal", "did", "not"} <= set(read_tokens(page))
    # whole words: a sign stands only where there is more than the space between two words
    page = read("words", ["The", " animal", "  did", " not", "\n", " ", " cross ", "!", "?"])
    assert read_tokens(page) == ["The", "animal", "··did", "not", "↵", "·", "cross", "!", "?"]


@wide
def test_received_attention_is_of_no_row(visit):
    page = visit("self", "view=text&entry=0&query=7&pinned=1")
    page.wait_for_selector("#view-text .token.query")
    assert "pinned" in page.inner_text("#text-readout")
    assert "of the row" in page.inner_text("#text-note")
    page.check("#text-received")
    wait_until(page, "!document.querySelector('#view-text .token.query')")
    assert "pinned" not in page.inner_text("#text-readout")
    assert "every query" in page.inner_text("#text-note")


@wide
def test_chinese_labels_stand_upright(visit):
    page = visit("translation", "view=align&entry=4")
    page.wait_for_selector("#align-map .arc-token")
    script = """all => all.map((one) => [one.textContent, Boolean(one.getAttribute("transform"))])"""
    leaning = dict(page.eval_on_selector_all("#align-map .arc-token", script))
    assert leaning["北京"] is False
    page.uncheck("#align-drop")
    page.wait_for_selector("#align-map .arc-token[transform]")
    leaning = dict(page.eval_on_selector_all("#align-map .arc-token", script))
    assert leaning["<pad>"] is True


def test_the_query_of_the_address_has_its_node_lit(visit):
    page = visit("graph", "view=graph&entry=0&query=3")
    page.wait_for_selector("#graph-picture .node.query")
    script = "all => all.map((one) => one.dataset.index)"
    assert page.eval_on_selector_all("#graph-picture .node.query", script) == ["3"]
    assert "“node 3”" in page.inner_text("#graph-readout")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#graph-picture .node.query[data-index='4']")


def test_heads_of_the_overview_alone_have_no_empty_tables(visit, tmp_path):
    def tell(data):
        for name in [name for name in data["entries"][0]["blobs"] if name != "thumb"]:
            del data["entries"][0]["blobs"][name]
        data["entries"][0]["exact"] = False

    path = tmp_path / "page.html"
    path.write_text(change_data(pages.make("self").page, tell), encoding="utf-8")
    page = visit(path, "view=table&entry=0", viewport={"width": 400, "height": 800})
    page.wait_for_selector("#table-note")
    assert "--heads" in page.inner_text("#table-note")
    assert page.locator("#table-queries, #table-top").count() == 0
    # and in a narrow window the heads of columns are words, not columns of letters
    heights = page.eval_on_selector_all(
        "#table-heads thead .sorter", "all => all.map((one) => one.getBoundingClientRect().height)"
    )
    assert len(heights) == 8
    assert max(heights) < 70
