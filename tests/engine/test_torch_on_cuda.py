"""Which of torch's CUDA kernels a call gets, and how its rows must lie: rules, so no device is needed."""

import pytest
import torch
from torch.backends import cuda
from torch.nn import functional
from torch.nn.attention import SDPBackend

from regard.core import Sizes
from regard.engine.backends import sdpa
from regard.engine.call import Call
from regard.mask import Full
from regard.score import Cosine, Dot
from regard.weigh import Softmax
from tests.tolerances import assert_close

CUDNN, FLASH = SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION


def make_call(n=128, m=128, d=16, g=4, score=Dot(), **given):
    sizes = Sizes((2,), 4, g, n, m, d, d, d, torch.bfloat16, torch.device("cuda", 0))
    return Call(sizes, score, Softmax(), Full(), **given)


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
    ("n", "m", "needs_grad", "kernels"),
    [
        (128, 256, True, [CUDNN, FLASH]),
        (64, 128, True, [FLASH]),
        (128, 64, True, [FLASH]),
        (1, 128, True, [FLASH]),
        (1000, 1000, True, [FLASH]),
        (64, 64, False, [CUDNN, FLASH]),
        (1, 1000, False, [CUDNN, FLASH]),
    ],
)
def test_cudnn_trains_only_where_rows_fill_its_blocks(n, m, needs_grad, kernels):
    assert sdpa.choose_kernels(make_call(n, m, needs_grad=needs_grad)) == kernels


@pytest.mark.parametrize("needs_grad", [False, True])
def test_no_slow_kernel_is_let_in(needs_grad, monkeypatch):
    enabled = []

    def run(*args, **kwargs):
        enabled.append((cuda.math_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.cudnn_sdp_enabled()))
        return args[0]

    monkeypatch.setattr(functional, "scaled_dot_product_attention", run)
    rows = torch.zeros(2, 4, 64, 16, dtype=torch.bfloat16)
    sdpa.run(make_call(64, 64, needs_grad=needs_grad), rows, rows, rows)
    assert enabled == [(False, False, not needs_grad)]
    # as it was before
    assert cuda.math_sdp_enabled()


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
    assert sdpa._align(ALIGNED[name]) is ALIGNED[name]


@pytest.mark.parametrize("name", LOOSE)
def test_rows_that_a_kernel_cannot_read_are_copied(name):
    rows = LOOSE[name]
    copy = sdpa._align(rows)
    assert copy.is_contiguous()
    assert copy.storage_offset() == 0
    assert copy.data_ptr() != rows.data_ptr()
    assert torch.equal(copy, rows)


@pytest.mark.parametrize("g", [1, 2, 4])
def test_the_call_itself(g):
    # torch's CPU kernel stands in for those on CUDA
    query, key, value = (torch.randn(2, h, n, 16).bfloat16() for h, n in ((4, 5), (g, 7), (g, 7)))
    out = sdpa.run(make_call(5, 7, g=g, score=Dot(0.3)), query, key, value)
    rows = (x.double().repeat_interleave(4 // x.shape[1], 1) for x in (query, key, value))
    assert_close(out, functional.scaled_dot_product_attention(*rows, scale=0.3).bfloat16())
