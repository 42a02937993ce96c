"""Every view takes plain weights, and draws what a look at the call that made them would."""

import io
import json
import re

import numpy as np
import pytest
import torch

from regard import RegardError, views
from regard.engine import find_weights
from regard.engine.look import look
from regard.views.reading import look_at

pytest.importorskip("matplotlib")
rich = pytest.importorskip("rich.console")

NOISE = torch.Generator().manual_seed(0)
QUERY, KEY = torch.randn(2, 3, 5, 4, generator=NOISE), torch.randn(2, 3, 7, 4, generator=NOISE)
SEEN, WEIGHTS = look(QUERY, KEY, top=7), find_weights(QUERY, KEY)
ROWS, COLUMNS = list("abcde"), list("tuvwxyz")


def write(*args, **options):
    out = io.StringIO()
    views.show(*args, console=rich.Console(file=out, width=80, highlight=False, markup=False), **options)
    return out.getvalue()


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, "numpy"])
def test_a_look_at_weights_says_what_a_look_at_their_call_says(kind):
    weights = WEIGHTS.numpy() if kind == "numpy" else WEIGHTS.to(kind)
    found = look_at(weights)
    for name in ("top_weights", "entropy", "peak", "total", "first", "local", "distance", "received"):
        torch.testing.assert_close(getattr(found, name).float(), getattr(SEEN, name), msg=name)
    assert torch.equal(found.top_keys, SEEN.top_keys)
    assert torch.equal(found.map, torch.as_tensor(weights))
    assert look_at(torch.full((600, 900), 1 / 900)).block == (1, 1)
    assert look_at(WEIGHTS[..., :1, :], 3).map.shape == (2, 3, 1, 3)


@pytest.mark.parametrize(
    ("weights", "head", "sequence"), [(WEIGHTS[1, 2], 0, 0), (WEIGHTS[1], 2, 0), (WEIGHTS, 2, 1)], ids=["2", "3", "4"]
)
def test_axes_are_queries_keys_then_heads_then_batch(weights, head, sequence):
    place = {"head": head, "sequence": sequence}
    axes = views.map(weights, **place, tokens=ROWS, keys=COLUMNS)
    np.testing.assert_array_equal(axes.images[0].get_array(), WEIGHTS[1, 2].numpy())
    assert [x.get_text() for x in axes.get_yticklabels()] == ROWS
    assert [x.get_text() for x in axes.get_xticklabels()] == COLUMNS
    bars = views.row(weights, 3, **place, keys=COLUMNS).patches
    np.testing.assert_allclose([bar.get_height() for bar in bars], WEIGHTS[1, 2, 3])
    heads = views.heads(weights, sequence=sequence)
    assert len(heads.images) == (1 if weights.ndim == 2 else 3)
    np.testing.assert_array_equal(heads.images[head].get_array(), WEIGHTS[1, 2].numpy())
    text = write(weights, COLUMNS, query=3, queries=ROWS, **place)
    assert text.splitlines()[0] == f"what query 3 d attends to, head {head}"
    assert text.splitlines()[1:] == write(SEEN, COLUMNS, query=3, head=2, sequence=1).splitlines()[1:]


def test_several_by_name_and_in_a_list():
    axes = views.heads({"one": WEIGHTS, "two": SEEN})
    assert [x.get_text() for x in axes.get_yticklabels()] == ["one", "two"]
    np.testing.assert_allclose(axes.images[4].get_array(), axes.images[1].get_array(), atol=1e-6)
    assert len(views.heads([WEIGHTS[0], WEIGHTS[1]]).images) == 6
    assert write(WEIGHTS) == write(SEEN)
    panels = views.compare(WEIGHTS[0, 0], SEEN, names=("theirs", "ours"))
    assert float(np.abs(panels[2].images[0].get_array()).max()) < 1e-6


def test_a_page_of_weights():
    data = []
    for seen in (WEIGHTS, SEEN, {"attention": WEIGHTS}):
        html = views.page(seen, {"source": COLUMNS, "target": ROWS}, out=None, sequence=1).html
        data.append(json.loads(re.search(r'id="regard-data">(.*?)</script>', html)[1]))
    plain, real, named = ([{k: e[k] for k in ("name", "n", "m", "kind", "exact")} for e in x["entries"]] for x in data)
    assert plain == real == named
    assert plain[0] == {"name": "attention", "n": 5, "m": 7, "kind": "cross", "exact": True}
    assert data[0]["entries"][0]["terms"] == "weights as given"
    large = views.page(torch.eye(400), [str(k) for k in range(400)], out=None).html
    assert len(large) < 3e6


def test_weights_stay_as_they_are():
    given = torch.tensor([[0.5, -2.0, 0.0], [4.0, torch.nan, 1.0]])
    kept = given.clone()
    found = look_at(given)
    torch.testing.assert_close(found.map[0, 0], kept, equal_nan=True)
    torch.testing.assert_close(given, kept, equal_nan=True)
    assert found.total[0, 0, 0] == -1.5
    assert found.entropy[0, 0, 0] == pytest.approx(0.5004, abs=1e-4)


@pytest.mark.filterwarnings("error")
def test_arrays_and_tensors_of_any_layout():
    table = WEIGHTS[0, 0].double().numpy()
    frozen = table.copy()
    frozen.flags.writeable = False
    arrays = [table[::-1], table[:, ::-1], table.astype(">f8"), table.astype(np.longdouble), frozen]
    for given in [*arrays, np.asfortranarray(table)]:
        found = look_at(given).map[0, 0]
        assert found.dtype == torch.float64
        np.testing.assert_array_equal(found.numpy(), given)
    for kind in (">f4", np.float16):
        np.testing.assert_array_equal(look_at(table.astype(kind)).map[0, 0].numpy(), table.astype(kind))
    sparse = torch.from_numpy(table).to_sparse()
    np.testing.assert_array_equal(look_at(sparse).map[0, 0].numpy(), table)


AXES = "(queries, keys), (heads, queries, keys) or (batch, heads, queries, keys)"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: views.map(torch.ones(3)),
         "weights must be real numbers (queries, keys), (heads, queries, keys) or (batch, heads, queries, keys), got"
         " float32 of shape (3,)."),
        (lambda: views.heads(torch.ones(1, 1, 1, 2, 2)),
         f"weights must be real numbers {AXES}, got float32 of shape (1, 1, 1, 2, 2)."),
        (lambda: views.page(torch.ones(2, 2, dtype=torch.complex64), ["a", "b"], None),
         f"weights must be real numbers {AXES}, got complex64 of shape (2, 2)."),
        (lambda: views.show(np.array([["a"]])), "weights must be numbers, got an array of <U1."),
        (lambda: views.map(torch.nested.nested_tensor([torch.ones(2, 2), torch.ones(1, 2)], layout=torch.jagged)),
         "weights must be one table of numbers, got a nested tensor: give one of its parts at a time."),
        (lambda: views.map(torch.ones(2, 2, device="meta")),
         "weights must be numbers, got a meta tensor, which has none: give those of a real call."),
        (lambda: views.map(torch.ones(0, 2)), "look has no queries or no keys: there is nothing to draw."),
        (lambda: views.map(WEIGHTS[0], head=3), "head must be a whole number from 0 to 2, got 3."),
        (lambda: views.show(WEIGHTS, COLUMNS, query=0, queries=["a"]), "queries must be 5, one for each place, got 1."),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(call, message):
    with pytest.raises(RegardError) as error:
        call()
    assert str(error.value) == message
