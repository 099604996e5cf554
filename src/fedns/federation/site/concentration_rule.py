"""R4: no answer about coefficients at which a few rows decide."""

from __future__ import annotations

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

from fedns.core.shards import Shards
from fedns.federation.site.concentration import REACH, Concentration, PartOfRows, along_exponentials, squared_norms
from fedns.federation.site.permissions import Permissions, Refusal
from fedns.numerics.formulas import Formulas
from fedns.problems.losses import Squared
from fedns.problems.problem import Problem

FloatArray = NDArray[np.float64]
_REMEMBERED_POINTS = 4096
_PARTS = (1 / 64, 1 / 8)  # of the rows, looked at before all of them
_MANY_ROWS = 100_000  # with fewer a look at a part costs more than sums over all, in a pass that is made anyway


class ConcentrationRule:
    """The rule over one table of rows, and the points at which it is known to permit an answer."""

    def __init__(self, permissions: Permissions, shards: Shards) -> None:
        self.permissions, self.shards = permissions, shards
        self.norms = squared_norms(shards)
        self._parts = [PartOfRows(shards, self.norms, share) for share in _PARTS]
        self._passed: dict[bytes, FloatArray | None] = {}  # with the sums over all rows, where they were taken
        self._linear: dict[bytes, FloatArray] = {}  # gradients of the linear parts of losses, by loss

    def check_point(self, problem: Problem, w: FloatArray) -> None:
        """Refuse coefficients at which a few rows decide."""
        if not self.has_passed(problem, w):
            none = np.zeros_like(w)
            sums = problem.passes.curvatures_along(problem.loss, self.shards, w, none, np.zeros(1), self.norms)
            self.judge(problem, w, sums[0, 0])

    def has_passed(self, problem: Problem, w: FloatArray) -> bool:
        """Whether these coefficients have been looked at before, or need no look at all rows: a part of them is enough."""
        if self.permissions.needs_no_measure or _mark_of(problem, w) in self._passed:
            return True
        many = self.shards.num_samples >= _MANY_ROWS
        if not many or not self._proven(problem, w, np.zeros_like(w), np.zeros(1))[0]:
            return False
        self._remember(problem, w)
        return True

    def judge(self, problem: Problem, w: FloatArray, sums: FloatArray) -> None:
        """Refuse by the four sums of curvatures there, or remember the point."""
        found = Concentration.of(sums)
        if not self.permits(found, w.shape[-1]):
            raise Refusal("R4", "at these coefficients the answer would be about a few of its rows", str(found))
        self._remember(problem, w, sums)

    def _remember(self, problem: Problem, w: FloatArray, sums: FloatArray | None = None) -> None:
        self._passed[_mark_of(problem, w)] = sums
        if len(self._passed) > _REMEMBERED_POINTS:
            del self._passed[next(iter(self._passed))]

    def with_a_longer_step(self, problem: Problem, steps: FloatArray) -> FloatArray:
        """The steps of a search, and one more where its loss helps to prove that the others are permitted."""
        helps = problem.loss.linear_part is not None and steps.min() == 0.0 < steps.max()
        return np.append(steps, steps.max() / REACH) if helps else steps

    def permitted_along(
        self, problem: Problem, w: FloatArray, direction: FloatArray, steps: FloatArray, losses: FloatArray
    ) -> NDArray[np.bool_]:  # (steps,)
        """Whether w + t direction is permitted, for each t; all rows are read where less than that leaves any in doubt.

        losses: of the steps `with_a_longer_step`, in their order.
        """
        allowed = self._proven(problem, w, direction, steps, self._bounds_by_losses(problem, w, direction, steps, losses))
        doubtful = np.flatnonzero(~allowed)
        if doubtful.size:
            along = (w, direction, steps[doubtful], self.norms)
            allowed[doubtful] = self._permits_sums(problem.passes.curvatures_along(problem.loss, self.shards, *along)[0], w)
        return allowed

    def _bounds_by_losses(
        self, problem: Problem, w: FloatArray, direction: FloatArray, steps: FloatArray, losses: FloatArray
    ) -> FloatArray | None:  # (steps, 4)
        first, part = self._passed.get(_mark_of(problem, w)), problem.loss.linear_part
        if first is None or part is None or losses.size == steps.size:
            return None
        slope = self._gradient_of(part, problem, w.shape[-1])
        own = self.norms[self.shards.starts[0] : self.shards.stops[0]]
        norms = float(own.min()) + problem.intercept, float(own.max()) + problem.intercept
        size = float(np.linalg.norm(slope) * np.linalg.norm(direction))
        longer = self.with_a_longer_step(problem, steps)
        return along_exponentials(first, longer, losses, float(slope @ direction.ravel()), size, norms)[: steps.size]

    def _gradient_of(self, part: Formulas, problem: Problem, width: int) -> FloatArray:  # (features,)
        mark = _mark_of(problem, np.zeros(0))
        if mark not in self._linear:
            self._linear[mark] = problem.passes.gradient(part, self.shards, np.zeros(width))[0]
        return self._linear[mark]

    def _proven(
        self, problem: Problem, w: FloatArray, direction: FloatArray, steps: FloatArray, bounds: FloatArray | None = None
    ) -> NDArray[np.bool_]:  # (steps,)
        """Whether bounds, or else a small part of the rows, or else a larger one, are enough to permit w + t direction."""
        proven = np.zeros(steps.size, dtype=bool) if bounds is None else self._permits_sums(bounds, w)
        helpful = bounds is not None or math.isfinite(problem.loss.curvature_bound)
        for part in self._parts if helpful else ():
            doubtful = np.flatnonzero(~proven)
            if doubtful.size:
                known = None if bounds is None else bounds[doubtful]
                proven[doubtful] = self._permits_sums(part.bounds_along(problem, w, direction, steps[doubtful], known), w)
        return proven

    def _permits_sums(self, sums: FloatArray, w: FloatArray) -> NDArray[np.bool_]:  # (steps,)
        return self.permits(Concentration.of(sums), w.shape[-1])

    def permits(self, found: Concentration, width: int) -> NDArray[np.bool_]:
        """Written so that nan is not permitted."""
        own = self.permissions
        enough = found.effective_rows >= max(own.smallest_effective_rows, own.effective_rows_per_coefficient * width)
        even = found.largest_share <= own.largest_record_share
        return np.asarray(enough & even & (found.mean_curvature >= own.smallest_mean_curvature))


def _mark_of(problem: Problem, w: FloatArray) -> bytes:
    # The curvature of the squared loss is the same everywhere: one look at the rows is enough for all points.
    point = b"" if isinstance(problem.loss, Squared) else np.ascontiguousarray(w, dtype=np.float64).tobytes()
    return hashlib.sha256(repr(problem.loss).encode() + bytes([problem.intercept]) + point).digest()
