"""FedNS: Newton's method with sketched square-root Hessians (Algorithm 1)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from fedns.algorithms.curvature import FloatArray, Model, SketchedCurvature, resized, sketched_curvature
from fedns.algorithms.searches import ArmijoSearch, Search, search_handlers, step_along
from fedns.core.algorithm import Algorithm, Outcome, State
from fedns.core.checked import Positive
from fedns.core.clients import Clients, Handler, on_client
from fedns.core.cohort import Cohort, Replies
from fedns.core.reducers import mean, mean_gram, root_weighted_sum
from fedns.numerics.linalg import LowRank, gram
from fedns.problems.problem import Problem
from fedns.sketches import SRHT, Sketch


@dataclass(frozen=True)
class FedNS(Algorithm):
    """w <- w - mu (sum_j p_j Y_j' Y_j + lambda I)^-1 g, with Y_j = S_j A_j sent by client j.

    aggregation="sum" is the form of the paper's proof: one sketch Y = sum_j sqrt(p_j) Y_j of size k for all clients.
    It can be summed securely, but needs k of the order of the effective dimension and a line search; the Gram per client
    has the accuracy of a sketch of size m k.

    growth="log2" sketches to k log2(1 + t)^2 rows in round t = 1, 2, ..., which Theorem 1's accuracy 1 / log(1 + t) takes.

    - sketch: fedns.SRHT(16) by default, or SJLT, Gaussian, Rademacher or RowSampling of some size.
    - step_size: mu, above 0; used without a line search.
    - aggregation: "gram" or "sum", see above.
    - line_search: how the step size is found: fedns.ArmijoSearch(), fedns.LocalSearch(), or None for `step_size`.
    - growth: "none" or "log2", see above.
    """

    sketch: Sketch = field(default_factory=lambda: SRHT(16))
    step_size: Positive = 1.0
    aggregation: Literal["gram", "sum"] = "gram"
    line_search: Search | None = None
    growth: Literal["none", "log2"] = "none"

    name: ClassVar[str] = "fedns"
    summary: ClassVar[str] = (
        "Newton steps from sketched square-root Hessians; nearly Newton's rounds at a fraction of its bytes"
    )
    paper: ClassVar[str] = "Li et al., FedNS, AAAI 2024, Algorithm 1"
    uplink: ClassVar[str] = "k M + M"
    theory: ClassVar[str] = "log log 1/δ claimed; log 1/δ with a fixed k"
    heterogeneous: ClassVar[str] = "yes"
    draws_random_numbers: ClassVar[bool] = True

    def handlers(self) -> tuple[Handler, ...]:
        return (self.curvature, *search_handlers(self.line_search))

    @on_client(Model, SketchedCurvature)
    def curvature(self, problem: Problem, clients: Clients, request: Model) -> SketchedCurvature:
        return sketched_curvature(problem, clients, request.coefficients, self.sketch_in(clients.round))

    def sketch_in(self, round_number: int) -> Sketch:
        """The sketch of this round. Clients know the round from every request, so the size need not be sent."""
        if self.growth == "none":
            return self.sketch
        return resized(self.sketch, math.ceil(self.sketch.size * math.log2(1 + round_number) ** 2))

    def round(self, problem: Problem, state: State, cohort: Cohort) -> Outcome:
        w = state.coefficients
        size = self.sketch_in(cohort.session.round).size
        gradient, hessian = self._fold(cohort.ask(self.curvature, Model(w)), size)
        newton = problem.newton_step(w, gradient, hessian)
        after, diagnostics = step_along(newton, self.line_search, self.step_size, problem, w, cohort)
        return Outcome(State(after), diagnostics)

    def _fold(self, replies: Replies, size: int) -> tuple[FloatArray, FloatArray | LowRank]:
        if self.aggregation == "gram":
            gradient, hessian = replies.fold(mean("gradient"), mean_gram("sketched_root"))
            return gradient, hessian
        gradient, total = replies.fold(mean("gradient"), root_weighted_sum("sketched_root", size))
        return gradient, gram(total)


@dataclass(frozen=True)
class NewtonSketch(FedNS):
    """Partial Newton sketch on the pooled data: the loss's Hessian is sketched, the penalty's is exact.

    One sketch of size k has to do what m sketches do in FedNS: below a few times the effective dimension a unit step cycles,
    so the line search is on unless it is turned off.

    - sketch: kind and size of the sketch; SRHT(16) by default.
    - step_size: mu, above 0; used without a line search.
    - aggregation: "gram" or "sum", the same with one client.
    - line_search: how the step size is found: fedns.ArmijoSearch(), fedns.LocalSearch(), or None for `step_size`.
    - growth: "none" or "log2": the size stays, or grows as in FedNS.
    """

    line_search: Search | None = ArmijoSearch()

    name: ClassVar[str] = "newtonsketch"
    summary: ClassVar[str] = "one sketch of the pooled data's Hessian; what the FedNS proof reduces to, a yardstick"
    paper: ClassVar[str] = "Pilanci and Wainwright, Newton sketch, SIAM J. Optimization 2017; Lacotte et al. 2021"
    uplink: ClassVar[str] = "nothing (data pooled)"
    theory: ClassVar[str] = "log 1/δ with a fixed k"
    heterogeneous: ClassVar[str] = "-"
    pooled: ClassVar[bool] = True
    sees_partition: ClassVar[bool] = False
