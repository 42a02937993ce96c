"""Encodings that a differential equation moves, against scipy, closed forms and plain Runge–Kutta."""

import copy
import math
import sys

import numpy
import pytest
import torch
from torch import nn

pytest.importorskip("torchdiffeq")

from regard import attend
from regard.core import RegardError
from regard.extras import install
from regard.layers.floater import Floater, Flow, _step
from tests.tolerances import assert_close
from tests.wide import wide


def moving(num_hiddens: int, activation: str = "tanh", **options) -> Floater:
    """A layer whose flow and start are drawn, in float64."""
    layer = Floater(num_hiddens, flow=Flow(num_hiddens, activation), **options).double()
    for weight in layer.parameters():
        nn.init.normal_(weight, std=0.7)
    return layer


class Linear(nn.Module):
    """dp/dt = A·p, whose solution is exp(A·t)·p(0)."""

    def __init__(self, matrix):
        super().__init__()
        self.matrix = nn.Parameter(matrix)

    def forward(self, t, p):
        return p @ self.matrix.T


def write_out(layer: Floater, count: int) -> torch.Tensor:
    """The 3/8 rule in plain torch, from one position to the next."""
    one, two = layer.flow.W_1, layer.flow.W_2
    act = getattr(torch, layer.flow.activation)

    def slope(t, p):
        time = torch.tensor([t], dtype=torch.float64)
        hidden = act(one.weight @ torch.cat((p, time)) + one.bias)
        return two.weight @ torch.cat((hidden, time)) + two.bias

    p, h, rows = layer.initial, layer.spacing / layer.steps, [layer.initial]
    for i in range(count - 1):
        for k in range(layer.steps):
            t = i * layer.spacing + k * h
            a = slope(t, p)
            b = slope(t + h / 3, p + h * a / 3)
            c = slope(t + 2 * h / 3, p + h * (b - a / 3))
            d = slope(t + h, p + h * (a - b + c))
            p = p + h * (a + 3 * b + 3 * c + d) / 8
        rows.append(p)
    return torch.stack(rows)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_scipy_solves_the_same_equation(activation):
    from scipy.integrate import solve_ivp

    layer = moving(4, activation, spacing=0.1)
    w_1, b_1, w_2, b_2 = (x.detach().numpy() for x in layer.flow.parameters())
    act = numpy.tanh if activation == "tanh" else lambda x: numpy.maximum(x, 0)

    def slope(t, p):
        return w_2 @ numpy.append(act(w_1 @ numpy.append(p, t) + b_1), t) + b_2

    times = numpy.arange(20) * 0.1
    start = layer.initial.detach().numpy()
    solution = solve_ivp(slope, (0, times[-1]), start, t_eval=times, rtol=1e-11, atol=1e-12).y.T
    out = layer(torch.zeros(1, 20, 4, dtype=torch.float64))[0].detach().numpy()
    assert numpy.ptp(solution, axis=0).min() > 0.1
    # the error of the step, larger where ReLU has its corner
    assert numpy.abs(out - solution).max() < (1e-7 if activation == "tanh" else 1e-4)


def test_a_linear_flow_has_its_closed_form_at_fourth_order():
    matrix = torch.tensor([[0.0, -2.0], [2.0, -0.3]], dtype=torch.float64)
    errors = []
    for steps in (1, 2):
        layer = Floater(2, flow=Linear(matrix), spacing=0.2, steps=steps).double()
        with torch.no_grad():
            layer.initial.copy_(torch.tensor([1.0, -0.5]))
        times = torch.arange(30, dtype=torch.float64) * 0.2
        exact = torch.matrix_exp(times[:, None, None] * matrix) @ layer.initial
        errors.append((layer(torch.zeros(1, 30, 2, dtype=torch.float64))[0] - exact).abs().max().item())
    assert errors[1] < 1e-3
    # half the step, a sixteenth of the error
    assert 13 < errors[0] / errors[1] < 20


@pytest.mark.parametrize("adjoint", [False, True])
def test_gradients_are_those_of_plain_runge_kutta(adjoint):
    layer = moving(3, steps=2, spacing=0.05, adjoint=adjoint)
    x = torch.randn(2, 7, 3, dtype=torch.float64, requires_grad=True)
    cotangent = torch.randn(2, 7, 3, dtype=torch.float64)
    out, expected = layer(x), x + write_out(layer, 7)
    assert_close(out, expected)
    inputs = [x, *layer.parameters()]
    grads, exact = torch.autograd.grad(out, inputs, cotangent), torch.autograd.grad(expected, inputs, cotangent)
    for grad, one in zip(grads, exact, strict=True):
        assert one.abs().max() > 1e-3
        # the adjoint equation is solved anew, with an error of its own step
        if adjoint:
            assert (grad - one).abs().max() < 1e-6 * max(1, one.abs().max())
        else:
            assert_close(grad, one)


def count_calls(flow: nn.Module) -> list[int]:
    """A list that grows by one with every evaluation of the flow."""
    calls: list[int] = []
    flow.register_forward_hook(lambda *_: calls.append(1))
    return calls


def test_four_evaluations_a_step_and_a_prefix_is_a_prefix():
    # steps of 0.01/3 do not add up to whole positions in binary: a grid by step size would miss some by a hair
    layer = moving(2, steps=3)
    whole, calls = layer.solve(24), count_calls(layer.flow)
    for count in range(1, 24):
        calls.clear()
        assert torch.equal(layer.solve(count), whole[:count])
        assert len(calls) == 4 * 3 * (count - 1)


def test_adjoint_solves_backwards_again():
    for adjoint in (False, True):
        layer = moving(2, adjoint=adjoint)
        out, calls = layer(torch.zeros(1, 4, 2, dtype=torch.float64)), count_calls(layer.flow)
        out.sum().backward()
        assert bool(calls) is adjoint


def test_gradcheck():
    layer = moving(2, steps=1, spacing=0.1)
    names, weights = zip(*layer.named_parameters(), strict=True)

    def run(x, *weights):
        return torch.func.functional_call(layer, dict(zip(names, weights, strict=True)), (x, 1))

    assert torch.autograd.gradcheck(run, (torch.randn(1, 3, 2, dtype=torch.float64), *weights))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("adjoint", [False, True])
def test_zero_flow_is_no_encoding_bit_for_bit(dtype, adjoint):
    layer = Floater(4, adjoint=adjoint).to(dtype)
    x = torch.randn(2, 6, 4, dtype=dtype)
    x[0, :2] = torch.tensor([0.0, -0.0, torch.inf, torch.finfo(dtype).tiny])
    bits = torch.int16 if dtype.itemsize == 2 else torch.int32 if dtype.itemsize == 4 else torch.int64
    # bits, not numbers: −0.0 and 0.0 are equal as numbers
    assert torch.equal(layer(x).view(bits), x.view(bits))
    assert torch.equal(layer(x, offset=3).view(bits), x.view(bits))
    # and it can learn all the same
    layer(x[1:]).sum().backward()
    assert layer.initial.grad.abs().min() > 0
    assert layer.flow.W_2.weight.grad.abs().max() > 0


def test_zero_flow_alone_is_one_vector_for_all():
    layer = Floater(4)
    nn.init.normal_(layer.initial)
    x = torch.randn(2, 6, 4)
    assert torch.equal(layer(x), x + layer.initial)


def test_offsets_and_lengths():
    layer = moving(3)
    x = torch.randn(2, 12, 3, dtype=torch.float64)
    whole = layer(x)
    # causal by nature: a prefix does not know what follows
    assert torch.equal(layer(x[:, :5]), whole[:, :5])
    for i in range(12):
        assert torch.equal(layer(x[:, i : i + 1], offset=i), whole[:, i : i + 1])
    ragged = layer(x[:, :3], offset=torch.tensor([6, 1]))
    assert torch.equal(ragged[0], layer(x[:1, :3], offset=6)[0])
    assert torch.equal(ragged[1], layer(x[1:, :3], offset=1)[0])
    assert layer(x[:, :0]).shape == (2, 0, 3)


def test_blocks_share_a_flow_and_begin_on_their_own():
    flow = Flow(3, "tanh")
    blocks = nn.ModuleList(Floater(3, flow=flow) for _ in range(2))
    for weight in blocks.parameters():
        nn.init.normal_(weight)
    assert len(list(blocks.parameters())) == 4 + 2
    x = torch.zeros(1, 5, 3)
    assert not torch.equal(blocks[0](x), blocks[1](x))
    with torch.no_grad():
        blocks[1].initial.copy_(blocks[0].initial)
    assert torch.equal(blocks[0](x), blocks[1](x))


def test_a_position_function_is_recovered_and_carried_on():
    # p(i) = 1 + 2·exp(−0.15·i) from its first sixteen values, then twice as far
    true = 1 + 2 * torch.exp(-0.15 * torch.arange(32, dtype=torch.float64))[None, :, None]
    layer = Floater(1, spacing=0.1, steps=1).double()
    # a ReLU that is off all the way learns nothing: this one begins switched on
    nn.init.ones_(layer.flow.W_1.weight)
    optimiser = torch.optim.LBFGS(
        layer.parameters(), max_iter=100, line_search_fn="strong_wolfe", tolerance_change=1e-12
    )
    seen = torch.zeros(1, 16, 1, dtype=torch.float64)

    def measure():
        optimiser.zero_grad()
        loss = (layer(seen) - true[:, :16]).square().mean()
        loss.backward()
        return loss

    assert measure() > 1
    optimiser.step(measure)
    out = layer(torch.zeros(1, 32, 1, dtype=torch.float64)).detach()
    # it found the equation itself, dp/dt = 1.5·(1 − p), and not only a curve through the points
    assert (out - true).abs().max() < 1e-3


def test_half_precision_is_solved_in_float32():
    # positions 500 and 501 are the same time in bfloat16
    layer = moving(3, spacing=0.01, steps=1).bfloat16()
    exact = copy.deepcopy(layer).double().solve(40)
    for kind in (torch.bfloat16, torch.float32):
        out = layer.to(kind).solve(40)
        assert out.dtype == torch.float32
        assert_close(out, exact.float())
    layer.bfloat16()
    x = torch.randn(2, 40, 3, dtype=torch.bfloat16)
    assert_close(layer(x), (x.double() + exact).bfloat16())
    # autocast leaves the equation alone
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(layer.float().solve(40), out)


def test_files_copies_and_eval():
    layer = moving(3, dropout=0.5)
    other = Floater(3, flow=Flow(3, "tanh"), dropout=0.5).double()
    other.load_state_dict(layer.state_dict())
    x = torch.randn(2, 5, 3, dtype=torch.float64)
    assert (layer(x) == 0).any()
    out = layer.eval()(x)
    assert torch.equal(layer(x), out)
    assert torch.equal(other.eval()(x), out)
    assert torch.equal(copy.deepcopy(layer)(x), out)
    assert sorted(layer.state_dict()) == [
        "flow.W_1.bias",
        "flow.W_1.weight",
        "flow.W_2.bias",
        "flow.W_2.weight",
        "initial",
    ]


@wide
def test_no_graph_break():
    layer = moving(3, steps=2)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x = torch.randn(2, 4, 3, dtype=torch.float64)
    out, expected = compiled(x, 2), layer(x, 2)
    assert_close(out, expected)
    weights = list(layer.parameters())
    cotangent = torch.randn_like(x)
    for grad, exact in zip(
        torch.autograd.grad(out, weights, cotangent), torch.autograd.grad(expected, weights, cotangent), strict=True
    ):
        assert_close(grad, exact)


def test_with_it_abc_is_not_cba():
    layer = moving(4, spacing=0.3)
    words = torch.randn(1, 3, 4, dtype=torch.float64)
    project = torch.randn(3, 4, 4, dtype=torch.float64)

    def read(x):
        return attend(*(x @ w for w in project))

    assert (read(words.flip(1)) - read(words).flip(1)).abs().max() < 1e-14
    assert (read(layer(words.flip(1))) - read(layer(words)).flip(1)).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Floater(0), "Floater num_hiddens must be at least 1, got 0."),
        (lambda: Floater(4, steps=0), "Floater steps must be at least 1, got 0."),
        (lambda: Floater(4, spacing=0.0), "Floater spacing must be positive, got 0.0."),
        (lambda: Floater(4, dropout=1.5), "Floater dropout must lie in [0, 1), got 1.5."),
        (lambda: Floater(4, flow=Flow(3)), "Floater has num_hiddens=4 and its flow 3: give both the same."),
        (lambda: Flow(4, "gelu"), "Flow activation must be one of relu, tanh, got 'gelu'."),
        (
            lambda: Floater(4)(torch.zeros(2, 3, 5)),
            "Floater X must be (batch, positions, num_hiddens=4), got shape (2, 3, 5).",
        ),
        (
            lambda: Floater(4)(torch.zeros(2, 3, 4).double()),
            "Floater is in float32 and X in float64: bring both to one, as by layer.to(X.dtype).",
        ),
        (lambda: Floater(4)(torch.zeros(2, 3, 4), -1), "Floater offset must be at least 0, got -1."),
    ],
)
def test_wrong_inputs_are_named(call, message):
    with pytest.raises(RegardError) as caught:
        call()
    assert str(caught.value) == message


def test_without_torchdiffeq_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchdiffeq", None)
    with pytest.raises(RegardError) as caught:
        Floater(4)
    assert str(caught.value) == f"Floater needs torchdiffeq, which is not installed: {install('ode')}."


def test_a_step_has_the_first_five_terms_of_the_series():
    # of p' = p, a method of fourth order in four evaluations makes just these
    start, end = (torch.tensor(x, dtype=torch.float64) for x in (0.0, 0.7))
    found = _step(lambda time, p: p, start, end, torch.ones(3, dtype=torch.float64))
    torch.testing.assert_close(found, torch.full_like(found, sum(0.7**k / math.factorial(k) for k in range(5))))
