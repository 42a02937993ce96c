"""The benchmark of long sums compares what it says."""

from benchmarks.sums import measure_errors, measure_ratio


def test_wide_sums_are_the_more_exact():
    rows = {name: float(output) for _, name, output, *_ in measure_errors(32_768)}
    assert list(rows) == ["eager", "float32", "float64"]
    assert 0 < rows["float64"] < rows["float32"] / 2


def test_a_ratio_is_of_times():
    assert 0.1 < float(measure_ratio((1, 1, 64, 4), turns=3)) < 10
