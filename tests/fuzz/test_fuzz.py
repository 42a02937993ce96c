"""500 random calls on every backend, 2,000 under make test-all, each judged by the rule in `judge`.

README.md says how to make more of them, or others, and how to run one again.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict

import pytest

from regard import RegardError, explain
from regard.bias import Dense
from regard.core import Term
from regard.mask import Allowed
from regard.score import Custom
from tests.fuzz import draw, settings
from tests.fuzz.build import build
from tests.fuzz.data import make_case
from tests.fuzz.examine import examine
from tests.fuzz.judge import MEAN, find_ill_posed
from tests.fuzz.publish import PROPERTY, Tally
from tests.terms import list_classes
from tests.wide import ALL

AXES = ("dtype", "layout", "family", "mask", "bias", "ndim")
START = time.monotonic()
# what a run with other calls or backends says nothing about
plain = pytest.mark.skipif(not settings.IS_PLAIN, reason="about the calls of a plain run")


@pytest.mark.parametrize("index", range(draw.PARTS))
def test_error_is_within_eagers_own(index, record_property):
    tally, bad = Tally(), []
    means: dict[str, list[float]] = defaultdict(list)
    for number, drawn in draw.part(index):
        if time.monotonic() - START > settings.SECONDS:
            break
        begun = time.monotonic()
        try:
            verdicts = list(examine(drawn))
        except Exception as error:
            # one call that breaks must not hide the others
            bad.append(f"#{number} {type(error).__name__}: {error}\n    {drawn}")
            continue
        tally.count(drawn, verdicts, time.monotonic() - begun)
        for backend, verdict in verdicts:
            if not verdict.is_good:
                bad.append(f"#{number} {backend} {verdict}\n    {drawn}")
            if verdict.limit:
                what = "output" if verdict.what == "output" else "gradients"
                means[f"{backend} {what}"].append(verdict.mean)
                tally.note(f"{backend} {what}", verdict.worst, number)
                tally.note(f"{backend} rows", verdict.row, number)
    record_property(PROPERTY, tally.pack())
    assert not bad, "\n".join(bad)
    # a tensor of few numbers, or of many that share one error, has a mean that is as much luck as one number is: it is
    # taken over all tensors of a kind
    for kind, ratios in means.items():
        mean = sum(ratios) / len(ratios)
        assert mean <= MEAN, f"the mean error of {kind} is {mean:.3g} times eager's own, allowed are {MEAN}"


# every call is a second in the interpreter: a few small ones, of which each has something that the others have not
FEW = [d for d in draw.draw_all(calls=2000) if d.dtype == "float32" and 0 < math.prod(d.sizes) <= 33 * 33]
FEW = FEW[: 240 : 10 if ALL else 30]


@plain
@pytest.mark.parametrize("drawn", FEW, ids=lambda d: f"{d.score}-{d.weigh}-{d.mask}-{d.bias}")
def test_fused_in_the_interpreter(drawn):
    pytest.importorskip("triton")
    verdicts = list(examine(drawn, ["fused"]))
    bad = [str(verdict) for _, verdict in verdicts if not verdict.is_good]
    assert not bad, "\n".join([*bad, str(drawn)])
    assert bool(verdicts) == (drawn.score != "callable" and drawn.bias != "quadratic")


@plain
def test_every_pair_of_names_is_drawn():
    covered = set().union(*(drawn.pairs() for drawn in draw.draw_all()))
    assert draw.possible_pairs() <= covered


@plain
def test_torchs_kernels_are_drawn_with_every_dtype_layout_family_mask_and_bias():
    taken = set()
    for drawn in draw.draw_all():
        if drawn.weigh != "softmax" or drawn.dropout or 0 in drawn.sizes:
            continue
        tensors, options = build(make_case(drawn))
        try:
            explain(*(tensors[at] for at in ("query", "key", "value")), **options, backend="sdpa")
        except RegardError:
            continue
        taken |= {(axis, getattr(drawn, axis)) for axis in AXES}
    assert taken == {(axis, value) for axis in AXES for value in draw.AXES[axis]}


@plain
@pytest.mark.parametrize("room", ["score", "weigh", "mask", "bias"])
def test_every_term_of_the_library_is_drawn(room):
    # one call for each name of the axis, since making all of them takes long
    named = {getattr(drawn, room): drawn for drawn in draw.draw_all() if 0 not in drawn.sizes}
    built = [build(make_case(drawn))[1][room] for drawn in named.values()]
    found = {cls for term in built for cls in list_parts(term)}
    # a bias by its tensor is Dense, a mask by its tensor Allowed, a function Custom
    given = {"mask": Allowed, "bias": Dense, "score": Custom}
    missing = {*list_classes(room)} - {
        given[room] if not isinstance(x, type) or not issubclass(x, Term) else x for x in found
    }
    assert not missing, f"add {', '.join(cls.__name__ for cls in missing)} to AXES in tests/fuzz/draw.py"


def list_parts(term: object) -> list[type]:
    """The class of a term, and of those it is made of."""
    parts = [getattr(term, name) for name in ("one", "other") if hasattr(term, name)]
    return [type(term), *(cls for part in parts for cls in list_parts(part))]


@plain
def test_few_rows_are_too_close_to_a_kink_to_be_judged():
    # rows without one right answer are left out of the gradients: were that most rows, nothing would be tested
    ill, rows = defaultdict(int), defaultdict(int)
    for drawn in draw.draw_all(calls=2000)[:400]:
        case = make_case(drawn)
        ill[drawn.weigh] += int(find_ill_posed(case).sum())
        rows[drawn.weigh] += case.b * case.h * case.n
    shares = {weigh: ill[weigh] / rows[weigh] for weigh in rows}
    assert max(shares.values()) < 0.4, shares
    assert sum(ill.values()) < 0.15 * sum(rows.values())
