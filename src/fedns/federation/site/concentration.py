"""R4: how many rows an answer is really about; at chosen coefficients the curvature may sit in a few of them."""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedns.core.shards import Shards
from fedns.federation.permissions import Permissions
from fedns.models.losses import Squared
from fedns.models.problem import Problem
from fedns.numerics import parallel
from fedns.numerics.rows import SparseRows

FloatArray = NDArray[np.float64]
_BLOCK = 1 << 22  # numbers
_STRETCHES = 16
_FEW_ROWS = 16384
_NEIGHBOURHOODS = 8
_REMEMBERED_POINTS = 4096
_PARTS = (1 / 64, 1 / 8)  # of the rows, looked at before all of them
_MANY_ROWS = 100_000  # with fewer a look at a part costs more than sums over all, in a pass that is made anyway


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


class Table:
    """A site's rows, and what the sums at any point are bounded by: found once."""

    def __init__(self, shards: Shards) -> None:
        self.shards = shards
        self.norms = squared_norms(shards)  # (stored rows,)
        own = slice(int(shards.starts[0]), int(shards.stops[0]))
        weights = np.ones(1) if shards.sample_weights is None else shards.sample_weights[own]
        self._largest_weight = float(weights.max() / shards.total_weights[0])
        self._largest_norm = float((weights * self.norms[own]).max() / shards.total_weights[0])
        self.least_norm = float(self.norms[own].min())

    def largest(self, problem: Problem) -> tuple[float, float]:
        """No row has a larger curvature anywhere, nor more of the trace of the Hessian."""
        bound = problem.loss.curvature_bound
        return bound * self._largest_weight, bound * (self._largest_norm + problem.intercept * self._largest_weight)


def squared_norms(shards: Shards) -> FloatArray:
    """|x_i|^2 of every row that is stored: (rows,)."""
    return np.concatenate([np.asarray(squares.sum(axis=1)).ravel() for squares in _squares(shards, 0, shards.rows.shape[0])])


def _squares(shards: Shards, start: int, stop: int) -> Iterator[Any]:
    """The squares of the numbers in some stored rows, a block at a time; compressed ones stay compressed."""
    rows, at_once = shards.rows, max(1, _BLOCK // max(1, shards.num_columns))
    for first in range(start, stop, at_once):
        block: Any = rows.block(first, min(first + at_once, stop))
        yield block.multiply(block) if isinstance(rows, SparseRows) else block * block


class PartOfRows:
    """Some of a site's rows, from all over them: mostly enough to prove that an answer is about many.

    Curvatures are not negative, so that sums over a part are at most those over all rows. Where none is above D,
    (sum d)^2 / sum d^2 >= sum d / D, and no row has more than D |x|^2 of the trace.
    """

    def __init__(self, table: Table, share: float) -> None:
        shards, rows = table.shards, table.shards.num_samples
        starts = shards.starts[0] + np.unique(np.arange(_STRETCHES) * rows // _STRETCHES)  # no row twice
        stops = starts + int(np.ceil(share * rows / _STRETCHES))
        self._table, self._part = table, replace(shards, starts=starts, stops=stops, names=None)
        self._few = int((stops - starts).sum()) < _FEW_ROWS
        self._shares = self._part.total_weights / shards.total_weights[0]  # (stretches,)

    def bounds_along(self, problem: Problem, w: FloatArray, direction: FloatArray, steps: FloatArray) -> FloatArray:
        """Sums as `Concentration.of` takes them, which make no more of the rows than is true, at w + t direction."""
        with parallel.threads(1 if self._few else None):  # few rows are read before a second thread has begun
            sums = problem.passes.curvatures_along(problem.loss, self._part, w, direction, steps, self._table.norms)
        total, _, trace, _ = np.einsum("j,jtk->kt", self._shares, sums)
        curvature, share = self._table.largest(problem)
        return np.column_stack([total, curvature * total, trace, np.full(steps.size, share)])  # (steps, 4)


class Neighbourhoods:
    """Points that have passed, each with a distance up to which all others pass too: no row has to be read for those.

    Where the logarithm of a curvature changes by at most c for a margin's change of 1, no curvature at v is more than
    exp(c h) times that at w, nor less than exp(-c h), with h the largest |x . (v - w)| of any row x. With the columns' root
    mean squares s as their units, h is at most the largest |x / s| times |s (v - w)|.
    """

    def __init__(self, table: Table) -> None:
        shards, self._table = table.shards, table
        own = int(shards.starts[0]), int(shards.stops[0])
        squares = sum(np.asarray(part.sum(axis=0)).ravel() for part in _squares(shards, *own)) / shards.num_samples
        inverse = np.divide(1.0, squares, out=np.zeros_like(squares), where=squares > 0)  # a column of zeros moves no margin
        self._units = np.sqrt(squares)  # (columns,)
        self._longest = max(float((part @ inverse).max()) for part in _squares(shards, *own))
        self._around: dict[tuple[Any, ...], deque[tuple[FloatArray, FloatArray, float]]] = {}

    def add(self, problem: Problem, w: FloatArray, sums: FloatArray, limits: Concentration) -> None:
        """Remember a point by its sums, as `Concentration.of` takes them; they may make less of the rows than is true."""
        rate = problem.loss.curvature_change * math.sqrt(self._longest + problem.intercept)
        reach = self._largest_change(problem, sums, limits)
        if reach > 0.0 and math.isfinite(rate):
            units = self._units[:-1] if problem.offset else self._units
            units = np.append(units, 1.0) if problem.intercept else units
            around = self._around.setdefault(_kind(problem), deque(maxlen=_NEIGHBOURHOODS))
            around.appendleft((units, w.ravel(), (reach / rate) ** 2 if rate else math.inf))

    def contain(self, problem: Problem, w: FloatArray) -> bool:
        """Whether a point is in one of them."""
        for units, centre, squared_distance in self._around.get(_kind(problem), ()):
            apart = ((w - centre) * units).ravel()
            if apart @ apart <= squared_distance:  # nan is not
                return True
        return False

    def contain_along(
        self, problem: Problem, w: FloatArray, direction: FloatArray, steps: FloatArray
    ) -> NDArray[np.bool_]:  # (steps,)
        """Whether w + t direction is, for each t in steps."""
        inside = np.zeros(steps.size, dtype=bool)
        for units, centre, squared_distance in self._around.get(_kind(problem), ()):
            a, b = ((w - centre) * units).ravel(), (direction * units).ravel()
            inside |= a @ a + steps * (2.0 * (a @ b) + steps * (b @ b)) <= squared_distance
            if inside.all():
                break
        return inside

    def _largest_change(self, problem: Problem, sums: FloatArray, limits: Concentration) -> float:
        """Up to which change of the logarithms of curvatures the limits hold; nan or less than 0 where there is none."""
        most_curvature, most_trace = self._table.largest(problem)
        with np.errstate(all="ignore"):
            total, squares, trace, largest = sums
            peak = largest / np.float64(self._table.least_norm + problem.intercept)  # no row's curvature is above it
            rows, share, mean = limits
            effective = np.log([total / (most_curvature * rows), total / (peak * rows), total * (total / squares) / rows])
            even = np.log([share * trace / most_trace, share * trace / largest])
            # numpy's least is nan where one is; Python's need not be
            return float(np.min([(effective / [1, 2, 4]).max(), (even / [1, 2]).max(), np.log(total / mean)]))


def _kind(problem: Problem) -> tuple[Any, ...]:
    """Of problems that are alike in this, curvatures at the same coefficients are the same."""
    return problem.loss, problem.intercept, problem.offset


class ConcentrationRule:
    """The rule over one table of rows, and the points at which it is known to permit an answer."""

    def __init__(self, permissions: Permissions, shards: Shards) -> None:
        self.permissions, self.table = permissions, Table(shards)
        self._parts = [PartOfRows(self.table, share) for share in _PARTS]
        self._near = Neighbourhoods(self.table)
        self._passed: dict[tuple[Any, ...], None] = {}  # in the order in which they did

    def check_point(self, problem: Problem, w: FloatArray) -> None:
        """Refuse coefficients at which a few rows decide."""
        if not self.has_passed(problem, w) and not self._proven_by_parts(problem, w, np.zeros_like(w), np.zeros(1))[0]:
            self.judge(problem, w, self._sums_along(problem, w, np.zeros_like(w), np.zeros(1))[0])

    def has_passed(self, problem: Problem, w: FloatArray) -> bool:
        """Whether these coefficients are known to be permitted, and no row has to be looked at."""
        return self.permissions.needs_no_measure or self._near.contain(problem, w) or _mark_of(problem, w) in self._passed

    def passes_at_a_glance(self, problem: Problem, w: FloatArray) -> bool:
        """The same, or a part of the rows is enough, where there are so many that it costs less than sums over all."""
        many = self.table.shards.num_samples >= _MANY_ROWS
        none = np.zeros_like(w)
        return self.has_passed(problem, w) or (many and bool(self._proven_by_parts(problem, w, none, np.zeros(1))[0]))

    def judge(self, problem: Problem, w: FloatArray, sums: FloatArray) -> None:
        """Refuse by the four sums of curvatures there, or remember the point."""
        self.judge_some(w, sums)
        self._remember(problem, w, sums)

    def judge_some(self, w: FloatArray, sums: FloatArray) -> None:
        """Refuse by the four sums over the rows that an answer is about, which need not be all."""
        found = Concentration.of(sums)
        if not self.permits(found, w.shape[-1]):
            raise self.permissions.few_rows(found)

    def _remember(self, problem: Problem, w: FloatArray, sums: FloatArray) -> None:
        self._near.add(problem, w, sums, self._limits(w.shape[-1]))
        self._passed[_mark_of(problem, w)] = None
        if len(self._passed) > _REMEMBERED_POINTS:
            del self._passed[next(iter(self._passed))]

    def permitted_along(
        self, problem: Problem, w: FloatArray, direction: FloatArray, steps: FloatArray
    ) -> NDArray[np.bool_]:  # (steps,)
        """Whether w + t direction is permitted, for each t; all rows are read where less than that leaves any in doubt."""
        allowed = self._near.contain_along(problem, w, direction, steps)
        for look in (self._proven_by_parts, self._permitted_by_all):
            doubtful = np.flatnonzero(~allowed)
            if doubtful.size:
                allowed[doubtful] = look(problem, w, direction, steps[doubtful])
        return allowed

    def _proven_by_parts(
        self, problem: Problem, w: FloatArray, direction: FloatArray, steps: FloatArray
    ) -> NDArray[np.bool_]:  # (steps,)
        """Whether a small part of the rows, or else a larger one, is enough to permit w + t direction."""
        proven = np.zeros(steps.size, dtype=bool)
        for part in self._parts if math.isfinite(problem.loss.curvature_bound) else ():
            doubtful = np.flatnonzero(~proven)
            if doubtful.size:
                bounds = part.bounds_along(problem, w, direction, steps[doubtful])
                proven[doubtful] = self._remember_permitted(problem, w + steps[doubtful, None] * direction, bounds)
        return proven

    def _permitted_by_all(
        self, problem: Problem, w: FloatArray, direction: FloatArray, steps: FloatArray
    ) -> NDArray[np.bool_]:  # (steps,)
        sums = self._sums_along(problem, w, direction, steps)
        return self._remember_permitted(problem, w + steps[:, None] * direction, sums)

    def _remember_permitted(self, problem: Problem, points: FloatArray, sums: FloatArray) -> NDArray[np.bool_]:  # (points,)
        permitted = self._permits_sums(sums, points.shape[-1])
        if permitted.any():  # one is enough of points that are near each other
            first = int(np.argmax(permitted))
            self._remember(problem, points[first], sums[first])
        return permitted

    def _sums_along(self, problem: Problem, w: FloatArray, direction: FloatArray, steps: FloatArray) -> FloatArray:
        along = (w, direction, steps, self.table.norms)
        sums: FloatArray = problem.passes.curvatures_along(problem.loss, self.table.shards, *along)[0]
        return sums  # (steps, 4)

    def _permits_sums(self, sums: FloatArray, width: int) -> NDArray[np.bool_]:  # (steps,)
        return self.permits(Concentration.of(sums), width)

    def permits(self, found: Concentration, width: int) -> NDArray[np.bool_]:
        """Written so that nan is not permitted."""
        rows, share, mean = self._limits(width)
        return np.asarray((found.effective_rows >= rows) & (found.largest_share <= share) & (found.mean_curvature >= mean))

    def _limits(self, width: int) -> Concentration:
        own = self.permissions
        return Concentration(*np.array([own.effective_rows(width), own.largest_record_share, own.smallest_mean_curvature]))


def _mark_of(problem: Problem, w: FloatArray) -> tuple[Any, ...]:
    # The curvature of the squared loss is the same everywhere: one look at the rows is enough for all points.
    point = b"" if isinstance(problem.loss, Squared) else np.ascontiguousarray(w, dtype=np.float64).tobytes()
    return problem.loss, problem.intercept, hashlib.sha256(point).digest()
