"""Where torch's CUDA kernels are wrong: the library's answer is right, and the detour is still needed.

A canary that finds the kernel right is reported, tests/canaries.py.
"""

import math

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode

from regard import attend, explain
from regard.mask import Allowed, Causal, Full, Window

pytestmark = pytest.mark.gpu

WIDTH = 64
NAMES = ["output", "gradient of query", "gradient of key", "gradient of value"]


def make(n, m, shift, dtype=torch.bfloat16, heads=(2, 2)):
    """Rows whose scores all lie near `shift`, which the first column alone brings about."""
    (h, g), noise = heads, torch.Generator().manual_seed(n * 1009 + m)
    rows = [torch.randn(2, *sizes, WIDTH, generator=noise) for sizes in ((h, n), (g, m), (g, m))]
    rows[0][..., 0], rows[1][..., 0] = math.sqrt(WIDTH), shift
    return [x.to("cuda", dtype) for x in rows]


def gradients(function, rows):
    leaves = [x.detach().requires_grad_() for x in rows]
    out = function(*leaves)
    noise = torch.Generator().manual_seed(5)
    grad = torch.randn(out.shape, generator=noise).to(out)
    return [out.detach(), *torch.autograd.grad(out, leaves, grad)]


def plain(query, key, value, allowed=None):
    repeats = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    # before the product, which would leave the range of float16
    scores = (query / math.sqrt(query.shape[-1])) @ key.mT
    return (scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)).softmax(-1) @ value


def assert_right(found, rows, allowed=None):
    """Within three times eager's own error, and a rounding."""
    exact = gradients(lambda *x: plain(*x, allowed), [x.double() for x in rows])
    own = gradients(lambda *x: plain(*x, allowed), rows)
    for name, a, b, c in zip(NAMES, found, own, exact, strict=True):
        assert a.isfinite().all(), name
        # the first column of the query's gradient is a sum of nothing but rounding, times the shift
        a, b, c = (x[..., 1:].double() for x in (a, b, c))
        bound = 3 * (b - c).abs().max() + 2 * torch.finfo(rows[0].dtype).eps * c.abs().max()
        assert (a - c).abs().max() <= bound, name


def has_hopper():
    return torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 9


# --- what is wrong ----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not has_hopper(), reason="seen on Hopper")
@pytest.mark.canary(name="cuDNN trains into NaN", guard="sdpa_cuda.may_take_cudnn")
def test_torchs_cudnn_still_trains_into_nan():
    # a last block that is half full, under a mask
    mask = torch.ones(64, 64, dtype=torch.bool, device="cuda")
    with sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
        found = gradients(lambda *x: scaled_dot_product_attention(*x, attn_mask=mask), make(64, 64, -128.0))
    assert not all(x.isfinite().all() for x in found), "all gradients are finite"


@pytest.mark.skipif(not has_hopper(), reason="seen on Hopper")
@pytest.mark.canary(name="cuDNN fills rows with no allowed key", guard="sdpa.refuse_on_cuda")
def test_torchs_cudnn_still_fills_rows_with_no_allowed_key():
    allowed = torch.ones(64, 64, dtype=torch.bool, device="cuda")
    allowed[3] = False
    with sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
        out = scaled_dot_product_attention(*make(64, 64, 0.0), attn_mask=allowed)
    assert (out[:, :, 3] != 0).any(), "the row is zeros"


# --- what is right ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shift", [-1e4, -128.0, -100.0, 0.0, 100.0])
@pytest.mark.parametrize(("n", "m"), [(1, 128), (64, 64), (65, 192), (128, 128), (192, 1000), (256, 129)])
def test_ours_trains_at_any_logit(n, m, shift, dtype):
    rows = make(n, m, shift, dtype)
    assert explain(*rows).backend == "sdpa"
    assert_right(gradients(attend, rows), rows)


@pytest.mark.parametrize("shift", [-128.0, 0.0])
def test_ours_trains_under_a_mask(shift):
    rows = make(64, 64, shift)
    allowed = torch.ones(64, 64, dtype=torch.bool, device="cuda").tril()
    for mask in (Allowed(allowed), Causal()):
        assert_right(gradients(lambda *x, mask=mask: attend(*x, mask=mask), rows), rows, allowed)


def test_ours_leaves_rows_with_no_allowed_key_empty():
    allowed = torch.ones(64, 64, dtype=torch.bool, device="cuda")
    allowed[3] = False
    found = gradients(lambda *x: attend(*x, mask=Allowed(allowed)), make(64, 64, 0.0))
    assert all(x.isfinite().all() for x in found)
    assert (found[0][:, :, 3] == 0).all()
    assert (found[1][:, :, 3] == 0).all()


@pytest.mark.parametrize("heads", [(4, 2), (4, 1)])
def test_grouped_heads(heads):
    rows = make(65, 130, 0.0, heads=heads)
    assert_right(gradients(attend, rows), rows)


@pytest.mark.parametrize("n", [5, 64, 128])
@pytest.mark.parametrize("at", range(3))
def test_nan_that_is_attended_shows(n, at):
    rows = make(n, n, 0.0)
    rows[at][0, 0, 3, 2] = torch.nan
    shown = attend(*rows).isnan().any(-1)
    expected = torch.zeros_like(shown)
    expected[0, 0, 3 if at == 0 else slice(None)] = True
    assert torch.equal(shown, expected)


LAYOUTS = {
    "starts at an odd place": lambda x: torch.cat([x[..., :1], x], -1)[..., 1:],
    "columns first": lambda x: x.mT.contiguous().mT,
    "heads last": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "broadcast": lambda x: x[:1].expand_as(x),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_rows_may_lie_anyhow(name):
    rows = [LAYOUTS[name](x) for x in make(128, 128, 0.0)]
    assert_right(gradients(attend, rows), rows)


# --- which kernel, and no waiting -------------------------------------------------------------------------------------


class Kernels(TorchDispatchMode):
    """The names of torch's attention kernels that run inside."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if "scaled_dot_product" in name and "backward" not in name:
            self.seen.append(name.removeprefix("_scaled_dot_product_").removesuffix("_attention"))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("n", "m", "train", "allowed"),
    [
        (64, 64, True, {"flash"}), (1, 128, True, {"flash"}), (128, 256, True, {"flash", "cudnn"}),
        (64, 64, False, {"flash", "cudnn"}), (1, 1000, False, {"flash", "cudnn"}), (5, 1, False, {"flash"}),
    ],
)  # fmt: skip
def test_the_kernel(n, m, train, allowed):
    rows = [x.requires_grad_(train) for x in make(n, m, 0.0)]
    with Kernels() as kernels:
        attend(*rows)
    assert len(kernels.seen) == 1
    assert set(kernels.seen) <= allowed


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("mask", [Full(), Causal(), Causal(-3), Window(70, 3)], ids=str)
def test_nothing_waits_for_the_device(mask, train):
    rows = [x.requires_grad_(train) for x in make(128, 192, 0.0)]
    if explain(*rows, mask=mask).backend == "tiled":
        pytest.skip("tiles look at what they hold")
    # the first call may compile
    attend(*rows, mask=mask)
    torch.cuda.set_sync_debug_mode("error")
    try:
        out = attend(*rows, mask=mask)
        if train:
            torch.autograd.grad(out, rows, torch.ones_like(out))
    finally:
        torch.cuda.set_sync_debug_mode("default")
