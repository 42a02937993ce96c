"""The arithmetic of time and memory on made-up costs; a small real run for what no machine can change."""

import json

import pytest
import torch

from regard.compare.kinds import KINDS, count_parameters
from regard.compare.meters import cost
from regard.compare.meters.cost import extrapolate, list_fits, measure_cost
from regard.compare.settings import Dimensions, Settings
from tests.compare.sample import ignore

LENGTHS = (32, 64, 128, 256, 512, 1024)
DIMS = Dimensions(width=16, kernel=3, heads=2, window=8)


def pretend(monkeypatch, seconds, size=lambda name, n: 100 * n) -> list[tuple[str, tuple[int, ...], str]]:
    """Costs by formulas of the name and n; what was run is listed."""
    ran = []
    monkeypatch.setattr(cost, "_prepare", lambda layer, shape, which, device: (layer, shape, which))
    monkeypatch.setattr(cost, "_build", lambda kind, shape, device: kind.name)
    monkeypatch.setattr(cost, "find_peak", lambda call, device: size(call[0], call[1][1]))
    monkeypatch.setattr(cost, "find_free", lambda device: 2**30)

    def time_them(calls, device, budget):
        ran.extend(calls.values())
        spent = {name: seconds(name, shape[1]) for name, (_, shape, _) in calls.items()}
        shares = {"seconds": 1, "low": 0.9, "high": 1.1, "fastest": 0.8}
        return {name: {**{key: x * share for key, share in shares.items()}, "rounds": 3} for name, x in spent.items()}

    monkeypatch.setattr(cost, "time_calls", time_them)
    return ran


def test_rows_fits_and_crossings_follow_from_the_costs(monkeypatch):
    def spend(name: str, n: int) -> float:
        return 1e-8 * n**2 if name == "attention" else 3e-6 * n

    ran = pretend(monkeypatch, spend)
    told = []
    found = measure_cost(Settings(lengths=LENGTHS, batches=(1, 4)), told.append)
    assert len(ran) == len(found["rows"]) == len(KINDS) * len(LENGTHS) * 2 * 2
    assert found["skipped"] == []
    assert [row["kind"] for row in found["rows"]] == sorted((x[0] for x in ran), key=list(KINDS).index)
    assert ("gru", (4, 512, 64), "training") in ran
    row = next(row for row in found["rows"] if (row["kind"], row["n"], row["batch"]) == ("attention", 128, 4))
    assert row["low"] < row["seconds"] == spend("attention", 128) < row["high"]
    assert (row["pass"], row["bytes"]) == ("forward", 12800)
    assert len(found["fits"]) == len(KINDS) * 2 * 2 * 2
    for fit in found["fits"]:
        power = 2 if fit["kind"] == "attention" and fit["of"] == "seconds" else 1
        assert fit["exponent"] == pytest.approx(power)
        assert fit["interval"] == pytest.approx([power, power])
        assert (fit["from"], fit["to"]) == (256, 1024)
    crossings = [row for row in found["crossings"] if row["of"] == "seconds"]
    assert len(crossings) == (len(KINDS) - 1) * 2 * 2
    assert all(row["spans"] == [[None, pytest.approx(300)]] for row in crossings)
    assert all(lead["spans"] == [[None, pytest.approx(300)]] for lead in found["leads"] if lead["of"] == "seconds")
    assert told[0] == 0
    assert told[-1] == 1
    assert told == sorted(told)
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_what_would_take_too_long_is_skipped_with_the_reason(monkeypatch):
    pretend(monkeypatch, lambda name, n: 1e-4 * n**2 if name == "attention" else 1e-6 * n)
    found = measure_cost(Settings(lengths=LENGTHS, batches=(1,)), ignore)
    skipped = [row for row in found["skipped"] if row["pass"] == "forward"]
    # 1,024 would be 105 s, four times what 512 took; 26 s are below the limit
    assert [(row["kind"], row["n"], row["batch"]) for row in skipped] == [("attention", 1024, 1)]
    assert skipped[0]["why"] == "a call would take about 84 s, and the limit is 30 s"
    assert not [row for row in found["rows"] if (row["kind"], row["n"]) == ("attention", 1024)]
    # the fit is over the upper half of what there is
    fit = next(fit for fit in found["fits"] if (fit["kind"], fit["pass"]) == ("attention", "forward"))
    assert (fit["from"], fit["to"]) == (128, 512)


def test_once_skipped_all_longer_ones_are(monkeypatch):
    pretend(monkeypatch, lambda name, n: 1e-5 * n**2 if name == "attention" else 1e-7 * n)
    found = measure_cost(Settings(lengths=LENGTHS, batches=(1,), is_quick=True), ignore)
    skipped = [row["n"] for row in found["skipped"] if row["pass"] == "training"]
    assert skipped == [n for n in LENGTHS if 0.8e-5 * n**2 > cost.QUICK_LIMIT]
    assert {row["kind"] for row in found["skipped"]} == {"attention"}


def test_noise_does_not_look_like_growth(monkeypatch):
    # sixteen times as long for twice the length, but the fastest was not: the machine was busy
    pretend(monkeypatch, lambda name, n: 1e-6 * n)
    quiet = cost.time_calls

    def disturb(calls, device, budget):
        found = quiet(calls, device, budget)
        return {name: {**x, "seconds": 16 * x["seconds"], "high": 99.0} for name, x in found.items()}

    monkeypatch.setattr(cost, "time_calls", disturb)
    found = measure_cost(Settings(lengths=LENGTHS, batches=(1,), is_quick=True), ignore)
    assert found["skipped"] == []


def test_what_would_not_fit_in_memory_is_skipped_with_the_reason(monkeypatch):
    pretend(monkeypatch, lambda name, n: 1e-6 * n, lambda name, n: n * (2**20 if name == "linear" else 1))
    found = measure_cost(Settings(lengths=LENGTHS, batches=(1,)), ignore)
    assert [(row["kind"], row["n"], row["pass"]) for row in found["skipped"]] == [
        ("linear", 1024, "forward"),
        ("linear", 1024, "training"),
    ]
    assert found["skipped"][0]["why"] == "a call would take about 1 GiB, and 1 GiB are free"


@pytest.mark.parametrize(
    "problem",
    [
        torch.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."),
    ],
    ids=["cuda", "cpu"],
)
def test_what_did_not_fit_in_memory_is_skipped_too(monkeypatch, problem):
    def weigh(name: str, n: int) -> int:
        if name == "linear" and n == 64:
            raise problem
        return n

    pretend(monkeypatch, lambda name, n: 1e-6 * n, weigh)
    found = measure_cost(Settings(lengths=(32, 64, 128), batches=(1,)), ignore)
    assert {(row["kind"], row["n"], row["why"]) for row in found["skipped"]} == {
        ("linear", 64, "there was not enough memory")
    }


def test_what_is_wrong_otherwise_is_not_hidden(monkeypatch):
    def weigh(name: str, n: int) -> int:
        raise RuntimeError("shapes do not fit")

    pretend(monkeypatch, lambda name, n: 1e-6 * n, weigh)
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        measure_cost(Settings(lengths=(32, 64, 128)), ignore)


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("constant", [0.0, 5.0])
def test_expectations_are_met_by_what_grows_as_expected(power, constant):
    lengths = (8, 16, 64)
    values = [constant + 3 * n**power for n in lengths]
    assert extrapolate(lengths, values, 200, power) == pytest.approx(constant + 3 * 200**power)


def test_expectations_where_little_is_known():
    assert extrapolate([], [], 8, 1) is None
    assert extrapolate([4], [3.0], 8, 2) == pytest.approx(12)
    # nothing gets cheaper with the length
    assert extrapolate([2, 4], [9.0, 8.0], 8, 1) == pytest.approx(8)


def test_fits_need_three_points():
    rows = [{"kind": "gru", "batch": 1, "pass": "forward", "n": n, "seconds": 1.0 * n, "bytes": n} for n in (8, 16)]
    assert list_fits(rows) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_pass_is_the_whole_pass(kind):
    layer = cost._build(KINDS[kind], DIMS, torch.device("cpu"))
    torch.manual_seed(1)
    found = cost._prepare(layer, (2, 11, 16), "training", torch.device("cpu"))()
    torch.manual_seed(1)
    rows = torch.randn(2, 11, 16, requires_grad=True)
    layer(rows).sum().backward()
    assert layer.training
    for mine, theirs in zip(found, [rows.grad, *(weight.grad for weight in layer.parameters())], strict=True):
        torch.testing.assert_close(mine, theirs)
    out = cost._prepare(layer, (2, 11, 16), "forward", torch.device("cpu"))()
    assert out.shape == (2, 11, 16)
    assert not out.requires_grad
    # cuDNN keeps what the way back needs of a recurrence that trains
    assert not layer.training


def test_attention_keeps_nothing_for_a_look():
    layer = cost._build(KINDS["attention"], DIMS, torch.device("cpu"))
    layer(torch.randn(1, 5, 16))
    assert layer.attention_weights is None


@pytest.fixture(scope="module")
def small():
    state = torch.get_rng_state()
    found = measure_cost(Settings(dims=DIMS, lengths=(16, 32, 64), batches=(1, 3), is_quick=True), ignore)
    assert torch.equal(torch.get_rng_state(), state)
    return found


def test_a_real_run_has_all_it_promises(small):
    assert json.loads(json.dumps(small, allow_nan=False)) == small
    assert small["device"]
    assert small["threads"] == torch.get_num_threads()
    assert small["widths"] == dict.fromkeys(KINDS, 16)
    assert small["parameters"] == {name: count_parameters(kind, DIMS) for name, kind in KINDS.items()}
    keys = {"kind", "n", "batch", "pass", "seconds", "low", "high", "fastest", "rounds", "bytes"}
    assert all(set(row) == keys for row in small["rows"])
    assert all(0 < row["fastest"] <= row["low"] <= row["seconds"] <= row["high"] for row in small["rows"])
    measured = {(row["kind"], row["n"], row["batch"], row["pass"]) for row in (*small["rows"], *small["skipped"])}
    assert len(measured) == len(KINDS) * 3 * 2 * 2


def test_bytes_are_what_the_tensors_of_a_pass_hold(small):
    found = {(row["kind"], row["n"], row["batch"], row["pass"]): row["bytes"] for row in small["rows"]}
    for batch in (1, 3):
        for n in (16, 32, 64):
            rows = 4 * batch * n * 16
            # the output alone
            assert found["conv", n, batch, "forward"] == rows
            # queries, keys, values as one, the mixed heads and the output
            assert found["attention", n, batch, "forward"] == 5 * rows
        assert found["gru", 64, batch, "training"] > found["gru", 64, batch, "forward"]


def test_equal_parameters_have_widths_of_their_own():
    settings = Settings(dims=DIMS, lengths=(4, 8, 16), batches=(1,), has_equal_parameters=True, is_quick=True)
    found = measure_cost(settings, ignore, {name: KINDS[name] for name in ("gru", "attention")})
    assert found["widths"]["attention"] == 16
    assert found["widths"]["gru"] < 16
    wanted = found["parameters"]["attention"]
    assert wanted == count_parameters(KINDS["attention"], DIMS)
    assert abs(found["parameters"]["gru"] - wanted) < 0.3 * wanted
    assert {row["kind"] for row in found["rows"]} == {"gru", "attention"}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_cuda():
    settings = Settings(dims=DIMS, lengths=(64, 128, 256), batches=(1,), device="cuda", is_quick=True)
    found = measure_cost(settings, ignore)
    assert found["device"] == torch.cuda.get_device_name()
    assert len(found["rows"]) + len(found["skipped"]) == len(KINDS) * 3 * 2
    assert all(row["bytes"] > 0 for row in found["rows"])


def test_long_lengths_alone_are_foreseen_by_a_short_one(monkeypatch):
    monkeypatch.setattr(cost, "PROBE", 8)
    monkeypatch.setattr(cost, "QUICK_LIMIT", 0.0)
    settings = Settings(lengths=(64, 128, 256), batches=(1,), is_quick=True)
    found = measure_cost(settings, lambda share: None, {"conv": KINDS["conv"]})
    # nothing of what was asked for is run, and the probe is not in the way
    assert found["rows"] == found["fits"] == []
    assert [(row["n"], row["pass"]) for row in found["skipped"]] == [
        (n, which) for which in ("forward", "training") for n in (64, 128, 256)
    ]
