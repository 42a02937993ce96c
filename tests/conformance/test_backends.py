"""Every score × weigh × mask × bias on every backend that takes it, against `reference` in float64."""

from __future__ import annotations

import zlib
from collections import Counter
from contextlib import nullcontext
from functools import cache

import pytest
import torch

from regard import RegardError, explain
from regard.score import Dot
from regard.weigh import Softmax
from tests.layouts import cut
from tests.terms import Combination, list_samples, make_inputs, names, run, walk
from tests.tolerances import assert_all_close, assert_close
from tests.wide import ALL, is_taken

# one tile, and three ways to have several: along each axis of a call at least one cuts, and none cuts evenly
LAYOUTS = [None, (2, 2, 3, 4), (2, 1, 5, 3), (1, 2, 4, 7)]

# of the combinations of a score and a weigher, one in so many
ONE_IN = 8
# how many masks × biases fit one another
FITTING = sum(isinstance(found, Combination) for found in walk(Dot(), Softmax()))

# leaves may serve many calls: no test writes to them
inputs_of = cache(make_inputs)


def check(combination: Combination, backend: str) -> None:
    inputs = inputs_of(combination.sizes)
    expected = run(combination, inputs, "reference")
    actual = run(combination, inputs, backend)
    # one comparison for all first: naming the culprit takes longer than finding none
    try:
        assert_close(torch.cat([x.flatten() for x in actual]), torch.cat([x.flatten() for x in expected]))
    except AssertionError:
        assert_all_close(actual, expected, [f"{name} of {combination}" for name in names(combination)])
        raise


@pytest.mark.parametrize("weigh", list_samples("weigh"), ids=repr)
@pytest.mark.parametrize("score", list_samples("score"), ids=repr)
def test_tiled_is_reference(score, weigh, record_property):
    tested, skipped = 0, Counter()
    for combination in walk(score, weigh):
        if isinstance(combination, str):
            skipped[combination] += 1
            continue
        if not is_taken(str(combination), ONE_IN):
            continue
        # by content, not by order: a new sample does not move the others to another layout
        layout = LAYOUTS[zlib.crc32(str(combination).encode()) % len(LAYOUTS)]
        with nullcontext() if layout is None else cut(*layout):
            check(combination, "tiled")
        tested += 1
    # no sample of a score or a weigher is particular about sizes
    assert tested == FITTING if ALL else tested > FITTING // (2 * ONE_IN)
    record_property("combinations tested on tiled", tested)
    for reason, count in skipped.items():
        record_property(f"left out: {reason}", count)


@pytest.mark.parametrize("backend", ["sdpa", "edges"])
@pytest.mark.parametrize("weigh", list_samples("weigh"), ids=repr)
@pytest.mark.parametrize("score", list_samples("score"), ids=repr)
def test_what_a_backend_takes_is_reference(score, weigh, backend, record_property):
    tested, refused = 0, Counter()
    for combination in walk(score, weigh, learn_bias=backend != "sdpa"):
        if isinstance(combination, str) or not is_taken(str(combination), ONE_IN):
            continue
        inputs = inputs_of(combination.sizes)
        try:
            explain(*inputs, **combination.terms, backend=backend)
        except RegardError as error:
            refused[str(error)] += 1
            continue
        check(combination, backend)
        tested += 1
    if not tested:
        # most common first: the reason that holds for the score or the weigher itself
        pytest.skip(refused.most_common(1)[0][0])
    record_property(f"combinations tested on {backend}", tested)
    for reason, count in refused.items():
        record_property(f"left out: {reason}", count)
