"""The fuzz itself under test: a blind harness passes everything (cubecl#1070: a NaN reference was accepted, N19)."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
import torch

from regard import RegardError
from tests.fuzz import draw, oracle, pairs, settings
from tests.fuzz import examine as examination
from tests.fuzz import kinds as kinds_of
from tests.fuzz.data import make_case
from tests.fuzz.examine import call, examine
from tests.fuzz.judge import GRADIENT, Noise, evaluate, find_ill_posed, judge


def eager_and_reference(scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """A float32 softmax of 300 rows, and the same in float64."""
    scores = torch.randn(300, 40, generator=torch.Generator().manual_seed(1)) * 3
    value = torch.randn(40, 5, generator=torch.Generator().manual_seed(2)) * scale
    return torch.softmax(scores, -1) @ value, torch.softmax(scores.double(), -1) @ value.double()


def test_eager_itself_is_good():
    eager, reference = eager_and_reference()
    verdict = judge("output", eager, reference, [eager], 2.0)
    assert verdict.is_good
    assert 0 < verdict.worst <= 1


@pytest.mark.parametrize("factor", [4.0, 100.0, 1e6])
def test_a_larger_error_is_seen_in_the_one_number_that_has_it(factor):
    eager, reference = eager_and_reference()
    worse = eager.clone()
    worse[17, 3] += factor * (eager.double() - reference).abs().max().item()
    assert not judge("output", worse, reference, [eager], 2.0).is_good


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_nan_and_inf_in_the_answer_are_seen(poison):
    eager, reference = eager_and_reference()
    worse = eager.clone()
    worse[0, 0] = poison
    assert not judge("output", worse, reference, [eager], 2.0).is_good


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_a_reference_that_is_not_finite_tests_nothing_and_says_so(poison):
    eager, reference = eager_and_reference()
    reference[5] = poison
    verdict = judge("output", eager, reference, [eager], 2.0)
    assert not verdict.is_good
    assert "nothing was tested" in str(verdict)
    # not even where the answer agrees
    assert not judge("output", torch.full_like(eager, poison), torch.full_like(reference, poison), [eager], 2.0).is_good


def test_an_eager_that_fails_excuses_nothing():
    eager, reference = eager_and_reference()
    verdict = judge("output", eager, reference, [torch.full_like(eager, math.nan)], 2.0)
    assert not verdict.is_good


def test_a_missing_axis_is_seen():
    eager, reference = eager_and_reference()
    assert not judge("output", eager[:-1], reference, [eager], 2.0).is_good


def test_a_row_of_small_numbers_is_held_to_its_own_size():
    eager, reference = eager_and_reference()
    scale = torch.ones(300, 1)
    scale[17] = 1e-8
    eager, reference = eager * scale, reference * scale.double()
    worse = eager.clone()
    assert judge("output", worse, reference, [eager], 2.0).is_good
    worse[17] = 0
    verdict = judge("output", worse, reference, [eager], 2.0)
    # the largest error is one of another row
    assert verdict.worst <= 1
    assert not verdict.is_good


def test_zeros_are_no_answer_to_tiny_numbers():
    # flash-attention's floor alone would let them pass: (ref + 0.3) − 0.3 is zero here
    eager, reference = eager_and_reference(scale=1e-12)
    assert judge("output", eager, reference, [eager], 2.0).is_good
    assert not judge("output", torch.zeros_like(eager), reference, [eager], 2.0).is_good


def test_half_precision_computed_in_half_precision_is_seen(monkeypatch):
    from regard.engine.call import Call

    assert not catches(lambda d: d.dtype == "bfloat16" and d.score == "dot" and d.family == "normal")
    monkeypatch.setattr(Call, "compute_dtype", property(lambda self: self.sizes.dtype))
    assert catches(lambda d: d.dtype == "bfloat16" and d.score == "dot" and d.family == "normal")


def catches(wanted, most: int = 8) -> bool:
    """Whether one of the first draws that fit shows a fault."""
    fitting = itertools.islice((d for d in draw.draw_all(calls=2000) if wanted(d) and 0 not in d.sizes), most)
    return any(not verdict.is_good for d in fitting for _, verdict in examine(d))


def test_noise_moves_numbers_and_gradients_by_half_a_unit():
    x = torch.ones(10_000, dtype=torch.float64, requires_grad=True)
    y = Noise(torch.float32, seed=0)(x)
    (grad,) = torch.autograd.grad(y.sum(), x)
    for moved in (y.detach() - 1, grad - 1):
        assert 0.99 * 2**-24 < moved.abs().max() <= 2**-24
        assert abs(moved.mean()) < 2**-28


def test_disturbed_answers_are_answers():
    """Rounding at random may not make of a call what no rounding makes: whoever is measured by that passes always."""
    # the user's function has kinks that nothing marks
    tame = (d for d in draw.draw_all(calls=2000) if d.family in ("normal", "uniform") and d.score != "callable")
    cases = (make_case(d) for d in tame if d.weigh not in ("sum", "hard", "hard sample"))
    # a row that sees nothing is where every weight is zero, and so is their sum
    for case in itertools.islice((c for c in cases if (~c.allowed.any(-1)).any()), 40):
        case.grad = case.grad.masked_fill(find_ill_posed(case).view(*case.grad.shape[:-1], 1), 0.0)
        exact = evaluate(case, torch.float64)
        for seed in range(2):
            for at, x in evaluate(case, torch.float64, Noise(torch.float32, seed)).items():
                size = exact[at].abs().max().clamp(min=1.0) if x.numel() else 1.0
                assert ((x - exact[at]).abs() <= 1e-3 * size).all(), case.draw


# a sum of signed scores may be near zero, where differences say little
SMOOTH = [
    d
    for d in draw.draw_all(calls=2000)
    if d.family in ("normal", "uniform") and 0 < math.prod(d.sizes) < 300 and (d.weigh != "sum" or d.score == "feature")
]


@pytest.mark.parametrize("drawn", SMOOTH[:60], ids=lambda d: f"{d.score}-{d.weigh}-{d.bias}")
def test_the_oracles_gradients_are_its_differences(drawn):
    """The reference's derivatives against central differences along a random direction."""
    case = make_case(drawn)
    case.grad = case.grad.masked_fill(find_ill_posed(case).view(*case.grad.shape[:-1], 1), 0.0)
    answer = evaluate(case, torch.float64)
    noise = torch.Generator().manual_seed(3)
    leaves, step = case.leaves, 1e-5
    along = {at: torch.randn(leaves[at].shape, generator=noise, dtype=torch.float64) for at in case.learned}
    sides = []
    for sign in (1, -1):
        case.leaves = {at: x + sign * step * along[at] if at in along else x for at, x in leaves.items()}
        sides.append((evaluate(case, torch.float64)["output"] * case.grad).sum().item())
    wanted = (sides[0] - sides[1]) / (2 * step)
    got = sum((answer[at] * along[at]).sum().item() for at in along)
    size = sum((answer[at] * along[at]).abs().sum().item() for at in along)
    assert abs(got - wanted) <= 1e-5 * (1 + size)


def test_calls_of_one_kind_are_alike_to_a_compiler():
    kinds, shards = 3, 4
    for first in range(kinds):
        calls = [kinds_of.draw_call(7, 2 + shards * (first + kinds * at), kinds, shards) for at in range(30)]
        assert len({replace(c, n=0, m=0, family="", budget=0, seed=0) for c in calls}) == 1
        cases = [make_case(c) for c in calls]
        for at in ("h", "g", "d", "c", "e", "dtype", "repeats", "facts"):
            if at == "facts":
                floats = [{k: v for k, v in c.facts.items() if isinstance(v, float)} for c in cases]
                assert len({str(x) for x in floats}) == 1
            else:
                assert len({str(getattr(c, at)) for c in cases}) == 1
        assert len({(c.n % 16, c.m % 16) for c in cases}) == 1
        if min(cases[0].n, cases[0].m) > 128:
            assert len({(c.n, c.m) for c in cases}) > 9


def test_kinds_bring_names_together():
    kinds = kinds_of.draw_kinds(7, 160)
    met = {(k.score, k.weigh) for k in kinds}
    every = set(itertools.product(kinds_of.list_names("score"), kinds_of.list_names("weigh")))
    assert len(every & met) > 0.75 * len(every)
    for axis in kinds_of.FIXED:
        assert {getattr(k, axis) for k in kinds} == set(kinds_of.list_names(axis))


def test_a_number_means_one_call(monkeypatch):
    assert draw.draw_one(123) == draw.draw_all(calls=2000)[123]
    monkeypatch.setattr(settings, "KINDS", 5)
    seen = []
    for at in range(8):
        monkeypatch.setattr(settings, "SHARD", (at, 8))
        seen += [number for index in range(draw.PARTS) for number, _ in draw.part(index)]
    assert sorted(seen) == list(range(draw.CALLS))
    monkeypatch.setattr(settings, "SHARD", (3, 8))
    assert draw.draw_one(123) == kinds_of.draw_call(draw.SEED, 123, 5, 8)


@pytest.mark.parametrize("text", ["0/8", "9/8"])
def test_shards_are_counted_from_one(text):
    with pytest.raises(ValueError, match="goes from 1/8 to 8/8"):
        settings.read_shard(text)


def test_only_a_known_refusal_is_none(monkeypatch):
    drawn = next(d for d in draw.draw_all(calls=2000) if d.score == "dot" and d.bias == "none" and 0 not in d.sizes)

    def refuse(*args, **options):
        raise RegardError("no")

    monkeypatch.setattr(examination, "attend", refuse)
    case = make_case(replace(drawn, dtype="float32"))
    assert call(case, "sdpa") is None
    for backend in ("fused", "tiled", "auto", "reference"):
        with pytest.raises(RegardError):
            call(case, backend)
    for known in ({"dtype": "float64"}, {"dtype": "float32", "weigh": "entmax 3"}):
        assert call(make_case(replace(drawn, **known)), "fused") is None


def test_the_oracles_entmax_is_the_published_one():
    entmax = pytest.importorskip("entmax")
    scores = torch.randn(1, 1, 50, 20, generator=torch.Generator().manual_seed(4), dtype=torch.float64) * 2
    allowed = torch.ones_like(scores, dtype=torch.bool)
    for alpha, theirs in ((2.0, entmax.sparsemax(scores)), (1.5, entmax.entmax15(scores))):
        ours = oracle._entmax(scores, allowed, alpha, oracle.exactly)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
        assert (ours == 0).any()


def test_the_oracles_bits_are_even():
    numbers = pairs.write_uniform(seed=3, shape=(2, 3, 40, 50), salt=0)
    assert numbers.unique().numel() > 0.999 * numbers.numel()
    assert abs(numbers.mean() - 0.5) < 0.01
    assert 0 < numbers.min() < 1e-3
    assert 1 - 1e-3 < numbers.max() < 1


def test_masks_written_by_hand():
    causal = pairs.write_mask(("diagonal", None, 0, None), 1, 1, 2, 3)[0, 0]
    assert causal.tolist() == [[True, True, False], [True, True, True]]
    window = pairs.write_mask(("diagonal", 1, 0, [0, 2]), 2, 1, 2, 4)[:, 0]
    assert window.int().tolist() == [[[1, 0, 0, 0], [1, 1, 0, 0]], [[0, 1, 1, 0], [0, 0, 1, 1]]]
    grid = pairs.write_mask(("grid", 3, (1, 0)), 1, 1, 6, 6)[0, 0]
    assert grid[4].int().tolist() == [0, 1, 0, 0, 1, 0]


def test_a_call_is_the_same_call_each_time():
    drawn = next(d for d in draw.draw_all() if d.dropout and d.weigh == "softmax" and 0 not in d.sizes)
    one, two = (call(make_case(drawn), "tiled") for _ in range(2))
    assert one.keys() == two.keys()
    assert all(torch.equal(one[at], two[at]) for at in one)
    assert GRADIENT > 2
