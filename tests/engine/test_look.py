"""A look at weights that nobody holds: what it says at length, what it keeps, and what it costs."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from regard import RegardError, look
from regard.bias import Alibi
from regard.core import Row, Sizes
from regard.engine import find_weights
from regard.engine.backends.fused import look as kernels
from regard.engine.call import Call
from regard.engine.looking.walk import Wanted
from regard.mask import Allowed, Causal, Full, Lengths, Window
from regard.score import Additive, Bilinear, Cosine, Dot, Gaussian
from regard.weigh import Entmax, Hard, Relu, Sigmoid, Softmax, Sum
from tests.looks import assert_is_look, remake
from tests.tolerances import assert_close
from tests.wide import ALL

ROOT = pathlib.Path(__file__).parents[2]


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


CALLS = {
    "plain": {},
    "sink, causal": {"weigh": Softmax(sink=torch.tensor([0.5, 3.0])), "mask": Causal()},
    "entmax, window": {"weigh": Entmax(), "mask": Window(100, 7)},
    "relu, additive": {"score": Additive(torch.linspace(-1, 1, 5)), "weigh": Relu(1, 0.2), "bias": Alibi()},
    "sigmoid, cosine": {"score": Cosine(4.0), "weigh": Sigmoid(-3.0), "mask": Lengths(torch.tensor([70]))},
    "kernel": {"score": Gaussian(0.7), "weigh": Softmax(), "mask": Causal() & Lengths(torch.tensor([290]))},
    "signed": {"weigh": Sum(), "mask": Causal()},
    "drawn": {"weigh": Hard("sample", seed=3)},
}


@pytest.mark.parametrize(
    ("name", "length"),
    [
        *((name, 301) for name in CALLS),
        *((name, 2048) for name in ("sink, causal", *(("kernel", "signed") if ALL else ()))),
    ],
)
def test_at_length(name, length):
    query, key = draw(1, 2, length, 5), 2 * draw(1, 2, length + 13, 5, seed=1)
    seen = look(query.double(), key.double(), **CALLS[name], rows=[5, -1], map=64)
    exact = find_weights(query.double(), key.double(), **CALLS[name])
    assert_is_look(seen, exact, name, map=64)
    if name not in ("drawn", "signed"):
        # in float32, too: where no draw hangs on the last digit, and no sum of both signs is divided by
        rough = look(query, key, **CALLS[name], map=64)
        for field in ("entropy", "received", "map", "distance", "peak", "local"):
            expected = getattr(seen, field)
            scale = expected.abs().max().clamp_min(1.0)
            assert (getattr(rough, field) - expected).abs().max() <= 1e-5 * scale, field


def test_the_mass_of_the_map_is_all_there_is():
    seen = look(draw(2, 3, 500, 4).double(), draw(2, 3, 777, 4).double(), map=100)
    assert seen.block == (5, 8)
    assert seen.map.shape == (2, 3, 100, 98)
    torch.testing.assert_close(seen.map.sum((-1, -2)), torch.full((2, 3), 500.0).double(), rtol=1e-13, atol=0)
    torch.testing.assert_close(seen.received.sum(-1), torch.full((2, 3), 500.0).double(), rtol=1e-13, atol=0)


KEPT = {
    "dot": {},
    "scaled": {"score": Dot(scale=0.3)},
    "bilinear": {"score": Bilinear(draw(2, 4, 4, seed=4))},
    "cosine": {"score": Cosine(torch.tensor([2.0, 9.0]))},
    "causal": {"mask": Causal()},
    "window": {"mask": Window(3, 1)},
    "ragged": {"mask": Causal() & Lengths(torch.tensor([3, 0]))},
    "allowed": {"mask": Allowed(torch.ones(9, 11, dtype=torch.bool).tril(1))},
    "sink": {"weigh": Softmax(sink=torch.tensor([1.0, -2.0]))},
}


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("groups", [2, 1])
def test_what_is_kept_makes_any_weight_again(name, groups):
    query, key = draw(2, 2, 9, 4).double(), draw(2, groups, 11, 4, seed=1).double()
    terms = {n: t.with_tensors([x.double() for x in t.tensors]) if t.tensors else t for n, t in KEPT[name].items()}
    seen = look(query, key, **terms, keep=True)
    assert seen.key.shape[1] == groups
    assert seen.why == ""
    assert_close(remake(seen), find_weights(query, key, **terms), name)


def test_kept_without_heads():
    query, key = draw(3, 5, 4), draw(3, 7, 4, seed=1)
    assert_close(remake(look(query, key, keep=True)), find_weights(query, key))


@pytest.mark.parametrize(
    ("terms", "why"),
    [
        ({"score": Additive(torch.ones(4))}, "not kept: Additive is not a dot product"),
        ({"weigh": Sigmoid()}, "not kept: Sigmoid is not softmax"),
        ({"bias": Alibi()}, "not kept: Alibi adds to the scores"),
        ({"mask": ~Window(0, 0)}, "not kept: some queries of ~Window(before=0, after=0, offset=1) may see keys that"),
    ],
    ids=["score", "weigh", "bias", "mask"],
)
def test_it_says_why_nothing_is_kept(terms, why):
    seen = look(draw(1, 2, 5, 4), draw(1, 2, 6, 4), **terms, keep=True)
    assert seen.why.startswith(why)
    assert seen.query is seen.key is seen.logsumexp is seen.spans is None


def test_poison_under_a_mask_is_not_seen():
    key = draw(1, 1, 7, 3)
    key[:, :, 4:] = torch.nan
    clean = key.nan_to_num(0.0)
    terms = {"mask": Lengths(torch.tensor([4])), "keep": True}
    one, other = (look(draw(1, 1, 5, 3), x, **terms) for x in (key, clean))
    for field in ("top_keys", "top_weights", "entropy", "received", "map", "distance", "logsumexp"):
        assert torch.equal(getattr(one, field), getattr(other, field)), field


def test_poison_that_is_attended_to_shows():
    key = draw(1, 1, 7, 3)
    key[0, 0, 2, 0] = torch.nan
    seen = look(draw(1, 1, 5, 3), key, mask=Causal())
    assert seen.entropy.isnan().tolist() == [[[True] * 5]]


def test_a_query_that_sees_nothing():
    seen = look(draw(1, 1, 2, 3), draw(1, 1, 4, 3), mask=~Full(), keep=True)
    assert (seen.top_keys == -1).all()
    for field in ("top_weights", "entropy", "peak", "total", "first", "local", "distance", "received", "map"):
        assert (getattr(seen, field) == 0).all(), field
    assert (remake(seen) == 0).all()


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)], ids=str)
def test_empty_axes(shape):
    n, m = shape
    seen = look(draw(1, 2, n, 3), draw(1, 2, m, 3), keep=True)
    assert seen.entropy.shape == (1, 2, n)
    assert seen.received.shape == (1, 2, m)
    assert seen.top_keys.shape == (1, 2, n, m)


def test_a_row_of_ones_own_may_have_signs():
    @dataclass(frozen=True, repr=False)
    class Centred(Row):
        def solve(self, scores, tile):
            weights = scores.softmax(-1)
            return weights - weights.mean(-1, keepdim=True)

    query, key = draw(1, 2, 3, 4), draw(1, 2, 5, 4, seed=1)
    shares = find_weights(query, key, weigh=Centred()).abs()
    shares = shares / shares.sum(-1, keepdim=True)
    assert_close(look(query, key, weigh=Centred()).entropy, torch.special.entr(shares).sum(-1))


def test_half_precision_is_measured_in_float32():
    query, key = draw(1, 2, 40, 8, dtype=torch.bfloat16), draw(1, 2, 40, 8, seed=1, dtype=torch.bfloat16)
    seen = look(query, key, keep=True)
    assert seen.entropy.dtype == seen.query.dtype == torch.float32
    assert_is_look(seen, find_weights(query.float(), key.float()), "bfloat16")


def test_autocast_changes_nothing():
    query, key = draw(1, 2, 40, 8), draw(1, 2, 40, 8, seed=1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        seen = look(query, key)
    assert torch.equal(seen.entropy, look(query, key).entropy)


def test_it_moves_whole():
    seen = look(draw(1, 2, 4, 3), draw(1, 2, 5, 3), keep=True).to("meta")
    assert {seen.map.device.type, seen.key.device.type, seen.chosen.device.type} == {"meta"}
    assert str(seen) == "Look(4 queries, 5 keys, leading axes [1, 2], Dot(), Softmax(), Full())"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"top": -1}, "look top must be a whole number, 0 or more, got -1."),
        ({"map": 0}, "look map must be a whole number, 1 or more, got 0."),
        ({"window": 1.5}, "look window must be a whole number, 0 or more, got 1.5."),
        ({"rows": [5]}, "look rows must be queries from -5 to 4, got 5."),
        ({"rows": [1.5]}, "look rows must be a list of whole numbers, got [1.5]."),
        ({"rows": 3}, "look rows must be a list of whole numbers, got 3."),
        ({"rows": None}, "look rows must be a list of whole numbers, got None."),
        ({"backend": "sdpa"}, "look backend must be 'auto', 'tiled' or 'fused', got 'sdpa'."),
        (
            {"backend": "fused", "top": 40},
            "look backend='fused' cannot take this call: its kernels name up to 32 keys for a query, not 40."
            " Use backend='auto'.",
        ),
        (
            {"backend": "fused", "weigh": Sigmoid()},
            "look backend='fused' cannot take this call: Sigmoid is not softmax. Use backend='auto'.",
        ),
    ],
    ids=str,
)
def test_wrong_options(options, message):
    with pytest.raises(RegardError) as error:
        look(draw(1, 5, 3), draw(1, 60, 3), **options)
    assert str(error.value) == message


def test_more_keys_than_kernels_can_list():
    call = Call(Sizes((1,), 1, 1, 1, 2**26, 8, 8, 0), Dot(), Softmax(), Full())
    why = kernels.refuse(call, Wanted(0, (), 256, 8))
    assert why == "its kernels list fewer than 2**26 keys, got 67108864."


def test_widths_that_kernels_do_not_look_at():
    with pytest.raises(RegardError) as error:
        look(draw(1, 5, 300), draw(1, 6, 300), backend="fused")
    assert "its kernels look at widths up to 256, got 300." in str(error.value)


@pytest.mark.parametrize(
    ("query", "key", "message"),
    [
        ("a", "b", "query must be a torch.Tensor, got str."),
        (torch.zeros(1, 5, 3), None, "key must be a torch.Tensor, got NoneType."),
        (torch.zeros(1, 5, 3), [[1.0]], "key must be a torch.Tensor, got list."),
        (
            torch.zeros(1, 5, 3, device="meta"),
            torch.zeros(1, 5, 3, device="meta"),
            "look needs numbers to look at, and tensors on meta have none.",
        ),
    ],
    ids=["text", "nothing", "list", "meta"],
)
def test_wrong_tensors(query, key, message):
    with pytest.raises(RegardError) as error:
        look(query, key)
    assert str(error.value) == message


def test_rows_may_be_numbers_of_any_library():
    query, key = draw(1, 5, 3), draw(1, 6, 3, seed=1)
    for rows in (torch.tensor([0, -1]), np.array([0, -1]), range(0, 5, 4), (x for x in (0, 4))):
        assert torch.equal(look(query, key, rows=rows).rows, find_weights(query, key)[:, [0, 4]])


def test_memory_grows_with_length_alone():
    # of a window only the work is less: rows are as long, and so is all that is kept of them
    length = 131_072 if ALL else 32_768
    command = [sys.executable, "-m", "benchmarks.look", "--window", "256", "--positions", str(length)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, cwd=ROOT)
    found = re.fullmatch(rf"{length:,} tokens, one head of width 64: ([\d.]+) MiB, [\d.]+ s\n", done.stdout)
    # all weights would take 64 GiB, or 4
    assert 2 <= float(found[1]) <= 256 * length / 131_072 + 32
