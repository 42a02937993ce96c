"""A user's own function as a score: any callable, and gradients for whatever it closes over."""

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck, gradgradcheck

from regard import RegardError, attend
from regard.mask import Causal, Full
from regard.score import Bilinear, Custom, Dot
from regard.weigh import Entmax, Sigmoid, Softmax
from tests.layouts import cut
from tests.primes import noise
from tests.terms import cotangent
from tests.tolerances import DIFFERENCES, assert_all_close, assert_close

ROWS = [noise(3, 2, 5, 11, seed=1), noise(3, 2, 7, 11, seed=2), noise(3, 2, 7, 13, seed=3)]
# several tiles along queries and keys, and one sequence at a time
TILES = (1, 2, 3, 4)


def gradients(score, leaves, backend, **terms):
    rows = [x.clone().requires_grad_() for x in ROWS]
    with cut(*TILES):
        out = attend(*rows, score=score, backend=backend, **terms)
        return out.detach(), *torch.autograd.grad(out, [*rows, *leaves], cotangent(out), retain_graph=True)


def names(leaves):
    return ["output", "query", "key", "value", *(f"leaf {at}" for at in range(len(leaves)))]


def assert_tiled_is_reference(score, leaves, **terms):
    expected = gradients(score, leaves, "reference", **terms)
    assert_all_close(gradients(score, leaves, "tiled", **terms), expected, names(leaves))
    # a gradient that is zero everywhere would prove nothing
    assert all(grad.any() for grad in expected)


def test_a_lambda_is_a_score():
    plain = gradients(Dot(), [], "tiled")
    assert_all_close(gradients(lambda q, k: q @ k.mT * 11**-0.5, [], "tiled"), plain, names([]))
    assert_close(attend(*ROWS, score=Custom(lambda q, k: q @ k.mT * 11**-0.5)), plain[0])


@pytest.mark.parametrize("weigh", [Softmax(), Sigmoid(), Entmax()], ids=repr)
def test_a_leaf_closed_over_gets_its_gradient(weigh):
    weight = noise(2, 11, 11, seed=4, scale=0.1).requires_grad_()
    assert_tiled_is_reference(lambda q, k: q @ weight @ k.mT, [weight], weigh=weigh, mask=Causal())
    # the same score as a term of the library
    expected = gradients(Bilinear(weight), [weight], "reference", weigh=weigh, mask=Causal())
    found = gradients(lambda q, k: q @ weight @ k.mT, [weight], "tiled", weigh=weigh, mask=Causal())
    assert_all_close(found, expected, names([weight]))


def test_what_was_computed_before_passes_its_gradient_on():
    weight, scale = noise(11, 11, seed=5, scale=0.1).requires_grad_(), noise(2, 1, 1, seed=6).requires_grad_()
    # neither is a leaf, and their history is shared by all tiles
    matrix, gain = torch.tanh(weight) * 2, scale.exp()
    assert_tiled_is_reference(lambda q, k: gain * torch.sin(q @ matrix @ k.mT), [weight, scale])


def test_a_leaf_and_what_was_made_of_it_both_count():
    weight = noise(11, 11, seed=5, scale=0.1).requires_grad_()
    doubled = 2 * weight
    assert_tiled_is_reference(lambda q, k: (q @ weight + q @ doubled) @ k.mT, [weight])


def test_parts_of_one_leaf_are_apart():
    weight = noise(2, 11, 11, seed=5, scale=0.1).requires_grad_()
    left, right = weight.unbind(0)
    squared = left @ right
    assert_tiled_is_reference(lambda q, k: (q @ left + q @ squared - torch.sin(q @ right)) @ k.mT, [weight])


class Mixer(nn.Module):
    """A small network on each pair."""

    def __init__(self, width, hidden=3):
        super().__init__()
        self.left, self.right = nn.Linear(width, hidden), nn.Linear(width, hidden, bias=False)
        self.out = nn.Linear(hidden, 1)

    def forward(self, query, key):
        mixed = self.left(query).unsqueeze(-2) + self.right(key).unsqueeze(-3)
        return self.out(torch.tanh(mixed)).squeeze(-1)


def test_a_module_learns():
    module = Mixer(11).double()
    parameters = list(module.parameters())
    with cut(*TILES):
        # the last bias shifts all scores of a row: only a weigher that is not blind to it passes a gradient on
        assert_tiled_is_reference(module, parameters, weigh=Sigmoid())
        attend(*ROWS, score=module, weigh=Sigmoid(), backend="tiled").square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in parameters)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return weight * x**3

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return grad * 3 * weight * x**2, (grad * x**3).sum()


def test_an_operation_of_the_users_own_passes_its_gradient():
    weight = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    assert_tiled_is_reference(lambda q, k: Cube.apply(q @ k.mT / 11, weight), [weight])


def test_a_compiled_function_passes_its_gradient():
    weight = noise(11, 11, seed=5, scale=0.1).requires_grad_()
    # aot_eager: compiled as far as autograd can tell, with no compiler needed
    compiled = torch.compile(lambda q, k: torch.tanh(q @ weight @ k.mT), backend="aot_eager")
    assert_tiled_is_reference(compiled, [weight])


def test_tensors_handed_on_by_name_or_in_lists_are_seen():
    one, other = (noise(11, 11, seed=s, scale=0.1).requires_grad_() for s in (7, 8))

    def score(query, key):
        left = torch.matmul(input=query, other=one)
        both = torch.cat([left, torch.matmul(query, other)], -1)
        return both @ torch.cat((key, key), -1).mT

    assert_tiled_is_reference(score, [one, other])


@pytest.mark.parametrize("backend", ["reference", "tiled"])
@pytest.mark.parametrize("tangled", [False, True])
def test_first_and_second_derivatives(tangled, backend):
    weight = noise(11, 11, seed=9, scale=0.1).requires_grad_()
    rows = [x.clone().requires_grad_() for x in ROWS]

    def run(query, key, value, weight):
        half = weight / 2

        def score(q, k):
            return torch.sin(q @ half @ k.mT) + (torch.cos(q @ weight) @ k.mT if tangled else 0)

        return attend(query, key, value, score=score, mask=Causal(), backend=backend)

    with cut(*TILES):
        assert gradcheck(run, (*rows, weight), **DIFFERENCES)
        assert gradgradcheck(run, (*rows, weight), **DIFFERENCES)


@pytest.mark.parametrize("backend", ["reference", "tiled"])
@pytest.mark.parametrize("weigh", [Softmax(), Sigmoid(), Entmax()], ids=repr)
def test_scores_may_be_views_of_something_else(weigh, backend):
    def uniform(query, key):
        # all keys alike: one number, seen many times
        return query.new_zeros(()).expand(*query.shape[:-1], key.shape[-2])

    def looked_up(query, key):
        # one tile is the whole call here; the table is not the engine's to write to
        return table[..., : query.shape[-2], : key.shape[-2]]

    table = noise(3, 2, 5, 7, seed=10)
    zeros = torch.zeros_like(ROWS[0]), torch.zeros_like(ROWS[1])
    for mask in (Full(), Causal()):
        terms = {"weigh": weigh, "mask": mask}
        expected = attend(*zeros, ROWS[2], **terms, backend="reference")
        assert_close(attend(*ROWS, score=uniform, **terms, backend=backend), expected)
        expected = attend(*zeros, ROWS[2], **terms, bias=noise(3, 2, 5, 7, seed=10), backend="reference")
        assert_close(attend(*ROWS, score=looked_up, **terms, backend=backend), expected)
        assert torch.equal(table, noise(3, 2, 5, 7, seed=10))


@pytest.mark.parametrize("backend", ["reference", "tiled"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_the_function_sees_the_callers_dtype(dtype, backend):
    weight = noise(11, 11, scale=0.1).to(dtype).requires_grad_()
    seen = set()

    def score(query, key):
        seen.update({query.dtype, key.dtype})
        return query @ weight @ key.mT

    out = attend(*(x.to(dtype) for x in ROWS), score=score, backend=backend)
    out.sum().backward()
    assert seen == {dtype}
    assert out.dtype == weight.grad.dtype == dtype


def test_a_tensor_first_used_on_a_later_tile_is_an_error():
    weight = torch.ones((), dtype=torch.float64, requires_grad=True)

    def fickle(query, key):
        scores = query @ key.mT
        return scores * weight if query.shape[-2] > 1 else scores

    out = attend(*(x.clone().requires_grad_() for x in ROWS), score=fickle, backend="tiled")
    with pytest.raises(RegardError) as error:
        out.sum().backward()
    assert str(error.value) == (
        "score function fickle used a tensor on one tile that it did not use on the first row:"
        " its gradient would be lost. Let it use the same tensors on every tile."
    )


def test_nothing_is_kept_when_no_gradient_is_wanted():
    weight = noise(11, 11, scale=0.1).requires_grad_()
    with torch.no_grad():
        assert not attend(*ROWS, score=lambda q, k: q @ weight @ k.mT, backend="tiled").requires_grad
    assert attend(*ROWS, score=lambda q, k: q @ weight @ k.mT, backend="tiled").requires_grad
