"""The suite sees every term there is, and tells them apart."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest
import torch

from regard.core import Bias, Mask, Score, Weigh
from tests.terms import ROOMS, SAMPLE_SIZES, list_classes, list_compositions, list_samples

CONTRACTS = {"score": Score, "weigh": Weigh, "mask": Mask, "bias": Bias}


@pytest.mark.parametrize("room", ROOMS)
def test_every_term_of_a_room_is_public(room):
    defined = set()
    for module in pkgutil.iter_modules(ROOMS[room].__path__, f"regard.{room}."):
        for _, cls in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            is_here = cls.__module__ == module.name and issubclass(cls, CONTRACTS[room])
            if is_here and not cls.__name__.startswith("_"):
                defined.add(cls)
    assert defined == set(list_classes(room))


@pytest.mark.parametrize("room", ROOMS)
def test_every_term_has_samples_that_fit(room):
    for cls in list_classes(room):
        samples = cls.samples()
        assert samples, cls
        for sample in samples:
            assert type(sample) is cls
            assert any(sample.misfit(sizes) is None for sizes in SAMPLE_SIZES), sample


@pytest.mark.parametrize("room", ROOMS)
def test_a_repr_names_one_sample(room):
    shown = [repr(term) for term in list_samples(room)]
    assert len(set(shown)) == len(shown)


def test_compositions_have_their_own_names():
    shown = [repr(mask) for mask in list_compositions()]
    assert shown[0] == "(Causal() & Lengths(lengths=int64[2]))"
    assert shown[2] == "~Window(before=0, after=0, offset=0)"
    assert len({*shown, *map(repr, list_samples("mask"))}) == len(shown) + len(list_samples("mask"))


def test_weights_are_not_below_zero_unless_said():
    scores = torch.randn(2, 2, 5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    signed = [weigh for weigh in list_samples("weigh") if (weigh(scores) < 0).any()]
    assert signed
    assert all(weigh.has_signs for weigh in signed)


@pytest.mark.parametrize("room", ROOMS)
def test_tensors_can_be_replaced(room):
    for term in list_samples(room):
        assert all(t.is_floating_point() for t in term.tensors)
        doubled = term.with_tensors([2 * t for t in term.tensors])
        assert repr(doubled) == repr(term)
        for old, new in zip(term.tensors, doubled.tensors, strict=True):
            assert (new == 2 * old).all()
