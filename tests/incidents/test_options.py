"""N12: what forward applies, backward applies.

flash-attention#2424 forgot the mask and the score change in backward; #2623 was exact forward, and 150–700 times off in
backward.
"""

import pytest
import torch

from regard import attend
from regard.bias import Alibi, Dense
from regard.mask import Causal
from regard.score import Dot
from regard.weigh import Softmax
from tests.fuzz.pairs import write_uniform
from tests.incidents.plain import BACKENDS, assert_all_near, assert_near, attend_plainly, cosines, make, run, split

pytestmark = pytest.mark.thin(3)

B, H, N, M, D = 2, 3, 5, 7, 11
NOISE = torch.Generator().manual_seed(4)
ALLOWED = torch.rand(B, 1, N, M, generator=NOISE) < 0.6
BIAS = torch.randn(H, N, M, generator=NOISE, dtype=torch.float64)
SINK = torch.randn(H, generator=NOISE, dtype=torch.float64)
SLOPES = torch.tensor([0.5, 0.1, 0.02], dtype=torch.float64)
AHEAD = torch.arange(M)[None] - torch.arange(N)[:, None]


def seeded():
    return torch.Generator().manual_seed(8)


KEEP = write_uniform(int(torch.randint(0, 2**31, (), generator=seeded())), (B, H, N, M), salt=0) >= 0.4
# each option: as the library takes it, and as the formula does
OPTIONS = {
    "mask": ({"mask": ALLOWED}, {"allowed": ALLOWED}),
    "bias": ({"bias": Dense(BIAS)}, {"bias": BIAS}),
    "slopes": ({"bias": Alibi(SLOPES)}, {"bias": -SLOPES[:, None, None] * (AHEAD - (M - N)).abs()}),
    "cap": ({"score": Dot(cap=0.7)}, {"cap": 0.7}),
    "scale": ({"score": Dot(scale=0.9)}, {"scale": 0.9}),
    "sink": ({"weigh": Softmax(SINK)}, {"sink": SINK}),
    "dropout": ({"dropout": 0.4, "generator": seeded}, {"keep": KEEP.double() / 0.6}),
    "causal": ({"mask": Causal()}, {"allowed": AHEAD <= M - N}),
    "causal offset": ({"mask": Causal(-2)}, {"allowed": AHEAD <= -2}),
}
# pairs of options in one call: one must not switch the other off
PAIRS = [
    ("mask", "bias"),
    ("mask", "dropout"),
    ("bias", "cap"),
    ("causal", "slopes"),
    ("sink", "dropout"),
    ("cap", "scale"),
]
CALLS = [(), *((name,) for name in OPTIONS), *PAIRS]


def gather(names):
    taken, formula, score = {}, {}, {}
    for name in names:
        given, meant = OPTIONS[name]
        for at, value in given.items():
            if at == "score":
                score |= {k: getattr(value, k) for k in ("scale", "cap") if getattr(value, k) is not None}
            else:
                taken[at] = value() if at == "generator" else value
        formula |= meant
    return taken | ({"score": Dot(**score)} if score else {}), formula


def both(names, backend, dtype=torch.float64):
    leaves = make((B, H, N, D), (B, H, M, D), (B, H, M, D), dtype=dtype)
    taken, formula = gather(names)
    got = run(*leaves, **taken, backend=backend)
    wide = [x.detach().double().requires_grad_() for x in leaves]
    out = attend_plainly(*wide, **formula)
    return got, [out.detach(), *torch.autograd.grad(out, wide, cosines(out))]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("names", CALLS, ids=" and ".join)
def test_an_option_changes_every_gradient_as_its_formula_does(names, backend):
    check(names, backend)


def check(names, backend, dtype=torch.float64):
    got, expected = both(names, backend, dtype)
    assert_all_near(got, expected)


@pytest.mark.parametrize("name", OPTIONS)
def test_no_option_is_without_effect(name):
    # or the test above would pass for one that is ignored on both sides
    _, without = both((), "reference")
    _, with_it = both((name,), "reference")
    for one, two in zip(without, with_it, strict=True):
        assert (one - two).abs().max() > 1e-3


@pytest.mark.parametrize("backend", ["reference", "tiled"])
def test_what_an_option_learns_gets_its_gradient(backend):
    check_learned(backend)


def check_learned(backend, dtype=torch.float64):
    backend, device = split(backend)
    rows = make((B, H, N, D), (B, H, M, D), (B, H, M, D), dtype=dtype)
    bias, sink = (x.to(dtype).clone().requires_grad_() for x in (BIAS, SINK))
    terms = {"bias": Dense(bias.to(device)), "weigh": Softmax(sink.to(device)), "mask": ALLOWED.to(device)}
    out = attend(*(x.to(device) for x in rows), **terms, backend=backend)
    wide = [x.detach().double().requires_grad_() for x in (*rows, bias, sink)]
    meant = attend_plainly(*wide[:3], bias=wide[3], sink=wide[4], allowed=ALLOWED)
    got = torch.autograd.grad(out, (bias, sink), cosines(out))
    for one, two in zip(got, torch.autograd.grad(meant, wide[3:], cosines(meant)), strict=True):
        assert_near(one, two, what="learned")
        assert two.abs().max() > 1e-3
