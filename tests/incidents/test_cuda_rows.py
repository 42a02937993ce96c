"""N1, N2, N3 on the GPU: empty rows, poison under a mask, NaN that shows.

Kernels are compiled for seconds, some for each mask, weigher and score: so each comes with the plainest of the others,
and where a test wants any mask it is one of edges, so that all share kernels. What lies under a mask must not come
through in either way of theirs: that is seen in the bits of a device, and nowhere else.
"""

import pytest
import torch

from tests.fused.goes import GOES, go
from tests.incidents import test_empty_rows, test_nan_shows, test_poison
from tests.incidents.plain import ON_GPU, WEIGHERS

pytestmark = pytest.mark.gpu
FUSED, AUTO = ON_GPU
HALF = [torch.bfloat16, torch.float16]
OTHERS = ["sink", "squared relu", "sigmoid", "entmax 1.3", "sparsemax", "hard", "sum"]


@pytest.mark.parametrize("place", ON_GPU)
@pytest.mark.parametrize("kind", test_empty_rows.EMPTIES)
def test_empty_rows_under_every_mask(kind, place):
    test_empty_rows.check_empty_rows(kind, "softmax", place)


@pytest.mark.parametrize("weigh", OTHERS)
def test_empty_rows_with_every_weigher(weigh):
    test_empty_rows.check_empty_rows("no edge", weigh, FUSED)
    # an empty axis has no kernel: it goes elsewhere
    test_empty_rows.check_no_keys(weigh, AUTO)


@pytest.mark.parametrize("dtype", [torch.float32, *HALF], ids=str)
def test_two_layers_stay_finite(dtype):
    test_empty_rows.check_two_layers(FUSED, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, *HALF], ids=str)
def test_the_lowest_finite_bias_is_a_number_and_not_a_mask(dtype):
    test_empty_rows.check_lowest_bias(FUSED, dtype)


# by itself a call takes the way of little work
@pytest.mark.parametrize(("place", "how"), [(FUSED, "at once"), (FUSED, "again"), (AUTO, "at once")])
@pytest.mark.parametrize("poison", test_poison.POISONS)
@pytest.mark.parametrize("mask", test_poison.MASKS)
def test_poison_under_every_mask_changes_no_bit(mask, poison, place, how, monkeypatch):
    go(monkeypatch, how)
    test_poison.check(mask, poison, backend=place)


@pytest.mark.parametrize("how", GOES)
@pytest.mark.parametrize("poison", test_poison.POISONS)
@pytest.mark.parametrize("weigh", OTHERS)
def test_poison_whatever_weighs(weigh, poison, how, monkeypatch):
    go(monkeypatch, how)
    test_poison.check("edges", poison, weigh=WEIGHERS[weigh], backend=FUSED)


@pytest.mark.parametrize("how", GOES)
@pytest.mark.parametrize("poison", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("score", [score for score in test_poison.SCORES if score != "function"])
def test_poison_whatever_scores(score, poison, how, monkeypatch):
    go(monkeypatch, how)
    test_poison.check("edges", poison, score=test_poison.SCORES[score], backend=FUSED)


@pytest.mark.parametrize("how", GOES)
@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_poison_in_half_precision_and_with_fewer_key_heads(dtype, how, monkeypatch):
    go(monkeypatch, how)
    test_poison.check("document", "nan", dtype, heads=4, backend=FUSED)


@pytest.mark.parametrize("poison", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("which", ["key", "value"])
@pytest.mark.parametrize(("place", "how"), [(FUSED, "at once"), (FUSED, "again"), (AUTO, "at once")])
def test_rows_that_do_not_see_the_poison_keep_their_bits(place, how, which, poison, monkeypatch):
    go(monkeypatch, how)
    test_poison.check_seen(which, poison, "softmax", place)


@pytest.mark.parametrize("which", ["query", "key", "value"])
@pytest.mark.parametrize("mask", test_nan_shows.MASKS)
@pytest.mark.parametrize("place", ON_GPU)
def test_nan_shows_under_every_mask(place, mask, which):
    test_nan_shows.check(mask, which, backend=place)


@pytest.mark.parametrize("which", ["query", "key", "value"])
@pytest.mark.parametrize("weigh", OTHERS)
def test_nan_shows_whatever_weighs(weigh, which):
    test_nan_shows.check("edges", which, weigh=WEIGHERS[weigh], backend=FUSED)


@pytest.mark.parametrize("how", GOES)
@pytest.mark.parametrize("which", ["query", "key", "value"])
@pytest.mark.parametrize("score", [score for score in test_nan_shows.SCORES if score != "function"])
def test_nan_shows_whatever_scores(score, which, how, monkeypatch):
    go(monkeypatch, how)
    test_nan_shows.check("edges", which, score=test_nan_shows.SCORES[score], backend=FUSED)


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_a_row_of_nothing_but_nan_is_nan(dtype):
    test_nan_shows.check_all_nan(FUSED, dtype)
