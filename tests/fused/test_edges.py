"""What kernels in particular get wrong: the edges of blocks, strides, groups of heads, random bits, empty and NaN."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from regard import RegardError, attend
from regard.bias import Alibi, Dense, Relative
from regard.mask import Allowed, Causal, Lengths, Window
from regard.score import Additive, Bilinear, Concat, Cosine, Gaussian
from regard.weigh import Entmax, Hard, Relu, Sigmoid, Softmax, Sparsemax, Sum
from tests.fused.against import BACKEND, DEVICE, PLACE, check, draw, run
from tests.fused.goes import GOES, go
from tests.incidents import plain, test_empty_rows, test_nan_shows, test_poison, test_strides
from tests.incidents.plain import VIEWS, WEIGHERS, cosines
from tests.terms import move
from tests.wide import ALL, thin, wide

pytest.importorskip("triton")
pytestmark = pytest.mark.thin(2)
# blocks have 16, 32, 64 or 128 rows: one less, just so many and one more
LENGTHS = [(1, 1), (1, 65), (15, 64), (16, 16), (17, 31), (31, 17), (33, 63), (63, 33), (64, 65), (65, 15), (65, 1)]
WIDTHS = [
    (1, 1), (3, 16), (16, 17), (17, 31), (31, 3), (33, 64), (64, 33), (65, 1), (1, 65), (128, 5), (16, 128), (63, 15)
]  # fmt: skip
# each way that a kernel goes: running statistics of rows, none, or rows that are solved first
WAYS = ["running", "no statistic", "whole rows"]


def meet(rows: list[tuple[Any, ...]], ways: Sequence[str]) -> list[tuple[Any, ...]]:
    """The next row in the next way, under make test-all each in every way: each way sees narrow and wide ones."""
    found = [(*row, way) for at, row in enumerate(rows) for way in (ways if ALL else [ways[at % len(ways)]])]
    return found


def weight(*shape: int, seed: int = 5) -> torch.Tensor:
    noise = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=noise, dtype=torch.float64) / 2).requires_grad_()


def list_calls(n: int, m: int, d: int) -> dict[str, dict[str, Any]]:
    """A call for each of `WAYS`, and between them masks with a span, masks in bits, and random bits."""
    chance = torch.Generator().manual_seed(6)
    return {
        "running": {"mask": Causal(), "dropout": 0.3, "bias": Alibi()},
        "no statistic": {
            "score": Gaussian(weight(d).abs().add(0.1).detach().requires_grad_()), "weigh": Sigmoid(),
            "mask": Window(9, 3), "bias": Dense(weight(n, m)),
        },
        "whole rows": {
            "score": Additive(weight(d)), "weigh": Entmax(), "mask": Allowed(torch.rand(n, m, generator=chance) < 0.6)
        },
    }  # fmt: skip


@pytest.mark.thin(1)
@pytest.mark.parametrize("how", GOES)
@pytest.mark.parametrize(("n", "m", "way"), meet(LENGTHS, WAYS))
def test_lengths_at_the_edges_of_blocks(n, m, way, how, monkeypatch):
    go(monkeypatch, how)
    check(draw((1, 1, n, 5), (1, 1, m, 5), (1, 1, m, 3)), **list_calls(n, m, 5)[way])


@pytest.mark.parametrize(("d", "e", "way"), thin(meet(WIDTHS, WAYS), 2))
def test_widths_at_the_edges_of_blocks(d, e, way, monkeypatch):
    go(monkeypatch, GOES[d % 2])
    check(draw((1, 1, 5, d), (1, 1, 7, d), (1, 1, 7, e)), **list_calls(5, 7, d)[way])


@pytest.mark.parametrize("score", [Bilinear(weight(33, 5)), Concat(weight(33), weight(5))], ids=repr)
def test_keys_of_another_width(score):
    check(draw((1, 1, 4, 33), (1, 1, 17, 5), (1, 1, 17, 3)), score=score)


@pytest.mark.parametrize(("h", "g", "way"), [(4, 2, "dot"), (3, 1, "dot"), (3, 1, "additive"), (4, 2, "entmax")])
def test_groups_of_heads(way, h, g, monkeypatch):
    go(monkeypatch, GOES[h % 2])
    terms = {
        "dot": {"bias": Relative(weight(h, 6), max_distance=4), "mask": Causal(), "dropout": 0.2},
        "additive": {"score": Additive(weight(h, 3)), "weigh": Softmax(weight(h))},
        "entmax": {"score": Cosine(weight(h)), "weigh": Entmax(), "mask": Lengths(torch.tensor([9, 4]))},
    }[way]
    check(draw((2, h, 5, 3), (2, g, 9, 3), (2, g, 9, 4)), **terms)


@pytest.mark.parametrize("shapes", [
    [(5, 3), (7, 3), (7, 2)], [(2, 5, 3), (2, 7, 3), (2, 7, 2)], [(2, 3, 2, 5, 3), (1, 3, 2, 7, 3), (2, 1, 2, 7, 2)]
], ids=str)  # fmt: skip
def test_other_axes(shapes):
    check(draw(*shapes), mask=Causal())


@pytest.mark.parametrize("weigh", [Softmax(), Sigmoid(), Relu(), Sum(), Entmax(1.2)], ids=repr)
def test_dropout_hits_the_same_pairs_as_elsewhere(weigh):
    n, m = 33, 49
    query, key, _ = draw((2, 3, n, 4), (2, 3, m, 4), (1,))
    query, key = query.detach().abs(), key.detach().abs()
    # with these values the output is the weights
    value = torch.eye(m, device=DEVICE).expand(2, 3, m, m)
    seen = []
    for backend in (BACKEND, "tiled"):
        generator = torch.Generator().manual_seed(7)
        out = attend(query, key, value, weigh=weigh, dropout=0.4, generator=generator, backend=backend)
        seen.append(out == 0)
    assert torch.equal(*seen)
    assert 0.3 < seen[0].float().mean() < 0.98


def test_sampled_keys_are_the_same_as_elsewhere():
    query, key, _ = draw((2, 3, 33, 4), (2, 3, 49, 4), (1,))
    value = torch.eye(49, device=DEVICE).expand(2, 3, 49, 49)
    one, two = (attend(query, key, value, weigh=Hard("sample", seed=7), backend=x) for x in (BACKEND, "tiled"))
    assert torch.equal(one, two)


@pytest.mark.thin(1)
def test_of_equal_keys_in_many_blocks_the_first_wins():
    query, key, value = draw((1, 2, 3, 4), (1, 2, 300, 4), (1, 2, 300, 4))
    out = attend(torch.zeros_like(query), key, value, weigh=Hard(), backend=BACKEND)
    assert torch.equal(out, value[:, :, :1].expand(out.shape))


@pytest.mark.thin(1)
@pytest.mark.parametrize("mask", [Window(9, 4) & Window(2, 6), Window(2, 6) & Causal() & Window(4, 4)], ids=str)
def test_of_several_intervals_what_all_of_them_allow_is_left(mask):
    check(draw((1, 1, 20, 4), (1, 1, 20, 4), (1, 1, 20, 4)), mask=mask)


@pytest.mark.parametrize("view", thin(VIEWS, 3))
def test_views_are_their_copies(view):
    shapes = [(2, 2, 9, 4)] * 3
    rows = [VIEWS[view](x.detach()).requires_grad_() for x in draw(*shapes)]
    # `check` hands copies to the oracle
    check(rows, mask=Causal())
    check(rows, score=Gaussian(0.7), weigh=Sparsemax())


@pytest.mark.parametrize("view", ["transposed", "widths outside", "one number"])
def test_the_outputs_gradient_may_have_any_strides(view):
    test_strides.check_grad(view, masked=True, backend=PLACE)


@pytest.mark.parametrize("sizes", [(0, 2, 3, 5, 4), (2, 0, 3, 5, 4), (2, 2, 0, 5, 4), (2, 2, 3, 0, 4), (2, 2, 3, 5, 0)])
def test_an_empty_axis_is_refused_by_name_and_left_to_others(sizes):
    b, h, n, m, d = sizes
    query, key, value = draw((b, h, n, d), (b, h, m, d), (b, h, m, 3))
    with pytest.raises(RegardError, match=r"backend='fused' cannot take this call: .*empty axis"):
        attend(query, key, value, backend=BACKEND)
    out = attend(query, key, value)
    assert out.shape == (b, h, n, 3)
    assert d == 0 or not out.any()


EMPTY = [
    ("bool", "softmax"), ("-inf bias", "softmax"), ("causal and padding", "sink"), ("left padding", "entmax"),
    ("window outside", "sigmoid"), ("no edge", "hard"), ("segment without keys", "sum"),
]  # fmt: skip


@pytest.mark.thin(1)
@pytest.mark.parametrize(("kind", "weigh", "how"), meet(thin(EMPTY, 2), GOES))
def test_empty_rows_are_zero_and_have_no_influence(kind, weigh, how, monkeypatch):
    go(monkeypatch, how)
    test_empty_rows.check_empty_rows(kind, weigh, PLACE)


POISONED = [
    ("lengths", "dot", "softmax"), ("causal", "additive", "entmax"), ("window", "gaussian", "sigmoid"),
    ("edges", "concat", "relu"), ("document", "cosine", "sink"), ("and", "capped", "sum"),
    ("edges", "additive", "softmax"),
]  # fmt: skip


@pytest.mark.thin(1)
@pytest.mark.parametrize("how", GOES)
@pytest.mark.parametrize(("mask", "score", "weigh", "poison"), meet(thin(POISONED, 2), ["nan", "inf"]))
def test_poison_under_a_mask_changes_no_bit(mask, score, weigh, poison, how, monkeypatch):
    go(monkeypatch, how)
    test_poison.check(mask, poison, score=test_poison.SCORES[score], weigh=WEIGHERS[weigh], backend=PLACE)


ATTENDED = [
    ("full", "dot", "softmax"), ("causal", "additive", "entmax"), ("lengths", "gaussian", "sigmoid"),
    ("edges", "concat", "hard"), ("full", "relu", "relu"), ("causal", "feature", "sum"),
    ("edges", "dot", "entmax 1.3"),
]  # fmt: skip


@pytest.mark.thin(1)
@pytest.mark.parametrize(
    ("mask", "score", "weigh", "which", "how"), meet(meet(ATTENDED, ["query", "key", "value"]), GOES)
)
def test_nan_that_is_attended_shows(mask, score, weigh, which, how, monkeypatch):
    go(monkeypatch, how)
    scores = test_nan_shows.SCORES
    test_nan_shows.check(mask, which, score=scores[score], weigh=WEIGHERS[weigh], backend=PLACE)


@pytest.mark.thin(1)
@pytest.mark.parametrize("how", GOES)
@pytest.mark.parametrize("score", ["dot", "additive"])
def test_a_gradient_that_is_nan_reaches_what_its_row_sees_and_nothing_else(score, how, monkeypatch):
    go(monkeypatch, how)
    rows = [x.detach() for x in draw(*[(1, 2, 20, 4)] * 3)]
    options = {"mask": Window(1, 0), "score": test_poison.SCORES[score], "backend": PLACE}
    grad = cosines(rows[0])
    ill = grad.clone()
    ill[0, 1, 7, 2] = torch.nan
    clean, found = (plain.run(*(x.clone().requires_grad_() for x in rows), x, **options) for x in (grad, ill))
    for one, other, touched in zip(clean[1:], found[1:], ([7], [6, 7], [6, 7]), strict=True):
        assert other[0, 1, touched].isnan().any(-1).all()
        other[0, 1, touched] = one[0, 1, touched]
        assert torch.equal(one, other)


@pytest.mark.parametrize("size", [1e-2, 1e-3, 1e-5, 1e-7])
def test_small_features_keep_their_digits(size):
    query, key, value = (x.to(torch.bfloat16) for x in draw((1, 2, 9, 4), (1, 2, 12, 4), (1, 2, 12, 3)))
    rows = query * size, key * size, value
    # weights that are the scores themselves show what a softmax would hide
    terms = {"score": Additive(torch.ones(4, device=DEVICE)), "weigh": Relu(1, 1 / size)}
    found = attend(*rows, **terms, backend=BACKEND)
    wanted = attend(*(x.double() for x in rows), **terms, backend="reference")
    assert (found.double() - wanted).norm() <= 2**-7 * wanted.norm()


def test_small_features_keep_their_digits_beside_a_large_one():
    # one that weighs nothing, and that e^{2q} does not hold
    query, key, value = (1e-4 * x.detach() for x in draw((1, 1, 32, 16), (1, 1, 32, 16), (1, 1, 32, 8)))
    query[..., 0], weight = 50.0, 3e3 * draw((16,))[0].detach()
    weight[0] = 0.0
    exact = attend(query.double(), key.double(), value.double(), score=Additive(weight.double()), backend="reference")
    eager = ((query[..., :, None, :] + key[..., None, :, :]).tanh() @ weight).softmax(-1) @ value
    found = attend(query, key, value, score=Additive(weight), backend=BACKEND)
    assert (found - exact).norm() <= 2 * (eager - exact).norm()


@wide
@pytest.mark.parametrize("how", GOES)
def test_calls_repeat_to_the_bit(how, monkeypatch):
    go(monkeypatch, how)
    terms = {"mask": Causal(), "bias": Dense(weight(2, 1, 65)), "dropout": 0.2}
    terms = {name: move(term, DEVICE, torch.float32) for name, term in terms.items()}
    rows = draw((1, 2, 33, 4), (1, 1, 65, 4), (1, 1, 65, 4))
    for one, two in zip(*(run(rows, terms, BACKEND) for _ in range(2)), strict=True):
        assert torch.equal(one, two)
