"""Arguments of the wrong kind are complained about too: nothing of torch's or Python's own reaches the caller."""

import warnings

import numpy as np
import pytest
import torch

from regard import RegardError, attend
from regard.bias import Alibi, Dense, Quadratic, Relative
from regard.mask import Allowed, Causal, Document, Edges, Grid, Lengths, Window
from regard.score import Additive, Bilinear, Concat, Cosine, Custom, Dot, Feature, Gaussian
from regard.weigh import Entmax, Hard, Relu, Sigmoid, Softmax, Sparsemax
from tests.engine.messages import INDEX, KEY, META, ONES, QUERY, VALUE

MESSAGES = [
    # --- integers where something is learned
    ("Additive weight must be floating point, got int64.", {"score": Additive(INDEX([1, 2, 3]))}),
    ("Bilinear weight must be floating point, got int64.", {"score": Bilinear(ONES(3, 3).long())}),
    ("Bilinear weight must be floating point, got complex64.", {"score": Bilinear(ONES(3, 3) * 1j)}),
    ("Concat query_weight must be floating point, got int64.", {"score": Concat(INDEX([1, 2, 3]), ONES(3))}),
    ("Cosine scale must be floating point, got int64.", {"score": Cosine(INDEX([1, 2]).to(META))}),
    ("Gaussian width must be floating point, got bool.", {"score": Gaussian(ONES(3).bool())}),
    ("Softmax sink must be floating point, got int64.", {"weigh": Softmax(INDEX([1, 2]))}),
    ("Alibi slopes must be floating point, got int64.", {"bias": Alibi(INDEX([1, 2]))}),
    ("Relative table must be floating point, got int64.", {"bias": Relative(ONES(2, 6).long())}),
    # --- lists and numbers where a tensor is wanted
    ("Additive weight must be a tensor, got list.", {"score": Additive([1.0, 2.0, 3.0])}),
    ("Bilinear weight must be a tensor, got ndarray.", {"score": Bilinear(ONES(3, 3).numpy())}),
    ("Softmax sink must be a tensor or None, got 0.5.", {"weigh": Softmax(0.5)}),
    ("Lengths lengths must be a tensor, got list.", {"mask": Lengths([1, 2])}),
    ("Edges queries must be a tensor, got list.", {"mask": Edges([1], [2])}),
    ("Document segments must be a tensor, got list.", {"mask": Document([0] * 7, [0] * 5)}),
    ("Allowed allowed must be a tensor, got list.", {"mask": Allowed([True] * 7)}),
    ("Dense values must be a tensor, got list.", {"bias": Dense([1.0])}),
    ("Alibi slopes must be a tensor or None, got list.", {"bias": Alibi([0.1, 0.2])}),
    ("Relative table must be a tensor, got list.", {"bias": Relative([[0.0] * 6] * 2)}),
    ("Quadratic alpha must be a tensor, got 0.5.", {"bias": Quadratic(1, 5, 0.5, (0.0, 1.0))}),
    # --- words where a number is wanted
    ("Dot scale must be a number or None, got 'large'.", {"score": Dot(scale="large")}),
    ("Dot cap must be a number or None, got 'large'.", {"score": Dot(cap="large")}),
    ("Cosine scale must be a number or a tensor, got NoneType.", {"score": Cosine(None)}),
    ("Gaussian width must be a number or a tensor, got 'wide'.", {"score": Gaussian("wide")}),
    ("Relu scale must be a number, got 'large'.", {"weigh": Relu(scale="large")}),
    ("Sigmoid shift must be a number, got 'left'.", {"weigh": Sigmoid("left")}),
    ("Entmax alpha must be a number, got 'sparse'.", {"weigh": Entmax("sparse")}),
    ("Hard seed must be an integer or None, got 'x'.", {"weigh": Hard("sample", seed="x")}),
    ("Hard generator must be a torch.Generator or None, got 3.", {"weigh": Hard("sample", generator=3)}),
    ("Causal offset must be an integer, a tensor or None, got 'end'.", {"mask": Causal("end")}),
    ("Window before must be an integer, got NoneType.", {"mask": Window(None, 0)}),
    ("Grid height must be an integer, got '2'.", {"mask": Grid("2", 3)}),
    ("Alibi offset must be an integer or None, got 'end'.", {"bias": Alibi(offset="end")}),
    ("Feature map must be a string or a function, got list.", {"score": Feature(["elu"])}),
    ("Custom function must be a function, got 3.", {"score": Custom(3)}),
    ("dropout must lie in [0, 1), got 'half'.", {"dropout": "half"}),
    ("dropout must lie in [0, 1), got NoneType.", {"dropout": None}),
    ("dropout must lie in [0, 1), got True.", {"dropout": True}),
    ("dropout must lie in [0, 1), got Tensor.", {"dropout": torch.tensor(0.5)}),
    ("generator must be a torch.Generator or None, got 3.", {"dropout": 0.5, "generator": 3}),
    (
        "backend must be one of 'auto', 'edges', 'sdpa', 'fused', 'tiled', 'compiled', 'reference', got ['tiled'].",
        {"backend": ["tiled"]},
    ),
    # --- places are whole numbers
    ("Causal offset must be an integer, a tensor or None, got 1.5.", {"mask": Causal(1.5)}),
    ("Window before must be an integer, got 1.5.", {"mask": Window(1.5, 0)}),
    ("Window after must be an integer, got 0.5.", {"mask": Window(1, 0.5)}),
    ("Window offset must be an integer, a tensor or None, got 0.5.", {"mask": Window(1, 0, offset=0.5)}),
    ("Alibi offset must be an integer or None, got 1.5.", {"bias": Alibi(offset=1.5)}),
    # --- True is no number
    ("Dot scale must be a number or None, got True.", {"score": Dot(scale=True)}),
    ("Causal offset must be an integer, a tensor or None, got True.", {"mask": Causal(True)}),
    # --- masks compose with masks
    ("And other must be a mask, got Tensor.", {"mask": Causal() & ONES(5, 7)}),
    ("Or other must be a mask, got 'causal'.", {"mask": Causal() | "causal"}),
    # --- numbers of the right kind, and still no use
    ("Entmax alpha must be finite, got inf: for the best key alone use Hard().", {"weigh": Entmax(float("inf"))}),
    ("Sparsemax has an alpha of 2, got 3.0: use Entmax(3.0).", {"weigh": Sparsemax(alpha=3.0)}),
    ("Hard seed must lie in [0, 2**63), got -1.", {"weigh": Hard("sample", seed=-1)}),
    ("Hard seed must lie in [0, 2**63), got 1180591620717411303424.", {"weigh": Hard("sample", seed=2**70)}),
    ("a score function must return floating point, got complex64.", {"score": lambda query, key: query @ key.mT * 1j}),
    ("a score function must return floating point, got int64.", {"score": lambda query, key: (query @ key.mT).long()}),
]


@pytest.mark.parametrize(("message", "terms"), MESSAGES, ids=[message[:60] for message, _ in MESSAGES])
def test_the_message_is_pinned(message, terms):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RegardError) as error:
            attend(QUERY, KEY, VALUE, **terms)
    assert str(error.value) == message
    assert "\n" not in message


@pytest.mark.parametrize(
    "terms",
    [
        {"score": Dot(scale=np.float32(0.5), cap=3)},
        {"mask": Causal(np.int64(1))},
        {"mask": Window(np.int32(1), 2, offset=np.int64(0))},
        {"dropout": np.float64(0.0)},
        {"weigh": Relu(power=np.int64(2), scale=2)},
    ],
    ids=str,
)
def test_numpys_numbers_are_numbers(terms):
    assert attend(QUERY, KEY, VALUE, **terms).isfinite().all()


@pytest.mark.parametrize("backend", ["auto", "tiled", "reference"])
@pytest.mark.parametrize(
    "terms",
    [
        {"score": Bilinear(ONES(3, 3).double())},
        {"score": Cosine(ONES(2).double())},
        {"score": Additive(ONES(3).double())},
        {"score": Concat(ONES(3).double(), ONES(3))},
        {"score": Gaussian(ONES(3).double())},
        {"weigh": Softmax(ONES(2).double())},
        {"bias": ONES(5, 7).double()},
        {"bias": Alibi(ONES(2).half())},
    ],
    ids=str,
)
def test_terms_may_have_another_precision(terms, backend):
    # not a mistake: weights are often kept in another dtype than what passes through them
    out = attend(QUERY, KEY, VALUE, **terms, backend=backend)
    assert out.dtype == torch.float32
    assert torch.allclose(out, torch.ones_like(out), atol=0.6)
