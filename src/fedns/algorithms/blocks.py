"""Messages and steps that several methods share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedns.core.clients import Clients, on_client
from fedns.core.cohort import Cohort
from fedns.core.errors import ConfigError, MessageError
from fedns.core.messages import Message, Payload, Ragged, wire
from fedns.core.reducers import mean, minimum
from fedns.core.shards import Shards
from fedns.numerics import parallel
from fedns.numerics.linalg import packed_size, solve_positive, unpack_symmetric
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

    stand_in: ClassVar[str] = "last"

    gradient: Payload = wire("features")
    sketched_root: Payload = wire("rows", "features", ragged=True)


class Ray(Message):
    """A point, a direction and the slope there."""

    coefficients: Payload = wire("features")
    direction: Payload = wire("features")
    slope: Payload = wire(dtype="float64")


class LossesAlong(Message):
    """A client's mean loss at the point and at each trial step; never rounded, since differences of them decide."""

    stand_in: ClassVar[str] = "others"

    losses: Payload = wire("steps", dtype="float64")


class LocalStep(Message):
    """The step length a client would take by itself."""

    stand_in: ClassVar[str] = "others"

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


class LocalGradient(Message):
    """The gradient of a client's mean loss, without the penalty."""

    stand_in: ClassVar[str] = "last"

    gradient: Payload = wire("features")


@on_client(Model, LocalGradient)
def local_gradient(problem: Problem, clients: Clients, request: Model) -> LocalGradient:
    return LocalGradient(gradient=problem.gradient(request.coefficients, clients.shards))


def refuse_impossible_hessian(kind: str, packed: FloatArray, num_features: int) -> None:
    """Raise unless the packed matrix has the right length and is positive semidefinite up to rounding."""
    expected = packed_size(num_features)
    if packed.size != expected or not expected:
        raise MessageError(f"field 'packed_hessian' of {kind} has {packed.size} entries, expected {expected}")
    smallest, largest = np.linalg.eigvalsh(unpack_symmetric(packed, num_features))[[0, -1]]
    # Rounded to float32 on the way, a matrix of this size may have eigenvalues this far below zero.
    if smallest < -1e-6 * max(largest, 0.0):
        raise MessageError(f"field 'packed_hessian' of {kind} has the eigenvalue {smallest:.3g}: no convex loss has that")


def newton_steps(
    problem: Problem, w: FloatArray, shards: Shards, gradient: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """-(H_j + penalty)^-1 g at w, and its slope, for every client j: (clients, features), (clients,).

    g is `gradient` for all, penalty included, or else the gradient of the client's own objective; w is one vector for all
    clients or one for each.
    """
    features = w.shape[-1]
    diagonal = problem.penalty_diagonal(features)
    steps, slopes = np.empty((shards.num_clients, features)), np.empty(shards.num_clients)
    # Only so many Hessians at a time: a simulated federation may have far more clients than fit into memory.
    group = max(16, _HESSIAN_BYTES // (8 * packed_size(features)))
    for start in range(0, shards.num_clients, group):
        members = np.arange(start, min(start + group, shards.num_clients))
        part, at = shards.select(members), w if w.ndim == 1 else w[members]
        own, packed = problem.gradient_and_hessian(at, part)
        right = own + diagonal * at if gradient is None else np.broadcast_to(gradient, own.shape)
        _solve_each(packed, right, diagonal, steps[start:], slopes[start:])
    return steps, slopes


def _solve_each(packed: FloatArray, right: FloatArray, diagonal: FloatArray, steps: FloatArray, slopes: FloatArray) -> None:
    def solve(low: int, high: int) -> None:
        for client in range(low, high):
            hessian = unpack_symmetric(packed[client], diagonal.size)
            hessian[np.diag_indices(diagonal.size)] += diagonal
            steps[client] = -solve_positive(hessian, right[client])
            slopes[client] = np.sum(right[client] * steps[client])

    clients = np.arange(len(packed))
    parallel.for_each_part(parallel.cut(clients, clients + 1), solve, diagonal.size**3)


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


_HESSIAN_BYTES = 64 * 2**20
_SEARCHES = 4


# Matrices of a few clients at a time: they fit into the caches, and a handler's memory does not grow with the cohort.
_SLAB_BYTES = 8 * 2**20
M = TypeVar("M", bound=Message)


def slabs(clients: Clients, bytes_per_client: int) -> Iterator[Clients]:
    """The clients of a batch, a few at a time, where a handler needs this much working memory for each."""
    count = max(1, _SLAB_BYTES // bytes_per_client)
    for start in range(0, clients.ids.size, count):
        part = np.arange(start, min(start + count, clients.ids.size))
        yield replace(clients, shards=clients.shards.select(part), ids=clients.ids[part])


def joined(batches: Sequence[M]) -> M:
    """Batches of replies as one, in order."""
    if len(batches) == 1:
        return batches[0]
    columns = {name: [getattr(batch, name) for batch in batches] for name in batches[0].specs()}
    return type(batches[0])(**{name: _stacked(parts) for name, parts in columns.items()})


def _stacked(parts: list[Any]) -> Any:
    if not isinstance(parts[0], Ragged):
        return np.concatenate(parts)
    counts = np.concatenate([part.counts for part in parts])
    return Ragged(np.concatenate([part.values for part in parts]), np.concatenate([[0], np.cumsum(counts)]))


def number_bytes(cohort: Cohort) -> np.uint8:
    """The size of a real number on this run's wire, for clients that must keep what the server receives."""
    return np.uint8(cohort.session.precision.itemsize)


def as_received(values: FloatArray, number_bytes: int) -> FloatArray:
    """The values after they travelled as real numbers of this size."""
    return values if number_bytes == 8 else values.astype(np.float32).astype(np.float64)
