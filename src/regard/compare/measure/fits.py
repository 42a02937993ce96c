"""Power laws through what was measured: a line in logarithms, and how sure its slopes are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.core import RegardError


@dataclass(frozen=True)
class Fit:
    """`factor` times each axis to the power of its exponent, with the interval that holds it in 95 of 100 cases."""

    factor: float
    exponents: dict[str, float]
    intervals: dict[str, list[float]]
    points: int


def fit_power(values: Sequence[float], **axes: Sequence[float]) -> Fit:
    """The power law nearest to the values, by least squares of their logarithms.

    >>> fit = fit_power([3, 12, 27, 48], n=[1, 2, 3, 4])
    >>> round(fit.factor, 6), round(fit.exponents["n"], 6), [round(end, 6) for end in fit.intervals["n"]]
    (3.0, 2.0, [2.0, 2.0])

    Several axes are fitted at once. The intervals are Student's, for scatter that is the same at all points; they need
    scipy, of the extra `compare`.
    """
    from scipy import stats  # type: ignore[import-untyped]

    for name, given in (("values", values), *axes.items()):
        if len(given) != len(values):
            raise RegardError(f"fit_power {name} must be as many as the values: {len(given)} against {len(values)}.")
        if wrong := [x for x in given if not 0 < x < float("inf")]:
            raise RegardError(f"fit_power {name} must be above zero and finite to have a logarithm, got {wrong[0]}.")
    unknowns = len(axes) + 1
    if len(values) <= unknowns:
        # as many points as unknowns are met exactly by any law, which says nothing of it
        raise RegardError(f"fit_power needs more points than its {unknowns} unknowns, got {len(values)}: measure more.")
    logs = np.log(np.asarray(values, dtype=np.float64))
    table = np.stack([np.log(np.asarray(axis, dtype=np.float64)) for axis in axes.values()], axis=1)
    # around their means, the factor is found apart from the slopes
    centre = table.mean(0)
    slopes, _, rank, _ = np.linalg.lstsq(table - centre, logs - logs.mean(), rcond=1e-9)
    if rank < len(axes):
        raise RegardError(f"fit_power cannot tell {', '.join(axes)} apart: each must change while the others stay.")
    spare = len(values) - unknowns
    residuals = logs - logs.mean() - (table - centre) @ slopes
    # what rounding leaves of a law that is met exactly is no scatter
    residuals[np.abs(residuals) <= 16 * np.finfo(np.float64).eps * np.abs(logs).max()] = 0
    variance = residuals @ residuals / spare
    spread = np.sqrt(variance * np.diag(np.linalg.inv((table - centre).T @ (table - centre))))
    ends = spread * stats.t.ppf(0.975, spare)
    return Fit(
        factor=float(np.exp(logs.mean() - centre @ slopes)),
        exponents={name: float(slope) for name, slope in zip(axes, slopes, strict=True)},
        intervals={
            name: [float(slope - end), float(slope + end)] for name, slope, end in zip(axes, slopes, ends, strict=True)
        },
        points=len(values),
    )
