"""Paths: what NaN reaches against derivatives, powers of one layer's map, and the formulas."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from regard import RegardError
from regard.compare.kinds import KINDS
from regard.compare.meters.sight import find_dependence, find_reach
from regard.compare.parts.paths import find_path, map_sight, measure_paths
from regard.compare.settings import Dimensions, Settings

SMALL = Settings(widths=(4, 8, 12), is_quick=True)


def differentiate(model, n, width):
    """The boolean Jacobian by autograd."""
    rows = torch.randn(1, n, width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    full = torch.autograd.functional.jacobian(model, rows)
    return full.reshape(n, width, n, width).abs().amax((1, 3)) != 0


def stack(kind, dims, layers):
    torch.manual_seed(0)
    return nn.Sequential(*(kind.build(dims).double() for _ in range(layers)))


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize(("n", "layers"), [(1, 1), (2, 1), (7, 1), (7, 2)])
def test_nan_reaches_what_has_a_derivative(name, n, layers):
    model = stack(KINDS[name], Dimensions(width=4, kernel=5, heads=2, window=4), layers)
    assert torch.equal(find_dependence(model, n, 4), differentiate(model, n, 4))


def test_nan_reaches_what_has_a_derivative_across_tiles():
    # long enough for a window to be cut into tiles; derivatives of a few outputs will do
    n, width = 600, 4
    model = stack(KINDS["windowed"], Dimensions(width=width, heads=1, window=4), 1)
    rows = torch.randn(1, n, width, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    for token in (0, 31, 32, 300, 599):
        (grad,) = torch.autograd.grad(model(rows)[0, token].sum(), rows)
        poisoned = rows.detach().clone()
        at = max(token - 2, 0)
        poisoned[:, at] = float("nan")
        with torch.no_grad():
            reached = model(poisoned)[0].isnan().any(-1).nonzero().flatten().tolist()
        assert reached == list(range(max(at - 2, 0), at + 3))
        assert grad[0].abs().amax(-1).nonzero().flatten().tolist() == list(range(at, min(token + 3, n)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_models_by_hand(dtype):
    eye = torch.eye(5, dtype=torch.bool)
    assert torch.equal(find_dependence(lambda rows: rows.tanh(), 5, 3, dtype=dtype), eye)
    assert torch.equal(find_dependence(lambda rows: rows.roll(1, 1), 5, 3, dtype=dtype), eye.roll(1, 0))
    assert torch.equal(find_dependence(lambda rows: rows.cumsum(1), 5, 3, dtype=dtype), torch.ones(5, 5).tril().bool())
    assert not find_dependence(torch.ones_like, 5, 3, dtype=dtype).any()
    # one feature is enough
    found = find_dependence(
        lambda rows: torch.cat([rows[..., :1].flip(1), torch.ones_like(rows)], -1), 5, 2, dtype=dtype
    )
    assert torch.equal(found, eye.flip(1))


def test_more_inputs_than_run_at_once():
    assert torch.equal(find_dependence(lambda rows: rows.cumsum(1), 70, 1), torch.ones(70, 70).tril().bool())


def test_influence_that_is_lost_to_rounding_is_seen():
    def fade(rows):
        return rows + rows.roll(1, 1) * 1e-200 * 1e-200

    assert torch.equal(differentiate(fade, 5, 2), torch.eye(5, dtype=torch.bool))
    assert torch.equal(find_dependence(fade, 5, 2), torch.eye(5).bool() | torch.eye(5).bool().roll(1, 0))


def test_a_model_with_nan_of_its_own_is_an_error():
    message = "model gives NaN for ordinary rows: what depends on what is read from NaN that is put in."
    for find in (find_dependence, find_reach):
        with pytest.raises(RegardError) as error:
            find(lambda rows: rows / 0 * 0, 3, 2)
        assert str(error.value) == message


# --- the reach --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("n", [1, 2, 9, 14])
def test_the_reach_is_the_last_row_of_the_map(name, n):
    model = stack(KINDS[name], Dimensions(width=4, kernel=5, heads=2, window=6), 2)
    last = find_dependence(model, n, 4)[-1]
    assert find_reach(model, n, 4) == n - 1 - int(last.nonzero()[0])


def test_the_reach_is_the_farthest_where_nearer_ones_are_left_out():
    assert find_reach(lambda rows: rows.roll(5, 1), 9, 2) == 5
    assert find_reach(lambda rows: rows + rows.roll(7, 1), 9, 2, dtype=torch.float32) == 7
    assert find_reach(lambda rows: rows.tanh(), 9, 2) == 0
    assert find_reach(torch.ones_like, 9, 2) is None


# --- the path ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("kernel", [3, 5, 7])
@pytest.mark.parametrize("width", [4, 8, 12])
def test_paths_are_the_formulas(name, kernel, width):
    dims = Dimensions(width, kernel, heads=2, window=2 * kernel)
    for n in (1, 2, 4, 8, 13, 22):
        assert find_path(KINDS[name], dims, n) == KINDS[name].path(dims, n)


class Backward(nn.Module):
    """Each token from the next one."""

    def forward(self, rows):
        return rows.roll(-1, 1)


class Forgetful(nn.Module):
    """Steps that keep nothing of those before."""

    def forward(self, rows):
        return rows

    def walk(self, rows):
        yield from rows.unbind(1)


@pytest.mark.parametrize("layer", [nn.Identity, nn.Tanh])
def test_layers_that_never_reach_have_no_path(layer):
    kind = replace(KINDS["conv"], build=lambda dims: layer())
    assert find_path(kind, Dimensions(4), 5) is None
    assert find_path(kind, Dimensions(4), 1) == 1


def test_a_path_may_be_any_way_round():
    # 0 → 4 around the end, at once
    assert find_path(replace(KINDS["conv"], build=lambda dims: Backward()), Dimensions(4), 5) == 1


def test_steps_that_forget_have_no_path():
    kind = replace(KINDS["rnn"], build=lambda dims: Forgetful())
    assert find_path(kind, Dimensions(4), 5) is None
    assert find_path(kind, Dimensions(4), 1) == 1


# --- all of it --------------------------------------------------------------------------------------------------------


def test_what_is_measured_is_all_there_and_as_the_formulas():
    told = []
    before = torch.get_rng_state()
    # attention over windows is slow where there is NaN, and tested above
    kinds = {name: kind for name, kind in KINDS.items() if name != "windowed"}
    found = measure_paths(SMALL, told.append, kinds)
    assert torch.equal(torch.get_rng_state(), before)
    assert told[-1] == 1
    assert len(found["rows"]) == 3 * 3 * (len(kinds) - 1 + 3)
    assert {row["k"] for row in found["rows"] if row["kind"] == "conv"} == {3, 5, 7}
    for row in found["rows"]:
        assert row["length"] == row["formula"]
        if row["kind"] == "conv":
            assert row["length"] == max(-(-(row["n"] - 1) // (row["k"] // 2)), 1)


@pytest.mark.parametrize(("name", "depths"), [("conv", [1, 2, 4]), ("windowed", [1, 2, 4]), ("linear", [1])])
def test_maps_are_bands_as_wide_as_their_layers_see(name, depths):
    # the window is wider than its picture has room for
    maps = map_sight(KINDS[name], Dimensions(kernel=5, window=32))
    assert [found["layers"] for found in maps] == depths
    for found in maps:
        far = {"conv": 2, "windowed": 4, "linear": 24}[name] * found["layers"]
        assert found["seen"] == ["".join(str(int(abs(i - j) <= far)) for j in range(24)) for i in range(24)]


def test_maps_do_not_depend_on_the_width():
    [shown] = map_sight(KINDS["gru"], Dimensions())
    wide = find_dependence(KINDS["gru"].build(Dimensions(16)).double(), 24, 16)
    assert shown["seen"] == ["".join(map(str, row)) for row in wide.int().tolist()]


def test_a_recurrence_that_cannot_walk_is_named():
    kind = replace(KINDS["rnn"], name="lstm", build=lambda dims: nn.Linear(dims.width, dims.width))
    with pytest.raises(RegardError) as error:
        find_path(kind, Dimensions(width=8), 3)
    assert str(error.value) == "kind 'lstm' is recurrent: its layer needs walk(rows), the state after each step."
