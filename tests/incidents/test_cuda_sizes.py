"""N9, N10, N11, N15, N16 on the GPU: sizes beyond 32 bits and grid limits, changing, empty, and not the same."""

import pytest
import torch

from regard import attend
from regard.bias import Alibi, Dense, Relative
from regard.mask import Allowed, Causal, Lengths, Window
from regard.score import Additive
from regard.weigh import Sigmoid
from tests.fused.goes import GOES, go
from tests.incidents import test_alignment, test_empty_axes
from tests.incidents.plain import ON_GPU, WEIGHERS, assert_all_near, assert_near, make, run, run_exactly, split
from tests.terms import move

pytestmark = pytest.mark.gpu
# an empty axis has no kernel: such calls are for `auto`
FUSED, AUTO = ON_GPU
BACKEND, DEVICE = split(FUSED)
# n² leaves 32 bits after 46,340 (signed) and 65,535 (unsigned)
LONG = [46_340, 46_341, 46_342, 65_535, 65_536, 65_537, 131_072]
# places where a wrong index would come round
EDGES = [0, 1, 32_767, 32_768, 46_340, 46_341, 65_535, 65_536, 131_071]


def see_before(i, j, n):
    return (j <= i) & (j < n - 5)


def see_afar(i, j, n):
    return (i - j).abs() > 3


# as the library takes it and as the formula does: which pairs, and what is added
CALLS = {
    "causal, lengths, slopes": (
        lambda n: {"mask": Causal() & Lengths(torch.tensor([n - 5])), "bias": Alibi(torch.tensor([1 / n]))},
        see_before, lambda i, j, n: -(i - j).abs() / n,
    ),
    "window": (lambda n: {"mask": Window(40_000, 1)}, lambda i, j, n: (i - j <= 40_000) & (j - i <= 1), None),
    "packed mask": (lambda n: {"mask": ~Window(3, 3, offset=0)}, see_afar, None),
    "bias by key": (
        lambda n: {"bias": Dense(torch.sin(torch.arange(n)))}, None, lambda i, j, n: torch.sin(j.float()).double()
    ),
}  # fmt: skip


def attend_by_strips(query, key, value, grad, sees, adds, rows):
    """Output, gradients and the bias by key's own at `rows`, in float64, few rows at a time."""
    n, d = query.shape
    query, key, value, grad = (x.detach().double() for x in (query, key, value, grad))
    places = torch.arange(n, device=query.device)

    def score(i, j):
        scores = query[i] @ key[j].T / d**0.5
        if adds is not None:
            scores = scores + adds(places[i][:, None], places[j][None], n)
        return scores if sees is None else scores.masked_fill(~sees(places[i][:, None], places[j][None], n), -torch.inf)

    out, total = torch.zeros(n, value.shape[1], device=query.device, dtype=torch.float64), query.new_zeros(n)
    for i in places.split(max(1, 2**27 // n)):
        scores = score(i, places)
        total[i] = torch.logsumexp(scores, -1)
        out[i] = torch.exp(scores - total[i][:, None]) @ value
    mean = (grad * out).sum(-1)

    def slope(i, j):
        weights = torch.exp(score(i, j) - total[i][:, None])
        return weights, weights * (grad[i] @ value[j].T - mean[i][:, None])

    down, across = slope(rows, places)[1], slope(places, rows)
    return {
        "output": out[rows], "dquery": down @ key / d**0.5, "dkey": across[1].T @ query / d**0.5,
        "dvalue": across[0].T @ grad, "dbias": across[1].sum(0),
    }  # fmt: skip


def check_long(n, name):
    make_terms, sees, adds = CALLS[name]
    *rows, grad = (x.detach().to(DEVICE).requires_grad_() for x in make(*[(1, 1, n, 16)] * 4))
    terms = {at: move(term, DEVICE) for at, term in make_terms(n).items()}
    bias = terms.get("bias")
    learned = [bias.values.requires_grad_()] if isinstance(bias, Dense) else []
    out = attend(*rows, **terms, backend=BACKEND)
    grads = torch.autograd.grad(out, [*rows, *learned], grad)
    chance = torch.Generator().manual_seed(n)
    at = torch.tensor([*(x for x in EDGES if x < n), n - 1, *torch.randint(0, n, (64,), generator=chance)][:64])
    at = at.to(DEVICE)
    exact = attend_by_strips(*(x[0, 0] for x in (*rows, grad)), sees, adds, at)
    got = {"output": out, "dquery": grads[0], "dkey": grads[1], "dvalue": grads[2]}
    for what, x in got.items():
        assert x.isfinite().all()
        assert_near(x[0, 0, at], exact[what], units=256, what=what)
    if learned:
        assert_near(grads[3][at], exact["dbias"], units=256, what="dbias")


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("n", LONG)
def test_more_pairs_than_32_bits_count(n, name):
    check_long(n, name)


@pytest.mark.parametrize("n", [46_341, 65_537])
def test_a_mask_written_out_beyond_32_bits(n):
    """A bool for each of two or four thousand million pairs, every row of its own."""
    places = torch.arange(n, device=DEVICE, dtype=torch.int32)
    # query i sees 100 keys, those after 7·i mod n
    allowed = (places[None] - (7 * places[:, None]) % n).remainder_(n) < 100
    query, key, value = (x.to(DEVICE) for x in make(*[(1, 1, n, 16)] * 3))
    out = attend(query, key, value, mask=Allowed(allowed), backend=BACKEND)
    at = torch.tensor([*(x for x in EDGES if x < n), n - 1], device=DEVICE)
    scores = (query[0, 0, at].double() @ key[0, 0].double().T / 4).masked_fill(~allowed[at], -torch.inf)
    assert_near(out[0, 0, at], torch.softmax(scores, -1) @ value[0, 0].double())


@pytest.mark.parametrize(("b", "h"), [(65_535, 1), (65_536, 1), (1, 65_536), (257, 255), (131_072, 1), (1, 131_072)])
def test_more_heads_and_sequences_than_a_grid_is_wide(b, h):
    check_many(b, h)


def check_many(b, h):
    query, key, value = make((b, h, 3, 4), (b, h, 5, 4), (b, h, 5, 4))
    mask = Lengths(torch.arange(b) % 6)
    got, expected = (take(query, key, value, mask=mask, backend=FUSED) for take in (run, run_exactly))
    assert_all_near(got, expected)


@pytest.mark.parametrize("how", GOES)
@pytest.mark.parametrize("terms", [
    {"mask": Window(30, 5), "bias": Relative(torch.linspace(-1, 1, 16).view(2, 8), max_distance=40)},
    {"score": Additive(torch.ones(4)), "weigh": Sigmoid(), "mask": Causal()},
], ids=["dot", "additive"])  # fmt: skip
def test_lengths_that_change_from_call_to_call(terms, how, monkeypatch):
    go(monkeypatch, how)
    # a kernel made for one, for a multiple of 16 or for a short block is not for the next length
    for n in (129, 1, 200, 64, 129):
        query, key, value = make((1, 2, n, 4), (1, 2, n + 3, 4), (1, 2, n + 3, 4))
        got, expected = (take(query, key, value, **terms, backend=FUSED) for take in (run, run_exactly))
        assert_all_near(got, expected, units=64, where=f" at n={n}")


@pytest.mark.parametrize("mask", test_empty_axes.MASKS)
@pytest.mark.parametrize("sizes", test_empty_axes.SIZES, ids=str)
def test_an_empty_axis_under_every_mask(sizes, mask):
    test_empty_axes.check(sizes, mask=test_empty_axes.MASKS[mask](*sizes), backend=AUTO)


@pytest.mark.parametrize("weigh", WEIGHERS)
@pytest.mark.parametrize("sizes", test_empty_axes.SIZES, ids=str)
def test_an_empty_axis_with_every_weigher(sizes, weigh):
    test_empty_axes.check(sizes, weigh=WEIGHERS[weigh], score=Additive(torch.ones(4)), backend=AUTO)


@pytest.mark.parametrize("empty", [0, 1, 2], ids=["first", "middle", "last"])
def test_an_empty_sequence_among_others(empty):
    test_empty_axes.check_empty_sequence(empty, "softmax", FUSED)


def test_no_heads_no_width_no_value():
    test_empty_axes.check_no_heads_no_width_no_value(AUTO)


@pytest.mark.parametrize(("n", "m"), [(3, 7), (7, 3), (129, 300)])
@pytest.mark.parametrize("offset", [None, 0, 2, -2, 100, -100])
def test_the_offset_says_which_key_a_query_stands_at(offset, n, m):
    test_alignment.check_offset(offset, n, m, FUSED)


@pytest.mark.parametrize("mask", [Causal(), Window(3, 0)], ids=str)
def test_decoding_step_by_step_is_the_whole_at_once(mask):
    test_alignment.check_decoding(mask, "softmax", FUSED)


@pytest.mark.parametrize("filled", [torch.tensor([3, 8]), torch.tensor([0, 12])], ids=str)
@pytest.mark.parametrize("by", ["offset", "lengths", "both"])
def test_caches_of_different_fill(by, filled):
    test_alignment.check_caches(by, filled, FUSED)
