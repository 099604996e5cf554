"""Gradients at several models at once: how the models of all sites but one are found."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedns.core.clients import Clients, on_client
from fedns.core.cohort import Cohort
from fedns.core.messages import Message, Payload, joined_batches, wire
from fedns.core.types import FloatArray
from fedns.models.problem import Problem

MOST_SITES = 20  # each of which would be left out once


class Points(Message):
    """Coefficients of several models to look at; never rounded."""

    points: Payload = wire("models", "features", dtype="float64")


class Gradients(Message):
    """A client's gradient at each model that is fitted without one of the sites."""

    gradients: Payload = wire("models", "features", dtype="float64", discloses="gradient")


@on_client(Points, Gradients)
def look_at_gradients(problem: Problem, clients: Clients, request: Points) -> Gradients:
    """Tell which way the models of the other sites would still move."""
    return Gradients(np.stack([problem.gradient(w, clients.shards) for w in request.points], axis=1))


def ask_gradients(cohort: Cohort, points: FloatArray) -> FloatArray:
    """The gradient of every site at each of the points: (sites, models, features)."""
    return np.asarray(joined_batches([batch for _, batch in cohort.ask(look_at_gradients, Points(points))]).gradients)


@dataclass(frozen=True, eq=False)
class Without:
    """For every site the fitted coefficients of all others."""

    fitted: FloatArray  # (sites, fitted), NaN where the others cannot tell
    refitted: bool = True  # to convergence; else one Newton step from the joint fit
    notes: tuple[str, ...] = ()
