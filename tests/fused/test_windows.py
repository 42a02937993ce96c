"""Windows over several tiles: those of both edges are done by one loop, after the whole ones between them."""

from __future__ import annotations

import pytest
import torch

from regard.mask import Causal, Lengths, Window
from tests.fused.against import BACKEND, DEVICE, check, draw, run
from tests.fused.goes import GOES, go
from tests.terms import move

pytest.importorskip("triton")
pytestmark = pytest.mark.thin(1)
# tiles have 32 rows and 32 keys
SHAPES = (1, 1, 150, 16), (1, 1, 170, 16), (1, 1, 170, 16)
# keys on both sides, on the left alone, on the right alone; and fewer than there are
MASKS = [Window(70, 40), Window(110, 0) & Causal(-20), Window(0, 110), Window(75, 45) & Lengths(torch.tensor([120]))]


@pytest.mark.parametrize("how", GOES)
@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_all_tiles_of_a_window_are_met_once(mask, how, monkeypatch):
    go(monkeypatch, how)
    check(draw(*SHAPES), mask=mask)


def test_blocks_done_again_come_out_with_the_same_bits(monkeypatch):
    go(monkeypatch, "again")
    terms = {"mask": move(MASKS[3], DEVICE)}
    rows = draw(*SHAPES)
    clean = run(rows, terms, BACKEND)
    with torch.no_grad():
        for x in rows[1:]:
            x[:, :, 120:] = torch.nan
    # rows that see no key past the last one that is there; and keys that are there
    for one, other in zip(run(rows, terms, BACKEND), clean, strict=True):
        assert torch.equal(one[:, :, :120], other[:, :, :120])
