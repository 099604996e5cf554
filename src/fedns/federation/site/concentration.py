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
_ROUNDING = 1e-10
REACH = 1 / 4


class Concentration(NamedTuple):
    """With d_i the curvature of row i at some coefficients, or at several; the first two are nan where all d_i are 0."""

    effective_rows: FloatArray  # (sum d)^2 / sum d^2
    largest_share: FloatArray  # of one row in the trace of the Hessian, max d_i |x_i|^2 / sum d_i |x_i|^2
    mean_curvature: FloatArray

    @classmethod
    def of(cls, sums: FloatArray) -> Concentration:
        """From sum d, sum d^2, sum d |x|^2 and the largest d |x|^2, of means over the rows' weights: (..., 4)."""
        total, squares, trace, largest = np.moveaxis(sums, -1, 0)
        with np.errstate(all="ignore"):  # the square of the total alone could be infinite
            return cls(total * (total / squares), largest / trace, total)


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
    (sum d)^2 / sum d^2 >= sum d / D, and no row has more than D |x|^2 of the trace.
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
        self, problem: Problem, w: FloatArray, direction: FloatArray, steps: FloatArray, known: FloatArray | None = None
    ) -> FloatArray:
        """Sums as `Concentration.of` takes them that make no more of the rows than is true, at w + t direction: (steps, 4).

        known: such sums, where curvatures have no bound: those of this part may be better.
        """
        bound = problem.loss.curvature_bound
        with parallel.threads(1 if self._few else None):  # few rows are read before a second thread has begun
            sums = problem.passes.curvatures_along(problem.loss, self._part, w, direction, steps, self._norms)
        total, _, trace, _ = np.einsum("j,jtk->kt", self._shares, sums)
        if known is not None:
            return np.column_stack([known[:, :2], np.fmax(known[:, 2], trace), known[:, 3]])
        largest = bound * (self._largest_norm + problem.intercept * self._largest_weight)
        return np.column_stack([total, bound * self._largest_weight * total, trace, np.full(steps.size, largest)])


def along_exponentials(
    first: FloatArray, steps: FloatArray, losses: FloatArray, slope: float, size: float, norms: tuple[float, float]
) -> FloatArray:
    """The same from losses alone, where curvatures are exponential along a ray: (steps, 4).

    Their sum is the loss less its linear part. Its logarithm is convex in t, and d(t)^k = d(0)^(k-1) d(k t) for every row.
    So sum d(t)^2 is at most max d(0) times the sum at 2 t, and d(t) |x|^2 at most the k-th root of (max d(0) |x|^2)^(k-1)
    times the sum at k t and max |x|^2.

    first: the sums at step 0, which is one of the steps; nothing is proven beyond `REACH` of the longest. slope: of the
    linear part along the ray, found by a sum of numbers of this size. norms: the smallest and the largest |x|^2.
    """
    least, most = norms
    with np.errstate(all="ignore"):
        start = losses[np.argmin(steps)] - first[0]
        rounding = _ROUNDING * (np.abs(losses) + abs(start) + steps * size)
        total, order = losses - start - steps * slope, np.argsort(steps)
        logs = np.log(total + rounding)[order]
        at_2, at_4 = (np.exp(np.interp(k * steps, steps[order], logs, right=np.nan)) for k in (2, 4))
        peak, sums = min(np.sqrt(first[1]), np.divide(first[3], least)), total - rounding
        largest = np.minimum(np.sqrt(first[3] * most * at_2), first[3] ** 0.75 * (most * at_4) ** 0.25)
        return np.column_stack([sums, peak * at_2, least * sums, largest])
