"""The Triton kernels against `reference` in float64, on combinations in which all terms meet: see `covering`.

Without a GPU they run in Triton's interpreter (tests/conftest.py).
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
import torch

from regard import RegardError, attend, explain
from regard.bias import Quadratic
from regard.mask import Full
from regard.score import Custom, Dot
from tests.fused.against import BACKEND, DEVICE, check_combination, draw
from tests.fused.covering import choose, list_fitting, list_pairs, list_rooms
from tests.fused.goes import GOES, go
from tests.terms import Combination, move
from tests.wide import ALL, thin, wide

pytest.importorskip("triton")
CHOSEN = list(choose())


# both ways under all masks where all are tried; else in turn
TRIED = [
    (combination, how)
    for at, combination in enumerate(CHOSEN)
    for how in (GOES if ALL and type(combination.mask) is not Full else GOES[at % 2 :][:1])
]


@pytest.mark.parametrize(("combination", "how"), TRIED, ids=str)
def test_fused_is_reference(combination: Combination, how: str, record_property, monkeypatch):
    go(monkeypatch, how)
    check_combination(combination)
    record_property("combinations tested on fused", 1)


def test_all_that_fit_meet():
    met = set().union(*(list_pairs(combination.terms) for combination in CHOSEN))
    assert met >= set().union(*(list_pairs(terms) for terms in list_fitting()))
    for room, terms in list_rooms().items():
        assert {repr(combination.terms[room]) for combination in CHOSEN} == set(map(repr, terms))


# the first with each score and each weigher
HALF = list({
    str(found): found
    for room in ("score", "weigh")
    for term in list_rooms()[room]
    for found in [next(c for c in CHOSEN if repr(c.terms[room]) == repr(term))]
}.values())  # fmt: skip


@pytest.mark.parametrize("at", thin(range(len(HALF)), 3), ids=lambda at: str(HALF[at]))
def test_half_precision(at: int, monkeypatch):
    go(monkeypatch, GOES[at // 2 % 2])
    check_combination(HALF[at], (torch.bfloat16, torch.float16)[at % 2])


@pytest.mark.parametrize("term", [*Custom.samples(), *Quadratic.samples()], ids=repr)
def test_what_no_kernel_is_written_for_is_refused_by_name(term):
    rows = draw(*[(2, 2, 6, 3)] * 3)
    with pytest.raises(RegardError, match=rf"backend='fused' cannot take this call: .*{type(term).__name__}"):
        attend(*rows, **{"bias" if isinstance(term, Quadratic) else "score": move(term, DEVICE)}, backend=BACKEND)


def test_float64_is_refused_by_name():
    with pytest.raises(RegardError, match=r"backend='fused' cannot take this call: .*float64"):
        attend(*draw((1, 2, 3), (1, 4, 3), (1, 4, 3), dtype=torch.float64), backend=BACKEND)


def test_second_derivatives_are_refused_and_the_way_out_is_named():
    query, key, value = draw((1, 1, 3, 4), (1, 1, 5, 4), (1, 1, 5, 4))
    out = attend(query, key, value, backend=BACKEND)

    def differentiate_twice():
        (first,) = torch.autograd.grad(out.square().sum(), query, create_graph=True)
        torch.autograd.grad(first.square().sum(), query)

    with pytest.raises(RegardError, match="backend='tiled'"):
        differentiate_twice()


def test_auto_never_interprets():
    query = torch.zeros(1, 1, 3, 4)
    assert explain(query, query, query, score=Dot(cap=2.0)).backend != "fused"


@wide
def test_without_the_interpreter_cpu_tensors_are_refused():
    code = "import torch, regard; x = torch.zeros(1, 1, 3, 4); regard.attend(x, x, x, backend='fused')"
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    env["PYTHONPATH"] = str(pathlib.Path(__file__).parents[2] / "src")
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert "RegardError: backend='fused' cannot take this call" in done.stderr
