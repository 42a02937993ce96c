"""N17: dropout when asked, and only then (pytorch#124464, #99293, timm#1978, wenet#2699, torchtune#1791)."""

import pytest
import torch

from regard import attend, explain
from regard.engine.tiles import layout
from regard.mask import Causal
from tests.incidents.plain import BACKENDS, WEIGHERS, assert_all_near, assert_near, assert_same_bits, make, run

pytestmark = pytest.mark.thin(3)

DROPPING = ("reference", "tiled", "auto")


def rows():
    return make((2, 3, 9, 4), (2, 3, 11, 4), (2, 3, 11, 4))


def seeded(seed):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("weigh", WEIGHERS)
def test_without_dropout_twice_is_the_same_and_draws_nothing(weigh, backend):
    options = {"weigh": WEIGHERS[weigh], "backend": backend}
    state = torch.get_rng_state()
    one, two = (run(*rows(), **options) for _ in range(2))
    assert_same_bits(one, two)
    assert_same_bits(run(*rows(), dropout=0.0, **options), one)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("backend", DROPPING)
@pytest.mark.parametrize("weigh", ["softmax", "sigmoid", "entmax", "sum"])
def test_the_seed_decides(weigh, backend):
    options = {"weigh": WEIGHERS[weigh], "dropout": 0.5, "backend": backend}
    one, again = (run(*rows(), generator=seeded(3), **options) for _ in range(2))
    assert_same_bits(one, again)
    other = run(*rows(), generator=seeded(4), **options)
    assert (one[0] - other[0]).abs().max() > 1e-3


@pytest.mark.parametrize("backend", DROPPING)
def test_a_function_drops_whenever_it_is_asked(backend):
    # there is no training mode to forget: what is passed is applied, with gradients or without
    without = attend(*rows(), backend=backend)
    for context in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        with context():
            dropped = attend(*rows(), dropout=0.5, backend=backend)
        assert (dropped - without).abs().max() > 1e-3


@pytest.mark.parametrize("backend", DROPPING)
def test_torchs_global_seed_is_the_default(backend):
    outs = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        outs.append(attend(*rows(), dropout=0.5, backend=backend))
    assert torch.equal(outs[0], outs[1])
    assert not torch.equal(outs[0], outs[2])


@pytest.mark.parametrize("weigh", WEIGHERS)
@pytest.mark.parametrize("budget", [24, 100, 2**18])
def test_every_backend_and_tile_drops_the_same(budget, weigh, monkeypatch):
    monkeypatch.setattr(layout, "BUDGET", budget)
    options = {"weigh": WEIGHERS[weigh], "mask": Causal(), "dropout": 0.3}
    got = run(*rows(), generator=seeded(3), backend="tiled", **options)
    expected = run(*rows(), generator=seeded(3), backend="reference", **options)
    assert_all_near(got, expected, units=256)


@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.9])
def test_the_mean_is_kept(dropout):
    # with values of one, each output is the share of kept weights over the share that is kept on average
    query, key = make((1, 1, 400, 4), (1, 1, 300, 4))
    out = attend(query, key, torch.ones(1, 1, 300, 1), dropout=dropout, generator=seeded(1), backend="tiled")
    # 400 rows of about 300 / Σw² effective keys: three standard errors
    assert abs(out.mean() - 1) < 3 * (dropout / (1 - dropout) / (400 * 100)) ** 0.5
    assert out.std() > 0


def test_gradients_see_the_forward_pass_own_mask():
    # a dropped weight passes nothing: the value that only it could reach gets zero
    query, key = make((1, 1, 1, 4), (1, 1, 50, 4))
    (value,) = make((1, 1, 50, 1))
    out = attend(query, key, value, dropout=0.5, generator=seeded(2), backend="tiled")
    (dvalue,) = torch.autograd.grad(out.sum(), value)
    dropped = dvalue.flatten() == 0
    assert 10 < dropped.sum() < 40
    weights = torch.softmax((query @ key.mT / 2).flatten(), -1)
    assert_near(dvalue.flatten(), torch.where(dropped, 0.0, weights * 2))
    assert_near(out.flatten(), (dvalue * value).sum((-1, -2)).flatten())


def test_the_plan_says_that_torchs_kernels_draw_other_bits():
    assert "dropout" in explain(*rows(), dropout=0.5).refusals["sdpa"]
