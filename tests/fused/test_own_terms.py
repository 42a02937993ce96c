"""Terms of another package that do not hold what they promise are named, as on the other backends."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from regard import RegardError, attend
from regard.bias import Alibi, Relative
from regard.mask import Causal, Document
from tests.engine.messages_again import UNSETTLED, Boast
from tests.fused.against import DEVICE

pytest.importorskip("triton")
ROWS = 3 * (torch.ones(1, 2, 5, 3, device=DEVICE),)


def keep(kind):
    """A subclass whose `settle` fills in nothing."""
    made = type(kind.__name__, (kind,), {"settle": lambda self, sizes: self})
    return dataclass(frozen=True, repr=False, eq=False)(made)


@pytest.mark.parametrize(
    ("field", "name", "term"),
    [
        ("offset", "mask", keep(Causal)()),
        ("offset", "bias", keep(Alibi)(torch.ones(2))),
        ("offset", "bias", keep(Relative)(torch.zeros(2, 6))),
        ("query_segments", "mask", keep(Document)(torch.zeros(1, 5, dtype=torch.int64))),
    ],
    ids=lambda x: type(x).__name__,
)
def test_what_was_not_settled_is_named(field, name, term):
    with pytest.raises(RegardError) as error:
        attend(*ROWS, **{name: term}, backend="fused")
    assert str(error.value) == UNSETTLED.format(term, field)


def test_a_dot_product_without_rows_is_named():
    with pytest.raises(RegardError) as error:
        attend(*ROWS, score=Boast(), backend="fused")
    assert str(error.value) == "Boast() must have rows from as_dot(), since its is_dot says so: got None."
