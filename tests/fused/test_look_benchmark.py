"""The benchmark of a look runs without a GPU, and says when something is not as it should be."""

from __future__ import annotations

import pytest
import torch

from benchmarks.gpu import look as benchmark

TINY = ["--device", "cpu", "--tiny"]


def test_it_runs_and_is_right(capsys):
    assert benchmark.main(TINY) == 0
    shown = capsys.readouterr().out
    assert all(f"| {mask} |" in shown for mask in ("no mask", "causal"))
    assert shown.count("reached") == 2


def test_what_is_wrong_has_a_status(monkeypatch, capsys):
    monkeypatch.setattr(benchmark, "measure_error", lambda *given: float("nan"))
    assert benchmark.main(TINY) == 1
    assert "wrong by nan" in capsys.readouterr().out


def test_what_is_too_slow_or_too_large_is_told():
    result = benchmark.Result("causal", [1.0], [7.0], extra=300 * 2**20, error=0.0)
    assert list(result.list_misses()) == ["7.00 times the forward pass", "300.0 MiB of memory"]
    assert list(benchmark.Result("causal", [1.0], [5.0], extra=2**20, error=0.0).list_misses()) == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_device_it_says_so(capsys):
    with pytest.raises(SystemExit) as status:
        benchmark.main([])
    assert status.value.code == 2
    assert "there is no CUDA device" in capsys.readouterr().err
