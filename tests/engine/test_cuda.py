"""The same conformance on a CUDA device: `tiled` there against `reference` there, in float64."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from regard import attend, explain
from regard.bias import Alibi
from regard.core import Score, Weigh
from regard.mask import Causal
from regard.weigh import Hard
from tests.terms import Combination, list_samples, make_inputs, names, run, walk

pytestmark = pytest.mark.gpu


def move(value: Any) -> Any:
    """A term, and the terms within it, with their tensors on the device."""
    if isinstance(value, torch.Tensor):
        return value.detach().cuda().requires_grad_(value.requires_grad)
    if dataclasses.is_dataclass(value):
        fields = {f.name: move(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return dataclasses.replace(value, **fields)
    return value


def combinations(score: Score, weigh: Weigh) -> Iterator[Combination]:
    for at, combination in enumerate(walk(score, weigh)):
        # every fifth, shifted by the score, so that all masks and biases turn up with all weighers
        if isinstance(combination, Combination) and at % 5 == len(repr(score)) % 5:
            terms = {name: move(term) for name, term in combination.terms.items()}
            yield Combination(combination.sizes, **terms)


@pytest.mark.parametrize("weigh", list_samples("weigh"), ids=repr)
@pytest.mark.parametrize("score", list_samples("score"), ids=repr)
def test_tiled_equals_reference_on_the_device(score: Score, weigh: Weigh, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.engine.tiles.layout.BUDGET", 60)
    ran = 0
    for combination in combinations(score, weigh):
        inputs = tuple(x.detach().cuda().requires_grad_() for x in make_inputs(combination.sizes, positive=True))
        ours, exact = (run(combination, inputs, backend) for backend in ("tiled", "reference"))
        for name, a, b in zip(names(combination), ours, exact, strict=True):
            torch.testing.assert_close(
                a, b, rtol=1e-9, atol=1e-10, msg=lambda m, n=name, c=combination: f"{c}, {n}: {m}"
            )
        ran += 1
    assert ran > 10


def test_draws_the_same_bits_as_the_cpu() -> None:
    query, key, value = (torch.randn(2, 3, 17, 4) for _ in range(3))
    for terms in ({"dropout": 0.4}, {"weigh": Hard("sample", seed=5)}):
        outs = []
        for device in ("cpu", "cuda"):
            generator = torch.Generator().manual_seed(1)
            rows = (x.to(device) for x in (query, key, value))
            outs.append(attend(*rows, **terms, generator=generator, backend="tiled").cpu())
        torch.testing.assert_close(*outs, rtol=1e-4, atol=1e-5)


def test_torch_kernels_take_only_what_was_vetted() -> None:
    x = torch.zeros(1, 1, 128, 64, device="cuda", dtype=torch.bfloat16)
    assert explain(x, x, x).backend == "sdpa"
    assert explain(x, x, x, mask=Causal()).backend != "sdpa"
    assert explain(x, x, x, bias=Alibi()).backend != "sdpa"
    assert explain(x.float(), x.float(), x.float()).backend != "sdpa"
    assert explain(x[..., :60], x[..., :60], x[..., :60]).backend != "sdpa"
