"""Which coefficients the rows of an estimator determine; of those that they do not, the smallest are given."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedns.core.cohort import Cohort
from fedns.models.penalties import Ridge
from fedns.models.problem import Problem
from fedns.studies.fitting.dependence import dependent, faded
from fedns.studies.questions.asking import REFUSALS
from fedns.studies.questions.information import ask_curvature

FloatArray = NDArray[np.float64]
_MOST_NAMED = 6
_ROUNDING = 16 * float(np.finfo(np.float64).eps)  # of a sum over rows
_LOST = float(np.finfo(np.float64).eps) / 2  # of a number: what changes nothing when it is added


@dataclass(frozen=True, eq=False)
class Rank:
    """The rank of a fit, as the Hessian where it begins tells it: without a penalty, or with one that is lost in rounding.

    - names: of the coefficients of one margin, the intercept's last.
    - intercept: whether there is one.
    - hessian: (coefficients, coefficients), of all margins.
    - found: columns that depend on those before them, each with a direction that changes no margin.
    - least: what tells least of the other columns, the intercept taken out.
    """

    names: tuple[str, ...]
    intercept: bool
    hessian: FloatArray
    found: tuple[tuple[int, FloatArray], ...]
    least: float

    @classmethod
    def of(cls, cohort: Cohort, names: tuple[str, ...]) -> Self | None:
        """After one exchange; nothing where sites refuse it."""
        try:
            hessian = ask_curvature(cohort, cohort.start).hessian
        except (*REFUSALS, ArithmeticError, ValueError):
            return None
        size, intercept = len(names), cohort.session.problem.intercept
        block, centring = hessian[:size, :size], np.eye(size)  # every margin has the same columns
        if intercept and block[-1, -1] > 0:  # columns far from 0 are told apart by what is left of them
            centring[-1, :-1] = -block[-1, :-1] / block[-1, -1]
        order = [size - 1, *range(size - 1)] if intercept else list(range(size))
        centred, whole = centring.T @ block @ centring, np.diag(block) if intercept else np.zeros(size)
        own = np.diag(centred)  # what is left of columns far from 0 has lost as many digits as it is smaller
        rounding = np.divide(_ROUNDING * whole, own, out=np.zeros(size), where=own > 0)
        found = dependent(centred, order, whole, rounding)
        gone = {column for column, _ in found}
        least = min((float(own[column]) for column in range(size - intercept) if column not in gone), default=np.inf)
        return cls(names, intercept, hessian, tuple((column, centring @ direction) for column, direction in found), least)

    @classmethod
    def beside(cls, strength: float, cohort: Cohort, names: tuple[str, ...], end: FloatArray) -> Self | None:
        """Where a penalty of this strength is lost in rounding, so that the fit is that without one; nothing elsewhere.

        end: the Hessian where the run ended, by which the other is not asked for unless the penalty may be lost.
        """
        if strength > _LOST * float(np.diag(end).max(initial=0.0)):
            return None
        rank = cls.of(cohort, names)
        return rank if rank is not None and strength <= _LOST * rank.least else None

    @property
    def columns(self) -> int:
        return len(self.names) - int(self.intercept)

    def pinned(self, problem: Problem) -> Problem:
        """The problem with a penalty on columns that others can stand in for: nothing pays for it, and steps are unique."""
        own = np.diag(self.hessian)
        gone = {column for column, _ in self.found}
        strengths = [float(own[column]) or 1.0 if column in gone else 0.0 for column in range(self.columns)]
        return replace(problem, penalty=Ridge(1.0, tuple(strengths))) if gone else problem

    def smallest(self, w: FloatArray) -> FloatArray:
        """The coefficients with the same margins whose squares, without the intercept's, have the smallest sum."""
        if not self.found:
            return w
        nothing = np.stack([direction for _, direction in self.found], axis=1)
        blocks = w.reshape(-1, len(self.names)).T
        shares = np.linalg.lstsq(nothing[: self.columns], blocks[: self.columns], rcond=None)[0]
        return np.asarray((blocks - nothing @ shares).T.ravel())

    @property
    def sentence(self) -> str:
        """Which columns the rows do not tell apart; empty where there are none."""
        if not self.found:
            return ""
        names = [self.names[column] for column, _ in self.found]
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        return (
            f"nothing is told by {', '.join(names[:_MOST_NAMED])}{more} that columns before do not tell: of all "
            "coefficients that fit the rows equally well the smallest are given, without standard errors; leave them out, "
            "or set a larger penalty"
        )

    def separating(self, end: FloatArray, rows: float) -> tuple[str, ...]:
        """Names of the columns along which the outcome is separated; end: the Hessian where the run ended."""
        gone, size = {column for column, _ in self.found}, len(self.names)
        kept = [place for place in range(len(end)) if place % size not in gone]
        curvature = float(self.hessian[size - 1, size - 1]) if self.intercept else 1.0
        part = np.ix_(kept, kept)
        try:
            share = faded(self.hessian[part], end[part], rows, curvature)
        except np.linalg.LinAlgError:  # no curvature where the run began
            return ()
        if share is None:
            return ()
        ranked = [self.names[kept[place] % size] for place in np.argsort(-share) if share[place] > 0.1 * share.max()]
        own = [name for name in dict.fromkeys(ranked) if not (self.intercept and name == self.names[-1])]
        return tuple(own[:_MOST_NAMED]) or tuple(ranked)
