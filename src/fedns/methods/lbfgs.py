"""L-BFGS on the server: the quasi-Newton yardstick."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedns.core.algorithm import Algorithm, Needs, Outcome, State
from fedns.core.checked import Count
from fedns.core.clients import Handler
from fedns.core.cohort import Cohort
from fedns.core.messages import Payload, wire
from fedns.core.types import FloatArray
from fedns.methods.curvature import ask_gradient, local_gradient
from fedns.methods.searches import ArmijoSearch, no_step, search_repeatedly
from fedns.models.problem import NewtonStep, Problem

# A pair whose curvature s'y is below this fraction of |s||y| is rounding or sampling noise.
_SMALLEST_COSINE = 1e-10


class QuasiNewtonState(State):
    """Coefficients, the last point with its gradient, and the pairs of moves and gradient changes, oldest first."""

    last_coefficients: Payload = wire("known", "features", dtype="float64")  # no row before the first round
    last_gradient: Payload = wire("known", "features", dtype="float64")
    moves: Payload = wire("pairs", "features", dtype="float64")
    changes: Payload = wire("pairs", "features", dtype="float64")


@dataclass(frozen=True)
class LBFGS(Algorithm):
    """w <- w - mu B g, with B the limited-memory inverse from the last `memory` pairs (s, y): s moves, y gradient changes.

    Clients send gradients (M numbers), then losses on a grid of steps (13 numbers) for an Armijo search on the aggregate
    objective. B is the server's: nothing of second order travels, and more memory costs no bytes. The first trial is the
    negative gradient at length 1; where no step of the grid passes, the search is taken up again below it.

    Pitfall: gradients of different clients are not differences of one function. With partial participation the pairs are
    noise for the most part; those of no positive curvature are left out, the others are not.

    - memory: pairs that the server keeps, at least 1.
    - line_search: fedns.ArmijoSearch(...).
    """

    memory: Count = 20
    line_search: ArmijoSearch = ArmijoSearch()

    name: ClassVar[str] = "lbfgs"
    summary: ClassVar[str] = "quasi-Newton steps learnt by the server from gradients alone; few bytes, tens of rounds"
    paper: ClassVar[str] = "Liu and Nocedal, On the limited memory BFGS method, Mathematical Programming 1989"
    takes_any_width: ClassVar[bool] = True
    uplink: ClassVar[str] = "M + 13"
    theory: ClassVar[str] = "linear; no better bound than gradient descent"
    reports: ClassVar[tuple[str, ...]] = ("pairs", "step_size")
    sees_partition: ClassVar[bool] = False

    def needs(self, features: int, clients: int, rows: int) -> Needs:
        return Needs(server=(4.0 * self.memory + 20.0) * features, client=20.0 * features)

    def handlers(self) -> tuple[Handler, ...]:
        return (local_gradient, *self.line_search.handlers())

    def init(self, problem: Problem, cohort: Cohort) -> QuasiNewtonState:
        return QuasiNewtonState.first(cohort)

    def round(self, problem: Problem, state: QuasiNewtonState, cohort: Cohort) -> Outcome:
        w = state.coefficients
        gradient = ask_gradient(problem, w, cohort)
        moves, changes = self._pairs(state, gradient)
        step = -inverse_times(moves, changes, gradient)
        if len(moves) == 0:
            step /= max(float(np.linalg.norm(gradient)), np.finfo(np.float64).tiny)
        slope = float(gradient @ step)
        found = search_repeatedly(self.line_search, problem, w, NewtonStep(step, slope), cohort, 1.0)
        diagnostics = {"step_size": found.step_size, "pairs": float(len(moves))}
        if not found.passed:
            ending = {} if len(moves) else no_step(found)  # without pairs the next direction is the gradient's
            return Outcome(QuasiNewtonState.first(cohort, coefficients=w), diagnostics, **ending)
        return Outcome(QuasiNewtonState(w + found.step_size * step, w[None], gradient[None], moves, changes), diagnostics)

    def _pairs(self, state: QuasiNewtonState, gradient: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The pairs kept so far and the one of the last round, if its curvature is positive."""
        moves, changes = state.moves, state.changes
        for last, last_gradient in zip(state.last_coefficients, state.last_gradient, strict=True):
            s, y = state.coefficients - last, gradient - last_gradient
            if float(s @ y) > _SMALLEST_COSINE * float(np.linalg.norm(s) * np.linalg.norm(y)):
                moves = np.concatenate([moves, s[None]])[-self.memory :]
                changes = np.concatenate([changes, y[None]])[-self.memory :]
        return moves, changes


def inverse_times(
    moves: FloatArray, changes: FloatArray, vector: FloatArray, start: Callable[[FloatArray], FloatArray] | None = None
) -> FloatArray:
    """B vector by the two-loop recursion, from B_0 = start, or else (s'y / y'y) I of the last pair; the identity without."""
    result = vector.copy()
    weights = []
    for s, y in zip(moves[::-1], changes[::-1], strict=True):
        weights.append(float(s @ result) / float(s @ y))
        result -= weights[-1] * y
    if start is not None:
        result = start(result)
    elif len(moves):
        result *= float(moves[-1] @ changes[-1]) / float(changes[-1] @ changes[-1])
    for s, y, weight in zip(moves, changes, reversed(weights), strict=True):
        result += (weight - float(y @ result) / float(s @ y)) * s
    return result
