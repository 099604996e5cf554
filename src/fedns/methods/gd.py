"""Distributed gradient descent: the first-order yardstick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedns.core.algorithm import Algorithm, Outcome
from fedns.core.checked import NotNegative
from fedns.core.clients import Handler
from fedns.core.cohort import Cohort
from fedns.methods.curvature import ask_gradient, local_gradient
from fedns.methods.searches import ArmijoSearch, StepState, no_step, search_repeatedly
from fedns.models.problem import NewtonStep, Problem

_GROWTH = 8.0  # trying longer steps too costs nothing: the whole grid is one exchange


@dataclass(frozen=True)
class GradientDescent(Algorithm):
    """w <- w - mu g with g = sum_j p_j grad f_j(w) + lambda w: clients send their gradients, M numbers a round.

    step_size=0 means an Armijo search by the server on the aggregate objective: clients also send their losses on a grid of
    steps (13 numbers, one more exchange) that starts at 8 times the last step size and halves. The search is taken up again
    below the grid where no step has passed, so the first step size needs no guess.

    Pitfall: the rounds needed grow with the condition number of the Hessian; scale the columns first. A given step size
    must be below 2 / L, with L the largest eigenvalue of the Hessian.

    - step_size: mu; 0 means found by the line search.
    - line_search: fedns.ArmijoSearch(...), used where step_size is 0.
    """

    step_size: NotNegative = 0.0
    line_search: ArmijoSearch = ArmijoSearch()

    name: ClassVar[str] = "gd"
    summary: ClassVar[str] = "distributed gradient descent; the fewest bytes a round, and the most rounds"
    paper: ClassVar[str] = "textbook; Armijo, Pacific Journal of Mathematics 1966"
    uplink: ClassVar[str] = "M + 13; M with a given step size"
    theory: ClassVar[str] = "κ log 1/δ"
    reports: ClassVar[tuple[str, ...]] = ("step_size",)
    sees_partition: ClassVar[bool] = False

    def handlers(self) -> tuple[Handler, ...]:
        return (local_gradient, *(() if self.step_size else self.line_search.handlers()))

    def init(self, problem: Problem, cohort: Cohort) -> StepState:
        return StepState.first(cohort, step_size=self.step_size or 1.0)

    def round(self, problem: Problem, state: StepState, cohort: Cohort) -> Outcome:
        w, step_size = state.coefficients, float(state.step_size)
        gradient = ask_gradient(problem, w, cohort)
        if self.step_size == 0:
            longest = _GROWTH * step_size
            descent = NewtonStep(-longest * gradient, -longest * float(gradient @ gradient))
            found = search_repeatedly(self.line_search, problem, w, descent, cohort, 1 / _GROWTH)
            if not found.passed:
                return Outcome(state, {"step_size": 0.0}, **no_step(found))
            step_size = found.step_size * longest
        return Outcome(state.after(coefficients=w - step_size * gradient, step_size=step_size), {"step_size": step_size})
