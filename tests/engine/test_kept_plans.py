"""What is kept from call to call: plans, never numbers of the caller's, and nothing that is another the next time."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import Tensor

from regard import attend
from regard.bias import Dense
from regard.engine import known as module
from regard.engine.check import as_terms, check_call
from regard.engine.known import keep, read_kind, recall
from regard.engine.plan import plan
from regard.mask import Allowed, Full, Lengths
from regard.score import Additive, Dot
from regard.weigh import Softmax

ROWS = [torch.randn(2, 1, 4, 3, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    monkeypatch.setattr(module, "_known", {})


class Watched(torch.autograd.Function):
    """A step of a graph, which goes when nobody has the graph."""

    gone: list[str]

    @staticmethod
    def forward(ctx, x):
        weakref.finalize(ctx, Watched.gone.append, "graph")
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad


@pytest.mark.parametrize("name", ["bias", "weight", "sink"])
def test_what_a_caller_learned_goes_with_the_caller(name):
    Watched.gone = []
    made = Watched.apply(torch.ones({"bias": (4, 4), "weight": (3,), "sink": (1,)}[name], requires_grad=True))
    terms = {"bias": Dense, "weight": Additive, "sink": lambda x: Softmax(sink=x)}
    where = {"bias": "bias", "weight": "score", "sink": "weigh"}[name]
    for _ in range(3):
        out = attend(*ROWS, **{where: terms[name](made)}, backend="tiled")
    assert len(module._known) == 1
    del made, out
    gc.collect()
    assert Watched.gone == ["graph"]


def renew(mask: Tensor | Lengths | Allowed, numbers: Tensor):
    """The call of a known kind again, as on a device where masks are kept."""
    terms = as_terms(Dot(), Softmax(), mask, None)
    if (known := recall(("kind",))) is None:
        keep(("kind",), plan(check_call(*ROWS, terms), "tiled"), terms, *ROWS)
        known = recall(("kind",))
    return known.renew(Dot(), Softmax(), mask, None, [numbers])


def test_a_mask_is_kept_as_long_as_its_tensor_is_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    numbers = torch.tensor([2, 3])
    call = renew(Lengths(numbers), numbers)
    call.kept.update(marks="made of it", again="so was this")
    assert renew(Lengths(numbers), numbers).mask is call.mask
    del call
    goes = weakref.ref(numbers)
    del numbers
    gc.collect()
    known = recall(("kind",))
    assert goes() is None
    assert known.held is None
    assert not known.plan.call.kept.keys() & {"marks", "again"}


@pytest.mark.parametrize("change", ["in place", "as data", "another"])
def test_a_mask_of_other_numbers_is_another(monkeypatch, change):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    numbers = torch.tensor([2, 3])
    before = renew(Lengths(numbers), numbers)
    if change == "in place":
        numbers += 1
    elif change == "as data":
        numbers.data = torch.tensor([3, 4])
    else:
        numbers = torch.tensor([3, 4])
    after = renew(Lengths(numbers), numbers)
    assert after.mask is not before.mask
    assert after.mask.lengths.flatten().tolist() == [3, 4]


def test_what_is_kept_of_a_mask_counts_changes_of_the_callers_tensor(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    numbers = torch.tensor([2, 3])
    (held,) = renew(Lengths(numbers), numbers).constants
    before = held._version
    numbers += 1
    assert held._version == before + 1


def read(query: Tensor):
    return read_kind(query, *ROWS[1:], (Dot(), Softmax(), Full(), None), 0.0, "auto", [])


def test_what_is_made_in_inference_mode_serves_no_graph():
    with torch.inference_mode(), torch.enable_grad():
        inside = read(ROWS[0])
    assert inside != read(ROWS[0])


def test_numbers_that_are_the_negatives_of_those_in_memory_are_no_known_kind():
    query = torch.complex(ROWS[0], -ROWS[0]).conj().imag
    assert query.is_neg()
    assert read(query) is None
    assert read(query.resolve_neg()) == read(ROWS[0])
