"""The weights of a call: what `attend` mixes its values by."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from regard import RegardError, attend
from regard.bias import Alibi, Dense
from regard.engine import find_weights
from regard.mask import Causal, Lengths
from regard.score import Additive, Gaussian
from regard.weigh import Entmax, Hard, Relu, Sigmoid

CALLS = {
    "plain": {},
    "causal": {"mask": Causal(), "bias": Alibi()},
    "lengths": {"mask": Lengths(torch.tensor([4, 0])), "weigh": Entmax()},
    "additive": {"score": Additive(torch.linspace(-1, 1, 3)), "weigh": Sigmoid(-1.0)},
    "kernel": {"score": Gaussian(0.7), "weigh": Relu(1, 0.2), "bias": Dense(torch.ones(5, 7))},
    "drawn": {"weigh": Hard("sample", seed=4)},
    "function": {"score": lambda q, k: q @ k.transpose(-1, -2)},
}


def draw(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape))).to(dtype)


@pytest.mark.parametrize("axes", [(2, 4), (2,)], ids=["heads", "no heads"])
@pytest.mark.parametrize("name", CALLS)
def test_weights_are_what_values_are_mixed_by(name, axes):
    query, key = draw(*axes, 5, 3), draw(*axes, 7, 3)
    weights = find_weights(query, key, **CALLS[name])
    # each key's value is its own unit vector
    mixed = attend(query, key, torch.eye(7).expand(*axes, 7, 7), **CALLS[name], backend="tiled")
    torch.testing.assert_close(weights, mixed, rtol=1e-5, atol=1e-6)


def test_grouped_heads():
    query, key = draw(1, 4, 5, 3), draw(1, 2, 7, 3)
    torch.testing.assert_close(find_weights(query, key), find_weights(query, key.repeat_interleave(2, 1)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_dtype_and_gradients(dtype):
    query = draw(2, 5, 3, dtype=dtype).requires_grad_()
    weights = find_weights(query, query)
    assert weights.dtype == dtype
    assert not weights.requires_grad


def test_poison_under_a_mask_has_no_weight():
    key = draw(1, 7, 3)
    key[:, 4:] = torch.nan
    weights = find_weights(draw(1, 5, 3), key, mask=Lengths(torch.tensor([4])))
    assert weights.isfinite().all()
    assert (weights[..., 4:] == 0).all()


def test_no_keys():
    assert find_weights(draw(1, 5, 3), draw(1, 0, 3)).shape == (1, 5, 0)


def test_complaints_are_attends():
    with pytest.raises(RegardError, match="query and key must share their last size d"):
        find_weights(draw(1, 5, 3), draw(1, 7, 4))
