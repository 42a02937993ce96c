"""Sequential steps: chains counted by hand, then those of the layers as lengths grow."""

import itertools

import pytest
import torch
from scipy import stats
from torch import nn

from regard.compare.kinds import KINDS
from regard.compare.parts.steps import find_chain, fit_line, measure_steps
from regard.compare.settings import Dimensions, Settings

ROWS = torch.ones(1, 6, 4)


class Call(nn.Module):
    """A function with a parameter beside it."""

    def __init__(self, function):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.function = function

    def forward(self, rows):
        return self.function(rows, self.weight)


def diamond(rows, weight):
    one = rows.exp()
    return one.sin() + one.cos().cos().cos()


def halves(rows, weight):
    # each half of the buffer has waited for its own
    buffer = torch.empty_like(rows)
    buffer[:, :3] = rows[:, :3].exp().exp().exp()
    buffer[:, 3:] = rows[:, 3:]
    return buffer[:, 3:].exp()


def columns(rows, weight):
    # the same, of a slice that is not in one piece
    buffer = rows.new_zeros(rows.shape)
    buffer[..., :2] = rows[..., :2].exp().exp()
    buffer[..., 2:].copy_(rows[..., 2:])
    return buffer.mT[:, 2:].exp().exp()


def used_again(rows, weight):
    buffer = torch.empty(1, 6, 4)
    for _ in range(10):
        torch.exp(rows, out=buffer)
        buffer.mul_(2)
    return buffer.sum()


def grown(rows, weight):
    buffer = torch.empty(0)
    torch.exp(rows[:, :2], out=buffer)
    buffer.resize_(0)
    return torch.exp(rows, out=buffer).sin()


def walked(rows, weight):
    total = torch.zeros(1, 4)
    for row in rows.unbind(1):
        total = total + row
    return total


def walked_in_place(rows, weight):
    total = torch.zeros(1, 4)
    for row in rows.unbind(1):
        total += row
    return total


def wiped(rows, weight):
    buffer = rows.exp().exp().exp()
    buffer.zero_()
    return buffer.exp().exp().exp().exp() + rows


def shapes(rows, weight):
    deep = rows.exp().exp()
    return torch.zeros_like(deep).exp() + deep.new_full((1, 6, 4), 2.0).exp() + rows


def views(rows, weight):
    return rows.reshape(2, 12)[:1].unsqueeze(0).expand(3, 1, 12).mT.detach().exp()


def copied(rows, weight):
    # turned over, it cannot be read as one row without a copy
    return rows.mT.reshape(24).exp()


def turned_in_place(rows, weight):
    made = rows.exp()
    made.transpose_(1, 2).unsqueeze_(0)
    return made.sin()


def weights(rows, weight):
    deep = weight.exp().exp().exp().exp()
    return rows * torch.cat([deep[:2], deep[2:]])


def bits(rows, weight):
    # one memory read as numbers of another width
    return rows.exp().view(torch.int16)[..., :2].abs().abs()


def aside(rows, weight):
    # not part of the result, but something waits for it
    rows.exp().exp().exp()
    return rows.exp()


def forgotten(rows, weight):
    # what is made of nothing may lie where something deep has been
    for _ in range(50):
        rows.exp().exp().exp()
        torch.tensor([[1.0] * 4] * 6).exp()


def several(rows, weight):
    values, places = rows.exp().sort(-1)
    return torch.cat([values.sin().sin(), places.float()])


CHAINS = [
    (diamond, 5), (halves, 4), (columns, 3), (used_again, 3), (grown, 2), (walked, 6), (walked_in_place, 6), (wiped, 3),
    (shapes, 2), (views, 1), (copied, 2), (turned_in_place, 2), (weights, 1), (bits, 3), (aside, 3), (forgotten, 3),
    (several, 5),
]  # fmt: skip


@pytest.mark.parametrize(("function", "chain"), CHAINS, ids=[function.__name__ for function, _ in CHAINS])
def test_chains_by_hand(function, chain):
    assert find_chain(Call(function), ROWS) == chain


def test_nothing_is_no_step():
    assert find_chain(nn.Identity(), ROWS) == 0
    assert find_chain(Call(lambda rows, weight: weight.exp().exp()), ROWS) == 0


def test_the_rows_are_found_within_a_larger_memory():
    # only what the layer is given is the input
    whole = torch.ones(2, 6, 4)
    assert find_chain(Call(lambda rows, weight: (whole[1].exp().exp(), rows.exp())), whole[:1]) == 1


def test_the_layer_computes_what_it_computes():
    kept = []
    layer = KINDS["gru"].build(Dimensions(8))
    rows = torch.randn(1, 9, 8)
    find_chain(Call(lambda rows, weight: kept.append(layer(rows))), rows)
    assert torch.equal(kept[0], layer(rows))


# --- the layers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["conv", "attention", "linear"])
@pytest.mark.parametrize("kernel", [3, 5, 7])
def test_layers_without_recurrence_take_as_many_steps_for_any_length(name, kernel):
    for width in (8, 16, 32):
        layer = KINDS[name].build(Dimensions(width, kernel))
        chains = {find_chain(layer, torch.randn(1, n, width)) for n in (2, 3, 17, 64, 200)}
        assert len(chains) == 1
        if name == "conv":
            assert chains == {1}


@pytest.mark.parametrize("name", ["rnn", "gru"])
def test_recurrences_take_as_many_more_for_each_token(name):
    for width in (8, 16, 32):
        layer = KINDS[name].build(Dimensions(width))
        chains = [find_chain(layer, torch.randn(1, n, width)) for n in range(1, 12)]
        [step] = {later - sooner for sooner, later in itertools.pairwise(chains)}
        # at the least a product, a sum and tanh
        assert step >= 3


def test_a_window_takes_as_many_for_any_length_once_it_is_tiled():
    layer = KINDS["windowed"].build(Dimensions(8, window=16))
    short = {find_chain(layer, torch.randn(1, n, 8)) for n in (2, 17, 64)}
    tiled = {find_chain(layer, torch.randn(1, n, 8)) for n in (1024, 1500)}
    assert len(short) == len(tiled) == 1
    assert tiled != short


def test_what_is_measured_lies_on_lines_of_the_textbooks_order():
    told = []
    kinds = {name: kind for name, kind in KINDS.items() if name != "windowed"}
    found = measure_steps(Settings(widths=(8, 16, 32), is_quick=True), told.append, kinds)
    assert told[-1] == 1
    assert [fit["kind"] for fit in found["fits"]] == list(kinds)
    for fit in found["fits"]:
        assert fit["is_exact"]
        assert fit["order"] == fit["textbook"] == KINDS[fit["kind"]].textbook[1]
        mine = [row for row in found["rows"] if row["kind"] == fit["kind"]]
        assert len(mine) == (27 if fit["kind"] == "conv" else 9)
        assert all(row["chain"] == fit["per_token"] * row["n"] + fit["constant"] for row in mine)


def test_a_window_is_traced_from_where_all_others_are():
    kinds = {name: KINDS[name] for name in ("attention", "windowed")}
    found = measure_steps(Settings(widths=(8,), is_quick=True), lambda share: None, kinds)
    lengths = {name: [row["n"] for row in found["rows"] if row["kind"] == name] for name in kinds}
    assert lengths["windowed"][:3] == lengths["attention"]
    fit = next(fit for fit in found["fits"] if fit["kind"] == "windowed")
    assert fit["is_exact"]
    assert fit["from"] == lengths["windowed"][3] == 1024
    # the chain of the tiles, not that of the kernel before them
    chains = {row["n"]: row["chain"] for row in found["rows"] if row["kind"] == "windowed"}
    assert chains[1024] == fit["constant"] > chains[33]


def test_points_off_a_line_are_told():
    found = fit_line([(n, n * n) for n in (2, 4, 8, 16)])
    assert not found["is_exact"]
    assert found["order"] == "n^2.00"
    assert found["per_token"] == pytest.approx(stats.linregress([2, 4, 8, 16], [4, 16, 64, 256]).slope)
    # two answers at one length, as from two widths, are no line either
    assert not fit_line([(2, 3), (4, 3), (4, 4), (8, 3)])["is_exact"]
    assert fit_line([(4, 3), (4, 3)])["order"] == "1"
