"""What clients tell of their losses at the current coefficients: gradients, sketched roots of Hessians, Newton steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedns.core.algorithm import Needs
from fedns.core.clients import Clients, on_client
from fedns.core.cohort import Cohort
from fedns.core.errors import MessageError
from fedns.core.messages import Message, Payload, Ragged, joined_batches, wire
from fedns.core.messages.reducers import mean
from fedns.core.shards import Shards
from fedns.core.types import FloatArray
from fedns.models.problem import Problem
from fedns.numerics import parallel
from fedns.numerics.backend import triangle_size
from fedns.numerics.linalg import LowRank, solve_from_triangle, solve_shifted, symmetric_of
from fedns.numerics.rng import uniforms
from fedns.sketches import RowSampling, Sketch

# x with (H_j + diag(diagonal)) x = right for the Hessian H_j of each client of a batch: solve(j, diagonal, right)
Solve = Callable[[int, FloatArray, FloatArray], FloatArray]
_HESSIAN_BYTES = 64 * 2**20


class Iterate(Message):
    """The current coefficients."""

    coefficients: Payload = wire("features")


class SketchRequest(Iterate):
    """The current coefficients and how many rows to sketch to."""

    size: Payload = wire(dtype="int32")


class SketchedCurvature(Message):
    """A client's gradient and S A for the root A of its Hessian, both of the mean loss without the penalty."""

    fallback: ClassVar[str] = "last"

    gradient: Payload = wire("features", discloses="gradient")
    sketched_root: Payload = wire("rows", "features", ragged=True, discloses="sketch")


def sketched_curvature(problem: Problem, clients: Clients, w: FloatArray, sketch: Sketch) -> SketchedCurvature:
    """One pass over the rows: gradient and sketched root."""
    shards = clients.shards
    plan = shards.cached("sketch plan", (sketch, problem.loss.root_rows), lambda: sketch.plan(problem.root_sizes(shards)))
    gradient, rows, offsets = problem.gradient_and_sketch(w, shards, plan, clients.keys("sketch"))
    return SketchedCurvature(gradient=gradient, sketched_root=Ragged(rows, offsets))


class SampledCurvature(SketchedCurvature):
    """A client's gradient and rows of the root of its Hessian, drawn and scaled: both of the mean loss."""

    sketched_root: Payload = wire("rows", "features", ragged=True, discloses="rows")


def leverage_sample(problem: Problem, clients: Clients, w: FloatArray, size: int) -> SampledCurvature:
    """`size` rows of each root A_j, drawn by their ridge leverage scores a' (A_j' A_j + penalty)^-1 a."""
    diagonal = problem.penalty_curvature(w)

    def some(part: Clients) -> SampledCurvature:
        gradient, roots = gradients_and_roots(problem, w, part.shards)
        keys = part.keys("leverage sample")
        sampled = parallel.map_clients(lambda j: _by_leverage(roots.part(j), diagonal, size, keys[j]), len(gradient))
        offsets = np.concatenate([[0], np.cumsum([len(rows) for rows in sampled])])
        return SampledCurvature(gradient=gradient, sketched_root=Ragged(np.concatenate(sampled), offsets))

    return joined_batches([some(part) for part in clients.slabs(8 * w.size * int(clients.shards.sizes.max()))])


def _by_leverage(root: FloatArray, diagonal: FloatArray, size: int, key: NDArray[np.uint64]) -> FloatArray:
    """Rows drawn with replacement and scaled so that the mean of their Gram is root' root; all of few rows as they are."""
    if len(root) <= size:
        return root
    inverse = np.linalg.pinv(root.T @ root + np.diag(diagonal), hermitian=True)
    scores = np.maximum(((root @ inverse) * root).sum(axis=1), 0.0)
    total = scores.sum()
    shares = scores / total if total > 0 else np.full(len(root), 1.0 / len(root))
    cumulated = np.cumsum(shares)
    drawn = np.searchsorted(cumulated, uniforms(key[None], size)[0] * cumulated[-1], side="right")
    return np.asarray(root[drawn] / np.sqrt(size * shares[drawn])[:, None])


def resized(sketch: Sketch, size: int) -> Sketch:
    return sketch if sketch.size == size else replace(sketch, size=size)


class LocalGradient(Message):
    """The gradient of a client's mean loss, without the penalty."""

    fallback: ClassVar[str] = "last"

    gradient: Payload = wire("features", discloses="gradient")


@on_client(Iterate, LocalGradient)
def local_gradient(problem: Problem, clients: Clients, request: Iterate) -> LocalGradient:
    return LocalGradient(gradient=problem.gradient(request.coefficients, clients.shards))


def ask_gradient(problem: Problem, w: FloatArray, cohort: Cohort) -> FloatArray:
    """The gradient of the whole objective at w, penalty included."""
    (gradient,) = cohort.ask(local_gradient, Iterate(w)).fold(mean("gradient"))
    return np.asarray(gradient + problem.penalty_gradient(w))


def refuse_impossible_hessian(kind: str, triangle: FloatArray, num_features: int) -> None:
    """Raise unless the packed matrix has the right length and is positive semidefinite up to rounding."""
    expected = triangle_size(num_features)
    if triangle.size != expected or not expected:
        raise MessageError(f"field 'hessian_triangle' of {kind} has {triangle.size} entries, expected {expected}")
    smallest, largest = np.linalg.eigvalsh(symmetric_of(triangle, num_features))[[0, -1]]
    # Rounded to float32 on the way, a matrix of this size may have eigenvalues this far below zero.
    if smallest < -1e-6 * max(largest, 0.0):
        raise MessageError(f"field 'hessian_triangle' of {kind} has the eigenvalue {smallest:.3g}: no convex loss has that")


def sketch_needs(features: int, clients: int, size: int) -> Needs:
    """The memory of the sum of all clients' sketches, as root while it has fewer rows than columns, and of one client's."""
    total = float(clients * size)
    matrix = 3.0 * total * features + 2.0 * total**2 if total < features else 3.0 * features**2 + 4096.0 * features
    return Needs(server=matrix + 20.0 * features, client=(3.0 * size + 20.0) * features)


def newton_needs(features: int, rows: int) -> Needs:
    """The memory of `newton_steps`: a client holds its Hessian and its triangle, or the root where that is smaller."""
    return Needs(server=20.0 * features, client=2.0 * features * min(features, rows) + 20.0 * features)


def newton_steps(
    problem: Problem, w: FloatArray, shards: Shards, gradient: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """-(H_j + penalty)^-1 g at w, and its slope, for every client j: (clients, features), (clients,).

    g is `gradient` for all, penalty included, or else the gradient of the client's own objective; w is one vector for all
    clients or one for each.
    """
    features = w.shape[-1]
    steps, slopes = np.empty((shards.num_clients, features)), np.empty(shards.num_clients)
    wide = problem.wide(shards)
    for clients, systems in ((np.flatnonzero(~wide), _by_hessians), (np.flatnonzero(wide), _by_roots)):
        # Only so many Hessians at a time: a simulated federation may have far more clients than fit into memory.
        group = max(16, _HESSIAN_BYTES // (8 * triangle_size(features)))
        for start in range(0, clients.size, group):
            members = clients[start : start + group]
            at = w if w.ndim == 1 else w[members]
            own, solve = systems(problem, at, shards.select(members))
            right = own + problem.penalty_gradient(at) if gradient is None else np.broadcast_to(gradient, own.shape)
            diagonals = problem.penalty_curvature(np.broadcast_to(at, own.shape))
            steps[members], slopes[members] = _solve_each(solve, right, diagonals)
    return steps, slopes


def gradients_and_roots(problem: Problem, w: FloatArray, shards: Shards) -> tuple[FloatArray, Ragged]:
    """grad f_j(w), and for every client a root A_j of its Hessian A_j' A_j, a row or more for each of its own."""
    sizes = problem.root_sizes(shards)
    plan = RowSampling(int(sizes.max())).plan(sizes)  # all rows: nothing is drawn
    keys = np.zeros((shards.num_clients, 2), dtype=np.uint64)
    gradient, rows, offsets = problem.gradient_and_sketch(w, shards, plan, keys)
    return gradient, Ragged(rows, offsets)


def _by_hessians(problem: Problem, w: FloatArray, shards: Shards) -> tuple[FloatArray, Solve]:
    gradient, triangle = problem.gradient_and_hessian(w, shards)
    return gradient, lambda client, diagonal, right: solve_from_triangle(triangle[client], diagonal, right)


def _by_roots(problem: Problem, w: FloatArray, shards: Shards) -> tuple[FloatArray, Solve]:
    gradient, roots = gradients_and_roots(problem, w, shards)
    return gradient, lambda client, diagonal, right: solve_shifted(LowRank(roots.part(client)), diagonal, right)


def _solve_each(solve: Solve, right: FloatArray, diagonals: FloatArray) -> tuple[FloatArray, FloatArray]:
    steps, slopes = np.empty_like(right), np.empty(len(right))

    def some(low: int, high: int) -> None:
        for client in range(low, high):
            steps[client] = -solve(client, diagonals[client], right[client])
            slopes[client] = np.sum(right[client] * steps[client])

    clients = np.arange(len(right))
    parallel.for_each_part(parallel.cut(clients, clients + 1), some, right.shape[1] ** 3)
    return steps, slopes
