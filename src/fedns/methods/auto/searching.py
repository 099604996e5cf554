"""The length of a step of `auto`: before it is taken where it may lead too far, and back after one that did."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fedns.core.cohort import Cohort
from fedns.core.messages.reducers import mean
from fedns.core.types import FloatArray
from fedns.methods.auto.exchanges import losses_back
from fedns.methods.auto.messages import BackRequest
from fedns.methods.auto.thresholds import ARMIJO, BACK, FURTHER_BACK
from fedns.methods.searches import ArmijoSearch, search_repeatedly
from fedns.models.problem import NewtonStep, Problem

SEARCH = ArmijoSearch(ARMIJO)


class Searched(NamedTuple):
    """The step that is taken, and how much that is of the direction."""

    step: FloatArray
    fraction: float = 1.0
    stuck: str = ""


def searched(
    problem: Problem, cohort: Cohort, w: FloatArray, gradient: FloatArray, step: FloatArray, scales: FloatArray
) -> Searched:
    """As much of the step as decreases the objective, else of the gradient.

    Losses with exp(z) in them overflow where margins grow, and sites do not answer about points where few rows decide: from
    such a point no message would come back.
    """
    for direction in (step, -gradient / scales**2):
        newton = NewtonStep(direction, float(gradient @ direction))
        found = search_repeatedly(SEARCH, problem, w, newton, cohort, 1.0)
        if found.passed:
            return Searched(np.asarray(found.step_size * direction), found.step_size)
    return Searched(step, 0.0, "no step along the direction or the gradient decreases the objective")


def fraction_back(
    problem: Problem, cohort: Cohort, w: FloatArray, step: FloatArray, loss: float, most: float, slope: float
) -> float:
    """The largest fraction of the step that led to w with enough decrease; 0 where there is none.

    loss: the mean loss at w. most: of the objective, where nothing is promised. slope: along the step, where it began.
    """
    for further in FURTHER_BACK:
        fractions = further * BACK
        (losses,) = cohort.ask(losses_back, BackRequest(1.0 - fractions)).fold(mean("losses"))
        penalties = problem.penalty_along(w, -step, 1.0 - fractions)
        passing = loss + losses + penalties <= most + ARMIJO * fractions * slope
        if passing.any():
            return float(fractions[int(np.argmax(passing))])
    return 0.0
