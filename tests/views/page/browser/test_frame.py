"""What a new user stumbled on: masks, NaN, pairs, names, where a page opens, rows that add to one."""

import json
import pathlib
import re

import pytest
import torch

from regard import mask, weigh
from regard.engine import find_weights
from regard.engine.look import Look, look
from regard.views.page import Page, page
from tests.views.page.browser.hands import find_cividis, read_number, read_pixel, read_state, wait_until
from tests.wide import wide

DATA = re.compile(r'(<script type="application/json" id="regard-data">)(.*?)(</script>)', re.DOTALL)
PAPER = (255, 255, 255)
VOID = (185, 185, 189)
PATCH = """(canvas, [x, y]) => {
  const twin = document.createElement("canvas");
  [twin.width, twin.height] = [9, 9];
  const pen = twin.getContext("2d", {willReadFrequently: true});
  pen.drawImage(canvas, 4 - Math.floor(x * canvas.width), 4 - Math.floor(y * canvas.height));
  return [...pen.getImageData(0, 0, 9, 9).data];
}"""
# what is written on canvases from now on, and how it is turned
SPY = """() => {
  window.written = [];
  const plain = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
    window.written.push([text, Math.abs(this.getTransform().b) > 0.5]);
    return plain.call(this, text, ...place);
  };
}"""


def draw(n: int, heads: int = 2, seed: int = 0, sharp: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    query, key = torch.randn(2, 1, heads, n, 8, generator=draw)
    return query * sharp, key


def make(n: int, layers: int = 1, seed: int = 0, **terms: object) -> dict[str, Look]:
    return {f"layer.{k}": look(*draw(n, seed=seed + k), keep=True, **terms) for k in range(layers)}  # type: ignore[arg-type]


def words(n: int, sign: str = "w") -> list[str]:
    return [f"{sign}{k} " for k in range(n)]


def patch(shown: Page, path: pathlib.Path, **changes: object) -> pathlib.Path:
    """The page with some of its data changed, as another writer could have sent it."""

    def replace(found: re.Match[str]) -> str:
        data = json.loads(found[2]) | changes
        return found[1] + json.dumps(data).replace("<", "\\u003c") + found[3]

    text, count = DATA.subn(replace, shown.html)
    assert count == 1
    path.write_text(text, encoding="utf-8")
    return path


def spoil(n: int, at: int) -> Page:
    """A causal head that one key, from its own row on, turns to NaN, and a sound one in another layer."""
    query, key = draw(n, 1)
    broken = key.clone()
    broken[..., at, :] = torch.nan
    seen = {"bad": look(query, broken, mask=mask.Causal(), keep=True), "good": look(query, key, keep=True)}
    return page(seen, words(n), None)


def read_patch(canvas, x: float, y: float) -> set[tuple[int, ...]]:
    """The colours of 9 by 9 pixels around a place, as shares of the canvas."""
    values = canvas.evaluate(PATCH, [x, y])
    return {tuple(values[at : at + 3]) for at in range(0, len(values), 4)}


def walk_map(shown, rows: int, columns: int) -> dict[tuple[int, int], set[tuple[int, ...]]]:
    """The colours of a map's cells, found by the pointer: (query, key) → colours in the middle of the cell."""
    wait_until(shown, "document.querySelector('#view-map .bar .note.grow').textContent.startsWith('Every weight')")
    over, base = shown.locator("#view-map .map-over"), shown.locator("#view-map .map-base")
    box, cells = over.bounding_box(), {}
    for k in range(rows):
        for h in range(columns):
            place = 0.12 + 0.55 * h / columns, 0.14 + 0.58 * k / rows
            shown.mouse.move(box["x"] + place[0] * box["width"], box["y"] + place[1] * box["height"])
            text = shown.text_content("#map-readout")
            if found := re.match(r"Query (\d+) .*On key (\d+) ", text):
                cells[int(found[1]), int(found[2])] = read_patch(base, *place)
    return cells


def keep_inner(cells: dict, kind) -> dict[tuple[int, int], str]:
    """The kinds of pairs whose neighbours are all of their kind: no colour there is of another cell."""
    around = [(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1)]
    return {(i, j): kind(i, j) for i, j in cells if len({kind(i + a, j + b) for a, b in around}) == 1}


@wide
def test_masked_cells_are_hatched_where_every_weight_is_in_the_file(visit, tmp_path):
    path = page(make(14, mask=mask.Causal()), words(14), tmp_path / "causal.html").path
    shown = visit(path, "view=map&entry=0")
    assert shown.locator("#view-map .hatched").is_visible()
    cells = walk_map(shown, 9, 9)
    kinds = keep_inner(cells, lambda i, j: "masked" if j > i else "weight")
    assert min(list(kinds.values()).count(kind) for kind in ("masked", "weight")) > 8
    zero = tuple(find_cividis(0).round().astype(int))
    for pair, kind in kinds.items():
        assert (PAPER in cells[pair]) == (kind == "masked"), (pair, cells[pair])
        assert kind == "weight" or zero not in cells[pair]


@wide
def test_nan_is_neither_masked_nor_zero(visit, tmp_path):
    path = spoil(14, 5).save(tmp_path / "nan.html")
    shown = visit(path, "view=map&entry=0")
    cells = walk_map(shown, 9, 9)
    kinds = keep_inner(cells, lambda i, j: "masked" if j > i else "nan" if i >= 5 else "weight")
    assert min(list(kinds.values()).count(kind) for kind in ("masked", "nan", "weight")) > 0
    for pair, kind in kinds.items():
        assert (VOID in cells[pair]) == (kind == "nan"), (pair, cells[pair])
        assert (PAPER in cells[pair]) == (kind == "masked"), (pair, cells[pair])
    assert shown.locator("#view-map .crossed").is_visible()
    assert "NaN" in shown.inner_text(".status .chip")
    assert "NaN" in shown.inner_text(".status")
    shown.locator("#view-map .map-over").focus()
    for _ in range(14):
        shown.keyboard.press("ArrowDown")
    wait_until(shown, "document.querySelector('#map-readout').textContent.includes('The row holds NaN')")
    shown.select_option(".pickers select", "1")
    wait_until(shown, "document.querySelector('.status .chip').textContent === 'Every weight'")
    assert "NaN" not in shown.inner_text(".status")
    assert not shown.locator("#view-map .crossed").is_visible()


def test_nan_rows_of_the_overview_are_not_painted_as_zero(visit, tmp_path):
    shown = visit(spoil(14, 5).save(tmp_path / "nan.html"), "view=grid&entry=0")
    canvas = shown.locator("#view-grid .grid-frame canvas")
    whole = canvas.bounding_box()
    colours = []
    for id in (0, 1):
        box = shown.locator(f"#view-grid .thumb[data-id='{id}']").bounding_box()
        x, y = box["x"] - whole["x"] + 0.3 * box["width"], box["y"] - whole["y"] + 0.9 * box["height"]
        colours.append(read_pixel(canvas, x / whole["width"], y / whole["height"])[:3])
    assert colours[0] == VOID
    assert colours[1] != VOID
    assert "NaN" in shown.get_attribute("#view-grid .thumb[data-id='0']", "aria-label")
    assert "NaN" not in shown.get_attribute("#view-grid .thumb[data-id='1']", "aria-label")
    assert "NaN" in shown.inner_text("#view-grid .grid-aside .chip")
    assert shown.locator("#view-grid .crossed").is_visible()


def make_two(path: pathlib.Path, **changes: object) -> pathlib.Path:
    """Two runs of three layers and two heads, one of 14 tokens and one of 9."""
    other = (make(9, 3, seed=9), words(9, "b"))
    return patch(page(make(14, 3), words(14, "a"), None, other=other), path, **changes)


@wide
@pytest.mark.parametrize(("entry", "twin"), [(0, 6), (3, 9), (10, 4)])
def test_compare_opens_on_the_same_head_of_the_other_run(visit, tmp_path, entry, twin):
    shown = visit(make_two(tmp_path / "two.html"), f"view=compare&entry={entry}")
    wait_until(shown, "document.querySelector('#view-compare .note').textContent.includes('lengths differ')")
    chosen = shown.eval_on_selector_all("#view-compare .bar select", "all => all.map((one) => Number(one.value))")
    assert chosen == [entry, twin]


@wide
def test_runs_have_the_names_that_were_sent_and_layers_keep_their_numbers(visit, tmp_path):
    names = ["A: the first text …", "B: the second"]
    shown = visit(make_two(tmp_path / "two.html", models=names), "view=grid&entry=3")
    assert shown.locator(".pickers select").first.locator("option").all_text_contents() == names
    assert "Model" not in shown.inner_text(".pickers")
    assert shown.text_content(".status h2") == "A: the first text … · layer 1 · head 1"
    shown.evaluate(SPY)
    shown.keyboard.press("g")
    lanes = ["A · L0", "A · L1", "A · L2", "B · L0", "B · L1", "B · L2"]
    assert [text for text, _ in shown.evaluate("window.written") if "L" in text] == lanes
    # the other run, at the same place
    shown.locator(".pickers select").first.select_option("1")
    assert shown.text_content(".status h2") == "B: the second · layer 1 · head 1"


def test_the_page_opens_where_its_writer_says(visit, tmp_path):
    made = page(make(14, 3), words(14), None)
    path = patch(made, tmp_path / "start.html", start={"view": "text", "entry": 3, "query": 5})
    shown = visit(path)
    assert shown.get_attribute("#tab-text", "aria-selected") == "true"
    assert shown.text_content(".status h2") == "layer 1 · head 1"
    boxes = shown.locator(".pickers select")
    assert [boxes.nth(k).locator("option:checked").text_content() for k in (0, 1)] == ["1 · layer.1", "1"]
    shown.wait_for_selector("#view-text .token.query[data-index='5']")
    shown.click("#tab-map")
    wait_until(shown, "document.querySelector('#map-readout').textContent.startsWith('Query 5 ')")
    shown.click("#tab-grid")
    assert shown.get_attribute("#view-grid .thumb[aria-current]", "data-id") == "3"
    shown.click("#tab-compare")
    wait_until(shown, "document.querySelector('#view-compare .bar select').value === '3'")
    shown.click("#tab-table")
    assert read_state(shown) | {"view": "table", "entry": "3", "query": "5"} == read_state(shown)
    # an address that names another head knows nothing of the writer's query
    assert read_query(visit(path, "view=map&entry=1")) == 0
    assert read_query(visit(path, "view=map")) == 5
    assert read_query(visit(path, "view=map&entry=1&query=2")) == 2


def read_query(shown) -> int:
    wait_until(shown, "document.querySelector('#map-readout').textContent.startsWith('Query')")
    return int(shown.text_content("#map-readout").split()[1])


def test_a_view_that_the_page_has_not_is_the_overview(visit, tmp_path):
    shown = visit(page(make(6), words(6), tmp_path / "page.html").path, "view=image")
    assert shown.get_attribute("#tab-grid", "aria-selected") == "true"
    shown.focus("#tab-grid")
    shown.keyboard.press("ArrowRight")
    assert shown.get_attribute("#tab-map", "aria-selected") == "true"


@wide
def test_complete_rows_of_a_softmax_add_to_one(visit, tmp_path):
    query, key = draw(300, 6, 3, sharp=12.0)
    path = page({"layer.0": look(query, key, mask=mask.Causal(), keep=True)}, words(300), tmp_path / "long.html").path
    shown = visit(path, "view=map&entry=0&query=0")
    for head in range(6):
        shown.select_option(".pickers label:last-of-type select", str(head))
        wait_until(shown, "document.querySelector('#view-map .bars .number')")
        shown.wait_for_timeout(150)
        assert shown.locator("#view-map .bars .number").all_text_contents() == ["1"], head


def test_a_row_with_a_sink_is_left_as_it_is(visit, tmp_path):
    query, key = draw(300, 2, 3)
    terms = {"mask": mask.Causal(), "weigh": weigh.Softmax(sink=torch.tensor(-6.0))}
    path = page({"layer.0": look(query, key, keep=True, **terms)}, words(300), tmp_path / "sink.html").path
    shown = visit(path, "view=map&entry=1&query=0")
    wait_until(shown, "document.querySelector('#view-map .bars .number')")
    true = float(find_weights(query, key, **terms)[0, 1, 0, 0])
    assert true < 0.9996
    assert abs(read_number(shown.text_content("#view-map .bars .number")) - true) < 6e-4


@wide
def test_the_self_check_is_in_the_language_of_the_page(visit, tmp_path):
    made = page(make(6), words(6), None)
    entries = json.loads(DATA.search(made.html)[2])["entries"]
    for entry in entries:
        entry["check"] = {"en": "six rows agree", "zh": "六行一致"}
    shown = visit(patch(made, tmp_path / "check.html", entries=entries), "entry=0")
    shown.click(".details summary")
    assert "six rows agree" in shown.inner_text(".facts")
    shown.keyboard.press("l")
    assert "六行一致" in shown.inner_text(".facts")
    assert "six" not in shown.inner_text(".facts")


def test_numbers_of_tokens_stand_before_them_in_every_script(visit, tmp_path):
    labels = ["من", "می‌خواهم", "خانه", "שלום", "ok"]
    shown = visit(page(make(5), labels, tmp_path / "rtl.html").path, "view=map&entry=0&query=1")
    wait_until(shown, "document.querySelectorAll('#view-map .bars li').length === 5")
    script = """all => all.map((one) => [...one.children].map((part) => {
      const area = document.createRange();
      area.selectNodeContents(part);
      return area.getBoundingClientRect().left;
    }))"""
    for number, token in shown.eval_on_selector_all("#view-map .bar-label", script):
        assert number < token


@wide
def test_signs_of_chinese_stand_upright_over_columns(visit, tmp_path):
    labels = ["我", "知道", " 北京", "far", "。"]
    shown = visit(page(make(5), labels, tmp_path / "upright.html").path, "view=map&entry=0")
    shown.evaluate(SPY)
    shown.keyboard.press("g")
    shown.wait_for_timeout(200)
    turned = {text for text, is_turned in shown.evaluate("window.written") if is_turned and text}
    assert turned == {"far"}
    assert {"知", "道", "北", "京"} <= {text for text, is_turned in shown.evaluate("window.written") if not is_turned}


@wide
def test_the_map_fits_the_window_and_says_how_to_zoom(visit):
    for name in ("self", "long"):
        shown = visit(name, "view=map&entry=0")
        box = shown.locator("#view-map .map-panel").bounding_box()
        assert box["height"] < 900
        assert "Ctrl + wheel" in shown.inner_text("#view-map .map-hint")
    over = shown.locator("#view-map .map-over").bounding_box()
    shown.mouse.move(over["x"] + over["width"] / 2, over["y"] + over["height"] / 2)
    shown.mouse.wheel(0, -120)
    assert "zoom" not in read_state(shown)
    shown.mouse.wheel(0, 120)
    shown.keyboard.down("Control")
    shown.mouse.wheel(0, -120)
    shown.keyboard.up("Control")
    assert "zoom" in read_state(shown)
