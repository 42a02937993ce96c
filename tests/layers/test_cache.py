"""Step by step with a cache is the whole pass, position for position."""

import copy
import itertools

import pytest
import torch

from regard import RegardError
from regard.bias import Alibi
from regard.layers.cache import Cache
from regard.layers.multihead import MultiHeadAttention, SelfAttention
from regard.mask import Causal, Window
from regard.weigh import Sparsemax

F64 = torch.float64
# closer than the common table: a step is the same sums
NEAR = 1e-12


def rows(*shape, seed=0, dtype=F64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def turn(rows, offset=0):
    """Rotary positions in short: pairs of features turn with the place."""
    half = rows.shape[-1] // 2
    angle = torch.arange(offset, offset + rows.shape[-2], dtype=F64)[:, None] / 3.0 ** torch.arange(half, dtype=F64)
    a, b = rows[..., :half], rows[..., half:]
    return torch.cat((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), -1)


def steps(layer, x, sizes, cache, **options):
    ends = list(itertools.accumulate(sizes))
    assert ends[-1] == x.shape[1]
    return torch.cat([layer(x[:, e - s : e], cache=cache, **options) for s, e in zip(sizes, ends, strict=True)], 1)


LAYERS = {
    "plain": {},
    "grouped": {"num_key_heads": 2},
    "one key head and biases": {"num_key_heads": 1, "bias": True},
    "positions": {"position": turn, "num_key_heads": 2},
    "additive": {"score": "additive"},
    "sparse": {"weigh": Sparsemax()},
}
CALLS = {
    "causal": {"mask": Causal()},
    "window": {"mask": Window(3, 0)},
    "alibi": {"mask": Causal(), "bias": Alibi()},
}
# more than the 16 that there is room for at first
CHUNKS = {"one by one": [1] * 23, "prompt first": [17, *[1] * 6], "uneven": [3, 1, 7, 0, 2, 10]}


@pytest.mark.parametrize("sizes", CHUNKS.values(), ids=CHUNKS)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("options", LAYERS.values(), ids=LAYERS)
def test_every_step_is_the_whole_pass(options, call, sizes):
    layer, x = SelfAttention(16, 4, **options).double(), rows(2, 23, 16)
    whole = layer(x, **call)
    # with gradients in the chunks that differ most; training has its own test
    for has_grad in (False, True) if sizes[0] == 3 else (False,):
        cache = Cache()
        with torch.set_grad_enabled(has_grad):
            out = steps(layer, x, sizes, cache, **call)
        assert (out - whole).abs().max() < NEAR
        assert cache.length == 23


def test_lengths_beyond_the_keys_so_far_mean_all():
    layer, x = SelfAttention(16, 4).double(), rows(3, 9, 16)
    lengths = torch.tensor([4, 9, 1])
    out = steps(layer, x, [2, 3, 1, 3], Cache(), valid_lens=lengths, mask=Causal())
    assert (out - layer(x, lengths, mask=Causal())).abs().max() < NEAR


def test_the_weights_of_a_step_are_a_row_of_all():
    layer, x, cache = SelfAttention(16, 4).double(), rows(2, 5, 16), Cache()
    layer(x, mask=Causal())
    whole = layer.attention_weights
    with torch.no_grad():
        for t in range(5):
            layer(x[:, t : t + 1], mask=Causal(), cache=cache)
            assert (layer.attention_weights - whole[:, :, t : t + 1, : t + 1]).abs().max() < NEAR


def test_queries_may_be_fewer_than_the_keys_they_come_with():
    layer, x, cache = MultiHeadAttention(16, 16, 16, 16, 4, position=turn).double(), rows(2, 7, 16), Cache()
    whole = layer(x, x, x, mask=Causal())
    layer(x[:, :2], x[:, :2], x[:, :2], mask=Causal(), cache=cache)
    out = layer(x[:, -2:], x[:, 2:], x[:, 2:], mask=Causal(), cache=cache)
    assert (out - whole[:, -2:]).abs().max() < NEAR


# gradients


def grads_of(out, layer, x):
    return torch.autograd.grad((out * rows(*out.shape, seed=9)).sum(), (*layer.parameters(), x))


@pytest.mark.parametrize("options", LAYERS.values(), ids=LAYERS)
def test_training_through_a_cache_has_the_gradients_of_the_whole_pass(options):
    layer, x = SelfAttention(16, 4, **options).double(), rows(2, 9, 16).requires_grad_()
    got = grads_of(steps(layer, x, [2, 1, 1, 5], Cache(), mask=Causal()), layer, x)
    for one, other in zip(got, grads_of(layer(x, mask=Causal()), layer, x), strict=True):
        assert (one - other).abs().max() < 10 * NEAR


@pytest.mark.parametrize("quiet", [torch.no_grad, torch.inference_mode])
def test_a_prompt_without_gradients_and_an_answer_with_them(quiet):
    layer, x, cache = SelfAttention(16, 4).double(), rows(2, 9, 16), Cache()
    with quiet():
        steps(layer, x[:, :4], [3, 1], cache, mask=Causal())
    out = steps(layer, x[:, 4:8], [2, 2], cache, mask=Causal())
    # and on without: what autograd has kept must not be written over
    cache.truncate(7)
    with quiet():
        last = steps(layer, x[:, 7:], [1, 1], cache, mask=Causal())
    assert (last - layer(x, mask=Causal())[:, 7:]).abs().max() < NEAR
    keys = torch.cat((layer.W_k(x[:, :4]).detach(), layer.W_k(x[:, 4:8])), 1)
    values = torch.cat((layer.W_v(x[:, :4]).detach(), layer.W_v(x[:, 4:8])), 1)
    query, key, value = (y.view(2, -1, 4, 4).transpose(1, 2) for y in (layer.W_q(x[:, 4:8]), keys, values))
    mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value, torch.ones(4, 8).tril(4).bool())
    expected = layer.W_o(mixed.transpose(1, 2).flatten(2))
    weights = tuple(layer.parameters())
    for one, other in zip(*(torch.autograd.grad(y.square().sum(), weights) for y in (out, expected)), strict=True):
        assert (one - other).abs().max() < 100 * NEAR


def test_frozen_keys_are_not_written_over_while_something_learns():
    layer, x, cache = SelfAttention(16, 4).double(), rows(2, 6, 16), Cache()
    layer.W_k.requires_grad_(False)
    layer.W_v.requires_grad_(False)
    out = steps(layer, x, [1] * 6, cache, mask=Causal())
    got, wanted = (
        torch.autograd.grad(y.square().sum(), (layer.W_q.weight, layer.W_o.weight))
        for y in (out, layer(x, mask=Causal()))
    )
    for one, other in zip(got, wanted, strict=True):
        assert (one - other).abs().max() < 100 * NEAR


def test_inference_mode_and_then_none():
    layer, x, cache = SelfAttention(16, 4).double(), rows(2, 9, 16), Cache()
    with torch.inference_mode():
        first = steps(layer, x[:, :4], [1] * 4, cache, mask=Causal())
    with torch.no_grad():
        then = steps(layer, x[:, 4:6], [1] * 2, cache, mask=Causal())
    with torch.inference_mode():
        cache.reorder(torch.tensor([0, 1]))
    with torch.no_grad():
        then = torch.cat((then, layer(x[:, 6:7], mask=Causal(), cache=cache)), 1)
    with torch.inference_mode():
        last = steps(layer, x[:, 7:], [1] * 2, cache, mask=Causal())
    out = torch.cat((first, then, last), 1)
    assert (out - layer(x, mask=Causal())).abs().max() < NEAR


# what a cache is


def test_no_positions_may_come_first():
    cache, none, some = Cache(), torch.zeros(1, 2, 0, 3), torch.ones(1, 2, 4, 3)
    with torch.no_grad():
        assert cache.append(none, none)[0].shape == (1, 2, 0, 3)
        assert torch.equal(cache.append(some, 2 * some)[1], 2 * some)


def test_a_step_writes_into_a_buffer_that_doubles():
    cache, copied, places = Cache(), 0, set()
    with torch.no_grad():
        for t in range(1000):
            key, value = cache.append(torch.full((1, 2, 1, 3), float(t)), torch.full((1, 2, 1, 5), -float(t)))
            if key.data_ptr() not in places:
                places.add(key.data_ptr())
                copied += t
    assert key.shape == (1, 2, 1000, 3)
    assert torch.equal(key[0, 1, :, 2], torch.arange(1000.0))
    assert torch.equal(value[0, 0, :, 4], -torch.arange(1000.0))
    assert len(places) <= 8
    assert copied <= 2 * 1000


def test_a_limit_bounds_the_buffer_too():
    cache = Cache(max_length=20)
    with torch.no_grad():
        for _ in range(20):
            key, _ = cache.append(torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 1, 2))
    assert key.untyped_storage().nbytes() == 20 * 2 * 4
    assert repr(cache) == "Cache(length=20, max_length=20)"


@pytest.mark.parametrize("has_grad", [False, True])
def test_beams_go_on_from_others(has_grad):
    layer, x, cache = SelfAttention(16, 4).double(), rows(3, 8, 16), Cache()
    order = torch.tensor([2, 0, 0, 1])
    beams = torch.cat((x[order, :5], rows(4, 3, 16, seed=1)), 1)
    with torch.set_grad_enabled(has_grad):
        steps(layer, x[:, :5], [4, 1], cache, mask=Causal())
        cache.reorder(order.int())
        out = steps(layer, beams[:, 5:], [1, 2], cache, mask=Causal())
        assert (out - layer(beams, mask=Causal())[:, 5:]).abs().max() < NEAR
    Cache().reorder(order)


@pytest.mark.parametrize("has_grad", [False, True])
def test_a_truncated_cache_goes_on_from_there(has_grad):
    layer, x, cache = SelfAttention(16, 4, position=turn).double(), rows(2, 8, 16), Cache()
    with torch.set_grad_enabled(has_grad):
        steps(layer, rows(2, 6, 16, seed=1), [6], cache, mask=Causal())
        cache.truncate(0)
        assert cache.is_empty
        steps(layer, torch.cat((x[:, :3], rows(2, 4, 16, seed=2)), 1), [7], cache, mask=Causal())
        cache.truncate(3)
        out = steps(layer, x[:, 3:], [1, 4], cache, mask=Causal())
        assert (out - layer(x, mask=Causal())[:, 3:]).abs().max() < NEAR


def test_a_copy_goes_its_own_way():
    layer, x, cache = SelfAttention(16, 4).double(), rows(2, 8, 16), Cache()
    with torch.no_grad():
        steps(layer, x[:, :5], [5], cache, mask=Causal())
        other = copy.deepcopy(cache)
        steps(layer, rows(2, 3, 16, seed=1), [3], other, mask=Causal())
        out = steps(layer, x[:, 5:], [1, 2], cache, mask=Causal())
        assert (out - layer(x, mask=Causal())[:, 5:]).abs().max() < NEAR


def test_a_refused_call_leaves_the_cache_as_it_was():
    layer, x = SelfAttention(16, 4).double(), rows(2, 8, 16)
    wrong = torch.ones(2, 3, dtype=torch.bool)
    for has_grad in (False, True):
        cache = Cache()
        with torch.set_grad_enabled(has_grad):
            with pytest.raises(RegardError, match="mask must broadcast"):
                layer(x[:, :5], mask=wrong, cache=cache)
            assert cache.is_empty
            steps(layer, x[:, :5], [5], cache, mask=Causal())
            with pytest.raises(RegardError, match="mask must broadcast"):
                layer(rows(2, 2, 16, seed=1), mask=wrong, cache=cache)
            assert cache.length == 5
            out = steps(layer, x[:, 5:], [3], cache, mask=Causal())
            assert (out - layer(x, mask=Causal())[:, 5:]).abs().max() < NEAR


# cross-attention


@pytest.mark.parametrize("has_grad", [False, True])
def test_cross_attention_projects_its_keys_once(has_grad):
    layer = MultiHeadAttention(5, 7, 3, 16, 4, num_key_heads=2).double()
    queries, keys, values = rows(2, 6, 7), rows(2, 9, 5, seed=1), rows(2, 9, 3, seed=2)
    lengths = torch.tensor([4, 9])
    count = []
    layer.W_k.register_forward_hook(lambda *_: count.append(1))
    with torch.set_grad_enabled(has_grad):
        whole, cache = layer(queries, keys, values, lengths), Cache(is_static=True)
        given = [(keys, values), (keys, values), (None, None), (None, None), (keys, None), (None, None)]
        out = torch.cat([layer(queries[:, t : t + 1], *given[t], lengths, cache=cache) for t in range(6)], 1)
        assert (out - whole).abs().max() < NEAR
        assert len(count) == 2
        assert repr(cache) == "Cache(length=9, is_static=True)"
        cache.reorder(torch.tensor([1, 1, 0]))
        out = layer(queries[[0, 0, 1]], None, None, lengths[[1, 1, 0]], cache=cache)
        expected = layer(queries[[0, 0, 1]], keys[[1, 1, 0]], values[[1, 1, 0]], lengths[[1, 1, 0]])
        assert (out - expected).abs().max() < NEAR
    if has_grad:
        weights = tuple(layer.parameters())
        for one, other in zip(*(torch.autograd.grad(y.square().sum(), weights) for y in (out, expected)), strict=True):
            assert (one - other).abs().max() < 100 * NEAR


# complaints


def filled(length=3, layer=None, **options):
    cache, layer = Cache(**options), layer or SelfAttention(16, 4)
    if isinstance(layer, SelfAttention):
        layer(torch.zeros(2, length, 16), cache=cache)
    else:
        layer(torch.zeros(2, 1, 16), torch.zeros(2, length, 16), torch.zeros(2, length, 16), cache=cache)
    return cache


def step(layer, cache, batch=2, count=1):
    return layer(torch.zeros(batch, count, 16), cache=cache)


def call(queries, keys=None, position=None):
    layer = MultiHeadAttention(16, 16, 16, 16, 4, position=position)
    cache = Cache(is_static=True) if position else filled(layer=layer, is_static=True)
    return layer(torch.zeros(queries), None if keys is None else torch.zeros(keys), None, cache=cache)


LAYER = SelfAttention(16, 4)
MESSAGES = {
    "too long": (
        lambda: step(LAYER, filled(layer=LAYER, max_length=4), count=2),
        "Cache max_length=4 is exceeded: it holds 3 positions and was given 2 more. Truncate it, or allow more.",
    ),
    "limit": (lambda: Cache(0), "Cache max_length must be at least 1, got 0."),
    "batch": (
        lambda: step(LAYER, filled(layer=LAYER), batch=3),
        "Cache holds (batch, heads, width)=(2, 4, 4) in float32 on cpu, and was given (3, 4, 4) in float32 on cpu:"
        " another batch takes a new Cache().",
    ),
    "dtype": (
        lambda: filled().append(*(torch.zeros(2, 4, 1, 4, dtype=F64) for _ in range(2))),
        "Cache holds (batch, heads, width)=(2, 4, 4) in float32 on cpu, and was given (2, 4, 4) in float64 on cpu:"
        " another batch takes a new Cache().",
    ),
    "another layer": (
        lambda: step(LAYER, filled(layer=SelfAttention(16, 4))),
        "Cache was filled by another layer: give each layer a Cache() of its own.",
    ),
    "truncate": (
        lambda: filled().truncate(4),
        "Cache holds 3 positions and can be truncated to 0 up to that, not 4.",
    ),
    "below": (
        lambda: filled().truncate(-1),
        "Cache holds 3 positions and can be truncated to 0 up to that, not -1.",
    ),
    "empty": (lambda: Cache().read(), "Cache is empty: call a layer with it first."),
    "indices": (
        lambda: filled().reorder(torch.zeros(2, 2)),
        "Cache reorder takes a vector of sequence numbers, got shape (2, 2).",
    ),
    "a list": (lambda: filled().reorder([0, 1]), "Cache reorder takes a vector of sequence numbers, got list."),
    "a sequence too many": (
        lambda: filled().reorder(torch.tensor([0, 2])),
        "Cache reorder indices must be at most 1 (the last sequence), got 2.",
    ),
    "numbers": (
        lambda: filled().reorder(torch.zeros(2)),
        "Cache reorder indices must be integers, got float32.",
    ),
    "static": (
        lambda: step(LAYER, Cache(is_static=True)),
        "SelfAttention adds keys at each step: take a Cache() that is not static.",
    ),
    "static twice": (
        lambda: filled(layer=MultiHeadAttention(16, 16, 16, 16, 4), is_static=True).append(
            *(torch.zeros(2, 4, 1, 4) for _ in range(2))
        ),
        "Cache is static and filled: make a new one, or truncate it to 0.",
    ),
    "static batch": (
        lambda: call((1, 1, 16)),
        "MultiHeadAttention queries must have the static cache's batch of 2, got 1: reorder the cache, or take a new"
        " one.",
    ),
    "other keys": (
        lambda: call((2, 1, 16), (2, 5, 16)),
        "MultiHeadAttention keys must be None or those of the static cache, 3 for each of 2 sequences, got shape"
        " (2, 5, 16).",
    ),
    "positions": (
        lambda: call((2, 1, 16), (2, 5, 16), turn),
        "MultiHeadAttention position has no place beside a static cache, which does not count the queries: encode them"
        " before the layer.",
    ),
}


@pytest.mark.parametrize(("act", "message"), MESSAGES.values(), ids=MESSAGES)
def test_what_is_wrong_is_said_in_one_line(act, message):
    with pytest.raises(RegardError) as caught:
        act()
    assert str(caught.value) == message
