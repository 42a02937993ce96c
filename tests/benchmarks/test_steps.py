"""The benchmark of training steps runs the loop, and draws sentences as long as those that it stands for."""

from __future__ import annotations

import statistics

import pytest

from benchmarks.gpu import steps
from tests.wide import wide


@wide
def test_every_step_is_taken_and_measured():
    pytest.importorskip("lightning")
    meter, seconds = steps.train(steps.TINY, "cpu", "32-true")
    assert len(meter.begun) == steps.TINY.timed
    assert meter.begun[-1] - meter.begun[0] < meter.seconds < sum(seconds.values()) + 60
    assert list(seconds) == ["validation", "translating 20 sentences"]
    found = steps.show(meter, seconds, 5)
    assert "ms a step over 3 steps" in found
    assert "run_backward" in found
    # nothing that waits for a GPU without one
    assert "waits for the GPU in 1 steps: 0\n" in found


def test_sentences_are_as_long_as_those_of_multi30k():
    pairs = steps.draw_pairs(steps.Size(pairs=3000))
    sides = [[len(text.split()) for text in side] for side in zip(*pairs, strict=True)]
    # 13.72 and 13.81 tokens on average, and 22 and 23 at the 95th percentile, of the joint BPE files
    for side, mean, long in zip(sides, (13.72, 13.81), (22, 23), strict=True):
        assert statistics.fmean(side) == pytest.approx(mean, abs=0.4)
        assert abs(sorted(side)[2850] - long) <= 1


def test_without_a_gpu_the_command_says_so(capsys, monkeypatch):
    monkeypatch.setattr(steps.torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as stop:
        steps.main([])
    assert stop.value.code == 2
    assert "there is no CUDA device. To see that all is right: --device cpu --tiny" in capsys.readouterr().err
