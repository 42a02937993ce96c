"""A gradient that is itself differentiated, through tensors that are used as people use them."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from regard import attend
from regard.score import Additive
from tests.primes import noise
from tests.tolerances import assert_close

ROWS = noise(2, 4, 5, 3, seed=1)
OTHER = noise(2, 4, 5, 3, seed=2)
CALLS = {
    "key is value": lambda x, **given: attend(OTHER, x, x, **given),
    "all are one": lambda x, **given: attend(x, x, x, **given),
    "query is made of key": lambda x, **given: attend(2 * x, x, OTHER, **given),
    "heads of one tensor": lambda x, **given: attend(x, x[:, :2], x[:, 2:], **given),
    "one after the other": lambda x, **given: attend(attend(x, OTHER, x, **given), x, x, **given),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_tensor_has_its_gradient_once(name):
    found = {}
    for backend in ("reference", "tiled", "auto"):
        x = ROWS.clone().requires_grad_()
        heard = []
        x.register_hook(heard.append)
        loss = CALLS[name](x, backend=backend).sin().sum()
        (grad,) = torch.autograd.grad(loss, x, create_graph=True)
        assert len(heard) == 1
        found[backend] = grad, torch.autograd.grad(grad.square().sum(), x)[0]
    for backend in ("tiled", "auto"):
        for order, ours, exact in zip(("first", "second"), found[backend], found["reference"], strict=True):
            assert_close(ours, exact, f"{backend}, {order}")


@pytest.mark.parametrize("terms", [{}, {"score": Additive(noise(3, seed=3))}], ids=["dot", "additive"])
def test_saved_tensors_are_read_once(terms):
    found = []
    for reentrant in (None, False, True):
        x = ROWS.clone().requires_grad_()

        def call(x):
            return attend(x, x, OTHER, **terms)

        out = call(x) if reentrant is None else checkpoint(call, x, use_reentrant=reentrant)
        out.sin().sum().backward()
        found.append(x.grad)
    assert_close(found[1], found[0])
    assert_close(found[2], found[0])


def test_what_was_dropped_stays_dropped():
    found = {}
    for backend in ("reference", "tiled"):
        x, generator = ROWS.clone().requires_grad_(), torch.Generator().manual_seed(4)
        loss = attend(x, x, OTHER, dropout=0.4, generator=generator, backend=backend).sin().sum()
        (grad,) = torch.autograd.grad(loss, x, create_graph=True)
        found[backend] = torch.autograd.grad(grad.square().sum(), x)[0]
    assert_close(found["tiled"], found["reference"])
