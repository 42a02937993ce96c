"""Second derivatives against differences of the first ones, on both backends that offer them; third ones likewise."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import gradgradcheck

from regard.score import Additive, Concat, Dot, Feature
from regard.weigh import Entmax, Relu, Sigmoid, Softmax, Sparsemax, Sum
from tests.primes import SIZES, WIDE_KEYS, Recipe, list_cases, noise, scores
from tests.tolerances import DIFFERENCES, assert_all_close
from tests.wide import ALL

SMOOTH = [
    *(recipe for cls, recipe in scores().items() if cls is not Concat),
    Recipe.of(Dot(scale=0.4, cap=2.0)),
    Recipe.of(Additive(noise(SIZES.d, seed=1), activation="silu")),
    Recipe.of(Concat(noise(SIZES.d, seed=2, scale=0.3), noise(2, WIDE_KEYS, seed=3, scale=0.3), activation="tanh")),
]
SINK = Softmax(sink=torch.tensor([0.3, -0.8], dtype=torch.float64))
WEIGHS = [Recipe.of(weigh) for weigh in (Softmax(), SINK, Sigmoid())]
# twice differentiable almost everywhere, or meant for one score
OTHERS = [
    (Feature(), Sum()),
    (Dot(), Entmax()),
    (Dot(), Entmax(alpha=1.3)),
    (Dot(), Sparsemax()),
    (Dot(), Relu(power=3)),
]

STEP = 5 if ALL else 55
PAIRS = [
    *((score, weigh) for score in SMOOTH for weigh in WEIGHS),
    *((Recipe.of(score), Recipe.of(weigh)) for score, weigh in OTHERS),
]


@pytest.mark.thin(2)
@pytest.mark.parametrize("backend", ["reference", "tiled"])
@pytest.mark.parametrize("at", range(len(PAIRS)), ids=[f"{s.name}-{w.name}" for s, w in PAIRS])
def test_second_derivatives_are_finite_differences(at, backend, record_property):
    tested = 0
    # every so-manieth mask × bias, another part for the next pair: all of them meet, not all in one place
    for case in list(list_cases(*PAIRS[at]))[at % STEP :: STEP]:
        with case.layout():
            # strides of the second cotangent are not the engine's to choose
            options = {**DIFFERENCES, "gen_non_contig_grad_outputs": True}
            assert gradgradcheck(case.attend(backend), case.inputs, **options), case
        tested += 1
    assert tested == 11 if ALL else tested >= 1
    record_property("combinations of classes under gradgradcheck", tested)


@pytest.mark.parametrize("at", range(0, len(PAIRS), 3), ids=[f"{s.name}-{w.name}" for s, w in PAIRS[::3]])
def test_third_derivatives_are_those_of_plain_autograd(at):
    case = list(list_cases(*PAIRS[at]))[at % 11]
    made = {}
    for backend in ("reference", "tiled"):
        inputs = case.inputs
        with case.layout():
            grads: tuple[torch.Tensor, ...] = (case.attend(backend)(*inputs),)
            for order in range(3):
                total = sum(grad.sin().sum() for grad in grads)
                grads = torch.autograd.grad(total, inputs, create_graph=order < 2, materialize_grads=True)
        made[backend] = grads
    assert_all_close(made["tiled"], made["reference"], [f"input {at}" for at in range(len(made["tiled"]))])
    assert all(grad.any() for grad in made["reference"][:2]), "zeros prove nothing"
