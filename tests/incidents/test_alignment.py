"""N16: causal masks where queries and keys differ in number (pytorch#110144), and caches (transformers#30437)."""

import pytest
import torch

from regard import attend
from regard.bias import Alibi, Relative
from regard.mask import Causal, Lengths, Window
from regard.score import Additive
from tests.incidents.plain import BACKENDS, WEIGHERS, assert_all_near, assert_near, call, make, run

pytestmark = pytest.mark.thin(3)

T = 13


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("n", "m"), [(3, 7), (7, 3), (1, 9), (9, 1), (5, 5)])
@pytest.mark.parametrize("offset", [None, 0, 2, -2, 100, -100])
def test_the_offset_says_which_key_a_query_stands_at(offset, n, m, backend):
    check_offset(offset, n, m, backend)


def check_offset(offset, n, m, backend):
    query, key, value = make((1, 2, n, 4), (1, 2, m, 4), (1, 2, m, 4))
    # aligned to the end unless told otherwise: the last query stands at the last key
    place = m - n if offset is None else offset
    allowed = torch.tensor([[j <= i + place for j in range(m)] for i in range(n)])
    got = run(query, key, value, mask=Causal(offset), backend=backend)
    expected = run(query, key, value, mask=allowed, backend="reference")
    assert_all_near(got, expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("weigh", ["softmax", "sink", "entmax", "sigmoid", "sum"])
@pytest.mark.parametrize("mask", [Causal(), Window(3, 0)], ids=str)
def test_decoding_step_by_step_is_the_whole_at_once(mask, weigh, backend):
    check_decoding(mask, weigh, backend)


def check_decoding(mask, weigh, backend):
    query, key, value = make((2, 2, T, 4), (2, 2, T, 4), (2, 2, T, 4))
    options = {"mask": mask, "weigh": WEIGHERS[weigh], "backend": backend}
    whole, *_ = run(query, key, value, **options)
    for t in range(1, T + 1):
        step = call(query[:, :, t - 1 : t], key[:, :, :t], value[:, :, :t], **options)
        assert_near(step[:, :, 0].cpu(), whole[:, :, t - 1])


@pytest.mark.parametrize("score", ["dot", "additive"])
@pytest.mark.parametrize("bias", ["alibi", "relative"])
def test_positions_are_counted_from_the_end_in_every_term(bias, score):
    query, key, value = make((2, 2, T, 4), (2, 2, T, 4), (2, 2, T, 4))
    terms = {"alibi": Alibi(), "relative": Relative(torch.randn(2, 8), max_distance=9, two_sided=False)}
    options = {"mask": Causal(), "bias": terms[bias], "backend": "tiled"}
    options |= {"score": Additive(torch.ones(4))} if score == "additive" else {}
    whole = attend(query, key, value, **options)
    for t in (1, 5, T):
        chunk = attend(query[:, :, t - 1 : t], key[:, :, :t], value[:, :, :t], **options)
        assert_near(chunk[:, :, 0], whole[:, :, t - 1])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("filled", [torch.tensor([3, 8]), torch.tensor([0, 12])], ids=str)
@pytest.mark.parametrize("by", ["offset", "lengths", "both"])
def test_caches_of_different_fill(by, filled, backend):
    check_caches(by, filled, backend)


def check_caches(by, filled, backend):
    """One new token each for sequences whose caches hold 3 and 8: the rest of a cache is whatever was there before."""
    query, key, value = make((2, 2, T, 4), (2, 2, T, 4), (2, 2, T, 4))
    whole = attend(query, key, value, mask=Causal(), backend="reference")
    cache_key, cache_value = key.detach().clone(), value.detach().clone()
    for s, fill in enumerate(filled.tolist()):
        cache_key[s, :, fill + 1 :] = torch.nan
        cache_value[s, :, fill + 1 :] = torch.inf
    new = torch.stack([query.detach()[s, :, fill : fill + 1] for s, fill in enumerate(filled.tolist())])
    mask = {
        "offset": Causal(filled),
        "lengths": Lengths(filled + 1),
        "both": Causal(filled) & Lengths(filled + 1),
    }[by]
    out = call(new, cache_key, cache_value, mask=mask, backend=backend).cpu()
    for s, fill in enumerate(filled.tolist()):
        assert_near(out[s, :, 0], whole[s, :, fill])


@pytest.mark.parametrize("backend", BACKENDS)
def test_several_new_tokens_over_caches_of_different_fill(backend):
    query, key, value = make((2, 2, T, 4), (2, 2, T, 4), (2, 2, T, 4))
    whole = attend(query, key, value, mask=Causal(), backend="reference")
    first = torch.tensor([2, 7])
    new = torch.stack([query[0, :, 2:6], query[1, :, 7:11]])
    out = attend(new, key, value, mask=Causal(first), backend=backend)
    assert_near(out[0], whole[0, :, 2:6])
    assert_near(out[1], whole[1, :, 7:11])
    window = attend(new, key, value, mask=Window(2, 0, offset=first), backend=backend)
    near = attend(query, key, value, mask=Window(2, 0), backend="reference")
    assert_near(window[0], near[0, :, 2:6])
    assert_near(window[1], near[1, :, 7:11])
