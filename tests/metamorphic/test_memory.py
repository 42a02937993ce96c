"""Memory grows with n, not with n×m, forward and backward: measured by what tensors hold at once."""

import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from regard import attend
from regard.mask import Causal, Full, Lengths
from regard.score import Additive, Dot, Gaussian
from regard.weigh import Entmax, Relu, Softmax
from tests.wide import thin


class Peak(TorchDispatchMode):
    """Counts the bytes of all storages that are alive, and remembers the most."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.most = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, torch.Tensor):
                self._note(x.untyped_storage())
        return out

    def _note(self, storage: torch.UntypedStorage) -> None:
        at, size = storage._cdata, storage.nbytes()
        if at in self.known:
            return
        self.known.add(at)
        self.live += size
        self.most = max(self.most, self.live)
        weakref.finalize(storage, self._forget, at, size)

    def _forget(self, at: int, size: int) -> None:
        self.known.discard(at)
        self.live -= size


def measure(n: int, backend: str = "tiled", **terms) -> int:
    """Bytes at the peak of forward and backward, beyond the inputs."""
    query, key, value = (torch.randn(1, 1, n, 8, requires_grad=True) for _ in range(3))
    with Peak() as peak:
        out = attend(query, key, value, **terms, backend=backend)
        torch.autograd.grad(out.sum(), (query, key, value))
    return peak.most


CASES = {
    "dot": {},
    "causal": {"mask": Causal()},
    "lengths": {"mask": Lengths(torch.tensor([400]))},
    "gaussian": {"score": Gaussian(0.5), "weigh": Relu()},
    "additive": {"score": Additive(torch.ones(8)), "weigh": Softmax()},
    "dropout": {"dropout": 0.1},
    "user": {"score": lambda query, key: torch.sin(query @ key.mT)},
}


def test_the_measure_sees_what_is_held():
    with Peak() as peak:
        one = torch.ones(1000)
        two = one + 1
        del one
        three = two * 2
        del two, three
    assert peak.most == 2 * 4000
    assert peak.live == 0
    # n×m scores and more, and four times as much for twice the length
    small, large = measure(256, "reference"), measure(512, "reference")
    assert small > 256 * 256 * 4
    assert 3.5 < large / small < 4.5


@pytest.mark.parametrize("name", thin(CASES, 3))
def test_the_peak_grows_with_n(name, monkeypatch):
    # a smaller tile, so that the tile itself is not what is measured
    from regard.engine.tiles import layout

    monkeypatch.setattr(layout, "BUDGET", 2**15)
    # longer where it costs little
    n = 1024 if name in ("dot", "causal") else 512
    small, middle, large = (measure(n * factor, **CASES[name]) for factor in (1, 2, 4))
    assert middle < 2.5 * small
    assert large < 2.5 * middle
    # a quarter of the scores alone
    assert large < (4 * n) ** 2 * 4 / 4


@pytest.mark.thin(2)
@pytest.mark.parametrize("mask", [Full(), Causal()], ids=str)
def test_whole_rows_hold_one_strip(mask, monkeypatch):
    # entmax needs whole rows: a strip of a few queries times all keys
    from regard.engine.tiles import layout

    monkeypatch.setattr(layout, "BUDGET", 2**15)
    small, large = (measure(n, weigh=Entmax(), mask=mask, score=Dot()) for n in (1024, 2048))
    assert large < 2.5 * small
    assert large < 2048 * 2048 * 4 / 4
