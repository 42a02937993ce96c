"""What lies under the weights of a look: what each scene is asked for, and how it is drawn."""

import json
import re

import numpy as np
import pytest
import torch

from regard.core import RegardError
from regard.layers import SelfAttention
from regard.mask import Edges
from regard.tasks.looks.scenes import GraphScene, ImageScene, Scene
from regard.tasks.looks.sight import Sight
from regard.tasks.looks.token_labels import label_names, label_patches
from regard.watching import watch

PAIRS = [(0, 1), (2, 1), (1, 1), (3, 0), (0, 0), (2, 2), (3, 3)]


def see(n, **terms):
    layer, rows = SelfAttention(8, 2).eval(), torch.randn(1, n, 8)
    with torch.no_grad(), watch(torch.nn.ModuleDict({"layer": layer}), keep=True) as seen:
        layer(rows, **terms)
    return seen, layer.attention_weights[0].detach()


def open_page(sight):
    return json.loads(re.search(r'id="regard-data">(.*?)</script>', sight.page(None).html, re.DOTALL)[1])


def test_a_graph_has_the_weights_of_its_edges(tmp_path):
    sources, targets = torch.tensor(PAIRS).T
    seen, weights = see(4, mask=Edges(targets, sources))
    scene = GraphScene(PAIRS)
    sight = Sight(seen, {"nodes": label_names("abcd")}, {"layer": ("nodes", "nodes")}, "a graph", scene=scene)
    axes = scene.draw(seen["layer"], 1, ("nodes", "nodes"), ["abcd", "abcd"], "")
    # widths of the arrows are weights: 0.3 to 4 points, the largest of all edges at the top
    expected = np.array([float(weights[1, stop, start]) for start, stop in PAIRS])
    widths = sorted(x.get_linewidth() for x in axes.patches)
    np.testing.assert_allclose(widths, sorted(0.3 + 3.7 * expected / expected.max()), rtol=1e-4)
    sight.draw(tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes()[1:4] == b"PNG"
    page = open_page(sight)
    assert (page["graph"]["edges"], page["graph"]["nodes"]) == ([list(pair) for pair in PAIRS], list("abcd"))


def test_a_picture_is_shaded_by_what_is_attended_to(tmp_path):
    seen, weights = see(7)
    pixels = np.linspace(0, 1, 24).reshape(4, 6)
    shown = {}
    for skip, grid in ((1, (2, 3)), (0, (1, 7))):
        scene = ImageScene(pixels, grid, skip)
        # the class token's row, or the mean of all where there is none
        row = (weights[0, 0, 1:] if skip else weights[0].mean(0)).numpy()
        np.testing.assert_allclose(scene.read_row(seen["layer"], 0)[skip:], row, atol=1e-6)
        np.testing.assert_allclose(scene.read_row(seen["layer"], 0, 3), weights[0, 3], atol=1e-6)
        shown[skip] = scene.sketch(seen["layer"], 0, None)
        levels = np.rint(row / row.max() * 4).astype(int)
        assert [" ░▒▓█".index(x) for x in "".join(line.ljust(2 * grid[1]) for line in shown[skip])[::2]] == list(levels)
    assert [len(shown[1]), len(shown[0])] == [2, 1]
    sight = Sight(seen, {"patches": label_patches((2, 3), 1)}, {"layer": ("patches", "patches")}, "a.png",
                  scene=ImageScene(pixels, (2, 3), 1))  # fmt: skip
    page = open_page(sight)
    assert (page["image"]["grid"], page["image"]["skip"], page["start"]["view"]) == ([2, 3], 1, "image")
    sight.draw(tmp_path / "a.svg")
    assert "leading token skipped" in (tmp_path / "a.svg").read_text()


def test_what_is_asked_for():
    assert [Scene.take("a", None), ImageScene.take("a.png", None), ImageScene.take(None, "b.png")] == [
        "a", "a.png", "b.png",
    ]  # fmt: skip
    assert (GraphScene.take(None, None), GraphScene.take("a.graph", None)) == (None, "a.graph")
    for scene, given, message in (
        (Scene, (None, None), "look needs a text: give one."),
        (ImageScene, (None, None), "look needs a picture: give image."),
        (GraphScene, ("a", "b.png"), "look image is for models that see: this one does not, leave it out."),
    ):
        with pytest.raises(RegardError, match=f"^{re.escape(message)}$"):
            scene.take(*given)
