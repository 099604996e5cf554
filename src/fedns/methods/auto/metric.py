"""What the server of `auto` knows of the Hessian, and its inverse."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy.linalg

from fedns.core.types import FloatArray
from fedns.methods.auto import thresholds
from fedns.methods.auto.rounding import products_of
from fedns.methods.auto.state import AutoState
from fedns.numerics.linalg import LowRank, solve_shifted, symmetric_of, triangle_of

Solver = Callable[[FloatArray], FloatArray]


@lru_cache(maxsize=2)  # most metrics serve for several rounds
def _eigenpairs(matrix: bytes, size: int) -> tuple[FloatArray, FloatArray]:
    values, vectors = np.linalg.eigh(np.frombuffer(matrix).reshape(size, size))
    return values, vectors


class Metric(NamedTuple):
    """A Hessian without the penalty, times a weight; none where nothing is known, or where clients solve."""

    triangle: FloatArray = np.zeros(0)
    weight: float = 0.0
    noise: float = 0.0  # curvature below this, in scaled columns, may be rounding
    rows: FloatArray = np.zeros((0, 0))  # the root of the Hessian, where there are too many columns for the matrix

    @classmethod
    def of(cls, state: AutoState) -> Metric:
        return cls(state.metric, float(state.metric_weight), float(state.metric_noise), state.metric_rows)

    def kept_in(self, state: AutoState) -> AutoState:
        rows = self.rows.reshape(-1, state.coefficients.size)  # also of none
        return state.after(metric=self.triangle, metric_rows=rows, metric_weight=self.weight, metric_noise=self.noise)

    @property
    def known(self) -> bool:
        return bool(self.triangle.size or self.rows.size)

    def averaged_with(self, sketched: FloatArray | LowRank) -> Metric:
        forgetting, older = thresholds.FORGETTING, thresholds.OLDER
        weight = forgetting * self.weight + 1.0
        if isinstance(sketched, LowRank):
            before = [np.sqrt(forgetting) * self.rows[-older * len(sketched.rows) :]] if self.rows.size else []
            return Metric(self.triangle, weight, self.noise, np.concatenate([*before, sketched.rows]))
        return Metric((forgetting * self.triangle if self.triangle.size else 0.0) + sketched, weight, self.noise)

    @classmethod
    def of_roots(cls, gram: FloatArray, penalty: FloatArray, scales: FloatArray) -> Metric:
        """Roots have the penalty in them."""
        noise = max(thresholds.SINGULAR, float(np.min(penalty / scales**2)))
        return cls(gram - triangle_of(np.diag(penalty)), 1.0, noise)

    def moved_by(self, change: FloatArray, variance: float, scales: FloatArray) -> Metric:
        """A change in scaled columns, of entries whose rounding errors have a variance of up to a quarter of this."""
        triangle = (self.triangle if self.triangle.size else 0.0) + change * products_of(scales)
        # A symmetric matrix of rounding errors of variance up to unit^2 / 4 has eigenvalues up to unit sqrt(M).
        return Metric(triangle, 1.0, float(np.sqrt(variance * scales.size)))

    def solver(self, scales: FloatArray, penalty: FloatArray, definite: bool) -> Solver:
        """The inverse of the Hessian, penalty included. definite: whether rounding has left no direction without it."""
        if self.rows.size:
            low_rank, diagonal = LowRank(self.rows / np.sqrt(self.weight) / scales), penalty / scales**2
            if np.count_nonzero(diagonal == 0) > len(self.rows) // 2:  # more than the rows can tell apart
                diagonal = np.maximum(diagonal, thresholds.UNKNOWN * float((low_rank.rows**2).sum()) / scales.size)
            return lambda vector: solve_shifted(low_rank, diagonal, vector / scales) / scales
        hessian = symmetric_of(self.triangle / self.weight, scales.size) / np.outer(scales, scales)
        hessian[np.diag_indices(scales.size)] += penalty / scales**2
        if not definite:  # no direction is believed to have less curvature than rounding may have left
            values, vectors = _eigenpairs(hessian.tobytes(), scales.size)
            values = np.maximum(values, min(self.noise, values[-1]))
            return lambda vector: vectors @ ((vectors.T @ (vector / scales)) / values) / scales
        factor = scipy.linalg.cho_factor(hessian, check_finite=False)
        return lambda vector: scipy.linalg.cho_solve(factor, vector / scales, check_finite=False) / scales
