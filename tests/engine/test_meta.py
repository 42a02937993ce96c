"""Tensors on meta: no numbers, but shapes, as with torch's own operators."""

import pytest
import torch

from regard import attend
from regard.bias import Alibi, Relative
from regard.mask import Causal, Document, Edges, Lengths
from regard.score import Additive
from regard.weigh import Entmax, Hard, Softmax

META = torch.device("meta")


def count(size: int) -> torch.Tensor:
    return torch.arange(size, device=META)


TERMS = {
    "plain": {},
    "causal": {"mask": Causal(), "bias": Alibi()},
    "lengths": {"mask": Lengths(torch.tensor([3, 9], device=META))},
    "segments": {"mask": Document(count(7), count(5))},
    "edges": {"mask": Edges(count(4), count(4))},
    "mask": {"mask": torch.ones(5, 7, dtype=torch.bool, device=META), "weigh": Entmax(), "dropout": 0.1},
    "learned": {
        "score": Additive(torch.ones(3, device=META, requires_grad=True)),
        "bias": Relative(torch.ones(4, 8, device=META)),
        "weigh": Softmax(torch.ones(4, device=META)),
    },
    "drawn": {"weigh": Hard("sample")},
}  # fmt: skip


@pytest.mark.parametrize("backend", ["auto", "tiled", "reference"])
@pytest.mark.parametrize("name", TERMS)
def test_a_call_without_numbers_has_its_shape(name, backend):
    shapes = (2, 4, 5, 3), (2, 2, 7, 3), (2, 2, 7, 6)
    query, key, value = (torch.empty(shape, device=META, requires_grad=True) for shape in shapes)
    out = attend(query, key, value, backend=backend, **TERMS[name])
    assert (out.shape, out.device, out.dtype) == ((2, 4, 5, 6), META, torch.float32)
    out.sum().backward()
    assert [x.grad.shape for x in (query, key, value)] == [*map(torch.Size, shapes)]
