"""The document as a browser's parser reads it: one script, one style, and text that stays text."""

import base64
import hashlib
import html
import html.parser
import json
import pathlib
import re
import warnings

import numpy as np
import pytest
import torch

from regard.core import RegardError, files
from regard.engine.look import look
from regard.views.page import Page, build, label_tokens, page
from tests.views.page.payloads import PAYLOADS

FRAME = ["html", "head", "meta", "meta", "meta", "meta", "title", "style", "body", "main", "script", "script"]


@pytest.fixture(autouse=True)
def strict():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


class Reader(html.parser.HTMLParser):
    """Elements in order with their attributes, and the text of each."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.texts, self.is_open = [], [], False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.texts.append("")
        self.is_open = True

    def handle_endtag(self, tag):
        self.is_open = False

    def handle_data(self, data):
        if self.is_open:
            self.texts[-1] += data

    def find(self, name):
        (at,) = [k for k, (_, attrs) in enumerate(self.tags) if attrs.get("id") == name]
        return self.texts[at]


def see(n=3, heads=1, **terms):
    draw = torch.Generator().manual_seed(n)
    query, key = (torch.randn(1, heads, n, 4, generator=draw) for _ in range(2))
    return look(query, key, keep=True, **terms)


def read(shown):
    return json.loads(Reader(shown.html).find("regard-data"))


def test_there_are_the_expected_elements_and_no_others():
    reader = Reader(page({"a": see()}, list("abc"), None).html)
    stores = [attrs for tag, attrs in reader.tags if attrs.get("class") == "regard-blob"]
    assert [tag for tag, _ in reader.tags] == [*FRAME[:-1], *["script"] * len(stores), "script"]
    assert all(attrs["type"] == "text/plain" and set(attrs) == {"type", "class", "id"} for attrs in stores)
    # no address, no handler and no style of an element's own
    for _, attrs in reader.tags:
        assert not [name for name in attrs if name in ("src", "href", "style") or name.startswith("on")]


def test_the_policy_names_the_one_script_and_the_one_style():
    reader = Reader(page({"a": see()}, list("abc"), None).html)
    (policy,) = [attrs["content"] for _, attrs in reader.tags if attrs.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))

    def name(text):
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    pairs = list(zip(reader.tags, reader.texts, strict=True))
    (style,) = [text for (tag, _), text in pairs if tag == "style"]
    (script,) = [text for (tag, attrs), text in pairs if tag == "script" and not attrs]
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == name(script)
    assert rules["style-src"] == name(style)
    assert rules["img-src"] == "data: blob:"
    assert set(rules) == {"default-src", "script-src", "style-src", "img-src", "base-uri", "form-action"}


def test_every_asset_is_in_the_page():
    named = {*build.SCRIPTS, *build.STYLES, *build.WORDS}
    assert named == {path.name for path in build.FOLDER.iterdir()}
    text = page({"a": see()}, list("abc"), None).html
    for name in (*build.SCRIPTS, *build.STYLES):
        source = (build.FOLDER / name).read_text()
        assert source in text
        assert not re.search(r"</(script|style)|<!--|https?://(?!www\.w3\.org/)", source, re.I), name


@pytest.mark.parametrize("payload", PAYLOADS, ids=range(len(PAYLOADS)))
def test_text_never_becomes_markup(payload):
    clean = Reader(page({"a": see()}, {"text": list("abc")}, None).html)
    tokens = {payload: label_tokens(payload + "b", [(0, len(payload)), (0, len(payload)), (0, len(payload) + 1)])}
    seen = see()
    graph = {"edges": [[0, 1], [1, 2], [2, 2]], "nodes": [payload] * 3}
    shown = page({payload: seen}, tokens, None, title=payload, other={payload: seen}, graph=graph)
    reader = Reader(shown.html)
    kinds = {tag for tag, _ in clean.tags}
    assert [tag for tag, _ in reader.tags if tag != "script"] == [tag for tag, _ in clean.tags if tag != "script"]
    assert {tag for tag, _ in reader.tags} == kinds
    assert [attrs for tag, attrs in reader.tags if tag == "script" and not attrs] == [{}]
    data = read(shown)
    # two halves of a character side by side are that character
    payload = payload.encode("utf-16", "surrogatepass").decode("utf-16")
    assert data["title"] == payload
    assert {entry["name"] for entry in data["entries"]} == {payload}
    assert data["sides"][0]["name"] == payload
    assert data["sides"][0]["labels"][0] == payload
    assert data["graph"]["nodes"] == [payload] * 3


def test_json_is_valid_whatever_the_numbers_and_characters():
    text = build.write_json({"a": [float("nan"), float("inf"), 1.5], "b": "\u2028\u2029\ud800&", 3: (True, None)})
    assert json.loads(text) == {"a": [None, None, 1.5], "b": "\u2028\u2029\ud800&", "3": [True, None]}
    assert not set("<>&\u2028\u2029") & set(text)
    text.encode()


def test_weights_that_are_no_numbers_make_a_page():
    query = torch.ones(1, 1, 3, 4)
    query[0, 0, 1] = torch.nan
    data = read(page(look(query, torch.ones(1, 1, 3, 4), keep=True), list("abc"), None))
    assert data["entries"][0]["stats"]["entropy"] is None


def test_half_a_character_in_a_title_can_be_written(tmp_path):
    shown = page({"a": see()}, ["\ud83d", "b", "c"], tmp_path / "page.html", title="\ud83d<b>")
    assert shown.path.read_text(encoding="utf-8") == shown.html
    assert read(shown)["title"] == "\ud83d<b>"
    assert "<title>?&lt;b&gt;</title>" in shown.html


def test_a_page_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "deep" / "page.html"
    shown = page({"a": see()}, list("abc"), path)
    assert shown.path == path
    before = path.read_text(encoding="utf-8")

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(RegardError, match=r"page\.html cannot be written \(no space left\): check the folder"):
        page({"a": see()}, list("xyz"), path)
    assert path.read_text(encoding="utf-8") == before
    assert [file.name for file in path.parent.iterdir()] == ["page.html"]
    monkeypatch.chdir(tmp_path)
    page({"a": see()}, list("abc"), None)
    assert [file.name for file in tmp_path.iterdir()] == ["deep"]


def test_a_notebook_shows_the_page_in_a_frame_of_its_own():
    shown = page({"a": see()}, ['"><script>alert(1)</script>', "猫", "c"], None)
    assert shown._repr_html_().isascii()
    reader = Reader(shown._repr_html_() + shown._repr_html_())
    assert [tag for tag, _ in reader.tags] == ["iframe", "iframe"]
    for _, attrs in reader.tags:
        assert attrs["sandbox"] == "allow-scripts allow-downloads"
        assert attrs["srcdoc"] == shown.html
    assert "html" not in repr(shown)
    assert Page("x").path is None


def test_the_default_place_is_a_file_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert page(see(), list("abc")).path == pathlib.Path("attention.html")
    assert (tmp_path / "attention.html").exists()


def test_the_same_look_gives_the_same_page():
    first, again = (page({"a": see()}, list("abc"), None).html for _ in range(2))
    assert first == again


def test_a_table_of_numbers_comes_back_as_it_went():
    from regard.views.page.blobs import Blobs

    blobs, array = Blobs(), np.array([[1.5, -2.0], [0.25, 70000.0]])
    assert (blobs.add_numbers(array), blobs.add_numbers(array), blobs.add_numbers(array * 0.5)) == (0, 0, 1)
    assert [entry["dtype"] for entry in blobs.entries] == ["f32", "f16"]
