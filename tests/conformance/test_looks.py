"""A look at every score × weigh × mask × bias says what is true of all its weights."""

from __future__ import annotations

import zlib

import pytest

from regard import look
from regard.engine import find_weights
from regard.engine.looking import walk as looking
from tests.conformance.test_backends import FITTING
from tests.looks import assert_is_look
from tests.terms import list_samples, make_inputs, walk
from tests.wide import ALL, is_taken

# numbers a block of rows may hold: mostly all rows at once, since many blocks take long; now and then two rows or all
# of a head
BUDGETS = [2**20, 2**20, 2**20, 2**20, 15, 42]
# of the combinations of a score and a weigher, one in so many; all of them take some minutes
ONE_IN = 18


@pytest.mark.parametrize("weigh", list_samples("weigh"), ids=repr)
@pytest.mark.parametrize("score", list_samples("score"), ids=repr)
def test_a_look_is_true(score, weigh, monkeypatch, record_property):
    tested = 0
    for combination in walk(score, weigh, learn_bias=False):
        if isinstance(combination, str):
            continue
        name = str(combination)
        # by content, as layouts are: a new sample does not move the others
        number = zlib.crc32(name.encode())
        if not is_taken(name, ONE_IN):
            continue
        query, key, _ = make_inputs(combination.sizes)
        monkeypatch.setitem(looking.BUDGET, "cpu", BUDGETS[number % len(BUDGETS)])
        top, blocks = 1 + number % 9, 1 + number % 4
        seen = look(query, key, **combination.terms, top=top, rows=[0, -2], map=blocks, window=1)
        assert_is_look(seen, find_weights(query, key, **combination.terms), name, blocks, 1)
        tested += 1
    assert tested == FITTING if ALL else tested >= 1
    record_property("combinations looked at", tested)
