"""How many rows an answer is really about: at chosen coefficients the curvature may sit in a few of them."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedns.core.shards import Shards
from fedns.numerics import parallel
from fedns.numerics.rows import DenseRows
from fedns.problems.problem import Problem

FloatArray = NDArray[np.float64]
_BLOCK = 65536
_STRETCHES = 16
_FEW_ROWS = 16384


class Concentration(NamedTuple):
    """With d_i the curvature of row i at some coefficients; the first two are nan where all d_i are 0."""

    effective_rows: float  # (sum d)^2 / sum d^2
    largest_share: float  # of one row in the trace of the Hessian, max d_i |x_i|^2 / sum d_i |x_i|^2
    mean_curvature: float

    @classmethod
    def of(cls, sums: FloatArray) -> Concentration:
        """From sum d, sum d^2, sum d |x|^2 and the largest d |x|^2, of means over the rows' weights."""
        total, squares, trace, largest = sums
        with np.errstate(all="ignore"):  # the square of the total alone could be infinite
            return cls(float(total * (total / squares)), float(largest / trace), float(total))


def squared_norms(shards: Shards) -> FloatArray:
    """|x_i|^2 of every row that is stored: (rows,)."""
    rows = shards.rows
    if isinstance(rows, DenseRows):
        values = rows.values
        parts = [values[a : a + _BLOCK].astype(np.float64) for a in range(0, len(values), _BLOCK)]
        return np.concatenate([np.einsum("ij,ij->i", part, part) for part in parts])
    matrix = rows.block(0, rows.shape[0])
    return np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel()


class PartOfRows:
    """Some of a site's rows, from all over them: mostly enough to prove that an answer is about many.

    Curvatures are not negative, so that sums over a part are at most those over all rows. Where none is above D,
    (sum d)^2 / sum d^2 >= sum d / D, and no row has more than D |x|^2 of the trace. Where their logarithms are linear along
    a ray, sum d^2 and the largest d |x|^2 are log-convex: between two points at most what the powers of both give.
    """

    def __init__(self, shards: Shards, norms: FloatArray, share: float) -> None:
        rows = shards.num_samples
        starts = shards.starts[0] + np.unique(np.arange(_STRETCHES) * rows // _STRETCHES)  # no row twice
        stops = starts + int(np.ceil(share * rows / _STRETCHES))
        self._part = replace(shards, starts=starts, stops=stops, names=None)
        self._norms, self._few = norms, int((stops - starts).sum()) < _FEW_ROWS
        own = slice(shards.starts[0], shards.stops[0])
        total = shards.total_weights[0]
        weights = np.ones(1) if shards.sample_weights is None else shards.sample_weights[own]
        self._shares = self._part.total_weights / total  # (stretches,)
        self._largest_weight = float(weights.max() / total)
        self._largest_norm = float((weights * norms[own]).max() / total)

    def bounds_along(
        self, problem: Problem, w: FloatArray, direction: FloatArray, steps: FloatArray, caps: FloatArray | None = None
    ) -> FloatArray:
        """Sums as `Concentration.of` takes them, at w + t direction, that make of the rows no more than is true: (steps, 4).

        Where nothing is known of the largest curvatures they are nan, which proves nothing. caps: for each t what sum d^2
        and the largest d |x|^2 are at most, (steps, 2), where that is known.
        """
        bound = problem.loss.curvature_bound
        if not np.isfinite(bound) and caps is None:
            return np.full((steps.size, 4), np.nan)
        with parallel.threads(1 if self._few else None):  # few rows are read before a second thread has begun
            sums = problem.passes.curvatures_along(problem.loss, self._part, w, direction, steps, self._norms)
        total, _, trace, _ = np.einsum("j,jtk->kt", self._shares, sums)
        if caps is not None:
            return np.column_stack([total, caps[:, 0], trace, caps[:, 1]])
        largest = bound * (self._largest_norm + problem.intercept * self._largest_weight)
        return np.column_stack([total, bound * self._largest_weight * total, trace, np.full(steps.size, largest)])
