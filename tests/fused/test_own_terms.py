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
NO_KERNEL = "backend='fused' cannot take this call: {} has no kernel. Use backend='auto', or see explain(...)."
ROWS = 3 * (torch.ones(1, 2, 5, 3, device=DEVICE),)


def keep(kind):
    """A subclass whose `settle` fills in nothing."""
    made = type(kind.__name__, (kind,), {"settle": lambda self, sizes: self})
    return dataclass(frozen=True, repr=False, eq=False)(made)


@pytest.mark.parametrize(
    ("term", "said"),
    [
        ({"mask": keep(Causal)()}, UNSETTLED.format("Causal()", "offset")),
        ({"bias": keep(Alibi)(torch.ones(2))}, NO_KERNEL.format("Alibi")),
        ({"bias": keep(Relative)(torch.zeros(2, 6))}, NO_KERNEL.format("Relative")),
    ],
    ids=str,
)
def test_what_was_not_settled_is_named(term, said):
    with pytest.raises(RegardError) as error:
        attend(*ROWS, **term, backend="fused")
    assert str(error.value) == said


def test_documents_that_settle_nothing_are_their_definition():
    mask = keep(Document)(torch.tensor([0, 0, 1, 1, 1], device=DEVICE))
    query = torch.linspace(-1, 1, 30, device=DEVICE).view(1, 2, 5, 3)
    found, expected = (attend(query, query, query, mask=mask, backend=name) for name in ("fused", "reference"))
    torch.testing.assert_close(found, expected)


def test_a_dot_product_without_rows_is_named():
    with pytest.raises(RegardError) as error:
        attend(*ROWS, score=Boast(), backend="fused")
    assert str(error.value) == "Boast() must have rows from as_dot(), since its is_dot says so: got None."
