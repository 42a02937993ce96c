"""N5, N7: views with odd strides give what their contiguous copies give.

Garbage from non-contiguous or misaligned inputs: pytorch#112577, #114173, #108503, #121943, #139424, xformers#813; from
the strides of the output's gradient: pytorch#139298, #138354, #138581, diffusers#9768.
"""

import pytest
import torch

from regard.mask import Causal, Full
from regard.score import Additive, Concat, Cosine, Dot, Gaussian
from tests.incidents.plain import BACKENDS, VIEWS, assert_all_near, assert_near, make, run, split

pytestmark = pytest.mark.thin(3)

B, H, N, D = 2, 3, 9, 4
WEIGHT = torch.tensor([0.3, -1.0, 0.8, 0.1])
SCORES = {
    "dot": Dot(),
    "cosine": Cosine(2.0),
    "additive": Additive(WEIGHT),
    "concat": Concat(WEIGHT, WEIGHT),
    "gaussian": Gaussian(0.7),
}


def compare(views, grad_view, backend, **options):
    """A call on views against the same call on their copies."""
    # views are made where they are used: on the way to another device they would become copies
    *leaves, grad = (x.detach().to(split(backend)[1]) for x in make(*[(B, H, N, D)] * 4))
    rows = [view(x) if view else x for view, x in zip(views, leaves, strict=True)]
    grad = grad_view(grad) if grad_view else grad
    got = run(*(x.requires_grad_() for x in rows), grad, backend, **options)
    copies = [x.detach().contiguous().clone().requires_grad_() for x in rows]
    expected = run(*copies, grad.contiguous().clone(), backend, **options)
    assert_all_near(got, expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("which", [0, 1, 2, slice(None)], ids=["query", "key", "value", "all"])
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_is_its_copy(view, which, backend):
    check_rows(view, which, backend)


def check_rows(view, which, backend, masks=(Full(), Causal())):
    views = [None, None, None]
    views[which] = [VIEWS[view]] * 3 if which == slice(None) else VIEWS[view]
    for mask in masks:
        compare(views, None, backend, mask=mask)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("view", VIEWS)
def test_whatever_scores(view, score):
    compare([VIEWS[view]] * 3, None, "tiled", score=SCORES[score])
    compare([VIEWS[view]] * 3, None, "reference", score=SCORES[score])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("masked", [False, True], ids=["", "masked"])
@pytest.mark.parametrize("view", [*VIEWS, "one number"])
def test_the_outputs_gradient_may_have_any_strides(view, masked, backend):
    check_grad(view, masked, backend)


def check_grad(view, masked, backend):
    grad_view = VIEWS.get(view, lambda x: x[:1, :1, :1, :1].clone().expand(x.shape))
    allowed = torch.rand(N, N, generator=torch.Generator().manual_seed(5)) < (0.6 if masked else 2)
    compare([None] * 3, grad_view, backend, mask=allowed)


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_tensor_in_all_three_places(backend):
    (x,) = make((B, H, N, D))
    out, *grads = run(x, x, x, backend=backend)
    copies = [x.detach().clone().requires_grad_() for _ in range(3)]
    expected, *apart = run(*copies, backend=backend)
    assert_near(out, expected)
    # each place reports the gradient of the one tensor, which is the sum of the three
    for grad in grads:
        assert_near(grad, sum(apart), what="gradient")
