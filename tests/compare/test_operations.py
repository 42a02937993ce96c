"""Operations: torch's count against products counted by hand, and exponents against the textbooks'."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional

from regard import RegardError
from regard.compare.kinds import KINDS
from regard.compare.meters.sizes import list_windows
from regard.compare.parts import operations
from regard.compare.parts.operations import Count, count_operations, measure_operations
from regard.compare.settings import Dimensions, Settings

SMALL = Settings(widths=(16, 32, 64), is_quick=True)


@pytest.fixture(scope="module")
def measured():
    told = []
    with torch.random.fork_rng():
        before = torch.get_rng_state()
        found = measure_operations(SMALL, told.append)
        # what is drawn for the layers is nobody else's
        assert torch.equal(torch.get_rng_state(), before)
    assert told == sorted(told)
    assert told[-1] == 1
    return found


class Two(nn.Module):
    """A linear layer, and a product of all pairs."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 6))

    def forward(self, rows):
        made = self.inner(rows)
        return made @ made.mT


def test_a_linear_layer_is_told_from_products_of_tokens():
    assert count_operations(Two(), torch.ones(1, 5, 4)) == Count(2 * 5 * 4 * 6 + 2 * 5 * 6 * 5, 2 * 5 * 6 * 5)


def test_a_linear_layer_alone_mixes_nothing():
    assert count_operations(nn.Linear(4, 6), torch.ones(1, 5, 4)) == Count(2 * 5 * 4 * 6, 0)


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.mixing])
@pytest.mark.parametrize(("n", "width", "kernel"), [(7, 8, 3), (20, 12, 5), (50, 8, 7)])
def test_the_whole_is_what_the_formulas_add_up_to(name, n, width, kernel):
    # attention puts its projections into one product where rows are many: 20 and 50 against 3 · 8 are both sides of it
    kind, dims = KINDS[name], Dimensions(width, kernel)
    count = count_operations(kind.build(dims), torch.randn(1, n, width))
    assert count.mixing == kind.mixing(dims, n)
    assert count.whole == kind.mixing(dims, n) + kind.projecting(dims, n)


def test_a_window_meets_fewer_pairs_than_there_are_and_no_fewer_than_it_must():
    n, width = 1024, 16
    kind = KINDS["windowed"]
    count = count_operations(kind.build(Dimensions(width=width)), torch.randn(1, n, width))
    assert count.whole - count.mixing == kind.projecting(Dimensions(width=width), n)
    # of 33 keys a query, but for the 16 that are missing at each end
    needed = 4 * width * (33 * n - 16 * 17)
    assert needed < count.mixing < 2 * needed < 4 * width * n * n


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("axis", ["n", "d", "k"])
def test_exponents_are_the_textbooks(measured, name, axis):
    [fit] = [fit for fit in measured["fits"] if fit["kind"] == name and fit["of"] == "mixing"]
    powers = KINDS[name].powers
    assert fit["textbook"] == powers
    assert fit["exponents"].keys() == fit["intervals"].keys() == powers.keys()
    if axis in powers:
        assert fit["exponents"][axis] == pytest.approx(powers[axis], abs=0.02)
        if KINDS[name].mixing:
            assert fit["intervals"][axis] == [fit["exponents"][axis]] * 2


def test_the_whole_of_attention_is_between_its_two_laws(measured):
    [fit] = [fit for fit in measured["fits"] if fit["kind"] == "attention" and fit["of"] == "whole"]
    assert 1.1 < fit["exponents"]["n"] < 1.9
    assert 1.1 < fit["exponents"]["d"] < 1.9
    low, high = fit["intervals"]["n"]
    assert low < fit["exponents"]["n"] < high


def test_rows_have_every_size_once(measured):
    sizes = [(row["kind"], row["n"], row["d"], row["k"]) for row in measured["rows"]]
    assert len(sizes) == len(set(sizes)) == 3 * 3 * (len(KINDS) - 1 + 3) + 3 * 2
    assert {row["k"] for row in measured["rows"] if row["kind"] == "conv"} == {3, 5, 7}
    assert {row["k"] for row in measured["rows"] if row["kind"] != "conv"} == {None}
    for row in measured["rows"]:
        assert row["formula"] == (None if row["kind"] == "windowed" else row["mixing"])


def test_a_window_is_counted_from_where_all_others_are(measured):
    counts = {(row["kind"], row["n"], row["d"]): row["mixing"] for row in measured["rows"] if row["k"] in (None, 3)}
    lengths = {kind: sorted({n for name, n, _ in counts if name == kind}) for kind in KINDS}
    assert lengths["windowed"][: len(lengths["attention"])] == lengths["attention"] == lengths["conv"]
    # uncut, it meets all pairs; what has another law has no part in its power
    assert all(counts["windowed", n, d] == counts["attention", n, d] for n in (32, 128) for d in SMALL.widths)
    assert all(counts["windowed", 1024, d] < counts["attention", 1024, d] / 8 for d in SMALL.widths)
    starts = {fit["kind"]: fit["from"] for fit in measured["fits"]}
    assert starts == {**dict.fromkeys(KINDS, 32), "windowed": 1024}


def test_one_width_has_no_exponent():
    found = measure_operations(replace(SMALL, widths=(16,)), lambda share: None, {"rnn": KINDS["rnn"]})
    assert list(found["fits"][0]["exponents"]) == ["n"]


# --- what the counter does not know -----------------------------------------------------------------------------------


def test_a_kernel_without_a_formula_is_an_error(monkeypatch):
    # so it was before: torch's counter passes over the kernel of attention
    monkeypatch.setattr(operations, "MISSING", {})
    with pytest.raises(RegardError) as error:
        count_operations(KINDS["attention"].build(Dimensions(8)), torch.ones(1, 5, 8))
    name = "_scaled_dot_product_flash_attention_for_cpu"
    told = f"count_operations does not know what {name} costs: torch's flop counter has no formula."
    assert str(error.value) == told


class Pointwise(nn.Module):
    """Operators with no product in them, by names that come near."""

    def forward(self, rows):
        return rows.cumsum(1).cummax(1).values.aminmax().max * rows.amax() + rows.view_as(rows).conj()


def test_what_is_no_product_costs_nothing():
    assert count_operations(Pointwise(), torch.ones(1, 5, 8)) == Count(0, 0)


class Dotted(nn.Module):
    def forward(self, rows):
        return torch.dot(rows[0, 0], rows[0, 1])


def test_other_products_without_a_formula_are_errors_too():
    with pytest.raises(RegardError, match=r"^count_operations does not know what dot costs"):
        count_operations(Dotted(), torch.ones(1, 2, 8))


class Aside(nn.Module):
    """A linear layer whose weight is used without calling it."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, rows):
        return functional.linear(rows, self.inner.weight)


def test_a_linear_layer_that_is_not_called_is_an_error():
    with pytest.raises(RegardError) as error:
        count_operations(Aside(), torch.ones(1, 2, 4))
    assert str(error.value) == "count_operations cannot tell the products of Aside.inner apart: call it as a module."


def test_a_kind_without_products_is_named():
    kind = replace(KINDS["conv"], name="sum", build=lambda dims: nn.Tanh())
    with pytest.raises(RegardError) as error:
        measure_operations(Settings(widths=(8, 16, 24)).quicken(), lambda share: None, {"sum": kind})
    assert str(error.value) == (
        "kind 'sum' has no products that torch counts, and no power to fit: leave operations out."
    )


@pytest.mark.parametrize("times", operations.WINDOWS.values())
@pytest.mark.parametrize("window", [2, 32, 100, 2048, 10**6])
def test_windows_are_counted_at_several_lengths_and_none_that_takes_forever(window, times):
    lengths = list_windows(window, times)
    assert len(lengths) >= 3
    assert 2 <= min(lengths) < max(lengths) <= 16_384
    if window <= 32:
        assert min(lengths) >= 1024
