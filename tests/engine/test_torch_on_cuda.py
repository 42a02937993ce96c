"""Which of torch's CUDA kernels a call gets, and how its rows must lie: rules, so no device is needed."""

import pytest
import torch
from torch.backends import cuda
from torch.nn import functional

from regard.core import Sizes
from regard.engine import native_gradient
from regard.engine.backends import sdpa, sdpa_cuda
from regard.engine.call import Call
from regard.engine.native_gradient import align
from regard.mask import Full
from regard.score import Cosine, Dot
from regard.weigh import Softmax
from tests.tolerances import assert_all_close, assert_close


def make_call(n=128, m=128, d=16, g=4, score=Dot(), **given):
    sizes = Sizes((2,), 4, g, n, m, d, d, d, torch.bfloat16, torch.device("cuda", 0))
    return Call(sizes, score, Softmax(), Full(), **given)


def stand_in(monkeypatch) -> list[str]:
    """torch's CPU kernel in the place of those on CUDA, and which of them were asked."""
    asked = []

    def run(query, key, value, scale, takes_cudnn, keeps):
        asked.append("cuDNN" if takes_cudnn else "flash")
        wide = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
        return functional.scaled_dot_product_attention(query, *wide, scale=scale), *[torch.zeros(1)] * 3

    monkeypatch.setattr(sdpa_cuda, "_run", run)
    return asked


@pytest.fixture(autouse=True)
def _has_flash(monkeypatch):
    monkeypatch.setattr(sdpa, "has_flash", lambda device: True)


@pytest.mark.parametrize(
    "call",
    [
        make_call(), make_call(n=1, m=77), make_call(g=1), make_call(needs_grad=True), make_call(d=200),
        make_call(d=256, needs_grad=True), make_call(score=Cosine()),
    ],
)  # fmt: skip
def test_a_plain_call_is_taken(call):
    assert sdpa.refuse(call) is None
    assert sdpa.decline(call) is None


@pytest.mark.parametrize(
    ("n", "m", "needs_grad", "takes"),
    [
        (128, 256, True, True),
        (64, 128, True, False),
        (128, 64, True, False),
        (1, 128, True, False),
        (1000, 1000, True, False),
        (64, 64, False, True),
        (1, 1000, False, True),
    ],
)
def test_cudnn_trains_only_where_rows_fill_its_blocks(n, m, needs_grad, takes, monkeypatch):
    monkeypatch.setattr(cuda, "can_use_cudnn_attention", lambda asked: True)
    asked = stand_in(monkeypatch)
    monkeypatch.setattr(cuda, "can_use_flash_attention", lambda asked: True)
    rows = [torch.zeros(2, 4, count, 16, dtype=torch.bfloat16) for count in (n, m, m)]
    sdpa.run(make_call(n, m, needs_grad=needs_grad), *rows)
    assert asked == ["cuDNN" if takes else "flash"]


SWITCHES = {"allowed": (True, True, False), "switched off": (False, True, False), "deterministic": (True, True, True)}


@pytest.mark.parametrize("then", SWITCHES)
@pytest.mark.parametrize("first", SWITCHES)
def test_torch_is_asked_anew_where_a_switch_is_another(first, then, monkeypatch):
    asked, call = stand_in(monkeypatch), make_call(needs_grad=True)
    rows = [torch.zeros(2, 4, 128, 16, dtype=torch.bfloat16) for _ in range(3)]
    for cudnn, flash, same_bits in (SWITCHES[first], SWITCHES[then]):
        monkeypatch.setattr(cuda, "cudnn_sdp_enabled", lambda cudnn=cudnn: cudnn)
        monkeypatch.setattr(cuda, "flash_sdp_enabled", lambda flash=flash: flash)
        monkeypatch.setattr(torch, "are_deterministic_algorithms_enabled", lambda same_bits=same_bits: same_bits)
        # as torch answers
        answer = cudnn and not same_bits
        monkeypatch.setattr(cuda, "can_use_cudnn_attention", lambda asked, answer=answer: answer)
        monkeypatch.setattr(cuda, "can_use_flash_attention", lambda asked, flash=flash: flash)
        sdpa.run(call, *rows)
    assert asked == ["cuDNN" if name == "allowed" else "flash" for name in (first, then)]


def test_numbers_are_not_looked_at():
    rows = torch.full((2, 4, 128, 16), torch.nan, dtype=torch.bfloat16)
    assert not sdpa.errs(make_call(needs_grad=True), rows, rows, rows)


ROWS = torch.arange(2 * 4 * 6 * 24, dtype=torch.float64).view(2, 4, 6, 24)
ALIGNED = {
    "plain": ROWS,
    "heads last": torch.zeros(2, 6, 4, 24).transpose(1, 2),
    "cut at a multiple of eight": ROWS[..., 8:16],
    "one sequence of some odd stride": torch.zeros(200).as_strided((1, 1, 3, 8), (7, 5, 8, 1)),
}
LOOSE = {
    "starts at an odd place": ROWS.flatten()[1:-15].view(1, 4, 71, 4)[..., :4],
    "rows of odd length": torch.zeros(2, 4, 6, 25)[..., :24],
    "columns first": torch.zeros(2, 4, 24, 6).mT,
    "broadcast": ROWS[:1].expand(2, 4, 6, 24),
}


@pytest.mark.parametrize("name", ALIGNED)
def test_rows_that_lie_well_are_not_copied(name):
    assert align(ALIGNED[name]) is ALIGNED[name]


@pytest.mark.parametrize("name", LOOSE)
def test_rows_that_a_kernel_cannot_read_are_copied(name):
    rows = LOOSE[name]
    copy = align(rows)
    assert copy.is_contiguous()
    assert copy.storage_offset() == 0
    assert copy.data_ptr() != rows.data_ptr()
    assert torch.equal(copy, rows)


@pytest.mark.parametrize("g", [1, 2, 4])
def test_the_call_itself(g, monkeypatch):
    stand_in(monkeypatch)
    monkeypatch.setattr(cuda, "can_use_flash_attention", lambda asked: True)
    query, key, value = (torch.randn(2, h, n, 16).bfloat16() for h, n in ((4, 5), (g, 7), (g, 7)))
    out = sdpa.run(make_call(5, 7, g=g, score=Dot(0.3)), query, key, value)
    rows = (x.double().repeat_interleave(4 // x.shape[1], 1) for x in (query, key, value))
    assert_close(out, functional.scaled_dot_product_attention(*rows, scale=0.3).bfloat16())


def test_torchs_own_gradient_is_read_and_differentiated(monkeypatch):
    seen = []
    # its gradient is made in C++, as on CUDA
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    monkeypatch.setattr(sdpa_cuda, "_ask", lambda *given: False)
    monkeypatch.setattr(sdpa_cuda, "_run", lambda q, k, v, scale, *_: (kernel(q, k, v, scale=scale)[0],))
    monkeypatch.setattr(native_gradient, "align", lambda x: seen.append(x.stride()) or align(x))
    rows = [torch.randn(2, 4, n, 16, dtype=torch.float64, requires_grad=True) for n in (5, 7, 7)]

    def again(query, key, value):
        return (query @ key.mT * 0.3).softmax(-1) @ value

    out = sdpa_cuda.attend_on_cuda(make_call(5, 7, needs_grad=True), *rows, 0.3, again)
    assert "FlashAttention" in type(out.grad_fn).__name__
    wanted = again(*rows)
    assert_close(out, wanted)
    for grad in (torch.randn_like(out), torch.randn(2, 4, 16, 5, dtype=torch.float64).mT):
        options = {"retain_graph": True}
        assert_all_close(*(torch.autograd.grad(x, rows, grad, **options) for x in (out, wanted)), ["q", "k", "v"])
    # one that lies as the output does is read where it is
    assert seen == [grad.stride()]
    made = [torch.autograd.grad(x.square().sum(), rows[0], create_graph=True)[0] for x in (out, wanted)]
    assert_all_close(*(torch.autograd.grad(x.square().sum(), rows) for x in made), ["q", "k", "v"])
