"""What `explain` says, that it is true, and that saying it runs nothing."""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from regard import attend, explain
from regard.bias import Alibi, Dense
from regard.engine.plan import BACKENDS
from regard.mask import Causal, Lengths, Window
from regard.score import Additive, Dot, Gaussian
from regard.weigh import Entmax, Hard, Sigmoid, Softmax

ROWS = torch.zeros(1, 8, 1024, 64)

EDGES = "  not edges: its mask must be Edges, or Edges & others."
FUSED = "  not fused: its kernels run on CUDA devices, not on cpu."
COMPILED = "  not compiled: it compiles on its first call, which takes a while: only by backend='compiled'."
REFERENCE = "  not reference: it holds n×m scores: only by backend='reference'."


@pytest.fixture(autouse=True)
def _everywhere_alike(monkeypatch):
    # the texts must not depend on the machine, nor on Triton's interpreter, which is for tests
    monkeypatch.setattr("regard.engine.backends.fused._is_interpreted", lambda: False)
    monkeypatch.setattr("regard.engine.backends.compiled.has_compiler", lambda: True)


def say(*lines):
    return "\n".join(lines)


def test_a_plain_call():
    assert str(explain(ROWS, ROWS, ROWS)) == say(
        "1 × 8 heads × 1024 queries × 1024 keys, widths 64, 64, 64, float32 on cpu",
        "score Dot() · weigh Softmax() · mask Full()",
        "backend sdpa: about 2.15 Gflop, 8.0 MiB in and out, 32.0 KiB extra memory at the peak",
        EDGES,
        FUSED,
        "  not tiled: sdpa comes first.",
        COMPILED,
        REFERENCE,
    )


def test_every_term_is_named():
    mask = Causal() & Lengths(torch.tensor([1000]))
    plan = explain(ROWS, ROWS, ROWS, score=Additive(torch.zeros(64)), mask=mask, bias=Alibi(), dropout=0.1)
    first, second, third, *rest = str(plan).splitlines()
    assert first == "1 × 8 heads × 1024 queries × 1024 keys, widths 64, 64, 64, float32 on cpu"
    assert second == (
        "score Additive(weight=float32[64]) · weigh Softmax()"
        " · mask (Causal(offset=0) & Lengths(lengths=int64[1, 1, 1, 1]))"
        " · bias Alibi(slopes=float64[8], offset=0) · dropout 0.1"
    )
    assert third.startswith("backend tiled: about ")
    assert rest == [EDGES, "  not sdpa: Additive is not a dot product.", FUSED, COMPILED, REFERENCE]


def test_grouped_heads_and_no_heads():
    grouped = explain(ROWS, ROWS[:, :2], ROWS[:, :2, :, :32], weigh=Entmax())
    assert str(grouped).startswith("1 × 8 heads on 2 × 1024 queries × 1024 keys, widths 64, 64, 32, float32 on cpu\n")
    rows = torch.zeros(3, 7, 3, dtype=torch.bfloat16)
    plain = explain(rows[:, :5], rows, rows, weigh=Hard("sample"))
    assert str(plain).startswith("3 × 5 queries × 7 keys, widths 3, 3, 3, bfloat16 on cpu\n")


@pytest.mark.parametrize(
    ("terms", "why"),
    [
        ({"score": Dot(cap=3.0)}, "Dot is not a dot product."),
        ({"weigh": Sigmoid()}, "Sigmoid is not softmax."),
        ({"weigh": Softmax(torch.zeros(8))}, "torch's kernels have no sink."),
        ({"dropout": 0.2}, "torch draws other random bits for dropout than the other backends."),
        ({"bias": torch.zeros(8, 1, 1, requires_grad=True)}, "torch computes the gradient of a bias by n×m."),
        ({"bias": Dense(torch.zeros(1, 8, 1024, 1024))}, "torch needs mask and bias written out, 40.0 MiB."),
        ({"mask": Window(16, 16)}, "torch computes all 1024 keys of a row, the mask leaves about 33."),
    ],
    ids=lambda x: x if isinstance(x, str) else None,
)
def test_a_refusal_is_told(terms, why):
    plan = explain(ROWS, ROWS, ROWS, **terms)
    assert plan.backend == "tiled"
    assert plan.refusals["sdpa"] == why
    assert f"  not sdpa: {why}" in str(plan).splitlines()


@pytest.mark.parametrize("mask", [Causal() & Lengths(torch.tensor([9] * 4)), Lengths(torch.tensor([9] * 4)) & Causal()])
def test_a_composed_mask_is_counted_whole(mask):
    # the first rows and keys are all allowed by one part: the whole is written out all the same
    query, key = torch.zeros(4, 1, 2048, 8), torch.zeros(4, 1, 4096, 8)
    assert explain(query, key, key, mask=mask).refusals["sdpa"] == "torch needs mask and bias written out, 160.0 MiB."


def test_what_a_term_learns_counts_as_a_gradient():
    weight = torch.ones(64, requires_grad=True)
    fixed, learned = (explain(ROWS, ROWS, ROWS, score=Additive(w)).cost for w in (weight.detach(), weight))
    assert learned.operations > fixed.operations
    assert learned.peak > fixed.peak


def test_a_missing_compiler_is_told(monkeypatch):
    monkeypatch.setattr("regard.engine.backends.compiled.has_compiler", lambda: False)
    why = "torch.compile needs a C++ compiler (g++ or clang++) on the PATH."
    assert explain(ROWS, ROWS, ROWS).refusals["compiled"] == why


@pytest.mark.parametrize("backend", ["sdpa", "tiled", "compiled", "reference"])
def test_a_named_backend_is_taken(backend):
    plan = explain(ROWS, ROWS, ROWS, backend=backend)
    assert plan.backend == backend
    assert set(plan.refusals) == set(BACKENDS) - {backend}
    if backend != "sdpa":
        # it was asked for by name: nothing came first
        assert "comes first" not in str(plan)


def test_it_is_what_attend_does(monkeypatch):
    taken = []
    for name, module in BACKENDS.items():
        monkeypatch.setattr(
            module, "run", lambda call, q, k, v, again=None, name=name: taken.append(name) or v.new_zeros(q.shape)
        )
    calls = [{}, {"weigh": Sigmoid()}, {"mask": Causal()}, {"backend": "reference"}, {"mask": Window(16, 16)}]
    for terms in calls:
        attend(ROWS, ROWS, ROWS, **terms)
        assert explain(ROWS, ROWS, ROWS, **terms).backend == taken.pop()


# --- nothing is run --------------------------------------------------------------------------------------------------


def test_nothing_is_run(monkeypatch):
    def fail(*args):
        raise AssertionError("explain ran something")

    for module in BACKENDS.values():
        monkeypatch.setattr(module, "run", fail)
    str(explain(ROWS, ROWS, ROWS, score=fail, weigh=Sigmoid(), mask=Causal(), bias=Alibi()))
    str(explain(ROWS, ROWS, ROWS, mask=Causal(), bias=Alibi()))


def test_no_random_number_is_drawn():
    generator = torch.Generator().manual_seed(1)
    before, own = torch.get_rng_state(), generator.get_state()
    str(explain(ROWS, ROWS, ROWS, weigh=Hard("sample", generator=generator), dropout=0.5))
    str(explain(ROWS, ROWS, ROWS, weigh=Hard("sample"), dropout=0.5))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(generator.get_state(), own)


@pytest.mark.parametrize("terms", [{}, {"mask": Causal()}, {"weigh": Entmax(), "bias": Alibi()}], ids=str)
def test_contents_are_not_looked_at(terms):
    # tensors on the meta device have none
    rows = torch.zeros(1, 8, 1024, 64, device="meta")
    assert "on meta" in str(explain(rows, rows, rows, **terms))


# --- what it costs ---------------------------------------------------------------------------------------------------


def measure(run) -> int:
    """Bytes allocated at once, at most, while `run` runs."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        run()
    events = [e for e in prof.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = most = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    return most


CALLS = {
    "dot": {},
    "causal": {"mask": Causal()},
    "additive": {"score": Additive(torch.ones(32))},
    "additive silu": {"score": Additive(torch.ones(32), "silu")},
    "gaussian": {"score": Gaussian(0.5)},
    "entmax": {"weigh": Entmax(1.3)},
    "sigmoid": {"weigh": Sigmoid(), "bias": Alibi()},
}


@pytest.mark.thin(2)
@pytest.mark.parametrize("needs_grad", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("name", CALLS)
def test_the_estimated_peak_is_near_the_measured_one(name, needs_grad):
    rows = [torch.randn(1, 2, 1024, 32, requires_grad=needs_grad) for _ in range(3)]

    def run():
        out = attend(*rows, **CALLS[name], backend="tiled")
        return torch.autograd.grad(out, rows, torch.ones_like(out)) if needs_grad else out

    output = rows[0].numel() * rows[0].itemsize
    estimated, measured = explain(*rows, **CALLS[name], backend="tiled").cost.peak, measure(run) - output
    assert measured / 3 <= estimated <= measured * 3, f"estimated {estimated:,.0f}, measured {measured:,}"


def test_memory_does_not_grow_with_pairs():
    peaks = []
    for n in (1024, 4096):
        rows = [torch.randn(1, 1, n, 16) for _ in range(3)]
        peaks.append(measure(lambda rows=rows: attend(*rows, weigh=Sigmoid(), backend="tiled")))
    # sixteen times the pairs, and far from four times the memory
    assert peaks[1] < 2 * peaks[0]


def test_work_is_counted_by_the_pairs_that_are_left():
    whole = explain(ROWS, ROWS, ROWS, backend="tiled").cost.operations
    assert whole == 2 * 8 * 1024 * 1024 * (64 + 64)
    half = explain(ROWS, ROWS, ROWS, mask=Causal(), backend="tiled").cost.operations
    assert 0.5 * whole < half < 0.8 * whole
    window = explain(ROWS, ROWS, ROWS, mask=Window(16, 16), backend="tiled").cost.operations
    assert window < 0.2 * whole
