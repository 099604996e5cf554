"""The model without any column: where a fit starts, and what its likelihood is compared with."""

from __future__ import annotations

import math

import numpy as np

from fedns.core.clients import Clients, on_client
from fedns.core.cohort import Cohort
from fedns.core.messages import Message, Payload, as_batch, wire
from fedns.core.types import FloatArray
from fedns.models.problem import Problem
from fedns.studies.questions.asking import Point, ask_all

_MOST_STEPS = 25
_TOLERANCE = 1e-20  # what a further step would take from the loss, relative to it


class ClassShares(Message):
    """How a client's rows divide among the classes of the outcome, the reference first."""

    shares: Payload = wire("classes", dtype="float64", discloses="moments")


class NullFit(Message):
    """A client's mean loss with a margin that is the same for all rows, and its two derivatives in that margin."""

    loss: Payload = wire(dtype="float64", discloses="loss")
    slope: Payload = wire(dtype="float64", discloses="gradient")
    curvature: Payload = wire(dtype="float64", discloses="loss")


@on_client(Point, ClassShares)
def look_at_classes(problem: Problem, clients: Clients, request: Point) -> ClassShares:
    """The share of each class of the outcome, which a model without any column is made of."""
    problem.before_rows_are_read()
    shards, found = clients.shards, []
    for start, stop in zip(shards.starts, shards.stops, strict=True):
        weights = None if shards.sample_weights is None else shards.sample_weights[start:stop]
        numbers = shards.targets[start:stop].astype(np.int64)
        counts = np.bincount(numbers, weights, minlength=problem.loss.root_rows)
        found.append(ClassShares(counts / counts.sum()))
    return as_batch(found)


@on_client(Point, NullFit)
def look_at_null(problem: Problem, clients: Clients, request: Point) -> NullFit:
    """Tell how well a model without any column fits."""
    w, shards = request.coefficients, clients.shards
    loss, gradient = problem.value_and_gradient(w, shards)
    direction = np.zeros((1, 1, w.size))
    direction[..., -1] = 1.0
    curvature = problem.hessian_times(w, direction, shards)[:, 0, -1]
    return NullFit(loss=loss, slope=gradient[:, -1], curvature=curvature)


def ask_classes(cohort: Cohort, w: FloatArray) -> FloatArray:
    """The shares of the classes among all rows, the reference first."""
    return np.asarray(cohort.weights @ ask_all(cohort, look_at_classes, w).shares)


def ask_null(cohort: Cohort, w: FloatArray) -> tuple[float, float, float]:
    """The mean loss over all rows, its slope and its curvature in the intercept."""
    found = ask_all(cohort, look_at_null, w)
    loss, slope, curvature = (float(cohort.weights @ part) for part in (found.loss, found.slope, found.curvature))
    return loss, slope, curvature


def ask_null_loss(cohort: Cohort, margin: float, size: int, *, intercept: bool) -> float:
    """The smallest mean loss that an intercept alone has, by Newton steps; where the margin is right one look is enough."""
    w, before, least, loss = np.zeros(size), margin, np.inf, np.inf
    for _ in range(_MOST_STEPS):
        w[-1] = margin
        loss, slope, curvature = ask_null(cohort, w)
        if not intercept or abs(slope) <= math.sqrt(_TOLERANCE * curvature * abs(loss)):
            break
        if loss > least:  # the step was too long
            margin = 0.5 * (before + margin)
            continue
        before, least = margin, loss
        margin -= slope / curvature
        if abs(margin - before) <= 1e-14 * max(1.0, abs(margin)):
            break
    return loss
