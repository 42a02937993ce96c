"""What is saved from the page: pictures that are pictures, numbers that are the weights."""

import csv
import io
import pathlib
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from tests.views.page.browser import pages
from tests.views.page.browser.hands import read_png
from tests.views.page.payloads import PAYLOADS
from tests.wide import wide


def save(page, id: str) -> tuple[str, bytes]:
    """Presses a button of the export dialog and reads the file it gives."""
    if not page.locator("#export").count():
        page.keyboard.press("e")
    with page.expect_download() as found:
        page.click(f"#{id}")
    return found.value.suggested_filename, pathlib.Path(found.value.path()).read_bytes()


def read_csv(raw: bytes) -> list[list[str]]:
    # the mark at the start tells spreadsheets the encoding
    return list(csv.reader(io.StringIO(raw.decode("utf-8-sig"), newline="")))


def test_every_view_as_svg_is_xml_without_script(visit):
    page = visit("self", "query=3&entry=1")
    for number, view in enumerate(["grid", "map", "text", "arcs", "compare", "table"], 1):
        page.keyboard.press(str(number))
        page.wait_for_timeout(120)
        name, raw = save(page, "export-svg")
        page.keyboard.press("Escape")
        assert name == f"attention-Self-attention-layer0-head1-{view}.svg"
        root = ET.fromstring(raw)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        tags = {element.tag.rpartition("}")[2] for element in root.iter()}
        assert not tags & {"script", "foreignObject", "iframe", "a"}
        names = {name: value for element in root.iter() for name, value in element.attrib.items()}
        assert not [name for name in names if name.lower().startswith("on")]
        links = [value for element in root.iter() for name, value in element.attrib.items() if name.endswith("href")]
        assert all(link.startswith("data:image/png") for link in links)
        text = " ".join("".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text"))
        assert "Self-attention" in text
        assert {"text": "animal", "arcs": "animal", "table": "animal"}.get(view, "") in text


@wide
@pytest.mark.parametrize("view", ["map", "text"])
def test_a_view_as_png_is_a_picture_with_something_on_it(visit, view):
    page = visit("self", f"view={view}&entry=1")
    page.wait_for_timeout(250)
    name, raw = save(page, "export-png")
    assert name.endswith(".png")
    lines = read_png(raw)
    assert min(lines.shape) > 300
    # filtered lines: a blank picture is nothing but zeros after its first line
    assert (lines[1:, 1:] != 0).mean() > 0.02


def test_a_row_as_csv_is_the_row(visit):
    page = visit("self", "view=text&entry=5&query=4")
    page.wait_for_selector("#view-text .token.query")
    name, raw = save(page, "export-row")
    assert name == "attention-Self-attention-layer1-head1-query4.csv"
    head, *rows = read_csv(raw)
    assert head == ["key", "token", "weight"]
    labels, row = pages.make("self").labels.labels, pages.make("self").head(1, 1)[4]
    assert [int(key) for key, _, _ in rows] == list(range(len(row)))
    assert [token for _, token, _ in rows] == list(labels)
    np.testing.assert_allclose([float(weight) for *_, weight in rows], row, rtol=1e-3, atol=1e-7)


def test_all_csv_files_agree_with_the_weights(visit):
    page = visit("long", "view=table&entry=1")
    weights = pages.make("long").head(0, 1)
    page.wait_for_selector("#table-top tbody tr")
    _, *rows = read_csv(save(page, "export-top")[1])
    for query, _, rank, key, _, weight in rows[::37]:
        assert float(weight) == pytest.approx(float(weights[int(query), int(key)]), rel=0.01)
        assert float(weight) == pytest.approx(float(weights[int(query)].topk(int(rank)).values[-1]), rel=0.01)
    _, *rows = read_csv(save(page, "export-queries")[1])
    assert len(rows) == 300
    for row in rows[1::29]:
        own = weights[int(row[0])]
        assert float(row[2]) == pytest.approx(float(-(own * own.log()).nan_to_num().sum()), rel=2e-3)
    head, *rows = read_csv(save(page, "export-heads")[1])
    assert len(rows) == 2
    assert len(head) == len(rows[0])
    assert float(rows[1][4]) == pytest.approx(float(weights[:, 0].mean()), rel=1e-3)


def test_no_cell_of_a_csv_begins_like_a_formula(visit):
    page = visit("hostile", "view=text")
    page.wait_for_selector("#view-text .token")
    for button in ("export-row", "export-top", "export-heads"):
        rows = read_csv(save(page, button)[1])
        assert len(rows) > 40
        cells = [cell for row in rows for cell in row]
        for cell in cells:
            is_number = (
                cell.replace(".", "").replace("-", "").replace("e", "").replace("+", "").isdecimal() and cell[0] != "+"
            )
            assert is_number or cell == "-2+3" or not cell.lstrip().startswith(("=", "+", "-", "@", "\t", "\r")), cell
        assert "'" + PAYLOADS[26] in cells or button == "export-heads"
        assert "'-2+3" in cells or button == "export-row"


@wide
def test_pictures_of_hostile_names_are_sound(visit):
    page = visit("hostile", "view=arcs")
    page.wait_for_selector("#arcs-picture .arc-token")
    root = ET.fromstring(save(page, "export-svg")[1])
    assert not {element.tag.rpartition("}")[2] for element in root.iter()} & {"script", "img", "iframe", "b"}
