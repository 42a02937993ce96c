"""The masks of `nn.MultiheadAttention` in our terms; `tests/layers/test_torch_call.py` has them beside torch's own."""

import pytest
import torch

from regard import RegardError
from regard.watching.masks import read_masks

SIZES = (2, 3, 4, 5)


def test_what_hides_and_what_adds():
    late = torch.tensor([[False] * 5, [False, False, True, True, True]])
    added = torch.arange(20.0).view(4, 5).masked_fill(torch.eye(4, 5, dtype=torch.bool), -torch.inf)
    allowed, bias = read_masks("x", SIZES, late, added)
    assert torch.equal(allowed, ~late[:, None, None] & ~torch.eye(4, 5, dtype=torch.bool))
    assert torch.equal(bias, added.masked_fill(torch.eye(4, 5, dtype=torch.bool), 0.0)[None, None])
    # of each head of each sequence, in torch's order
    each = torch.arange(120.0).view(6, 4, 5)
    assert read_masks("x", SIZES, None, each)[1][1, 2, 3, 4] == each[5, 3, 4]
    assert read_masks("x", SIZES, None, None) == (None, None)
    hides = torch.zeros(2, 5).masked_fill(late, -torch.inf)
    assert read_masks("x", SIZES, hides, torch.zeros(4, 5))[1] is None
    # of numbers that may not be looked at, both parts are kept
    hidden, rest = read_masks("x", SIZES, None, torch.zeros(4, 5), looks=False)
    assert hidden.all()
    assert not rest.any()
    # one that learns is added, whatever it is now
    assert read_masks("x", SIZES, None, torch.zeros(4, 5, requires_grad=True))[1].requires_grad


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        ((None, [1]), "Layer attn_mask must be a tensor, got list."),
        ((None, torch.ones(4, 5).int()),
         "Layer attn_mask must be bool (True = hidden) or floating point (added to the scores), got int32."),
        ((None, torch.ones(5, 4)), "Layer attn_mask must be (4, 5) or (6, 4, 5), got shape (5, 4)."),
        ((torch.ones(5), None), "Layer key_padding_mask must be (2, 5), got shape (5,)."),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(masks, message):
    with pytest.raises(RegardError) as error:
        read_masks("Layer", SIZES, *masks)
    assert str(error.value) == message
