"""Biases as layers: the terms they hand out, against the same numbers written out, and what learns."""

import copy
import math

import pytest
import torch

from regard import attend
from regard.bias import Alibi, Dense, Relative
from regard.core import RegardError
from regard.layers.biases import AlibiBias, DenseBias, RelativeBias
from tests.tolerances import assert_close


def inputs(heads: int, n: int, m: int, dtype: torch.dtype = torch.float64):
    return torch.randn(2, heads, n, 5, dtype=dtype), *torch.randn(2, 2, heads, m, 5, dtype=dtype)


def bucket(ahead: int, buckets: int, max_distance: int, two_sided: bool) -> int:
    """T5's rule for one distance j − i, in plain numbers."""
    base = 0
    if two_sided:
        buckets //= 2
        base, far = (buckets if ahead > 0 else 0), abs(ahead)
    else:
        far = max(-ahead, 0)
    exact = buckets // 2
    if far < exact:
        return base + far
    grown = math.log(far / exact) / math.log(max_distance / exact) * (buckets - exact)
    return base + min(exact + int(grown), buckets - 1)


def compare(layer, learned, write):
    """Attend by the layer's term and by the same numbers as a dense bias: outputs, and gradients of what is learned."""
    query, key, value = inputs(3, 7, 11)
    cotangent = torch.randn(2, 3, 7, 5, dtype=torch.float64)
    out = attend(query, key, value, bias=layer())
    (grad,) = torch.autograd.grad(out, learned, cotangent)
    scores = query @ key.mT / math.sqrt(5) + write(learned)
    expected = torch.softmax(scores, -1) @ value
    (expected_grad,) = torch.autograd.grad(expected, learned, cotangent)
    assert_close(out, expected)
    assert expected_grad.abs().max() > 1e-3
    assert_close(grad, expected_grad, "gradient")


@pytest.mark.parametrize(("buckets", "max_distance", "two_sided"), [(8, 6, True), (5, 9, False), (32, 128, True)])
def test_relative_is_the_table_written_out_and_learns(buckets, max_distance, two_sided):
    layer = RelativeBias(3, buckets, max_distance, two_sided).double()
    torch.nn.init.normal_(layer.table)
    # seven queries at the end of eleven keys
    index = torch.tensor([[bucket(j - i - 4, buckets, max_distance, two_sided) for j in range(11)] for i in range(7)])
    compare(layer, layer.table, lambda table: table[:, index])


def test_alibi_learns_its_slopes():
    layer = AlibiBias(3, learns=True).double()
    distance = (torch.arange(7)[:, None] + 4 - torch.arange(11)).abs()
    compare(layer, layer.slopes, lambda slopes: -slopes[:, None, None] * distance)


def test_dense_learns():
    layer = DenseBias(3, 7, 11).double()
    torch.nn.init.normal_(layer.values)
    compare(layer, layer.values, lambda values: values)


def test_alibis_constants_are_the_papers_and_stay_exact():
    layer = AlibiBias(8)
    assert layer.slopes.tolist() == [2.0**-k for k in range(1, 9)]
    assert list(layer.parameters()) == []
    # six heads: four of the series for four, then every other one of that for eight
    layer = AlibiBias(6).to(torch.bfloat16).float()
    assert layer.slopes.tolist() == [2 ** (-2 * k) for k in (1, 2, 3, 4)] + [2**-1, 2**-3]
    layer = AlibiBias(12).to(torch.bfloat16)
    assert layer.slopes[8].item() == 2**-0.5
    query, key, value = inputs(12, 7, 11)
    assert torch.equal(attend(query, key, value, bias=layer()), attend(query, key, value, bias=Alibi()))


def test_what_begins_at_zero_is_no_bias():
    query, key, value = inputs(3, 7, 11)
    plain = attend(query, key, value)
    for layer in (RelativeBias(3), DenseBias(3, 7, 11)):
        assert_close(attend(query, key, value, bias=layer()), plain)


def test_a_few_steps_learn_to_look_back():
    # each position must copy the one before: content is noise, the place is all there is to know
    layer = RelativeBias(1, 8, 8)
    optimiser = torch.optim.Adam(layer.parameters(), lr=0.5)
    for _ in range(40):
        value = torch.randn(4, 1, 9, 3)
        flat = torch.zeros(4, 1, 9, 3)
        out = attend(flat, flat, value, bias=layer())
        loss = (out[:, :, 1:] - value[:, :, :-1]).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss < 0.05
    # bucket 1: one key before
    assert layer.table.argmax() == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype):
    for layer in (RelativeBias(2), AlibiBias(2, learns=True), AlibiBias(2), DenseBias(2, 3, 4)):
        layer.to(dtype)
        query, key, value = inputs(2, 3, 4, dtype)
        out = attend(query.requires_grad_(), key, value, bias=layer())
        assert out.dtype == dtype
        out.sum().backward()
        for weight in layer.parameters():
            assert weight.grad.dtype == dtype
            assert weight.grad.isfinite().all()


def test_files_and_copies():
    for make, kind in [
        (lambda: RelativeBias(2, 8, 16), Relative),
        (lambda: AlibiBias(2, learns=True), Alibi),
        (lambda: AlibiBias(2), Alibi),
        (lambda: DenseBias(2, 3, 4), Dense),
    ]:
        layer, other = make(), make()
        for weight in layer.parameters():
            torch.nn.init.normal_(weight)
        other.load_state_dict(layer.state_dict())
        query, key, value = inputs(2, 3, 4, torch.float32)
        out = attend(query, key, value, bias=layer())
        assert type(layer()) is kind
        assert torch.equal(attend(query, key, value, bias=other()), out)
        assert torch.equal(attend(query, key, value, bias=copy.deepcopy(layer)()), out)
    assert list(AlibiBias(2).state_dict()) == []


def test_an_offset_places_the_queries():
    assert RelativeBias(2)(offset=3).offset == 3
    assert AlibiBias(2)(offset=3).offset == 3
    layer = RelativeBias(2, two_sided=False)
    torch.nn.init.normal_(layer.table)
    query, key, value = inputs(2, 9, 9, torch.float32)
    whole = attend(query, key, value, bias=layer())
    assert_close(attend(query[:, :, 4:6], key, value, bias=layer(offset=4)), whole[:, :, 4:6])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: RelativeBias(0), "RelativeBias num_heads must be at least 1, got 0."),
        (lambda: RelativeBias(2, 5), "RelativeBias num_buckets must be even and at least 4 where two_sided, got 5."),
        (lambda: RelativeBias(2, 2), "RelativeBias num_buckets must be even and at least 4 where two_sided, got 2."),
        (lambda: RelativeBias(2, 1, two_sided=False), "RelativeBias num_buckets must be at least 2, got 1."),
        (lambda: RelativeBias(2, 32, 8), "RelativeBias max_distance must exceed 8 for num_buckets=32, got 8."),
        (lambda: AlibiBias(0), "AlibiBias num_heads must be at least 1, got 0."),
        (lambda: DenseBias(2, 0, 3), "DenseBias num_queries must be at least 1, got 0."),
    ],
)
def test_wrong_sizes_are_named(call, message):
    with pytest.raises(RegardError) as caught:
        call()
    assert str(caught.value) == message


def test_what_the_layer_lets_pass_the_term_takes():
    # the layers' rules are the terms' own
    query, key, value = inputs(2, 3, 4)
    for buckets in range(1, 9):
        for two_sided in (True, False):
            for reach in range(1, 6):
                term = Relative(torch.zeros(2, buckets, dtype=torch.float64), reach, two_sided)
                made, taken = True, True
                try:
                    RelativeBias(2, buckets, reach, two_sided)
                except RegardError:
                    made = False
                try:
                    attend(query, key, value, bias=term)
                except RegardError:
                    taken = False
                assert made == taken, (buckets, two_sided, reach)


def test_each_says_what_it_is():
    assert repr(RelativeBias(2)) == "RelativeBias(num_heads=2, num_buckets=32, max_distance=128, two_sided=True)"
    assert repr(AlibiBias(2)) == "AlibiBias(num_heads=2, learns=False)"
    assert repr(DenseBias(2, 3, 4)) == "DenseBias(num_heads=2, num_queries=3, num_keys=4)"
