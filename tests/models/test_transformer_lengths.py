"""Lengths that a GPU is not waited for: the same ones for sources of several widths."""

from __future__ import annotations

import pytest
import torch

from tests.models.small import assert_same, build, draw


@pytest.mark.parametrize("widths", [(20, 10), (10, 20)])
def test_the_same_lengths_serve_sources_of_two_widths(widths, monkeypatch):
    monkeypatch.setattr("regard.mask.integer._is_on_gpu", lambda values: True)
    model, lens = build(), torch.tensor([3, 5])
    for width in widths:
        source = draw(2, width)
        with torch.no_grad():
            assert_same(model.encode(source, lens)[0, :3], model.encode(source[:1, :3])[0])


def test_lengths_past_a_narrower_source_are_stopped_at(monkeypatch):
    monkeypatch.setattr("regard.mask.integer._is_on_gpu", lambda values: True)
    model, lens = build(), torch.tensor([3, 15])
    model.encode(draw(2, 20), lens)
    with pytest.raises(RuntimeError, match="must lie within 0 and 10"):
        model.encode(draw(2, 10), lens)


@pytest.mark.gpu
@pytest.mark.parametrize("widths", [(20, 10), (10, 20)])
def test_the_same_lengths_serve_sources_of_two_widths_on_a_gpu(widths):
    model, lens = build().to("cuda"), torch.tensor([3, 5], device="cuda")
    for width in widths:
        source = draw(2, width).to("cuda")
        with torch.no_grad():
            assert_same(model.encode(source, lens)[0, :3], model.encode(source[:1, :3])[0])
