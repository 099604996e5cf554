"""GIANT: local Newton directions for the global gradient, averaged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedns.core.algorithm import Algorithm, Needs, Outcome
from fedns.core.checked import Positive
from fedns.core.clients import Clients, Handler, on_client
from fedns.core.cohort import Cohort
from fedns.core.messages import Message, Payload, wire
from fedns.core.messages.reducers import mean
from fedns.methods.curvature import Iterate, ask_gradient, local_gradient, newton_needs, newton_steps
from fedns.methods.searches import ArmijoSearch, StepState, search_handlers, step_along
from fedns.models.problem import NewtonStep, Problem


class GlobalGradient(Iterate):
    """The current coefficients and the gradient of the whole objective there."""

    gradient: Payload = wire("features")


class LocalDirection(Message):
    """Minus the global gradient times the inverse of a client's own Hessian, penalty included."""

    fallback: ClassVar[str] = "others"

    direction: Payload = wire("features", discloses="direction")


@on_client(GlobalGradient, LocalDirection)
def local_direction(problem: Problem, clients: Clients, request: GlobalGradient) -> LocalDirection:
    steps, _ = newton_steps(problem, request.coefficients, clients.shards, request.gradient)
    return LocalDirection(direction=steps)


@dataclass(frozen=True)
class GIANT(Algorithm):
    """w <- w - mu sum_j p_j (H_j + lambda I)^-1 g, with the global gradient g and each client's own Hessian H_j.

    Three exchanges: gradients up (M numbers), g down and directions up (M), losses on a grid of steps up (13). It is not
    DistributedNewton, whose clients use their own gradients: here a fixed point has g = 0, so it is the optimum. Once the
    losses agree to rounding they can no longer choose a step, and the last one they chose is kept.

    Pitfall: the mean of the inverses is larger than the inverse of the mean. On clients that differ (sorted labels, fewer
    rows than features) directions are too long; line_search=None then oscillates or diverges.

    - line_search: fedns.ArmijoSearch(), or None for `step_size`.
    - step_size: mu, above 0; used without a line search.
    """

    # Deviation (GIANT, Alg. 1): local systems are solved exactly, by Cholesky, where the paper runs a few steps of CG.
    # Deviation (GIANT, sec. 2.2): clients count by their rows; the paper's all have the same number.
    line_search: ArmijoSearch | None = ArmijoSearch()
    step_size: Positive = 1.0  # without a line search

    name: ClassVar[str] = "giant"
    summary: ClassVar[str] = "averaged local Newton directions for the global gradient; fewest bytes when clients are alike"
    paper: ClassVar[str] = "Wang, Roosta, Xu and Mahoney, GIANT, NeurIPS 2018, Algorithm 1"
    uplink: ClassVar[str] = "2 M + 13"
    theory: ClassVar[str] = "log 1/δ"
    reports: ClassVar[tuple[str, ...]] = ("newton_decrement", "step_size")

    def needs(self, features: int, clients: int, rows: int) -> Needs:
        return newton_needs(features, rows)

    def handlers(self) -> tuple[Handler, ...]:
        return (local_gradient, local_direction, *search_handlers(self.line_search))

    def init(self, problem: Problem, cohort: Cohort) -> StepState:
        return StepState.first(cohort, step_size=self.step_size)

    def round(self, problem: Problem, state: StepState, cohort: Cohort) -> Outcome:
        w = state.coefficients
        gradient = ask_gradient(problem, w, cohort)
        (direction,) = cohort.ask(local_direction, GlobalGradient(w, gradient)).fold(mean("direction"))
        newton = NewtonStep(direction, float(gradient @ direction))
        last = float(state.step_size)
        along = step_along(newton, self.line_search, last, problem, w, cohort, unresolved=last)
        after = state.after(coefficients=along.after, step_size=along.diagnostics["step_size"] or last)
        return Outcome(after, along.diagnostics, along.finished, stuck=along.stuck)
