"""The fit: the rounds from where it begins, and what is known of where it came to. Studies and estimators make it alike.

They prepare the cohort, which has the problem that is fitted and the start, and give names to the coefficients.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from fedns.core.algorithm import Algorithm
from fedns.core.cohort import Cohort
from fedns.core.history import History, Observer
from fedns.core.run import Progress, run
from fedns.core.termination import Ending, Verdict
from fedns.federation.coordinator.cohort import NetworkedCohort
from fedns.models.family import Outcomes
from fedns.models.problem import Problem
from fedns.simulation.simulator import SimulatedCohort
from fedns.studies.fitting.ending import judged, no_maximum, stop_of
from fedns.studies.fitting.rank import Rank
from fedns.studies.questions.asking import UNANSWERED
from fedns.studies.questions.information import SiteCurvature, ask_curvature

Sites: TypeAlias = SimulatedCohort | NetworkedCohort  # which can tell the objective, too


@dataclass(frozen=True)
class Goal:
    """How near to the maximum a fit shall come, and what a standard error is there: that of a mean over so many rows.

    - tolerance: the Newton decrement at which it ends.
    - rounds: most rounds.
    - outcomes: of the family.
    - rows: as they count in standard errors.
    - spread: of the outcome, where it has one and somebody has told it; else the first objective tells it.
    """

    tolerance: float
    rounds: int
    outcomes: Outcomes
    rows: float
    spread: float | None = None


@dataclass(frozen=True, eq=False)
class Reached:
    """Where a fit came to.

    - history: of its rounds, with the coefficients as they were fitted.
    - ended: how, by where the coefficients are, whatever the method made of it.
    - left: standard errors from the maximum; nan where sites refused to tell.
    - curvature: of all sites at the coefficients; why there is none, where they refused.
    - separated: whether there is no maximum.
    """

    history: History
    ended: Verdict
    left: float
    curvature: SiteCurvature | Exception
    separated: bool = False


def fit(
    cohort: Sites,
    algorithm: Algorithm,
    goal: Goal,
    rank: Rank | None,
    *,
    observers: Sequence[Observer] = (),
    resume: Progress | None = None,
) -> Reached:
    """Fit over this cohort from where it begins, and judge where that ended.

    rank: where the rows alone determine the coefficients, so that their outcome may be separated; None where a penalty does.
    resume: go on from there.
    """
    problem: Problem = cohort.session.problem
    stop = stop_of(algorithm, goal.rounds, goal.tolerance)
    history = run(algorithm, problem, cohort, stop=stop, evaluate=cohort.evaluate, observers=observers, resume=resume)
    first, last = history.records[0].objective, history.records[-1].objective
    numbers = goal.outcomes is Outcomes.NUMBER and first > 0
    spread = goal.spread or (math.sqrt(2.0 * first) if numbers else 1.0)
    w, ended = history.coefficients, Verdict(history.ending, history.stop_reason)
    tolerance = goal.tolerance * math.sqrt(goal.rows) / spread
    try:
        curvature = ask_curvature(cohort, w)
    except UNANSWERED as refusal:  # the coefficients are not lost for that, but nobody knows whether they are the maximum
        return Reached(history, judged(ended, math.nan, tolerance, str(refusal)), math.nan, refusal)
    left = problem.newton_step(w, curvature.gradient, curvature.hessian).newton_decrement * math.sqrt(goal.rows) / spread
    ended, uphill = judged(ended, left, tolerance), last > first  # where steps overshoot the Hessian fades, too
    if rank is not None and goal.outcomes.can_be_separated and not uphill:
        hessian = curvature.hessian + np.diag(problem.penalty_curvature(w))
        if names := rank.separating(hessian, goal.rows):
            ended = Verdict(Ending.STOPPED, no_maximum(names, goal.outcomes))
            return Reached(history, ended, left, curvature, separated=True)
    return Reached(history, ended, left, curvature)


def uncounted(cohort: Cohort) -> str:
    """Say what weights sum to that count less than the rows, so that they tell nothing of standard errors; else nothing."""
    weight, rows = float(cohort.total_weights.sum()), float(cohort.rows.sum())
    return "" if weight >= rows * (1.0 - 1e-9) else f"sum to {weight:.4g} over {rows:.10g} rows"
