"""Where a fit begins: at the margin of the mean outcome, the same for every row beside its offset.

From margins of 0 a whole Newton step of a loss with exp(z) in it leads as far as the mean is away: a mean count of 30 asks
for a margin of 29, and exp(29) is no count any more. From the mean outcome on, steps are as long as effects are strong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from fedns.core.cohort import Cohort
from fedns.core.types import FloatArray, IntArray
from fedns.models.family import Family, Flat, Outcomes
from fedns.models.problem import Problem
from fedns.studies.design.columns import Design
from fedns.studies.questions.information import ask_curvature
from fedns.studies.questions.null_model import ask_classes, ask_null

_NEAR = 1e-6  # of a margin: where the sites were asked already is near enough to begin there


class Look(NamedTuple):
    """The answers of the sites before the first round."""

    point: FloatArray  # where they were asked: (features,)
    gradient: FloatArray  # of the data: (features,)
    hessian: FloatArray  # of the objective, penalty included: (features, features)


def first_look(problem: Problem, design: Design, cohort: Cohort) -> Look:
    """Ask for what rank, the start and separation are read off.

    The sites are asked at the margin of the mean outcome, where the handshake has told that, else at 0: gamma outcomes of
    1e-4 have so little curvature at margins of 0 that no site would answer.
    """
    study, margins = design.study, np.zeros(problem.loss.outputs)
    if study.distribution.outcomes in (Outcomes.NUMBER, Outcomes.POSITIVE, Outcomes.COUNT) and not problem.offset:
        mean = design.agreement.centres[study.parsed.outcome][0]
        margins = _told(lambda: np.array([study.distribution.margin(mean)]), margins)
    point = _everywhere(margins, len(design.names)) if design.intercept else np.zeros(len(design.names))
    told = ask_curvature(cohort, point)
    return Look(point, told.gradient, told.hessian + np.diag(problem.penalty_curvature(point)))


def start_after(look: Look, problem: Problem, design: Design) -> FloatArray:
    """The coefficients to start from. What the first look has told of the intercepts is enough; nothing more is asked."""
    if not design.intercept:
        return look.point
    places = _intercepts(problem.loss.outputs, look.point.size)
    return _start(problem, design.study.distribution, look.point, look.gradient[places], np.diag(look.hessian)[places])


def ask_start(cohort: Cohort, family: Family) -> FloatArray:
    """The coefficients to start from where there was no look: the sites tell what they will tell of the null model."""
    problem: Problem = cohort.session.problem
    zero = np.zeros(cohort.num_features)
    if not problem.intercept:
        return zero
    if family.outcomes is Outcomes.CLASS:
        shares = ask_classes(cohort, zero)
        slopes = 1.0 / shares.size - shares[-problem.loss.outputs :]
        return _start(problem, family, zero, slopes, np.ones_like(slopes))
    _, slope, curvature = ask_null(cohort, zero)
    return _start(problem, family, zero, np.array([slope]), np.array([curvature]))


def _start(problem: Problem, family: Family, point: FloatArray, slopes: FloatArray, curvatures: FloatArray) -> FloatArray:
    now = point[_intercepts(slopes.size, point.size)]
    margins = _told(lambda: family.null_margins(Flat(problem.loss, now, slopes, curvatures, problem.offset)), now)
    near = (np.abs(margins - now) <= _NEAR * np.maximum(1.0, np.abs(now))).all()
    return point if near else _everywhere(margins, point.size)


def _told(margins: Callable[[], FloatArray], otherwise: FloatArray) -> FloatArray:
    """These margins, where they exist: an outcome that is always 0 has none."""
    try:
        with np.errstate(all="raise"):
            found = margins()
    except (ArithmeticError, ValueError):
        return otherwise
    return found if np.isfinite(found).all() else otherwise


def _everywhere(margins: FloatArray, features: int) -> FloatArray:
    """The coefficients that give these margins to every row."""
    w = np.zeros(features)
    w[_intercepts(margins.size, features)] = margins
    return w


def _intercepts(outputs: int, features: int) -> IntArray:
    """The places of the intercepts, the last of the coefficients of every output."""
    return features // outputs * np.arange(1, outputs + 1) - 1
