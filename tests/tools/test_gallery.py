"""The gallery shows every term, as it is now."""

from __future__ import annotations

import pytest
import torch

from regard import bias, mask, score, weigh
from tools.gallery.__main__ import DOCS, main
from tools.gallery.entries import Entry, list_sections
from tools.gallery.page import write_page

pytest.importorskip("torchdiffeq")
ENTRIES = [entry for section in list_sections().values() for entry in section]


def test_every_term_is_there():
    shown = {entry.name for entry in ENTRIES}
    assert shown >= {name for room in (score, weigh, mask, bias) for name in room.__all__}
    assert len({entry.file for entry in ENTRIES}) == len(ENTRIES)


def test_the_page_is_up_to_date():
    assert (DOCS / "gallery.md").read_text(encoding="utf-8") == write_page(list_sections(), "gallery"), "make gallery"
    assert {path.name for path in (DOCS / "gallery").glob("*")} == {entry.file for entry in ENTRIES}


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_weights_are_worth_a_look(entry: Entry):
    weights = entry.draw()
    assert weights.shape == (24, 24)
    assert weights.isfinite().all()
    assert (weights >= 0).all()
    assert entry.name == "Full" or weights.amax() > 1.2 * weights.mean(), "nothing to see"
    assert torch.equal(weights, entry.draw()), "not the same twice"


def test_the_command(tmp_path, capsys):
    assert main(["--out", str(tmp_path / "new")]) == 0
    pictures = list((tmp_path / "new" / "gallery").iterdir())
    assert len(pictures) == len(ENTRIES)
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in pictures)
    taken = tmp_path / "file"
    taken.touch()
    assert main(["--out", str(taken / "x")]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("python -m tools.gallery: error: cannot write to")
