"""R4: no answer about coefficients at which a few rows decide."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedns.core.shards import Shards
from fedns.federation.site.concentration import Concentration, Neighbourhoods, PartOfRows, Table
from fedns.federation.site.permissions import Permissions, Refusal
from fedns.problems.losses import Squared
from fedns.problems.problem import Problem

FloatArray = NDArray[np.float64]
_REMEMBERED_POINTS = 4096
_PARTS = (1 / 64, 1 / 8)  # of the rows, looked at before all of them
_MANY_ROWS = 100_000  # with fewer a look at a part costs more than sums over all, in a pass that is made anyway


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
            raise Refusal("R4", "at these coefficients the answer would be about a few of its rows", str(found))

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
        rows = max(own.smallest_effective_rows, own.effective_rows_per_coefficient * width)
        return Concentration(*np.array([rows, own.largest_record_share, own.smallest_mean_curvature]))


def _mark_of(problem: Problem, w: FloatArray) -> tuple[Any, ...]:
    # The curvature of the squared loss is the same everywhere: one look at the rows is enough for all points.
    point = b"" if isinstance(problem.loss, Squared) else np.ascontiguousarray(w, dtype=np.float64).tobytes()
    return problem.loss, problem.intercept, hashlib.sha256(point).digest()
