"""What every test runs under: NaN in uninitialised memory, one thread per worker, data and GPU where there are."""

import functools
import importlib.util
import os
import pathlib
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from regard.processor import cap_instructions

# before anything loads torch, and before workers inherit the environment
CAPPED = cap_instructions()

import torch  # noqa: E402
from torch.utils import _device  # noqa: E402

# a hook is found by its name; here, because the controller of xdist reads no other conftest
from tests import canaries  # noqa: E402
from tests.counts import pytest_terminal_summary  # noqa: E402, F401
from tests.fuzz import publish  # noqa: E402
from tests.fuzz.settings import read_shard  # noqa: E402
from tests.wide import is_taken  # noqa: E402

# without a GPU, Triton's kernels run in its interpreter; it looks at this when it is imported, which nothing did so far
if not torch.cuda.is_available() and importlib.util.find_spec("triton") is not None:
    os.environ["TRITON_INTERPRET"] = "1"

# all public doors to uninitialised memory
DOORS = [(torch, "empty"), (torch, "empty_like"), (torch, "empty_strided"), (torch.Tensor, "new_empty")]


def nan_filled(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """`make`, its floating results filled with NaN, so that whoever reads before writing is seen."""

    @functools.wraps(make)
    def filled(*args, **kwargs):
        out = make(*args, **kwargs)
        if out.is_floating_point() or out.is_complex():
            # a leaf that requires grad may only be written outside autograd
            with torch.no_grad():
                out.fill_(torch.nan)
        return out

    return filled


@pytest.fixture(autouse=True, scope="session")
def _empty_is_nan():
    # torch caches which functions obey `with torch.device(...)` by identity: let it see the originals first
    _device._device_constructors()
    with pytest.MonkeyPatch.context() as patch:
        for owner, name in DOORS:
            patch.setattr(owner, name, nan_filled(getattr(owner, name)))
        yield


@pytest.fixture(autouse=True, scope="session")
def _products_have_one_order():
    """In the interpreter, a product of tiles is summed in one order, whatever their shapes: as on a GPU.

    BLAS has an order for each shape, on some processors: scores that backward makes again are others, then.
    """
    if os.environ.get("TRITON_INTERPRET") != "1" or importlib.util.find_spec("triton") is None:
        yield
        return
    import numpy
    from triton.runtime import interpreter

    def create_dot(self, a, b, d, input_precision, max_num_imprecise_acc):
        total = numpy.zeros_like(d.data)
        one, other = (x.data.astype(d.data.dtype) for x in (a, b))
        for k in range(one.shape[-1]):
            total += one[..., :, k, None] * other[..., None, k, :]
        return interpreter.TensorHandle(total + d.data, d.dtype.scalar)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter.InterpreterBuilder, "create_dot", create_dot)
        yield


@pytest.fixture(autouse=True)
def _seed():
    # torch's global generator, which gradcheck draws from too: the same numbers whatever ran before
    torch.manual_seed(0)


@contextmanager
def keep_threads() -> Iterator[None]:
    """Whatever happens within, torch has as many threads afterwards as before."""
    before = torch.get_num_threads()
    yield
    if torch.get_num_threads() != before:
        torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _threads():
    # two workers with two threads each on two cores wait for one another: what a test sets does not outlive it
    with keep_threads():
        yield


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    """A Chromium, the only one of a worker: playwright drives no second one beside it."""
    from tools.browser import find_chromium, open_browser

    if importlib.util.find_spec("playwright") is None:
        pytest.skip("playwright is not installed")
    if find_chromium() is None:
        pytest.skip("no Chromium is installed: put one on PATH, or its program into REGARD_CHROMIUM")
    with open_browser() as found:
        yield found


@pytest.fixture(scope="session")
def data() -> pathlib.Path:
    """The folder of data sets."""
    if "REGARD_DATA" not in os.environ:
        pytest.skip("REGARD_DATA does not name a folder of data sets")
    folder = pathlib.Path(os.environ["REGARD_DATA"])
    # a wrong path must not pass as "no data"
    assert folder.is_dir(), f"REGARD_DATA is not a folder: {folder}"
    return folder


def pytest_report_header() -> str | None:
    return CAPPED


def pytest_configure(config: pytest.Config):
    # whoever starts this in the background may have Ctrl-C ignored, which tests of it need
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # more summaries: one conftest holds one hook of a name
    config.pluginmanager.register(publish)
    config.pluginmanager.register(canaries)
    # workers that each take every core only wait for one another, and what tests compute is too small to share
    torch.set_num_threads(1)


def list_left_out(items: list[pytest.Item]) -> set[pytest.Item]:
    """The rows of thinned tables that are not in the part of this run; of each table there is one at least."""
    tables: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("thin") and hasattr(item, "callspec"):
            tables.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left: set[pytest.Item] = set()
    for rows in tables.values():
        one_in = rows[0].get_closest_marker("thin").args[0]
        taken = [row for row in rows if is_taken(row.callspec.id, one_in)] or rows[:1]
        left.update(row for row in rows if row not in taken)
    return left


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]):
    if "REGARD_SHARD" in os.environ:
        # one of several processes that share the tests, as 3/8
        at, of = read_shard(os.environ["REGARD_SHARD"])
        config.hook.pytest_deselected(items=[item for i, item in enumerate(items) if i % of != at])
        items[:] = items[at::of]
    left = list_left_out(items)
    if left:
        config.hook.pytest_deselected(items=list(left))
        items[:] = [item for item in items if item not in left]
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="no CUDA device")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(skip)
