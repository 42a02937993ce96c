"""Laws about sequences, heads, queries and values: a call is as good as its parts."""

import pytest
import torch

from regard import attend
from regard.score import Dot
from regard.weigh import Entmax, Hard, Softmax, Sparsemax
from tests.metamorphic.draws import DRAWS, as_leaves, assert_same, draw, gradients

pytestmark = pytest.mark.thin(2)

BACKENDS = ["reference", "tiled", "auto"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("number", DRAWS)
def test_a_batch_is_its_sequences(number, backend):
    drawn = draw(number)
    allowed = drawn.bools(drawn.b, 1, drawn.n, drawn.m)
    leaves = as_leaves(*drawn.rows)
    out = attend(*leaves, mask=allowed, **drawn.terms, backend=backend)
    parts = [
        attend(*(x[s : s + 1] for x in leaves), mask=allowed[s : s + 1], **drawn.terms, backend=backend)
        for s in range(drawn.b)
    ]
    together = torch.cat(parts)
    assert_same(together, out)
    for one, two in zip(gradients(together, *leaves), gradients(out, *leaves), strict=True):
        assert_same(one, two, "gradient")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("number", DRAWS)
def test_queries_do_not_know_each_other(number, backend):
    drawn = draw(number)
    allowed = drawn.bools(drawn.n, drawn.m)
    out = attend(*drawn.rows, mask=allowed, **drawn.terms, backend=backend)
    some = torch.randint(0, drawn.n, (drawn.dice.randint(1, 9),), generator=drawn.noise)
    part = attend(drawn.query[:, :, some], *drawn.rows[1:], mask=allowed[some], **drawn.terms, backend=backend)
    assert_same(part, out[:, :, some])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("number", DRAWS)
def test_fewer_key_heads_are_repeated_key_heads(number, backend):
    drawn = draw(number)
    repeats = drawn.h // drawn.g
    leaves = as_leaves(*drawn.rows)
    out = attend(*leaves, **drawn.terms, backend=backend)
    full = as_leaves(drawn.query, *(x.repeat_interleave(repeats, 1) for x in drawn.rows[1:]))
    other = attend(*full, **drawn.terms, backend=backend)
    assert_same(other, out)
    few, many = gradients(out, *leaves), gradients(other, *full)
    assert_same(many[0], few[0], "dquery")
    for at in (1, 2):
        assert_same(many[at].unflatten(1, (drawn.g, repeats)).sum(2), few[at], "dkey or dvalue")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("number", DRAWS)
def test_leading_axes_are_only_axes(number, backend):
    drawn = draw(number)
    out = attend(*drawn.rows, **drawn.terms, backend=backend)
    wide = attend(*(x[:, None] for x in drawn.rows), **drawn.terms, backend=backend)
    assert_same(wide, out[:, None])
    # one key for all sequences, not copied
    shared = attend(drawn.query, drawn.key[:1], drawn.value[:1], **drawn.terms, backend=backend)
    copied = attend(
        drawn.query, *(x[:1].repeat(drawn.b, 1, 1, 1) for x in drawn.rows[1:]), **drawn.terms, backend=backend
    )
    assert_same(shared, copied)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("number", DRAWS)
def test_the_output_is_linear_in_the_values(number, backend):
    drawn = draw(number)
    allowed = drawn.bools(drawn.n, drawn.m)
    other = drawn.tensor(*drawn.value.shape)

    def run(value):
        return attend(drawn.query, drawn.key, value, mask=allowed, **drawn.terms, backend=backend)

    mixed = run(2.5 * drawn.value - 0.3 * other)
    assert_same(mixed, 2.5 * run(drawn.value) - 0.3 * run(other))
    assert not run(torch.zeros_like(other)).any()


@pytest.mark.parametrize("weigh", [Softmax(), Entmax(), Entmax(1.3), Sparsemax(), Hard()], ids=str)
@pytest.mark.parametrize("number", range(20))
def test_a_number_added_to_all_scores_of_a_row_changes_no_weight(number, weigh):
    drawn = draw(number)
    shift = drawn.tensor(drawn.n, 1) * 10 ** drawn.dice.uniform(-1, 3)
    leaves = as_leaves(*drawn.rows)
    for backend in BACKENDS:
        plain = attend(*leaves, score=drawn.score, weigh=weigh, backend=backend)
        moved = attend(*leaves, score=drawn.score, weigh=weigh, bias=shift, backend=backend)
        # scores of a thousand are a thousand times as coarse
        units = 2**12 * (1 + shift.abs().max().item())
        assert_same(moved, plain, units=units)
        for one, two in zip(gradients(moved, *leaves), gradients(plain, *leaves), strict=True):
            assert_same(one, two, "gradient", units=64 * units)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("number", DRAWS)
def test_scaling_the_query_is_scaling_the_score(number, backend):
    drawn = draw(number)
    factor = 2.0 ** drawn.dice.randint(-3, 3)
    one = attend(drawn.query * factor, drawn.key, drawn.value, score=Dot(scale=0.5), weigh=drawn.weigh, backend=backend)
    two = attend(*drawn.rows, score=Dot(scale=0.5 * factor), weigh=drawn.weigh, backend=backend)
    assert_same(one, two)
