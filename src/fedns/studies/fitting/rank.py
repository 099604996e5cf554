"""Which coefficients rows do not determine: columns that depend on others, and directions without a maximum.

The server finds both from Hessians, that where a fit begins and that where it ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import scipy.linalg

from fedns.core.types import FloatArray
from fedns.models.penalties import Ridge
from fedns.models.problem import Problem

DEPENDENT = 1e-10  # what is left of a column of unit length, squared, after the columns before it are taken out
NOTHING = 1e-12  # of the information that a column could have: R's coxph has 1.8e-12
NO_INFORMATION = 1e-5  # rows' worth of curvature left in a direction where the outcome is separated
MOST_NAMED = 6
_ROUNDING = 16 * float(np.finfo(np.float64).eps)  # of a sum over rows
_LOST = float(np.finfo(np.float64).eps) / 2  # of a number: what changes nothing when it is added


@dataclass(frozen=True, eq=False)
class Rank:
    """The rank of a fit, as the Hessian where it begins tells it.

    - names: of all coefficients as they are fitted, margin by margin, the intercept of each last.
    - hessian: (coefficients, coefficients) of the objective.
    - found: columns that depend on those before them, each with a direction that changes no margin.
    - whole: (coefficients,) the diagonal of the Hessian, or what it would be about if all of a column's variance told.
    - intercept: whether a margin has one.
    - outputs: how many margins a row has.
    - least: what tells least of the other columns, the intercept taken out; only of columns that nobody has coded.
    """

    names: Sequence[str]
    hessian: FloatArray
    found: tuple[tuple[int, FloatArray], ...]
    whole: FloatArray
    intercept: bool
    outputs: int = 1
    least: float = np.inf

    @classmethod
    def of_raw(cls, hessian: FloatArray, names: Sequence[str], intercept: bool, outputs: int) -> Self:
        """The rank of columns as somebody gave them, found after the intercept is taken out of them.

        Columns far from 0 are told apart by what is left then, which has lost as many digits as it is smaller.
        """
        size = len(names) // outputs
        block, centring = hessian[:size, :size], np.eye(size)  # every margin has the same columns
        if intercept and block[-1, -1] > 0:
            centring[-1, :-1] = -block[-1, :-1] / block[-1, -1]
        order = [size - 1, *range(size - 1)] if intercept else list(range(size))
        centred, whole = centring.T @ block @ centring, np.diag(block) if intercept else np.zeros(size)
        own = np.diag(centred)
        rounding = np.divide(_ROUNDING * whole, own, out=np.zeros(size), where=own > 0)
        columns = [(column, centring @ direction) for column, direction in dependent(centred, order, whole, rounding)]
        gone = {column for column, _ in columns}
        least = min((float(own[column]) for column in range(size - intercept) if column not in gone), default=np.inf)
        margins = np.eye(outputs)
        found = [
            (column + size * margin, np.kron(margins[margin], direction))
            for margin in range(outputs)
            for column, direction in columns
        ]
        return cls(names, hessian, tuple(found), np.diag(hessian), intercept, outputs, least)

    @property
    def size(self) -> int:
        """How many coefficients a margin has."""
        return len(self.names) // self.outputs

    def is_lost(self, strength: float) -> bool:
        """Whether a penalty of this strength is lost in the rounding of every column that tells something."""
        return strength <= _LOST * self.least

    def pinned(self, problem: Problem) -> Problem:
        """The problem with a penalty on columns that others can stand in for: nothing pays for it, and steps are unique."""
        columns = self.size - int(self.intercept)
        pins = {column % self.size for column, _ in self.found} & set(range(columns))
        if not pins:
            return problem
        factors = np.array(problem.penalty.factors or np.ones(columns)) * problem.penalty.strength
        for column in pins:
            factors[column] += self.whole[column] or 1.0
        return replace(problem, penalty=Ridge(1.0, tuple(factors.tolist())))

    def smallest(self, w: FloatArray) -> FloatArray:
        """The coefficients with the same margins whose squares, without the intercept's, have the smallest sum."""
        directions = [direction[: self.size] for column, direction in self.found if column < self.size]
        if not directions:
            return w
        nothing = np.stack(directions, axis=1)
        blocks, penalised = w.reshape(-1, self.size).T, slice(self.size - int(self.intercept))
        shares = np.linalg.lstsq(nothing[penalised], blocks[penalised], rcond=None)[0]
        return np.asarray((blocks - nothing @ shares).T.ravel())

    @property
    def undetermined(self) -> str:
        """Say which columns the rows do not tell apart; nothing where there are none."""
        if not self.found:
            return ""
        names = list(dict.fromkeys(self.names[column] for column, _ in self.found))
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        return (
            f"nothing is told by {', '.join(names[:MOST_NAMED])}{more} that columns before do not tell: of all "
            "coefficients that fit the rows equally well the smallest are given, without standard errors; leave them out, "
            "or set a larger penalty"
        )

    def separating(self, end: FloatArray, rows: float) -> tuple[str, ...]:
        """Names of the columns along which the outcome is separated; nothing where the optimum is finite.

        end: the Hessian of the objective where the run ended.
        """
        gone = {column for column, _ in self.found}
        kept = [place for place in range(len(end)) if place not in gone]
        part = np.ix_(kept, kept)
        try:
            share = faded(self.hessian[part], end[part], rows, self.hessian[-1, -1] if self.intercept else 1.0)
        except np.linalg.LinAlgError:  # no curvature where the run began
            return ()
        if share is None:
            return ()
        ranked = [kept[place] for place in np.argsort(-share) if share[place] > 0.1 * share.max()]
        columns = [place for place in ranked if not (self.intercept and place % self.size == self.size - 1)]
        names = tuple(dict.fromkeys(self.names[place] for place in columns))
        return names[:MOST_NAMED] or tuple(self.names[place] for place in ranked)


def may_be_lost(strength: float, end: FloatArray) -> bool:
    """Whether a penalty of this strength may be lost in rounding, by the Hessian where a run ended."""
    return strength <= _LOST * float(np.diag(end).max(initial=0.0))


def dependent(
    hessian: FloatArray, order: Sequence[int], whole: FloatArray, rounding: FloatArray | None = None
) -> list[tuple[int, FloatArray]]:
    """Columns that depend on those before them, each with a direction that changes nothing and has a number above 0 there.

    - hessian: (coefficients, coefficients).
    - order: in which columns are looked at.
    - whole: (coefficients,) what the diagonal would be about if all of a column's variance told; 0 where that is not known.
    - rounding: (coefficients,) the part of the diagonal that may be rounding; nothing to speak of unless given.
    """
    rounding = np.zeros(len(hessian)) if rounding is None else rounding
    diagonal = np.diag(hessian)
    says = diagonal > NOTHING * whole  # by itself: what is below is rounding
    scale = np.where(says, 1.0 / np.sqrt(np.where(says, diagonal, 1.0)), 0.0)
    gram = hessian * scale[:, None] * scale
    kept: list[int] = []
    found = []
    for column in order:
        weights = np.zeros(len(diagonal))
        left = 1.0 if says[column] else 0.0
        if kept and left:
            weights[kept] = np.linalg.solve(gram[np.ix_(kept, kept)], gram[kept, column])
            left -= float(gram[column, kept] @ weights[kept])
        if left > max(DEPENDENT, float(rounding[column] + weights**2 @ rounding)):
            kept.append(column)
            continue
        direction = -weights * scale
        direction[column] = scale[column] if says[column] else 1.0
        found.append((column, direction))
    return found


def faded(start: FloatArray, end: FloatArray, rows: float, curvature: float) -> FloatArray | None:
    """Measure what each coefficient has to do with a direction along which no row tells anything any more; None without one.

    Along a direction that separates outcomes every row's curvature fades as the coefficients grow, while that of a finite
    optimum is worth at least about one row.

    - start, end: Hessians of the objective where the run began, and where it ended.
    - curvature: of a row where the run began.
    """
    if not len(start):
        return None
    gram = start / curvature
    values, vectors = scipy.linalg.eigh(end, gram)
    if rows * values[0] >= NO_INFORMATION:
        return None
    return np.asarray(np.abs(vectors[:, 0]) * np.sqrt(np.diag(gram)))
