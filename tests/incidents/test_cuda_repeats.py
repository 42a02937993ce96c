"""N13 and N14 on the GPU: no call sees what another one left behind, and a call repeats to the bit.

Kernels kept for a call of other terms: flash-attention#2143, #2402. Races and reads beyond the end: #2229, #2709.
`REGARD_REPEATS=10000` repeats more often.
"""

import os

import pytest
import torch

from regard import attend
from regard.bias import Alibi, Dense, Relative
from regard.mask import Causal, Lengths, Window
from regard.score import Additive, Dot, Gaussian
from regard.weigh import Entmax, Hard, Relu, Sigmoid, Softmax
from tests.fused.goes import go
from tests.incidents.plain import ON_GPU, VIEWS, assert_all_near, assert_same_bits, make, run, run_exactly, split
from tests.terms import learned, move

pytestmark = pytest.mark.gpu
FUSED = ON_GPU[0]
BACKEND, DEVICE = split(FUSED)
REPEATS = int(os.environ.get("REGARD_REPEATS", "1000"))

BASE = {"b": 2, "h": 4, "g": 2, "n": 33, "m": 65, "d": 8, "e": 8, "dtype": torch.float32, "seed": 3, "view": None}
TABLE = torch.randn(4, 8, generator=torch.Generator().manual_seed(2))
SLOPES = torch.tensor([0.5, 0.25, 0.1, 0.02])
# two calls that differ in one thing
TWINS = {
    "sequences": ({}, {"b": 3}),
    "key heads": ({}, {"g": 4}),
    "queries": ({}, {"n": 34}),
    "keys": ({}, {"m": 66}),
    "width": ({}, {"d": 17}),
    "width of values": ({}, {"e": 17}),
    "dtype": ({}, {"dtype": torch.bfloat16}),
    "strides": ({}, {"view": "widths outside"}),
    "scale": ({"score": Dot(0.2)}, {"score": Dot(0.3)}),
    "cap": ({"score": Dot(cap=2.0)}, {"score": Dot(cap=0.5)}),
    "weight": ({"score": Additive(torch.ones(8))}, {"score": Additive(-torch.ones(8))}),
    "offset": ({"mask": Causal(20)}, {"mask": Causal(30)}),
    "window": ({"mask": Window(5, 0)}, {"mask": Window(6, 0)}),
    "lengths": ({"mask": Lengths(torch.tensor([60, 9]))}, {"mask": Lengths(torch.tensor([9, 60]))}),
    "dropout": ({"dropout": 0.2}, {"dropout": 0.6}),
    "seed": ({"dropout": 0.2}, {"dropout": 0.2, "seed": 4}),
    "power": ({"weigh": Relu(1)}, {"weigh": Relu(2)}),
    "shift": ({"weigh": Sigmoid()}, {"weigh": Sigmoid(-1.0)}),
    "sample": ({"weigh": Hard("sample", seed=5)}, {"weigh": Hard("sample", seed=6)}),
    "slopes": ({"bias": Alibi()}, {"bias": Alibi(SLOPES)}),
    "slopes' offset": ({"bias": Alibi(SLOPES, offset=0)}, {"bias": Alibi(SLOPES, offset=9)}),
    "distance": ({"bias": Relative(TABLE, max_distance=9)}, {"bias": Relative(TABLE, max_distance=50)}),
    "bias by key or head": ({"bias": Dense(torch.ones(65).cumsum(0) / 9)}, {"bias": Dense(torch.ones(4, 1, 1))}),
}  # fmt: skip


def take(changes, exactly=False):
    """Output and gradients of a call that differs in `changes` from the plain one."""
    terms = {**BASE, **changes}
    b, h, g, n, m, d, e, dtype, seed, view = (terms.pop(at) for at in BASE)
    rows = make((b, h, n, d), (b, g, m, d), (b, g, m, e), dtype=dtype)
    if view is not None:
        rows = [VIEWS[view](x.detach()).requires_grad_() for x in rows]
    terms["generator"] = torch.Generator().manual_seed(seed)
    return (run_exactly if exactly else run)(*rows, backend=FUSED, **terms)


@pytest.mark.parametrize("name", TWINS)
def test_a_call_between_two_others_changes_neither(name):
    one, two = TWINS[name]
    first, between, again = take(one), take(two), take(one)
    assert_same_bits(again, first)
    for got, changes in ((first, one), (between, two)):
        assert_all_near(got, take(changes, exactly=True), units=256 if got[0].dtype == torch.float32 else 4)
    if name not in ("strides", "bias by key or head"):
        # the thing makes a difference, or the test would show nothing
        assert any(x.shape != y.shape or not torch.equal(x, y) for x, y in zip(first, between, strict=True))


# what several blocks of a kernel add up into one number is where they could race
RACES = {
    "dense bias": (torch.bfloat16, {"mask": Causal(), "bias": Dense(torch.zeros(4, 1, 333))}),
    "table, weight": (torch.float32, {"score": Additive(torch.ones(64)), "bias": Relative(TABLE)}),
    "slopes, sink, width": (
        torch.float32,
        {"score": Gaussian(torch.full((4, 64), 0.2)), "weigh": Softmax(torch.zeros(4)), "bias": Alibi(SLOPES)},
    ),
    "rows, dropout": (torch.float16, {"weigh": Entmax(), "mask": Window(99, 99), "dropout": 0.1}),
}


@pytest.mark.parametrize(("name", "how"), [*((name, "at once") for name in RACES), ("rows, dropout", "again")])
def test_a_thousand_times_the_same_bits(name, how, monkeypatch):
    go(monkeypatch, how)
    dtype, terms = RACES[name]
    rows = [move(x, DEVICE) for x in make((2, 4, 300, 64), (2, 2, 333, 64), (2, 2, 333, 64), dtype=dtype)]
    terms = {at: move(term, DEVICE, dtype) for at, term in terms.items()}
    held = [x.requires_grad_() for term in terms.values() for x in getattr(term, "tensors", ())]
    first, differ = None, torch.zeros((), dtype=torch.long, device=DEVICE)
    pile = []
    for at in range(REPEATS):
        out = attend(*rows, **terms, generator=torch.Generator().manual_seed(5), backend=BACKEND)
        got = [out.detach(), *torch.autograd.grad(out, [*rows, *held], torch.cos(out.detach() * 100))]
        first = first or got
        for x, y in zip(got, first, strict=True):
            # counted on the device: waiting for each answer would keep calls from overlapping
            differ += (x != y).sum()
        # other addresses, and other work in flight, each time
        pile = [*pile[-5:], torch.ones(1 + 7919 * at % 100_000, device=DEVICE)]
    assert len(got) == 4 + len(held) == 4 + len(learned(*(terms.get(x) for x in ("score", "weigh", "bias"))))
    assert all(x.isfinite().all() for x in first)
    assert int(differ) == 0
