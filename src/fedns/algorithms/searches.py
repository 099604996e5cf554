"""Line searches: how far to go along a direction that the server has found."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from fedns.core.algorithm import State
from fedns.core.checked import Checked, Count, CountOrZero, Limit
from fedns.core.clients import Clients, Handler, on_client
from fedns.core.cohort import Cohort
from fedns.core.messages import Message, Payload, wire
from fedns.core.reducers import mean, minimum
from fedns.problems.problem import FloatArray, NewtonStep, Problem

_SEARCHES = 4

_OVERFLOWED = 1e90  # more than any search accepts; numbers that are not finite cannot travel


class Ray(Message):
    """A point, a direction and the slope there."""

    coefficients: Payload = wire("features")
    direction: Payload = wire("features")
    slope: Payload = wire(dtype="float64")


class StepState(State):
    """Coefficients and the step size of the last round."""

    step_size: Payload = wire(dtype="float64")


class LossesAlong(Message):
    """A client's mean loss at the point and at each trial step; never rounded, since differences of them decide."""

    fallback: ClassVar[str] = "others"

    losses: Payload = wire("steps", dtype="float64", discloses="loss")


class LocalStep(Message):
    """The step length a client would take by itself."""

    fallback: ClassVar[str] = "others"

    step_size: Payload = wire(dtype="float64", discloses="step")


@dataclass(frozen=True)
class Search(Checked, ABC):
    """Backtracking from a unit step until the decrease is at least `armijo_slope` times what the slope promises.

    - armijo_slope: the part of the decrease promised by the slope that a step must achieve, above 0 and below 0.5.
    - backtrack_factor: what a step is multiplied by when it fails, above 0 and below 1.
    """

    armijo_slope: Annotated[float, Limit("> 0 and < 0.5", lambda part: 0 < part < 0.5)] = 0.1
    backtrack_factor: Annotated[float, Limit("> 0 and < 1", lambda factor: 0 < factor < 1)] = 0.5
    example: ClassVar[str] = "fedns.ArmijoSearch()"
    name: ClassVar[str]  # what it is called where methods are written as text

    @abstractmethod
    def handlers(self) -> tuple[Handler, ...]:
        """What it asks clients for."""

    @abstractmethod
    def step_size(self, problem: Problem, w: FloatArray, newton: NewtonStep, cohort: Cohort) -> tuple[float, bool]:
        """A step size, and whether its decrease is enough."""


def refusable(losses: FloatArray) -> FloatArray:
    """Losses of trial points as they travel: a point where a loss overflows is no failure, it is only not taken."""
    return np.minimum(np.nan_to_num(losses, nan=_OVERFLOWED, posinf=_OVERFLOWED), _OVERFLOWED)


@dataclass(frozen=True)
class ArmijoSearch(Search):
    """Backtracking on the aggregate objective: one exchange, in which clients report their losses on a grid of steps.

    - armijo_slope: the part of the decrease promised by the slope that a step must achieve, above 0 and below 0.5.
    - backtrack_factor: what a step is multiplied by when it fails, above 0 and below 1.
    - trials: steps that are tried in one exchange, at least 1.
    """

    trials: Count = 12

    name: ClassVar[str] = "aggregate"

    @property
    def steps(self) -> FloatArray:
        """0, then 1, b, b^2, ..."""
        return np.concatenate([[0.0], self.backtrack_factor ** np.arange(float(self.trials))])

    def handlers(self) -> tuple[Handler, ...]:
        return (self.losses_along,)

    @on_client(Ray, LossesAlong)
    def losses_along(self, problem: Problem, clients: Clients, request: Ray) -> LossesAlong:
        losses = problem.losses_along(request.coefficients, request.direction, self.steps, clients.shards)
        return LossesAlong(losses=np.column_stack([losses[:, 0], refusable(losses[:, 1:])]))

    def step_size(
        self, problem: Problem, w: FloatArray, newton: NewtonStep, cohort: Cohort, unresolved: float | None = None
    ) -> tuple[float, bool]:
        """The largest trial step with enough decrease, and whether there was one; the smallest otherwise.

        `unresolved` is the step to take where the decrease is too small for the losses to tell steps apart.
        """
        ray = Ray(coefficients=w, direction=newton.step, slope=np.float64(newton.directional_derivative))
        (losses,) = cohort.ask(self.losses_along, ray).fold(mean("losses"))
        steps = self.steps
        values = losses + np.array([problem.penalty_value(w + t * newton.step) for t in steps])
        # Near the optimum the decrease falls below the losses' rounding error: without slack the search would cut steps.
        slack = 1e-14 * max(1.0, abs(values[0]))
        if unresolved is not None and -newton.directional_derivative < 100 * slack:
            return unresolved, True
        passing = values[1:] <= values[0] + self.armijo_slope * steps[1:] * newton.directional_derivative + slack
        found = bool(passing.any())
        return float(steps[1 + int(np.argmax(passing))] if found else steps[-1]), found


@dataclass(frozen=True)
class LocalSearch(Search):
    """The smallest of the clients' own backtracking steps, as the FedNDES paper prints it (Alg. 2, lines 5 and 6).

    It stalls: near the optimum the common direction is uphill for some client, whose step then shrinks to nothing.

    - armijo_slope: the part of the decrease promised by the slope that a step must achieve, above 0 and below 0.5.
    - backtrack_factor: what a step is multiplied by when it fails, above 0 and below 1.
    - max_backtracks: most often that a client shortens its step.
    """

    max_backtracks: CountOrZero = 40  # without a cap the printed loop does not end

    name: ClassVar[str] = "local"

    def handlers(self) -> tuple[Handler, ...]:
        return (self.local_step,)

    @on_client(Ray, LocalStep)
    def local_step(self, problem: Problem, clients: Clients, request: Ray) -> LocalStep:
        steps = np.concatenate([[0.0], self.backtrack_factor ** np.arange(self.max_backtracks + 1.0)])
        w, direction = request.coefficients, request.direction
        losses = problem.losses_along(w, direction, steps, clients.shards)
        losses = losses + np.array([problem.penalty_value(w + t * direction) for t in steps])
        passing = losses[:, 1:] <= losses[:, :1] + self.armijo_slope * steps[1:] * float(request.slope)
        first = np.where(passing.any(axis=1), passing.argmax(axis=1), self.max_backtracks)
        return LocalStep(step_size=steps[1 + first])

    def step_size(self, problem: Problem, w: FloatArray, newton: NewtonStep, cohort: Cohort) -> tuple[float, bool]:
        ray = Ray(coefficients=w, direction=newton.step, slope=np.float64(newton.directional_derivative))
        (smallest,) = cohort.ask(self.local_step, ray).fold(minimum("step_size"))
        return smallest, smallest > self.backtrack_factor**self.max_backtracks


SEARCHES: dict[str, type[Search]] = {search.name: search for search in (ArmijoSearch, LocalSearch)}


def search_handlers(search: Search | None) -> tuple[Handler, ...]:
    """What a line search asks clients for; nothing where there is none."""
    return () if search is None else search.handlers()


def step_along(
    newton: NewtonStep, search: Search | None, otherwise: float, problem: Problem, w: FloatArray, cohort: Cohort
) -> tuple[FloatArray, dict[str, float]]:
    """The coefficients after a step of the size that the search finds, `otherwise` where there is none; and diagnostics."""
    step_size = otherwise if search is None else search.step_size(problem, w, newton, cohort)[0]
    return w + step_size * newton.step, {"newton_decrement": newton.newton_decrement, "step_size": step_size}


def search_repeatedly(
    search: ArmijoSearch, problem: Problem, w: FloatArray, newton: NewtonStep, cohort: Cohort, unresolved: float
) -> tuple[float, bool]:
    """The search, taken up again below its smallest step where none has passed: for directions of unknown length."""
    reach = 1.0
    for attempt in range(_SEARCHES):
        shorter = NewtonStep(reach * newton.step, reach * newton.directional_derivative)
        step_size, found = search.step_size(problem, w, shorter, cohort, unresolved if attempt == 0 else None)
        if found:
            return reach * step_size, True
        reach *= step_size * search.backtrack_factor
    return 0.0, False
