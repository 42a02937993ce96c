"""Gaussian × Softmax is Nadaraya–Watson regression: against statsmodels, with one point left out too."""

import numpy as np
import pytest
import torch
from statsmodels.nonparametric.kernel_regression import KernelReg

from regard import attend
from regard.mask import Window
from regard.score import Gaussian
from tests.tolerances import assert_close

LEAVE_ONE_OUT = ~Window(0, 0, offset=0)


def points(count, width, seed=0):
    chance = np.random.default_rng(seed)
    x = chance.uniform(-2, 2, (count, width))
    return x, np.sin(x).sum(1) + 0.1 * chance.standard_normal(count)


def oracle(x, y, at, bandwidth):
    regression = KernelReg(y, x, "c" * x.shape[1], reg_type="lc", bw=np.array(bandwidth))
    return torch.from_numpy(regression.fit(at)[0])


@pytest.mark.parametrize("backend", ["reference", "tiled"])
@pytest.mark.parametrize("bandwidth", [[0.3], [1.7], [0.4, 0.9], [0.5, 0.8, 2.0]], ids=str)
def test_it_is_kernel_regression(bandwidth, backend):
    x, y = points(40, len(bandwidth))
    at, _ = points(23, len(bandwidth), seed=1)
    query, key, value = (torch.from_numpy(a) for a in (at, x, y[:, None]))
    out = attend(query, key, value, score=Gaussian(1 / torch.tensor(bandwidth, dtype=torch.float64)), backend=backend)
    assert_close(out[:, 0], oracle(x, y, at, bandwidth))


@pytest.mark.parametrize("backend", ["reference", "tiled"])
def test_each_point_is_predicted_from_the_others(backend):
    x, y = points(31, 2, seed=2)
    rows, value = torch.from_numpy(x), torch.from_numpy(y[:, None])
    width = 1 / torch.tensor([0.6, 0.9], dtype=torch.float64)
    out = attend(rows, rows, value, score=Gaussian(width), mask=LEAVE_ONE_OUT, backend=backend)
    for i in range(len(x)):
        others = np.arange(len(x)) != i
        assert_close(out[i], oracle(x[others], y[others], x[i : i + 1], [0.6, 0.9]), f"point {i}")


def test_the_leave_one_out_error_is_statsmodels_own():
    x, y = points(31, 1, seed=3)
    rows, value = torch.from_numpy(x), torch.from_numpy(y[:, None])
    out = attend(rows, rows, value, score=Gaussian(1 / 0.4), mask=LEAVE_ONE_OUT)
    error = ((out[:, 0].numpy() - y) ** 2).mean()
    regression = KernelReg(y, x, "c", reg_type="lc", bw=np.array([0.4]))
    assert error == pytest.approx(regression.cv_loo(np.array([0.4]), regression.est["lc"]), rel=1e-10)


def test_the_bandwidth_can_be_learned():
    # the gradient of the leave-one-out error against its own difference
    x, y = points(31, 1, seed=4)
    rows, value = torch.from_numpy(x), torch.from_numpy(y[:, None])

    def loss(width):
        return ((attend(rows, rows, value, score=Gaussian(width), mask=LEAVE_ONE_OUT) - value) ** 2).mean()

    width = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    (grad,) = torch.autograd.grad(loss(width), width)
    difference = (loss(width + 1e-6) - loss(width - 1e-6)).item() / 2e-6
    assert grad.item() == pytest.approx(difference, rel=1e-6)
    assert abs(difference) > 1e-4
