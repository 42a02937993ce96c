"""N3: NaN in what is attended reaches the output (hidden as 0 in pytorch#141128 and torch-xpu-ops#5022)."""

import pytest
import torch

from regard.mask import Causal, Edges, Full, Lengths
from regard.score import Additive, Concat, Cosine, Dot, Feature, Gaussian
from tests.fused.goes import GOES, go
from tests.incidents.plain import BACKENDS, WEIGHERS, make, run
from tests.wide import thin

pytestmark = pytest.mark.thin(3)

MASKS = {
    "full": Full(),
    "causal": Causal(),
    "lengths": Lengths(torch.tensor([4, 7])),
    "edges": Edges(torch.arange(7).repeat_interleave(3), torch.tensor([0, 3, 6]).repeat(7)),
}
SEES = {
    "full": lambda b, i, j: True,
    "causal": lambda b, i, j: j <= i,
    "lengths": lambda b, i, j: j < (4, 7)[b],
    "edges": lambda b, i, j: j % 3 == 0,
}
SCORES = {
    "dot": Dot(),
    "cosine": Cosine(2.0),
    "additive": Additive(torch.ones(4)),
    "relu": Additive(torch.ones(4), activation="relu"),
    "concat": Concat(torch.ones(4), torch.ones(4)),
    "gaussian": Gaussian(0.7),
    "feature": Feature("relu"),
    "function": lambda query, key: torch.sin(query @ key.mT),
}
N = 7


def plant(x, b, at):
    x = x.detach().clone()
    x[b, 0, at, 2] = torch.nan
    return x.requires_grad_()


def check(mask, which, **options):
    query, key, value = make((2, 2, N, 4), (2, 2, N, 4), (2, 2, N, 4))
    b, at = 1, 3
    rows = {"query": query, "key": key, "value": value}
    rows[which] = plant(rows[which], b, at)
    out, *_ = run(*rows.values(), mask=MASKS[mask], **options)
    for i in range(N):
        touched = i == at if which == "query" else SEES[mask](b, i, at)
        assert out[b, 0, i].isnan().any() == touched, f"query {i}"
    # nothing else
    assert out[0].isfinite().all()
    assert out[1, 1].isfinite().all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("weigh", WEIGHERS)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("which", ["query", "key", "value"])
def test_nan_shows_in_every_row_that_sees_it_and_in_no_other(which, mask, weigh, backend):
    check(mask, which, weigh=WEIGHERS[weigh], backend=backend)


@pytest.mark.parametrize("backend", ["reference", "tiled"])
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("mask", ["full", "causal"])
@pytest.mark.parametrize("which", ["query", "key", "value"])
def test_whatever_scores(which, mask, score, backend):
    check(mask, which, score=SCORES[score], backend=backend)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_row_of_nothing_but_nan_is_nan(backend, dtype):
    check_all_nan(backend, dtype)


def check_all_nan(backend, dtype):
    query, key, value = make((1, 1, 3, 8), (1, 1, 20, 8), (1, 1, 20, 8), dtype=dtype)
    out, dquery, _, _ = run(query, torch.full_like(key, torch.nan).requires_grad_(), value, backend=backend)
    assert out.isnan().all()
    assert dquery.isnan().all()


@pytest.mark.parametrize(
    ("weigh", "way"),
    [
        *((weigh, backend) for weigh in WEIGHERS for backend in ("tiled", "auto")),
        *((weigh, f"fused, {how}") for weigh in thin(WEIGHERS, 4) for how in GOES),
    ],
)
def test_nan_of_a_bias_shows_where_it_is_added(weigh, way, monkeypatch):
    backend, _, how = way.partition(", ")
    if how:
        pytest.importorskip("triton")
        go(monkeypatch, how)
    bias = torch.zeros(N, N)
    bias[2, 1], bias[1, 4] = torch.nan, torch.nan
    rows = make((2, 2, N, 4), (2, 2, N, 4), (2, 2, N, 4))
    options = {"weigh": WEIGHERS[weigh], "mask": Causal()}
    found, expected = (run(*rows, bias=bias, backend=name, **options) for name in (backend, "reference"))
    # key 4 is hidden from query 1
    assert found[0][:, :, 2].isnan().all()
    assert found[0][:, :, [0, 1, 3, 4, 5, 6]].isfinite().all()
    if weigh in ("relu", "squared relu", "sigmoid"):
        # of a row that is weighed as a whole, gradients show it, too, but not in the same places
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5, equal_nan=True)
