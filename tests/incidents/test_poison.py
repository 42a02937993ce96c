"""N2: what lies under a mask is never read into the result (pytorch#101967: NaN in masked positions leaked)."""

import pytest
import torch

from regard.mask import Allowed, Causal, Document, Edges, Lengths, Window
from regard.score import Additive, Concat, Cosine, Dot, Gaussian
from tests.incidents.plain import BACKENDS, WEIGHERS, assert_same_bits, make, run

pytestmark = pytest.mark.thin(3)

N, M = 5, 11
POISONS = {"nan": torch.nan, "inf": torch.inf, "-inf": -torch.inf, "largest": torch.finfo(torch.float32).max}
# masks, with the keys that no query sees and the queries that see no key
MASKS = {
    "lengths": (Lengths(torch.tensor([6, 6])), range(6, M), ()),
    "causal": (Causal(0), range(N, M), ()),
    "window": (Window(1, 0, offset=3), (0, 1, *range(8, M)), ()),
    "edges": (Edges(torch.tensor([0, 0, 4, 4]), torch.tensor([1, 3, 3, 9])), (0, 2, 4, 5, 6, 7, 8, 10), (1, 2, 3)),
    "allowed": (Allowed(torch.arange(M) % 3 == 0), [j for j in range(M) if j % 3], ()),
    "document": (
        Document(torch.tensor([5, 5, 1, 1, 1, 1, 0, 0, 5, 5, 5]), torch.tensor([0, 1, 1, 7, 0])), (0, 1, 8, 9, 10), (3,)
    ),
    "and": (Causal(2) & ~Lengths(torch.tensor([4, 4])), (0, 1, 2, 3, 7, 8, 9, 10), (0, 1)),
}  # fmt: skip


def user_score(query, key):
    return torch.sin(query @ key.mT) - (query.unsqueeze(-2) - key.unsqueeze(-3)).abs().mean(-1)


WEIGHT = torch.tensor([0.3, -1.0, 0.8, 0.1])
SCORES = {
    "dot": Dot(),
    "capped": Dot(cap=5.0),
    "cosine": Cosine(2.0),
    "additive": Additive(WEIGHT),
    "silu": Additive(WEIGHT, activation="silu"),
    "concat": Concat(WEIGHT, -WEIGHT),
    "gaussian": Gaussian(0.7),
    "function": user_score,
}


def poisoned(x, places, poison):
    x = x.detach().clone()
    x[..., list(places), :] = poison
    return x.requires_grad_()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("mask", MASKS)
def test_hidden_keys_values_and_queries_change_no_bit(mask, poison, backend):
    check(mask, poison, backend=backend)


def check(mask, poison, dtype=torch.float32, heads=2, **options):
    """Poison where nobody looks changes no bit of the output nor of any gradient."""
    mask, keys, queries = MASKS[mask]
    query, key, value = make((2, heads, N, 4), (2, 2, M, 4), (2, 2, M, 4), dtype=dtype)
    clean = run(query, key, value, mask=mask, **options)
    bad = POISONS[poison]
    rows = poisoned(query, queries, bad), poisoned(key, keys, bad), poisoned(value, keys, bad)
    assert_same_bits(run(*rows, mask=mask, **options), clean)


@pytest.mark.parametrize("backend", ["reference", "tiled", "auto"])
@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize("weigh", WEIGHERS)
def test_whatever_weighs(weigh, poison, backend):
    check("edges", poison, weigh=WEIGHERS[weigh], backend=backend)


@pytest.mark.parametrize("backend", ["reference", "tiled"])
@pytest.mark.parametrize("poison", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("score", SCORES)
def test_whatever_scores(score, poison, backend):
    check("and", poison, score=SCORES[score], backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("weigh", ["softmax", "entmax", "sigmoid"])
@pytest.mark.parametrize("poison", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("which", ["key", "value"])
def test_rows_that_do_not_see_the_poison_keep_their_bits(which, poison, weigh, backend):
    check_seen(which, poison, weigh, backend)


def check_seen(which, poison, weigh, backend):
    # under a causal mask, key 6 is seen by the queries from 6 on
    query, key, value = make((2, 2, 9, 4), (2, 2, 9, 4), (2, 2, 9, 4))
    options = {"mask": Causal(), "weigh": WEIGHERS[weigh], "backend": backend}
    clean = run(query, key, value, **options)
    bad = POISONS[poison]
    if which == "key":
        key = poisoned(key, [6], bad)
    else:
        value = poisoned(value, [6], bad)
    dirty = run(query, key, value, **options)
    for at in (0, 1):
        assert torch.equal(dirty[at][..., :6, :], clean[at][..., :6, :])
    if poison == "nan" or which == "value":
        assert not dirty[0][..., 6:, :].isfinite().all(-1).any()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
def test_in_every_dtype_and_with_fewer_key_heads(backend, dtype):
    check("document", "nan", dtype, heads=4, backend=backend)
