"""Models in tests are small."""

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread():
    # over tensors this small, threads only wait for one another
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
