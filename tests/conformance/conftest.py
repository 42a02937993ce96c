"""What every test of this folder runs under."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _seed() -> None:
    """gradgradcheck draws from torch's global generator: the same numbers whatever ran before."""
    torch.manual_seed(0)
