"""Every view shows what is true of the weights, as they come from all scores at once."""

import re

import numpy as np
import pytest

from tests.views.page.browser import pages
from tests.views.page.browser.hands import (
    assert_near,
    find_cividis,
    read_number,
    read_pixel,
    read_table,
    read_titles,
    wait_until,
)
from tests.wide import thin, wide

TABS = {
    "self": ["grid", "map", "text", "arcs", "compare", "table"],
    "translation": ["grid", "map", "text", "arcs", "align", "compare", "table"],
    "image": ["grid", "map", "text", "arcs", "compare", "image", "table"],
    "graph": ["grid", "map", "text", "arcs", "compare", "graph", "table"],
}


@pytest.mark.parametrize("name", thin(TABS, 3))
def test_every_view_opens_by_its_tab(visit, name):
    page = visit(name)
    tabs = page.eval_on_selector_all("[role=tab]", "all => all.map((tab) => tab.id.slice(4))")
    assert tabs == TABS[name]
    for tab in tabs:
        page.click(f"#tab-{tab}")
        assert page.locator(f"#view-{tab}").is_visible()
        assert page.get_attribute(f"#tab-{tab}", "aria-selected") == "true"
        assert len(page.inner_text(f"#view-{tab}")) > 20
        assert page.locator("[role=tabpanel]:visible").count() == 1


@pytest.mark.parametrize(("name", "layer", "head", "query"), [("self", 1, 2, 5), ("long", 0, 1, 137)])
def test_hovering_a_token_shows_its_row(visit, name, layer, head, query):
    made = pages.make(name)
    heads = made.head(layer, head).shape[0]
    page = visit(name, f"view=text&entry={layer * (4 if name == 'self' else 2) + head}&query=0")
    page.wait_for_selector("#view-text .token")
    if name == "long":
        page.fill("#text-jump", str(query))
        page.keyboard.press("Enter")
    else:
        page.hover(f"#view-text .token[data-index='{query}']")
    page.wait_for_selector(f"#view-text .token.query[data-index='{query}']")
    row = made.head(layer, head)[query]
    shown = read_titles(page)
    assert len(shown) > min(heads, 60) - 1
    for key, value in shown.items():
        assert_near(value, float(row[key]), f"row {query}, key {key}")
    assert_near(read_number(page.locator("#text-strongest li").first.text_content()), float(row.max()), "the largest")


def test_what_keys_receive(visit):
    made = pages.make("self")
    page = visit("self", "view=text&entry=6")
    page.check("#text-received")
    wait_until(page, "!document.querySelector('#view-text .token.query')")
    for key, value in read_titles(page).items():
        assert_near(value, float(made.head(1, 2).sum(0)[key]), f"received by {key}")


def test_only_the_largest_weights_where_no_others_are_known(visit):
    made = pages.make("additive")
    page = visit("additive", "view=table&entry=1&query=40")
    page.wait_for_selector("#table-top tbody tr")
    row = made.head(0, 1)[40]
    best = row.topk(16)
    shown = read_table(page, "table-top")
    assert len(shown) == 16
    for k, (_, token, key, weight) in enumerate(shown):
        assert float(row[int(key)]) == pytest.approx(float(best.values[k]), rel=1e-4)
        assert_near(read_number(weight), float(row[int(key)]), f"rank {k}")
        assert token == made.labels[int(key)].strip()
    # and the page says that these are not all, and why
    why = page.inner_text(".status")
    assert "Largest weights only" in why
    assert "not a dot product" in why


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", ["self", "long"])
def test_the_map_has_the_colour_of_the_weight_under_the_pointer(visit, name):
    made = pages.make(name)
    weights = made.head(0, 0)
    page = visit(name, "view=map&entry=0&log=0")
    page.wait_for_selector("#view-map .map-over")
    page.wait_for_timeout(400)
    box = page.locator("#view-map .map-over").bounding_box()
    high = read_number(page.get_attribute("#view-map .legend canvas", "aria-label"))
    # cells of the picture, not of one token, where they are smaller than a pixel
    seen, values = 0, []
    for k in range(30):
        x, y = box["x"] + 130 + (k * 137) % 420, box["y"] + 110 + (k * 71) % 400
        page.mouse.move(x, y)
        text = page.text_content("#map-readout")
        if "key" not in text:
            continue
        i, j = (int(part) for part in (text.split()[1], text.split("On key ")[1].split()[0]))
        value = read_number(text.split("”:")[1].split(". ")[0].rstrip("."))
        assert_near(value, float(weights[i, j]), f"pair {i, j}")
        if name == "self":
            place = (x - box["x"]) / box["width"], (y - box["y"]) / box["height"]
            # on the edge of two cells, the one above is meant
            above = place[0], place[1] - 1 / box["height"]
            pixels = np.array([read_pixel(page.locator("#view-map .map-base"), *at)[:3] for at in (place, above)])
            far = np.abs(pixels - find_cividis(float(weights[i, j]) / high)).max(-1).min()
            assert far < 16, (i, j, value, pixels)
            values.append(value)
        seen += 1
    assert seen > 10
    assert name == "long" or max(values) > 4 * min(values)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("entropy", lambda w: -(w * w.log()).nan_to_num().sum(-1).mean()),
        ("first", lambda w: -w[:, 0].mean()),
        ("local", lambda w: -(w.tril(8) - w.tril(-9)).sum(-1).mean()),
        ("received", lambda w: -w.sum(0).max() / w.sum()),
    ],
)
def test_the_overview_is_sorted_by_what_it_says(visit, name, key):
    page = visit("self")
    page.select_option("#view-grid select", name)
    shown = page.eval_on_selector_all("#view-grid .thumb", "all => all.map((one) => Number(one.dataset.id))")
    assert shown == [4 * layer + head for layer, head in pages.make("self").sort(key)]


@wide
def test_the_page_says_what_it_leaves_out(visit):
    assert "Details of all 2 heads; any row of 2 heads from query and key" in visit("long").inner_text("header")
    assert "Details" not in visit("self").inner_text("header")


def test_a_head_of_the_overview_tells_its_statistics_and_opens(visit):
    weights = pages.make("self").head(2, 1)
    page = visit("self")
    label = page.get_attribute("#view-grid .thumb[data-id='9']", "aria-label")
    entropy = float(-(weights * weights.log()).sum(-1).mean())
    assert_near(read_number(label.split("entropy ")[1].split(",")[0]), entropy, "entropy")
    page.click("#view-grid .thumb[data-id='9']")
    assert page.locator("#view-map").is_visible()
    assert "layer 2 · head 1" in page.inner_text(".status")


def test_arcs_are_the_links_of_the_chosen_query(visit):
    weights = pages.make("self").head(0, 3)
    page = visit("self", "view=arcs&entry=3&query=7")
    page.wait_for_selector("#arcs-picture .arc.chosen")
    script = "all => all.map((one) => [Number(one.dataset.key), one.querySelector('title').textContent])"
    shown = {key: read_number(title) for key, title in page.eval_on_selector_all("#arcs-picture .arc.chosen", script)}
    assert set(shown) == {j for j, weight in enumerate(weights[7].tolist()) if weight >= 0.05}
    for key, weight in shown.items():
        assert_near(weight, float(weights[7, key]), f"link to {key}")


def test_alignment_is_of_the_step_that_produced_the_token(visit):
    made = pages.make("translation")
    weights = made.weights["decoder.0.cross"][1].double()
    page = visit("translation", "view=align&entry=5&query=3")
    page.wait_for_selector("#align-sources .align-weight")
    assert "row i is the step that produced token i" in page.inner_text("#align-rule").lower()
    script = """all => all.map((one) => [Number(one.dataset.index), one.querySelector('.align-weight')?.textContent])"""
    sources = page.eval_on_selector_all("#align-sources button", script)
    targets = page.eval_on_selector_all("#align-targets button", script)
    # neither padding nor special tokens, unless they are asked for
    assert [index for index, *_ in sources] == list(range(1, 12))
    assert [index for index, *_ in targets] == list(range(1, 11))
    for index, weight in sources:
        assert_near(read_number(weight), float(weights[3, index]), f"source {index}")
    page.uncheck("#align-drop")
    wait_until(page, "document.querySelectorAll('#align-sources button').length === 15")
    assert page.inner_text("#align-sources li:last-child .align-token") == "<pad>"
    assert page.locator("#align-targets button").count() == 12


def test_alignment_leads_to_an_attention_between_two_texts(visit):
    page = visit("translation", "view=grid&entry=0")
    page.click("#tab-align")
    page.wait_for_selector("#align-sources .align-weight")
    assert "cross" in page.text_content(".status h2")


@pytest.mark.thin(2)
@pytest.mark.parametrize(("name", "pair"), [("self", ((0, 1), (2, 3))), ("models", ((0, 0), (1, 0)))])
def test_two_heads_and_their_difference(visit, name, pair):
    made = pages.make(name)
    first, second = (made.head(*at) for at in pair)
    heads = len(next(iter(made.weights.values())))
    ids = [layer * heads + head for layer, head in pair]
    page = visit(name, f"view=compare&entry={ids[0]}&other={ids[1]}&log=0")
    page.wait_for_selector("#view-compare .linked")
    page.wait_for_timeout(200)
    box = page.locator("#view-compare .map-over").nth(2).bounding_box()
    base = page.locator("#view-compare .map-base").nth(2)
    n = len(first)
    gaps = (second - first).flatten()
    # where one has more, where the other, and where neither has much
    places = [divmod(int(at), n) for at in (*gaps.argsort()[:3], *gaps.argsort()[-3:], *gaps.abs().argsort()[:2])]
    signs = set()
    for i, j in places:
        x, y = box["x"] + (j + 0.5) * box["width"] / n, box["y"] + (i + 0.5) * box["height"] / n
        page.mouse.move(x, y)
        text = page.inner_text("#view-compare .linked")
        gap = float(second[i, j] - first[i, j])
        numbers = [read_number(text[: found + 1]) for found in range(len(text)) if text[found].isdigit()]
        for value in (float(first[i, j]), float(second[i, j]), gap):
            assert any(abs(value - number) <= 0.01 * abs(value) + 1e-3 for number in numbers), (value, text)
        red, _, blue, _ = read_pixel(base, (j + 0.5) / n, (i + 0.5) / n)
        if abs(gap) > 0.05:
            # orange where the second has more, blue where it has less
            assert (red > blue) == (gap > 0), (i, j, gap, red, blue)
            signs.add(gap > 0)
    assert signs == {True, False}


def test_patches_over_a_picture(visit):
    weights = pages.make("image").head(0, 1)
    page = visit("image", "view=image&entry=1&query=6&pinned=1")
    page.wait_for_selector("#image-layer")
    page.wait_for_timeout(150)
    box = page.locator("#image-layer").bounding_box()
    for patch in (0, 5, 11, 15):
        page.mouse.move(
            box["x"] + (patch % 4 + 0.5) * box["width"] / 4, box["y"] + (patch // 4 + 0.5) * box["height"] / 4
        )
        assert_near(read_number(page.inner_text("#image-readout")), float(weights[6, patch + 1]), f"patch {patch}")
    assert page.evaluate("document.querySelector('#image-photo').naturalWidth") == 32
    # the class token is a query too
    page.click("#image-others button")
    wait_until(page, "document.querySelector('#image-others button').getAttribute('aria-pressed') === 'true'")
    best = weights[0, 1:].topk(5).values
    assert_near(read_number(page.inner_text("#image-summary").split(",")[0]), float(best[0]), "best patch of the class")


def test_edges_of_a_graph(visit):
    weights = pages.make("graph").head(0, 0)
    page = visit("graph", "view=graph&entry=0")
    page.wait_for_selector("#graph-edges tbody tr")
    edges = [tuple(edge) for edge in pages.EDGES.T.tolist()]
    shown = {}
    for start, stop, weight in read_table(page, "graph-edges") + read_table(page, "graph-loops"):
        shown[int(start[-1]), int(stop[-1])] = read_number(weight)
    assert set(shown) == set(edges)
    for start, stop in edges:
        # the node that attends is where the arrow ends
        assert_near(shown[start, stop], float(weights[stop, start]), f"edge {start} to {stop}")


def test_tables_hold_the_numbers(visit):
    made = pages.make("self")
    weights = made.head(1, 0)
    page = visit("self", "view=table&entry=4&query=2")
    page.wait_for_selector("#table-top tbody tr")
    order = weights[2].argsort(descending=True).tolist()
    rows = read_table(page, "table-top")
    assert [int(row[2]) for row in rows] == order
    for row in rows:
        assert_near(read_number(row[3]), float(weights[2, int(row[2])]), f"key {row[2]}")
    for row in read_table(page, "table-queries"):
        i = int(row[0])
        own = weights[i]
        assert_near(read_number(row[2]), float(-(own * own.log()).sum()), f"entropy of row {i}")
        assert_near(read_number(row[3]), float(own.max()), f"peak of row {i}")
        assert_near(read_number(row[4]), float(own[0]), f"first token of row {i}")
        assert int(row[-2]) == int(own.argmax())
    for row in read_table(page, "table-heads"):
        own = made.head(int(row[1]), int(row[2]))
        assert_near(read_number(row[3]), float(-(own * own.log()).sum(-1).mean()), f"entropy of head {row[1:3]}")
        assert_near(read_number(row[4]), float(own[:, 0].mean()), f"sink of head {row[1:3]}")


def test_zooming_in_reaches_exact_weights_and_says_so(visit):
    page = visit("many", "view=map&query=4000&key=3990&log=0")
    about = page.locator("#view-map .bar .note.grow")
    wait_until(
        page, "document.querySelector('#view-map .bar .note.grow').textContent.includes('Means over blocks of 32')"
    )
    assert "zoom in" in about.inner_text()
    for _ in range(4):
        page.keyboard.press("z")
    wait_until(
        page, "document.querySelector('#view-map .bar .note.grow').textContent.startsWith('Weights computed here')"
    )
    row = pages.make("many").weights["row"]
    wait_until(page, "document.querySelector('#map-readout').textContent.includes('4000')")
    text = page.text_content("#map-readout")
    assert_near(read_number(text.split("”:")[1].split(". ")[0].rstrip(".")), float(row[3990]), text)
    page.keyboard.press("0")
    wait_until(page, "document.querySelector('#view-map .bar .note.grow').textContent.includes('Means over')")


@wide
def test_a_map_without_query_and_key_says_why_it_stays_coarse(visit):
    page = visit("additive", "view=map&entry=0&zoom=0,20,0,20")
    wait_until(
        page,
        "document.querySelector('#view-map .bar .note.grow').textContent.includes('largest weights of each query')",
    )
    assert "not a dot product" in page.inner_text(".status")


def test_hidden_sinks_are_left_out_and_the_rest_adds_to_one(visit):
    weights = pages.make("self").head(0, 2)
    page = visit("self", "view=text&entry=2&query=4&sinks=1")
    page.wait_for_selector("#view-text .token.dropped")
    shown = read_titles(page)
    rest = weights[4, 1:] / weights[4, 1:].sum()
    assert 0 not in shown
    for key, value in shown.items():
        assert_near(value, float(rest[key - 1]), f"key {key} without the first")


@wide
def test_a_long_text_keeps_few_tokens_in_the_document(visit):
    page = visit("many", "view=text")
    page.wait_for_selector("#view-text .token")
    counts = "[document.querySelectorAll('.token').length, document.querySelectorAll('#view-text *').length]"
    few = page.evaluate(counts)
    assert 50 < few[0] <= 400
    page.fill("#text-jump", "8191")
    page.keyboard.press("Enter")
    page.wait_for_selector("#view-text .token[data-index='8191']")
    assert page.evaluate(counts)[0] <= 400
    assert page.inner_text("#view-text .token[data-index='8191']") == "tok8191"


def test_the_shown_tokens_are_the_text(visit):
    text = pages.make("scripts").labels
    page = visit("scripts", "view=text")
    page.wait_for_selector("#view-text .token")
    tokens = page.eval_on_selector_all(
        "#view-text .token", "all => all.map((one) => [one.dataset.text, one.textContent])"
    )
    assert "".join(raw for raw, _ in tokens) == text
    # what is seen differs by the marks of spaces alone, and of joiners that join nothing in their token
    for raw, seen in tokens:
        wanted = re.sub("^\u200d|\u200d$", "⟨200D⟩", raw)
        for sign, mark in ((" ", "·"), ("\n", "↵"), ("\t", "→")):
            wanted = wanted.replace(sign, mark)
        assert seen == wanted
