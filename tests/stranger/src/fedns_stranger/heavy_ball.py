"""Gradient descent with momentum, written with public names alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import fedns


class Point(fedns.Message):
    """The current coefficients."""

    coefficients: fedns.Payload = fedns.wire("features")


class Slope(fedns.Message):
    """The gradient of a client's mean loss there, without the penalty."""

    gradient: fedns.Payload = fedns.wire("features", discloses="gradient")


class Rolling(fedns.Message):
    """The server's state: coefficients and how they moved last."""

    coefficients: fedns.Payload = fedns.wire("features", dtype="float64")
    velocity: fedns.Payload = fedns.wire("features", dtype="float64")


@fedns.on_client(Point, Slope)
def slope(problem: fedns.Problem, clients: fedns.Clients, request: Point) -> Slope:
    return Slope(gradient=problem.gradient(request.coefficients, clients.shards))


@dataclass(frozen=True)
class HeavyBall(fedns.Algorithm):
    """v <- momentum v - step_size g, w <- w + v: clients send their gradients, M numbers a round."""

    step_size: float = 0.5
    momentum: float = 0.5

    name: ClassVar[str] = "heavyball"
    summary: ClassVar[str] = "gradient descent with momentum"
    paper: ClassVar[str] = "Polyak, USSR Computational Mathematics and Mathematical Physics 1964"
    uplink: ClassVar[str] = "M"
    theory: ClassVar[str] = "sqrt(κ) log 1/δ"
    heterogeneous: ClassVar[str] = "-"
    reports: ClassVar[tuple[str, ...]] = ("step_size",)
    sees_partition: ClassVar[bool] = False

    def handlers(self) -> tuple[fedns.Handler, ...]:
        return (slope,)

    def init(self, problem: fedns.Problem, cohort: fedns.Cohort) -> Rolling:
        return Rolling(cohort.start, 0.0 * cohort.start)

    def round(self, problem: fedns.Problem, state: Any, cohort: fedns.Cohort) -> fedns.Outcome:
        w = state.coefficients
        (gradient,) = cohort.ask(slope, Point(w)).fold(fedns.reducers.mean("gradient"))
        gradient = gradient + problem.penalty_gradient(w)
        velocity = self.momentum * state.velocity - self.step_size * gradient
        return fedns.Outcome(Rolling(w + velocity, velocity), {"step_size": self.step_size})
