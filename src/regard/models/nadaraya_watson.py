"""Nadaraya–Watson kernel regression, as a scikit-learn estimator: https://doi.org/10.1137/1109020."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from regard.core import Mask, RegardError
from regard.engine import attend, find_weights
from regard.extras import install
from regard.mask import Lengths, Window
from regard.score import Gaussian

try:
    from scipy.optimize import minimize, minimize_scalar  # type: ignore[import-untyped]
    from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ImportError:
    raise RegardError(f"NadarayaWatson needs scikit-learn 1.6 or later: {install('learn')}.") from None

Array = NDArray[Any]

# natural logarithms of widths times spread: the grid's step (twelve to a decade), and the smoothest kernel ever tried
STEP, LOWEST = np.log(10) / 12, np.log(1e-3)
# a coarse look at the error needs no more samples than this
GLANCE = 500


class NadarayaWatson(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Kernel regression: a point is predicted by the average of the samples, weighted by exp(−½‖(x − xᵢ)·width‖²).

    >>> X = np.linspace(0, 3, 31)[:, None]
    >>> y = np.sin(X[:, 0]) + np.tile([0.1, -0.1, 0, 0.2, -0.2], 7)[:31]
    >>> model = NadarayaWatson(width="learn").fit(X, y)
    >>> model.predict([[1.0], [2.0]]).round(2), round(model.width_, 1)
    (array([0.82, 0.88]), 4.2)

    `width` multiplies distances, as in `Gaussian(width)`: it is one over the bandwidth, and a larger one is sharper. It
    is a number, or one per feature; "learn" is the width of least leave-one-out error; None is Scott's rule of thumb,
    n^(1/(d+4)) / σ for n samples of d features with standard deviation σ, made for densities and often too smooth for
    curves. Those two find one width for all features (σ is then their root mean square), or with `per_feature` one
    for each, and zero for a feature that never varies.

    `sample_weight` multiplies the kernel, and a sample of weight k counts as k samples: n is their sum, and leaving one
    out leaves k − 1 there, or nothing of a weight up to one. So weights that are no counts should be at most one.

    Far from all samples the nearest one wins. Memory is O(n), in fit and predict, for a million samples too. Of more
    than `max_fit_samples` (None: no limit) so many, drawn with `random_state`, are left out in turn, each predicted by
    all others. `device` and `dtype` ("float64" or "float32") say where and in what everything is computed.

    After fit: `width_`, a float or an array (features,); `loo_error_`; `X_`, `y_`, the samples of weight above zero.
    """

    def __init__(
        self,
        width: float | ArrayLike | str | None = None,
        *,
        per_feature: bool = False,
        max_fit_samples: int | None = 5000,
        random_state: Any = 0,
        device: str = "cpu",
        dtype: str = "float64",
    ) -> None:
        self.width = width
        self.per_feature = per_feature
        self.max_fit_samples = max_fit_samples
        self.random_state = random_state
        self.device = device
        self.dtype = dtype

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Keep the samples, and choose the bandwidth where no width is given."""
        if self.dtype not in ("float64", "float32"):
            raise RegardError(f'NadarayaWatson dtype must be "float64" or "float32", got {self.dtype!r}.')
        if self.max_fit_samples is not None and not self.max_fit_samples >= 1:
            raise RegardError(f"NadarayaWatson max_fit_samples must be None or at least 1, got {self.max_fit_samples}.")
        rows, targets = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        if sample_weight is not None and not np.asarray(sample_weight, dtype=np.float64).any():
            # the second sentence is scikit-learn's, and its checks ask for it
            raise RegardError(
                f"NadarayaWatson sample_weight is {len(rows)} zeros. Sample weights must contain at least one non-zero"
                " number."
            )
        weight = _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
        # copies: what the caller does to the arrays later is not the model's
        self._kept = weight > 0
        self.X_, self.y_ = rows[self._kept], targets[self._kept].astype(np.float64)
        self._weight = None if sample_weight is None else weight[self._kept]
        self.__dict__.pop("loo_error_", None)
        self.width_ = self._find_width()
        return self

    @torch.no_grad()
    def predict(self, X: ArrayLike) -> Array:
        """The prediction at each row of X, shaped as y was."""
        query = self._read(X)
        samples = self._hold()
        mean = attend(query, samples.x, samples.y, score=Gaussian(self._hold_width()), bias=samples.log_weight)
        out: Array = mean.double().numpy(force=True)
        return out if self.y_.ndim > 1 else out[:, 0]

    def weights(self, X: ArrayLike) -> Array:
        """The attention weights of each row of X for each sample of fit, (rows, samples), all in memory."""
        query = self._read(X)
        samples = self._hold()
        found = np.zeros((len(query), len(self._kept)))
        seen = find_weights(query, samples.x, score=Gaussian(self._hold_width()), bias=samples.log_weight)
        found[:, self._kept] = seen.numpy(force=True)
        return found

    @cached_property
    def loo_error_(self) -> float:
        """The mean squared error of predicting each sample from all others, at `width_`; computed when first read."""
        check_is_fitted(self)
        self._check_count()
        drawn = self._draw()
        with torch.no_grad():
            return float(drawn.leave_one_out(self._hold_width().expand(1, self.n_features_in_), drawn.most))

    def _read(self, X: ArrayLike) -> Tensor:
        check_is_fitted(self)
        return self._as_tensor(validate_data(self, X, reset=False, dtype=np.float64))

    def _as_tensor(self, array: ArrayLike) -> Tensor:
        # a copy: an array may be read-only, which torch's tensors never are
        return torch.tensor(array, dtype=getattr(torch, self.dtype), device=self.device)

    def _hold(self, order: Array | slice = slice(None)) -> Samples:
        y = self.y_ if self.y_.ndim > 1 else self.y_[:, None]
        weight = None if self._weight is None else self._as_tensor(self._weight[order])
        limit = self.max_fit_samples or len(y)
        return Samples(self._as_tensor(self.X_[order]), self._as_tensor(y[order]), weight, limit)

    def _hold_width(self) -> Tensor:
        return self._as_tensor(self.width_)

    def _draw(self) -> Samples:
        """The samples, shuffled where they are many, so that the first ones stand for all."""
        if len(self.X_) <= min(self.max_fit_samples or GLANCE, GLANCE):
            return self._hold()
        return self._hold(check_random_state(self.random_state).permutation(len(self.X_)))

    def _check_count(self) -> None:
        # a sample that counts as two can be left out once
        if len(self.X_) == 1 and (self._weight is None or self._weight[0] <= 1):
            raise RegardError(
                'NadarayaWatson width="learn" and loo_error_ predict each sample from others, got n_samples=1:'
                " give a width, or more samples."
            )

    def _find_width(self) -> float | Array:
        width, d = self.width, self.n_features_in_
        if width is None or isinstance(width, str):
            if width not in (None, "learn"):
                raise RegardError(f'NadarayaWatson width must be None, "learn" or a number, got {width!r}.')
            if width == "learn":
                self._check_count()
            slope = self._scale()
            if not slope.any():
                # all samples are at one place: no width tells them apart
                return slope if self.per_feature else 0.0
            factor = self._learn(slope) if width == "learn" else self._guess()
            found = factor * slope
            return found if self.per_feature else float(found[0])
        given = np.asarray(width)
        if given.shape not in ((), (d,)):
            raise RegardError(
                f"NadarayaWatson width must be one number or one for each of {d} features, got shape {given.shape}."
            )
        is_number = given.dtype.kind in "iuf" and not isinstance(width, bool)
        if not is_number or not (np.isfinite(given) & (given >= 0)).all():
            raise RegardError(f"NadarayaWatson width must be finite and at least 0, got {width!r}.")
        return float(given) if given.ndim == 0 else given.astype(np.float64)

    def _scale(self) -> Array:
        """One over the standard deviation, of each feature or of all together: what brings samples to unit spread."""
        x = self.X_
        apart = x - np.average(x, axis=0, weights=self._weight)
        reach = np.abs(apart).max(0)
        # a difference may be too large, or too small, to be squared as it is; rounding is no spread
        seen = reach > 1e-14 * np.abs(x).max(0)
        reach = np.where(seen, reach, 1.0)
        spread = np.where(seen, reach * np.sqrt(np.average((apart / reach) ** 2, axis=0, weights=self._weight)), 0.0)
        if self.per_feature:
            return np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)
        top = spread.max()
        one = top and 1 / (top * np.sqrt(np.mean((spread / top) ** 2)))
        return np.full(len(spread), one)

    def _guess(self) -> float:
        n = len(self.X_) if self._weight is None else max(float(self._weight.sum()), 1.0)
        return float(n ** (1 / (self.n_features_in_ + 4)))

    def _learn(self, slope: Array) -> Array | float:
        """The factor of `slope` with the least leave-one-out error: one number, or one per feature."""
        samples = self._draw()
        glance = min(samples.most, GLANCE)
        flat = self._as_tensor(slope)

        @torch.no_grad()
        def scan(logs: Array, rows: int) -> Array:
            heads = self._as_tensor(np.exp(logs))[:, None] * flat
            found: Array = samples.leave_one_out(heads, rows).numpy(force=True)
            return found

        # the error of few samples may have several valleys; that of many has one, wide where only some of them are seen
        has_many = len(self.X_) > GLANCE
        step, far = (2 * STEP, 3.0) if has_many else (STEP, 100.0)
        # beyond where the nearest neighbour begins to win, for samples spread evenly
        sharp = np.log(max(10.0, far * min(len(self.X_), 1000) ** (1 / self.n_features_in_)))
        grid, errors = _scan_widely(lambda logs: scan(logs, glance), sharp, step)
        low = grid[errors <= 1.05 * errors.min()]
        floors = [(low[0], low[-1])] if has_many else [(x, x) for x in grid[_find_valleys(errors)[:4]]]
        found = []
        for start, end in floors:
            descent = minimize_scalar(
                lambda log: scan(np.array([log]), samples.most)[0],
                bounds=(start - step, end + step),
                method="bounded",
                options={"xatol": 1e-3 if self.dtype == "float32" else 1e-4 if has_many else 1e-5},
            )
            found.append((float(descent.fun), float(descent.x)))
        least, best = min(found)
        if not self.per_feature or self.n_features_in_ == 1:
            return float(np.exp(best))
        # of order one, whatever the unit of y: the search stops by absolute slopes
        unit = least if least > 0 else 1.0

        def error(logs: Array) -> tuple[float, Array]:
            log = self._as_tensor(logs).requires_grad_()
            loss = samples.leave_one_out((log.exp() * flat)[None], samples.most).sum() / unit
            loss.backward()
            assert log.grad is not None
            return loss.item(), log.grad.numpy(force=True).astype(np.float64)

        bounds = [(min(LOWEST, best), max(sharp, best) + 12 * STEP)] * self.n_features_in_
        descent = minimize(error, np.full(len(bounds), best), jac=True, method="L-BFGS-B", bounds=bounds)
        factors: Array = np.exp(descent.x)
        return factors


@dataclass(frozen=True)
class Samples:
    """The samples of fit, as tensors (n, d), (n, e) and (n,); the leave-one-out error is of the first `limit`."""

    x: Tensor
    y: Tensor
    weight: Tensor | None
    limit: int

    @property
    def most(self) -> int:
        return min(len(self.x), self.limit)

    @property
    def log_weight(self) -> Tensor | None:
        return None if self.weight is None else self.weight.log()

    def leave_one_out(self, widths: Tensor, rows: int) -> Tensor:
        """The leave-one-out error (mean squared) of the first `rows` samples by all others; one per width (d,)."""
        keys, values, bias = self.x, self.y, self.log_weight
        # a window that reaches nowhere is the diagonal: all may meet but a sample and itself
        mask: Mask = ~Window(0, 0, offset=0)
        if self.weight is not None and (self.weight[:rows] > 1).any():
            # of a sample that counts as several only one is left out: the rest is a key of its own, behind all others
            rest = (self.weight[:rows] - 1).clamp_min(0)
            mask = mask & Lengths(torch.tensor([len(keys)], device=keys.device)) | Window(0, 0, offset=len(keys))
            keys, values = torch.cat([keys, keys[:rows]]), torch.cat([values, values[:rows]])
            bias = torch.cat([self.weight, rest]).log()
        query, key, value = (x.expand(1, len(widths), -1, -1) for x in (self.x[:rows], keys, values))
        out = attend(query, key, value, score=Gaussian(widths), mask=mask, bias=bias)[0]
        errors = (out - self.y[:rows]).square().mean(-1)
        if self.weight is None:
            return errors.mean(-1)
        weight = self.weight[:rows]
        return (errors * weight).sum(-1) / weight.sum()


def _scan_widely(error: Callable[[Array], Array], high: float, step: float) -> tuple[Array, Array]:
    """The errors on a grid of widths up to `high`, and on as long as they fall."""
    grid = np.arange(LOWEST, high + step, step)
    errors = error(grid)
    # no kernel is sharper than the one that takes the nearest of samples that lie a billionth apart
    while errors.argmin() == len(grid) - 1 and grid[-1] < high + np.log(1e9):
        more = grid[-1] + step * np.arange(1, 7)
        grid, errors = np.append(grid, more), np.append(errors, error(more))
    return grid, errors


def _find_valleys(errors: Array) -> Array:
    """The local minima of the errors, the lowest first."""
    walled = np.pad(errors, 1, constant_values=np.inf)
    valleys = np.flatnonzero((errors <= walled[:-2]) & (errors < walled[2:]))
    # in a flat row of errors the last would do, but the first is smoother
    valleys = np.union1d(valleys, errors.argmin())
    found: Array = valleys[np.argsort(errors[valleys], kind="stable")]
    return found
