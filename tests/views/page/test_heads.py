"""Which heads are shown first."""

import pytest
import torch

from regard.engine.look import look
from regard.views.page.heads import measure, split


def see(n: int, shifts: list[int], sharp: float = 30.0, **options):
    """Heads each of which attends to the token so many places on, around the end."""
    code = torch.eye(n, dtype=torch.float64)
    query = torch.stack([code.roll(shift, 1) for shift in shifts])[None]
    return look(query, (sharp * code * n**0.5).expand(1, len(shifts), n, n), **options)


@pytest.mark.parametrize("n", [5, 9, 17, 18, 40])
def test_neighbours_are_no_news_in_a_text_of_its_own(n):
    far = n // 2
    heads = split(see(n, [-1, 0, 1, far]), 0)
    before, itself, after, away = (measure(head, is_own=True).interest for head in heads)
    # one row of those beside goes around the end
    assert away > 1.9 * max(before, itself, after)
    assert itself == pytest.approx(0, abs=1e-6)
    assert min(before, itself, after) >= 0
    if n <= 17:
        # of two texts, word by word is an alignment
        assert measure(heads[0]).interest > 0.7
        assert measure(heads[3]).interest == pytest.approx(1 - 1 / n, abs=1e-3)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_where_all_are_neighbours_nothing_is_held_against_a_head(n):
    (head,) = split(see(n, [0]), 0)
    rate = measure(head, is_own=True).interest
    # less the weight on the first token
    assert rate == pytest.approx(1 - 1 / n, abs=1e-3)


def test_even_weights_and_coarse_maps():
    (even,) = split(see(12, [0], sharp=0.0), 0)
    assert measure(even, is_own=True).interest == pytest.approx(0, abs=1e-6)
    (coarse,) = split(see(12, [0], map=4), 0)
    assert measure(coarse, is_own=True).interest == measure(coarse).interest


def test_the_last_queries_of_a_text():
    # five queries at the end of nine keys, each on its own key
    code = torch.eye(9)
    (head,) = split(look(code[None, None, 4:], 90 * code[None, None]), 0)
    assert measure(head, is_own=True).interest < 0.01
