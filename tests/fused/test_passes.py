"""A pass is planned once: later calls of its kind only make memory, and start kernels on other addresses."""

from __future__ import annotations

import gc
import math
import weakref
from contextlib import contextmanager
from typing import NamedTuple

import pytest
import torch

pytest.importorskip("triton")

from regard.engine.backends.fused import start
from regard.engine.backends.fused.kernels.bits import Noise
from regard.engine.backends.fused.passes import Part, Pass, Room, make_room, share
from regard.engine.backends.fused.start import Starter
from tests.fused.driving import STREAM, Kernel, lend

CPU = torch.device("cpu")
NAMES = ("query", "key")


class Rows(NamedTuple):
    at: object
    step: object


@pytest.fixture
def driver(monkeypatch):
    return lend(monkeypatch)


def draw():
    return [torch.randn(3, 4), torch.randn(5, 4)]


class Planned:
    """A pass of two kernels, which are handed every place that there is, with what it is made of."""

    def __init__(self, device=CPU, rooms=None, parts=None, has_seeds=True):
        self.kernels = Kernel("one"), Kernel("two")
        self.times = 0
        self.has_seeds = has_seeds
        self.work = Pass(device, NAMES, rooms or {"out": Room((3, 4))}, parts or {}, self.list)

    def list(self, spots, tensors):
        self.times += 1
        seeds = [Noise(spots["draw_seed"]), Noise(spots["seed"], 0.5)] if self.has_seeds else []
        tensors = [spot for name, spot in spots.items() if "seed" not in name]
        yield Starter(self.kernels[0], 2, {"SIZE": 16, "HEAL": 2}, (tuple(tensors), *seeds))
        key = spots["key"]
        yield Starter(self.kernels[1], 3, {"SIZE": 32, "HEAL": 3}, (Rows(key, key.held.stride(0)), 0.5, None))

    @property
    def compiled(self):
        return [kernel.compiled for kernel in self.kernels]


def test_later_runs_compile_nothing_and_start_on_their_own_memory(driver):
    planned = Planned()
    for time in range(3):
        query, key = draw()
        made = planned.work.run([query, key], [-7 + time, 2**20 + time])
        (out,) = made
        one, two = driver.launches
        # numbers come behind all tensors, and where the kernel wants them
        assert one.numbers == (*(x.data_ptr() for x in (query, key, out)), 2**20 + time, -7 + time, 0.5)
        assert two.numbers == (key.data_ptr(), 4, 0.5)
        assert [(x.name, x.count, x.stream) for x in (one, two)] == [("one", 2, STREAM), ("two", 3, STREAM)]
        driver.launches.clear()
    assert planned.times == 1
    assert planned.compiled == [1, 1]


def test_who_takes_no_numbers_gets_none(driver):
    planned = Planned(has_seeds=False)
    for _ in range(2):
        rows = draw()
        (out,) = planned.work.run(rows)
        assert driver.launches[0].numbers == tuple(x.data_ptr() for x in (*rows, out))
        driver.launches.clear()


SHAPES = {"ours": (2, 3), "theirs": (16,), "one": (1,), "last": (5, 7)}


def test_parts_of_a_room_lie_side_by_side_and_begin_at_aligned_places(driver):
    rooms, parts = share("sums", SHAPES)
    planned = Planned(rooms={"out": Room((3, 4)), **rooms}, parts=parts)
    for _ in range(3):
        rows = draw()
        made = planned.work.run(rows, (1, 2))
        whole = made[1]
        assert not whole.any()
        found = {name: planned.work.find(name, made) for name in SHAPES}
        assert {name: tuple(x.shape) for name, x in found.items()} == SHAPES
        # each number is in one part at most
        for at, x in enumerate(found.values(), 1):
            assert (x.data_ptr() - whole.data_ptr()) % 64 == 0
            x.fill_(at)
        assert [int((whole == at).sum()) for at in range(1, 5)] == [math.prod(shape) for shape in SHAPES.values()]
        # kernels are handed where each part begins
        addresses = [x.data_ptr() for x in (*rows, *made, *found.values())]
        assert driver.launches[0].numbers == (*addresses, 2, 1, 0.5)
        driver.launches.clear()


def test_parts_may_lie_in_rooms_of_their_own(driver):
    rooms = {"most": Room((9,)), "out": Room((3, 4)), "sums": Room((8,))}
    parts = {"late": Part("sums", 4, (2, 2)), "early": Part("most", 1, (3,))}
    planned = Planned(rooms=rooms, parts=parts)
    for _ in range(2):
        made = planned.work.run(draw(), (1, 2))
        most, _, sums = made
        assert planned.work.find("late", made).data_ptr() == sums.data_ptr() + 16
        assert planned.work.find("early", made).data_ptr() == most.data_ptr() + 4
        assert driver.launches[0].numbers[5:7] == (sums.data_ptr() + 16, most.data_ptr() + 4)
        driver.launches.clear()


def test_a_profiler_is_told_of_launches_however_late_it_comes(driver, monkeypatch):
    rooms, parts = share("sums", {"a": (2, 3), "b": (4,)})
    planned = Planned(rooms=rooms, parts=parts)
    planned.work.run(draw(), (1, 2))
    driver.launches.clear()
    hook = type("Chain", (), {"calls": [print]})()
    monkeypatch.setattr(start.triton.knobs.runtime, "launch_enter_hook", hook)
    rows = draw()
    made = planned.work.run(rows, (3, 4))
    assert driver.launches == []
    one, two = (kernel.log[-1] for kernel in planned.kernels)
    assert [x[:2] for x in (one, two)] == [("told", (2, 1, 1)), ("told", (3, 1, 1))]
    (given, *rest), ((at, step), *others) = one[2], two[2]
    assert rest == [Noise(4), Noise(3, 0.5), 16, 2]
    assert at is rows[1]
    assert (step, *others) == (4, 0.5, None, 32, 3)
    wanted = [*rows, *made, planned.work.find("a", made), planned.work.find("b", made)]
    assert [(x.data_ptr(), x.shape) for x in given] == [(x.data_ptr(), x.shape) for x in wanted]
    # and no more when it goes
    monkeypatch.setattr(start.triton.knobs.runtime, "launch_enter_hook", None)
    rows = draw()
    planned.work.run(rows, (3, 4))
    assert driver.launches[0].numbers[0] == rows[0].data_ptr()
    assert planned.compiled == [1, 1]


def test_kernels_run_on_the_device_of_the_tensors(driver, monkeypatch):
    current, entered = [0], []

    @contextmanager
    def enter(device):
        entered.append(device.index)
        before, current[0] = current[0], device.index
        yield
        current[0] = before

    monkeypatch.setattr(torch.cuda, "device", enter)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current[0])
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: current[0], raising=False)
    # each device has a stream of its own
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: STREAM + device, raising=False)
    planned = Planned(torch.device("cuda", 1))
    for time in range(2):
        planned.work.run(draw(), (1, 2))
        assert entered == [1] * (time + 1)
        assert current == [0]
    # once it is the current one, nothing is switched
    current[0] = 1
    planned.work.run(draw(), (1, 2))
    assert entered == [1, 1]
    assert driver.loaded == [1, 1]
    assert {launch.stream for launch in driver.launches} == {STREAM + 1}
    assert len(driver.launches) == 6
    assert planned.times == 1


def test_no_tensor_of_a_call_is_kept(driver):
    planned = Planned()
    rows = draw()
    gone = [weakref.ref(x) for x in rows]
    made = planned.work.run(rows, (1, 2))
    gone += [weakref.ref(x) for x in made]
    for kernel in planned.kernels:
        kernel.log.clear()
    del rows, made
    gc.collect()
    assert [ref() for ref in gone] == [None] * 3


def test_interpreted_kernels_are_handed_tensors_each_time(driver, monkeypatch):
    monkeypatch.setattr(start.triton, "JITFunction", type("Another", (), {}))
    planned = Planned()
    for _ in range(2):
        rows = draw()
        (out,) = planned.work.run(rows, (5, 6))
        _, count, (given, *seeds), options = planned.kernels[0].log[-1]
        assert (count, seeds, options) == ((2,), [Noise(6), Noise(5, 0.5)], {"SIZE": 16, "HEAL": 2})
        assert all(x is y for x, y in zip(given, (*rows, out), strict=True))
    assert planned.compiled == [0, 0]


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("width", [4, 6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_are_made_as_they_were_planned(inside, width, dtype):
    shape = (2, 5, 3, 4)
    rows = torch.zeros(shape).transpose(1, 2) if inside else torch.zeros(shape)
    first, other = (rows.clone(memory_format=torch.preserve_format) for _ in range(2))
    room = make_room({"key": rows.double(), "query": first}, "query", width, dtype)
    made = room.make([rows.double(), other])
    assert made.shape == (*rows.shape[:-1], width)
    assert made.dtype == dtype
    # heads within positions, where the rows have them so
    assert (made.transpose(1, 2) if inside else made).is_contiguous()
    assert made.data_ptr() != other.data_ptr()
    # of a view with gaps nothing but the order is taken
    gaps = torch.zeros(2, 5, 3, 9)[..., :width]
    assert make_room({"query": gaps}, "query", width, torch.float32).make([gaps]).is_contiguous()


def test_only_sums_begin_at_zero():
    given = [torch.ones(2)]
    assert Room((3, 4), is_zero=True).make(given).eq(0).all()
    assert Room((3, 4), torch.int32, is_zero=True).make(given).dtype == torch.int32
    # what a kernel writes is left as it is, which tests fill with NaN
    assert Room((3, 4)).make(given).isnan().all()
