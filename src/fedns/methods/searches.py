"""Line searches: how far to go along a direction that the server has found."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from fedns.core.algorithm import State
from fedns.core.checked import Checked, Count, CountOrZero, Limit
from fedns.core.clients import Clients, Handler, on_client
from fedns.core.cohort import Cohort
from fedns.core.messages import Message, Payload, wire
from fedns.core.messages.reducers import mean, minimum
from fedns.core.types import FloatArray
from fedns.models.problem import NewtonStep, Problem

_ROUNDING = 1e-14  # of the objective: its rounding error
_UNRESOLVED = 100.0  # times that: a decrease that losses do not tell from none
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


class Found(NamedTuple):
    """The result of a search."""

    step_size: float  # 0 where no step passed: then none is taken
    passed: bool
    resolved: bool = True  # whether losses could tell the promised decrease from none
    # Whether the shortest trial was told from no step at all: there a loss overflows, or says something else than the slope.
    uphill: bool = True


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
    attempts: ClassVar[int]  # how often it is taken up again, below its shortest step

    @abstractmethod
    def handlers(self) -> tuple[Handler, ...]:
        """What it asks clients for."""

    @property
    @abstractmethod
    def shortest(self) -> float:
        """The shortest step that is tried."""

    @abstractmethod
    def step_size(
        self, problem: Problem, w: FloatArray, newton: NewtonStep, cohort: Cohort, unresolved: float | None = None
    ) -> Found:
        """The largest trial step with enough decrease, if there is one.

        `unresolved` is the step to take where the decrease is too small for the losses to tell steps apart.
        """


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
    attempts: ClassVar[int] = 4

    @property
    def shortest(self) -> float:
        return float(self.steps[-1])

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
    ) -> Found:
        ray = Ray(coefficients=w, direction=newton.step, slope=np.float64(newton.directional_derivative))
        (losses,) = cohort.ask(self.losses_along, ray).fold(mean("losses"))
        steps = self.steps
        with np.errstate(over="ignore", invalid="ignore"):  # a point that is too far is only not taken
            values = losses + problem.penalty_along(w, newton.step, steps)
        # Near the optimum the decrease falls below the losses' rounding error: without slack the search would cut steps.
        slack = _ROUNDING * max(1.0, abs(values[0]))
        resolved = -newton.directional_derivative >= _UNRESOLVED * slack
        if unresolved is not None and not resolved:
            return Found(unresolved, True, resolved)
        passing = values[1:] <= values[0] + self.armijo_slope * steps[1:] * newton.directional_derivative + slack
        if not passing.any():
            return Found(0.0, False, resolved, not values[-1] <= values[0] + _UNRESOLVED * slack)
        return Found(float(steps[1 + int(np.argmax(passing))]), True, resolved)


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
    attempts: ClassVar[int] = 1  # its shortest step is nothing

    @property
    def shortest(self) -> float:
        return float(self.backtrack_factor**self.max_backtracks)

    def handlers(self) -> tuple[Handler, ...]:
        return (self.local_step,)

    @on_client(Ray, LocalStep)
    def local_step(self, problem: Problem, clients: Clients, request: Ray) -> LocalStep:
        steps = np.concatenate([[0.0], self.backtrack_factor ** np.arange(self.max_backtracks + 1.0)])
        w, direction = request.coefficients, request.direction
        losses = problem.losses_along(w, direction, steps, clients.shards)
        losses = losses + problem.penalty_along(w, direction, steps)
        passing = losses[:, 1:] <= losses[:, :1] + self.armijo_slope * steps[1:] * float(request.slope)
        return LocalStep(step_size=np.where(passing.any(axis=1), steps[1 + passing.argmax(axis=1)], 0.0))

    def step_size(
        self, problem: Problem, w: FloatArray, newton: NewtonStep, cohort: Cohort, unresolved: float | None = None
    ) -> Found:
        ray = Ray(coefficients=w, direction=newton.step, slope=np.float64(newton.directional_derivative))
        (smallest,) = cohort.ask(self.local_step, ray).fold(minimum("step_size"))
        return Found(float(smallest), bool(smallest > 0.0))


SEARCHES: dict[str, type[Search]] = {search.name: search for search in (ArmijoSearch, LocalSearch)}


def search_handlers(search: Search | None) -> tuple[Handler, ...]:
    """What a line search asks clients for; nothing where there is none."""
    return () if search is None else search.handlers()


class Along(NamedTuple):
    """Where a step has led."""

    after: FloatArray
    diagnostics: dict[str, float]
    stuck: str = ""  # why no step was taken, where the same search would find none in the next round either
    finished: str = ""  # the same where what the step promised is rounding: the method is done

    @property
    def note(self) -> str:
        """For methods whose next direction is another one: they go on."""
        return self.stuck or self.finished


def step_along(
    newton: NewtonStep,
    search: Search | None,
    otherwise: float,
    problem: Problem,
    w: FloatArray,
    cohort: Cohort,
    unresolved: float | None = None,
) -> Along:
    """The coefficients after a step of the size that the search finds, `otherwise` where there is none.

    Where it finds none the coefficients stay: a step that does not decrease the objective is not taken.
    """
    found = Found(otherwise, True)
    if search is not None:
        found = search_repeatedly(search, problem, w, newton, cohort, unresolved)
    diagnostics = {"newton_decrement": newton.newton_decrement, "step_size": found.step_size}
    if found.passed:
        return Along(w + found.step_size * newton.step, diagnostics)
    promised = f"which promised {-newton.directional_derivative:.1e}"
    if not found.resolved:
        return Along(
            w, diagnostics, finished=f"no step decreases the objective any more, and the next, {promised}, is rounding"
        )
    return Along(w, diagnostics, stuck=f"no step along the direction, {promised}, decreases the objective")


def search_repeatedly(
    search: Search, problem: Problem, w: FloatArray, newton: NewtonStep, cohort: Cohort, unresolved: float | None = None
) -> Found:
    """The search, taken up again below its shortest step where none has passed: for directions of unknown length."""
    reach, resolved, uphill = 1.0, True, True
    for attempt in range(search.attempts):
        shorter = NewtonStep(reach * newton.step, reach * newton.directional_derivative)
        found = search.step_size(problem, w, shorter, cohort, unresolved if attempt == 0 else None)
        if found.passed:
            return found._replace(step_size=reach * found.step_size)
        resolved, uphill = found.resolved if attempt == 0 else resolved, found.uphill
        reach *= search.shortest * search.backtrack_factor
    return Found(0.0, False, resolved, uphill)


def no_step(found: Found) -> dict[str, str]:
    """End a round along the gradient that has found no step: done where all trials are the same but for rounding."""
    words = "no step along the gradient decreases the objective"
    return {"stuck": words} if found.uphill else {"finished": f"{words} any more"}
