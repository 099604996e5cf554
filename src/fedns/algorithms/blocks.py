"""Messages and steps that several methods share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedns.core.clients import Clients, on_client
from fedns.core.cohort import Cohort
from fedns.core.errors import ConfigError
from fedns.core.messages import Message, Payload, Ragged, wire
from fedns.core.reducers import mean, minimum
from fedns.problems.problem import NewtonStep, Problem
from fedns.sketches import Sketch

FloatArray = NDArray[np.float64]


class Model(Message):
    """The current coefficients."""

    coefficients: Payload = wire("features")


class SketchRequest(Message):
    """The current coefficients and how many rows to sketch to."""

    coefficients: Payload = wire("features")
    size: Payload = wire(dtype="int32")


class SketchedCurvature(Message):
    """A client's gradient and S A for the root A of its Hessian, both of the mean loss without the penalty."""

    gradient: Payload = wire("features")
    sketched_root: Payload = wire("rows", "features")


class Ray(Message):
    """A point, a direction and the slope there."""

    coefficients: Payload = wire("features")
    direction: Payload = wire("features")
    slope: Payload = wire(dtype="float64")


class LossesAlong(Message):
    """A client's mean loss at the point and at each trial step; never rounded, since differences of them decide."""

    losses: Payload = wire("steps", dtype="float64")


class LocalStep(Message):
    """The step length a client would take by itself."""

    step_size: Payload = wire(dtype="float64")


def sketched_curvature(
    problem: Problem, clients: Clients, w: FloatArray, sketch: Sketch, purpose: str = "sketch"
) -> SketchedCurvature:
    """One pass over the rows: gradient and sketched root."""
    keys = clients.keys(purpose)
    plan = sketch.plan(clients.shards.sizes)
    gradient, rows, offsets = problem.gradient_and_sketch(w, clients.shards, plan, keys)
    return SketchedCurvature(gradient=gradient, sketched_root=Ragged(rows, offsets))


def resized(sketch: Sketch, size: int) -> Sketch:
    return sketch if sketch.size == size else replace(sketch, size=size)


@dataclass(frozen=True)
class ArmijoSearch:
    """Backtracking on the aggregate objective: one exchange, in which clients report their losses on a grid of steps."""

    armijo_slope: float = 0.1
    backtrack_factor: float = 0.5
    trials: int = 12

    def __post_init__(self) -> None:
        if not 0 < self.armijo_slope < 0.5:
            raise ConfigError(f"armijo_slope must be in (0, 0.5), got {self.armijo_slope}")
        if not 0 < self.backtrack_factor < 1:
            raise ConfigError(f"backtrack_factor must be in (0, 1), got {self.backtrack_factor}")
        if self.trials < 1:
            raise ConfigError(f"trials must be >= 1, got {self.trials}")

    @property
    def steps(self) -> FloatArray:
        """0, then 1, b, b^2, ..."""
        return np.concatenate([[0.0], self.backtrack_factor ** np.arange(float(self.trials))])

    @on_client(Ray, LossesAlong)
    def losses_along(self, problem: Problem, clients: Clients, request: Ray) -> LossesAlong:
        losses = problem.losses_along(request.coefficients, request.direction, self.steps, clients.shards)
        return LossesAlong(losses=losses)

    def step_size(self, problem: Problem, w: FloatArray, newton: NewtonStep, cohort: Cohort) -> tuple[float, bool]:
        """The largest trial step with enough decrease, and whether there was one; the smallest otherwise."""
        ray = Ray(coefficients=w, direction=newton.step, slope=np.float64(newton.directional_derivative))
        (losses,) = cohort.ask(self.losses_along, ray).fold(mean("losses"))
        steps = self.steps
        values = losses + np.array([problem.penalty_value(w + t * newton.step) for t in steps])
        # Near the optimum the decrease falls below the losses' rounding error: without slack the search would cut steps.
        slack = 1e-14 * max(1.0, abs(values[0]))
        passing = values[1:] <= values[0] + self.armijo_slope * steps[1:] * newton.directional_derivative + slack
        found = bool(passing.any())
        return float(steps[1 + int(np.argmax(passing))] if found else steps[-1]), found


@dataclass(frozen=True)
class LocalSearch:
    """The smallest of the clients' own backtracking steps, as the FedNDES paper prints it (Alg. 2, lines 5 and 6).

    It stalls: near the optimum the common direction is uphill for some client, whose step then shrinks to nothing.
    """

    armijo_slope: float = 0.1
    backtrack_factor: float = 0.5
    max_backtracks: int = 40  # without a cap the printed loop does not end

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


LINE_SEARCHES = ("none", "aggregate", "local")


def line_search(kind: str, armijo_slope: float, backtrack_factor: float) -> Any:
    """The line search of this name, or None."""
    if kind not in LINE_SEARCHES:
        raise ConfigError(f"line_search must be one of {', '.join(LINE_SEARCHES)}, got {kind!r}")
    if kind == "none":
        return None
    if kind == "aggregate":
        return ArmijoSearch(armijo_slope, backtrack_factor)
    return LocalSearch(armijo_slope, backtrack_factor)
