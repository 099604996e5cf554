"""Newton's method with the exact Hessian: at the pooled data, and federated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedns.core.algorithm import Algorithm, Outcome, State
from fedns.core.checked import Positive
from fedns.core.clients import Clients, Handler, on_client
from fedns.core.cohort import Cohort
from fedns.core.messages import Message, Payload, wire
from fedns.core.messages.reducers import mean
from fedns.methods.curvature import Iterate, refuse_impossible_hessian
from fedns.methods.searches import Search, search_handlers, step_along
from fedns.models.problem import Problem


class Curvature(Message):
    """A client's gradient and the upper triangle of its Hessian, row by row."""

    fallback: ClassVar[str] = "last"
    gradient: Payload = wire("features", discloses="gradient")
    hessian_triangle: Payload = wire("entries", discloses="hessian")

    def check(self) -> None:
        refuse_impossible_hessian(self.kind, self.hessian_triangle, len(self.gradient))


@dataclass(frozen=True)
class FedNewton(Algorithm):
    """w <- w - mu H^-1 g with H and g averaged over clients: exactly Newton's method on the union of the data.

    - step_size: mu, above 0; used without a line search.
    - line_search: how the step size is found: fedns.ArmijoSearch(), fedns.LocalSearch(), or None for `step_size`.
    """

    step_size: Positive = 1.0
    line_search: Search | None = None

    name: ClassVar[str] = "fednewton"
    summary: ClassVar[str] = "exact Newton steps from averaged Hessians; fewest rounds, most bytes for wide data"
    paper: ClassVar[str] = "Li et al., FedNS, AAAI 2024, equation of the section on FedNewton"
    uplink: ClassVar[str] = "M(M+1)/2 + M"
    theory: ClassVar[str] = "log log 1/δ"
    reports: ClassVar[tuple[str, ...]] = ("newton_decrement", "step_size")
    ends_by_decrement: ClassVar[bool] = True
    heterogeneous: ClassVar[str] = "yes"
    sees_partition: ClassVar[bool] = False

    def handlers(self) -> tuple[Handler, ...]:
        return (self.curvature, *search_handlers(self.line_search))

    @on_client(Iterate, Curvature)
    def curvature(self, problem: Problem, clients: Clients, request: Iterate) -> Curvature:
        gradient, triangle = problem.gradient_and_hessian(request.coefficients, clients.shards)
        return Curvature(gradient=gradient, hessian_triangle=triangle)

    def round(self, problem: Problem, state: State, cohort: Cohort) -> Outcome:
        w = state.coefficients
        gradient, triangle = cohort.ask(self.curvature, Iterate(w)).fold(mean("gradient"), mean("hessian_triangle"))
        newton = problem.newton_step(w, gradient, triangle)
        along = step_along(newton, self.line_search, self.step_size, problem, w, cohort)
        return Outcome(State(along.after), along.diagnostics, along.finished, stuck=along.stuck)


@dataclass(frozen=True)
class Newton(FedNewton):
    """Newton's method on the pooled data: the yardstick, nothing is sent.

    - step_size: mu, above 0; used without a line search.
    - line_search: how the step size is found: fedns.ArmijoSearch(), fedns.LocalSearch(), or None for `step_size`.
    """

    name: ClassVar[str] = "newton"
    summary: ClassVar[str] = "Newton's method on the pooled data; a yardstick"
    paper: ClassVar[str] = "textbook"
    uplink: ClassVar[str] = "nothing (data pooled)"
    heterogeneous: ClassVar[str] = "-"
    pooled: ClassVar[bool] = True
