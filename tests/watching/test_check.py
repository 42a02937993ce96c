"""The self-check fails where the weights are not those that were used."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from regard import attend
from regard.bias import Alibi, Dense
from regard.core import Sizes
from regard.engine.call import Call
from regard.engine.look import look
from regard.engine.run import OBSERVERS
from regard.mask import Allowed, Causal, Full
from regard.score import Additive, Cosine, Custom, Dot
from regard.watching import record, watch
from regard.watching.check import check_rows
from regard.weigh import Entmax, Sigmoid, Softmax


def rows(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2)).to(dtype)


def make(dtype=torch.float32, **terms):
    query, key = rows(2, 4, 9, 8, dtype=dtype), rows(2, 2, 11, 8, dtype=dtype)
    value = key * 2
    out = attend(query, key, value, **terms)
    given = {"score": Dot(), "weigh": Softmax(), "mask": Full(), "bias": None} | terms
    sizes = Sizes((2,), 4, 2, 9, 11, 8, 8, 8, dtype)
    return Call(sizes, given["score"], given["weigh"], given["mask"], given["bias"]), query, key, value, out


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "terms",
    [
        {},
        {"mask": Causal()},
        {"bias": Alibi()},
        {"weigh": Softmax(torch.tensor([0.3, -2.0, 1.0, 4.0]))},
        {"weigh": Sigmoid()},
        {"weigh": Entmax(1.5)},
        {"score": Cosine(3.0)},
        {"score": Additive(torch.linspace(-1, 1, 32).view(4, 8))},
        {"score": Custom(lambda query, key: query @ key.transpose(-1, -2))},
    ],
    ids=str,
)
def test_it_holds_for_what_attend_does(terms, dtype):
    check = check_rows(*make(dtype, **terms))
    assert check.rows == 16
    assert check.holds, check
    assert check.ratio < 4, check


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "wrong",
    [{"score": Dot(0.5)}, {"mask": Causal()}, {"bias": Dense(torch.tensor([3.0] + [0.0] * 10))},
     {"weigh": Softmax(torch.tensor(1.0))}],
    ids=str,
)  # fmt: skip
def test_it_fails_for_other_terms(wrong, dtype):
    call, *tensors = make(dtype)
    check = check_rows(replace(call, **wrong), *tensors)
    assert not check.holds, check
    assert "OFF" in check.text()


def test_it_fails_for_other_tensors():
    call, query, key, value, out = make()
    assert not check_rows(call, query.flip(2), key, value, out).holds
    assert not check_rows(call, query, key.flip(1), value, out).holds
    assert not check_rows(call, query, key, value, out * torch.nan).holds


def test_nan_under_a_mask_is_nothing():
    query, key = rows(1, 1, 5, 8), rows(1, 1, 7, 8)
    key[..., -1, :] = torch.nan
    mask = torch.ones(5, 7, dtype=torch.bool)
    mask[:, -1] = False
    out = attend(query, key, key, mask=mask)
    call = Call(Sizes((1,), 1, 1, 5, 7, 8, 8, 8), Dot(), Softmax(), Allowed(mask))
    assert check_rows(call, query, key, key, out).ratio < 4


def test_what_is_not_checked_says_why():
    call, *tensors, out = make()
    assert check_rows(replace(call, dropout=0.1), *tensors, out).why.startswith("dropout was on")
    assert check_rows(call, *tensors, out[:, :1]).why.startswith("the layer's output has another shape")
    empty = [x[..., :0, :] for x in (*tensors, out)]
    assert check_rows(call, *empty).why == "there is nothing in it"


def test_a_watch_warns_of_weights_that_were_not_used():
    class Plain(nn.Module):
        def forward(self, x):
            return attend(x, x, x)

    model = Plain()

    def lie(call, query, key, value, out):
        # runs before the watch's own, and spoils what it is told
        out.add_(1.0)

    OBSERVERS.append(lie)
    try:
        with (
            pytest.warns(UserWarning, match="watch: 1 of 1 looks do not explain their layer's output, Plain first: "),
            watch(model) as seen,
        ):
            model(rows(1, 2, 5, 4))
    finally:
        OBSERVERS.remove(lie)
    assert not seen.checks["Plain"].holds


LIES = {
    "top_weights": lambda x: x * 0.9,
    "top_keys": lambda x: x.roll(1, -1),
    "entropy": lambda x: x + 0.02,
    "peak": lambda x: x * 0.95,
    "total": lambda x: x + 0.02,
    "first": lambda x: x + 0.01,
    "local": lambda x: x - 0.02,
    "distance": lambda x: x * 1.05,
    "received": lambda x: x * 3,
    "map": lambda x: torch.full_like(x, 0.5),
    "logsumexp": lambda x: x + 0.05,
    "query": lambda x: x * 1.5,
    "spans": lambda x: torch.stack((x[..., 0] + 1, x[..., 1]), -1),
}


def look_at(call, query, key, **options):
    return look(query, key, score=call.score, weigh=call.weigh, mask=call.mask, bias=call.bias, **options)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("field", LIES)
def test_it_fails_for_a_look_that_says_something_else(field, dtype):
    call, query, key, value, out = make(dtype)
    seen = look_at(call, query, key, keep=True, window=2)
    assert check_rows(call, query, key, value, out, seen, 2).holds
    lie = replace(seen, **{field: LIES[field](getattr(seen, field))})
    check = check_rows(call, query, key, value, out, lie, 2)
    assert check.ratio < 4
    assert not check.holds
    assert "OFF, its look says something else" in check.text()
    assert f"({'kept' if field in ('logsumexp', 'query', 'spans') else field})" in check.text()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("cells", [3, 16])
@pytest.mark.parametrize(
    "terms",
    [
        {"mask": Causal()},
        {"bias": Alibi()},
        {"weigh": Softmax(torch.tensor([0.3, -2.0, 1.0, 400.0]))},
        {"weigh": Sigmoid()},
        {"weigh": Entmax(1.5)},
        {"score": Cosine(3.0)},
        {"score": Dot(9.0)},
        {"score": Additive(torch.linspace(-1, 1, 32).view(4, 8))},
        {"score": Custom(lambda query, key: query @ key.transpose(-1, -2))},
    ],
    ids=str,
)
def test_it_holds_for_what_look_does(terms, cells, dtype):
    call, query, key, value, out = make(dtype, **terms)
    seen = look_at(call, query, key, keep=True, map=cells, top=4)
    check = check_rows(call, query, key, value, out, seen)
    assert check.holds, check
    assert check.shown < 0.5, check


def test_a_watch_warns_of_looks_that_say_something_else(monkeypatch):
    class Plain(nn.Module):
        def forward(self, x):
            return attend(x, x, x)

    def lie(*args, **options):
        seen = look(*args, **options)
        return replace(seen, map=seen.map * 0 + 0.5, top_weights=seen.top_weights * 0.1, received=seen.received * 3)

    monkeypatch.setattr(record, "look", lie)
    with pytest.warns(UserWarning, match="watch: 1 of 1 looks do not explain"), watch(Plain()) as seen:
        attend(*[rows(1, 2, 5, 4)] * 3)
    assert not seen.checks["attend"].holds


def test_scores_that_half_precision_does_not_have():
    # eager's own row would not be a number there, and anything would be within that
    query, key = (40 + rows(1, 1, 6, 64) for _ in range(2))
    query, key, value = query.half(), key.half(), rows(1, 1, 6, 8).half()
    call = Call(Sizes((1,), 1, 1, 6, 6, 64, 64, 8, torch.float16), Dot(), Softmax(), Full())
    right = torch.softmax(query.double() @ key.double().transpose(-1, -2) / 8, -1) @ value.double()
    assert (query.double() @ key.double().transpose(-1, -2)).max() > 65504
    assert check_rows(call, query, key, value, right.half()).holds
    check = check_rows(call, query, key, value, torch.full_like(value, 5.0))
    assert not check.holds
    assert check.rounding < 1
