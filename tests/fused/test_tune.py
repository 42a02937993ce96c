"""Block shapes: the table, what is measured, and what is kept of it."""

import json
from types import SimpleNamespace

import pytest
import torch

from regard import attend
from regard.core import RegardError
from regard.engine.backends.fused.recipe import Recipe, parse
from regard.engine.backends.fused.shapes import Shape, choose
from regard.score import Additive
from tests.fused.against import draw
from tests.tolerances import assert_all_close

pytest.importorskip("triton", reason="triton is not installed")

from regard.engine.backends.fused import kind, tune

CPU = torch.device("cpu")
PLAIN = Recipe("dot", "softmax")
KERNELS = ("forward", "solve", "queries", "keys", "bias")


@pytest.mark.parametrize(("room", "rows"), [(232_448, 128), (101_376, 64)], ids=["a Hopper", "a consumer card"])
def test_wide_rows_have_large_tiles_where_there_is_room(room, rows, monkeypatch):
    utils = SimpleNamespace(get_device_properties=lambda index: {"max_shared_mem": room})
    monkeypatch.setattr(tune.triton.runtime, "driver", SimpleNamespace(active=SimpleNamespace(utils=utils)))
    monkeypatch.setattr(tune, "recall", lambda device: {})
    tune.has_room.cache_clear()
    device = torch.device("cuda", 0)

    def find(recipe, width=256):
        return tune.pick("forward", recipe, True, (width, width), device, None).rows

    try:
        assert find(PLAIN) == rows
        # a bias takes room in a tile, too
        assert find(Recipe("dot", "softmax", bias="dense")) == 64
        assert not tune.has_room(CPU)
    finally:
        tune.has_room.cache_clear()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    monkeypatch.delenv("REGARD_TUNE", raising=False)
    return tmp_path


def pick(kernel="forward", recipe=PLAIN, launch=lambda shape: None):
    return tune.pick(kernel, recipe, True, (64, 64), CPU, launch)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("score", ["dot", "distance", "tanh"])
def test_every_width_has_a_shape_that_a_product_takes(score, kernel):
    for recipe in (
        Recipe(score, "softmax"),
        Recipe(score, "relu1", before=3, after=3),
        Recipe(score, "sum", bias="dense"),
    ):
        for is_half in (True, False):
            for narrow, width in ((1, 1), (3, 64), (64, 64), (65, 128), (128, 200), (256, 512)):
                shape = choose(kernel, recipe, is_half, narrow, width)
                assert min(shape.rows, shape.keys) >= 16
                assert all(side & side - 1 == 0 for side in (shape.rows, shape.keys, shape.warps))


@pytest.mark.parametrize("kernel", KERNELS)
def test_narrow_products_stay_below_the_size_that_goes_wrong(kernel):
    # 64 rows by 16 columns: wrong numbers and reads outside of memory, by Triton 3.6 on an H200
    for width in range(1, 33):
        shape = choose(kernel, PLAIN, True, width, 128)
        assert max(shape.rows, shape.keys) <= 32


def test_nothing_is_measured_unasked(folder):
    assert pick(launch=lambda shape: pytest.fail("measured")) == choose("forward", PLAIN, True, 64, 64)
    assert not list(folder.iterdir())


def test_the_fastest_is_taken_and_kept(folder, monkeypatch):
    monkeypatch.setenv("REGARD_TUNE", "1")
    best = Shape(64, 32, 4, 1)
    monkeypatch.setattr(tune, "measure", lambda launch, shape: 1.0 if shape == best else 2.0)
    assert pick() == best
    # a second time from the file, without measuring
    monkeypatch.setattr(tune, "measure", lambda launch, shape: pytest.fail("measured again"))
    assert pick() == best
    monkeypatch.delenv("REGARD_TUNE")
    assert pick() == best
    # another kind of call knows nothing of it
    assert pick("keys") == choose("keys", PLAIN, True, 64, 64)
    (file,) = folder.iterdir()
    assert json.loads(file.read_text()) == {
        "forward dot softmax whole half 64 64": {"rows": 64, "keys": 32, "warps": 4, "stages": 1}
    }


def test_what_another_process_kept_is_not_lost(folder):
    tune.remember(CPU, "one", Shape(16, 16))
    file = tune.find_file(CPU)
    file.write_text(json.dumps(json.loads(file.read_text()) | {"other": {"rows": 32, "keys": 16}}))
    tune.remember(CPU, "two", Shape(32, 32))
    assert set(tune.recall(CPU)) == {"one", "two", "other"}


@pytest.mark.parametrize(
    "text", ["", "[]", '{"a": 3}', '{"a": {"rows": 3}}', '{"a": {"rows": 16, "keys": 16, "x": 1}}']
)
def test_a_broken_file_is_named(folder, text):
    file = tune.find_file(CPU)
    file.write_text(text)
    tune._read.cache_clear()
    with pytest.raises(RegardError, match=r"shapes-cpu\.json is not a table of block shapes .*: delete it\.$"):
        pick()


def test_a_shape_without_room_is_passed_over(folder):
    import triton

    def launch(shape):
        raise triton.runtime.errors.OutOfResources(300_000, 232_448, "shared memory")

    assert tune.measure(launch, Shape(128, 128)) == float("inf")


def test_a_recipe_survives_as_text():
    recipe = Recipe("tanh", "entmax", 0.5, None, 1.3, None, -4, (7, 1, 2), "slopes", -3, 0.1, True, ("lengths", "bits"))
    assert parse(str(recipe), tuple(recipe.reach), tuple(recipe.numbers)) == recipe


def test_a_call_that_measures_is_right(monkeypatch, tmp_path):
    monkeypatch.setenv("REGARD_TUNE", "1")
    monkeypatch.setenv("REGARD_CACHE", str(tmp_path))
    monkeypatch.setattr(kind, "_kinds", {})
    monkeypatch.setattr(tune, "_FEATURES", tune._FEATURES[:1])
    seen = []

    def measure(launch, shape):
        for _ in range(2):
            launch(shape)
        seen.append(shape)
        return 1.0

    monkeypatch.setattr(tune, "measure", measure)
    *rows, weight = draw((1, 1, 6, 8), (1, 1, 6, 8), (1, 1, 6, 8), (8,))

    def pull(backend):
        out = attend(*rows, score=Additive(weight), backend=backend)
        return [out, *torch.autograd.grad(out.square().sum(), [*rows, weight])]

    assert_all_close(pull("fused"), pull("tiled"), ["output", "query", "key", "value", "weight"])
    assert len(seen) >= 3
