"""FedNS: Newton's method with sketched square-root Hessians (Algorithm 1)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from fedns.core.algorithm import Algorithm, Needs, Outcome, State
from fedns.core.checked import Positive
from fedns.core.clients import Clients, Handler, on_client
from fedns.core.cohort import Cohort, Replies
from fedns.core.messages import Payload, wire
from fedns.core.messages.reducers import mean, mean_gram, root_weighted_sum
from fedns.core.types import FloatArray
from fedns.methods.curvature import (
    Iterate,
    SampledCurvature,
    SketchedCurvature,
    SketchRequest,
    leverage_sample,
    resized,
    sketch_needs,
    sketched_curvature,
)
from fedns.methods.searches import ArmijoSearch, Search, search_handlers, step_along
from fedns.models.problem import Problem
from fedns.numerics.linalg import LowRank, gram
from fedns.sketches import DEFAULT_SIZE, SRHT, Sketch

_POOR = 0.25  # a sketch under which squared decrements fall by less is too small


class SizedState(State):
    """Coefficients, the size of the next sketch, and the last squared decrement, 0 before the first round."""

    sketch_size: Payload = wire(dtype="int64")
    squared_decrement: Payload = wire(dtype="float64")


@dataclass(frozen=True)
class FedNS(Algorithm):
    """w <- w - mu (sum_j p_j Y_j' Y_j + lambda I)^-1 g, with Y_j = S_j A_j sent by client j.

    aggregation="sum" is the form of the paper's proof: one sketch Y = sum_j sqrt(p_j) Y_j of size k for all clients.
    It can be summed securely, but needs k of the order of the effective dimension and a line search; the Gram per client
    has the accuracy of a sketch of size m k.

    growth="log2" sketches to k log2(1 + t)^2 rows in round t = 1, 2, ..., which Theorem 1's accuracy 1 / log(1 + t) takes.
    With growth="adaptive" k doubles after every round whose squared decrement is above a quarter of the last one's.

    rows="leverage" sends, in place of a sketch, k rows of A_j drawn with probabilities p_i in proportion to their ridge
    leverage scores and divided by sqrt(k p_i): a site that keeps its rows to itself refuses it.

    - sketch: fedns.SRHT(32) by default, or SJLT, Gaussian, Rademacher or RowSampling of some size.
    - step_size: mu, above 0; used without a line search.
    - aggregation: "gram" or "sum", see above.
    - line_search: how the step size is found: fedns.ArmijoSearch(), fedns.LocalSearch(), or None for `step_size`.
    - growth: "none", "log2" or "adaptive", see above.
    - rows: "mixed" by the sketch, or "leverage", see above.
    """

    sketch: Sketch = field(default_factory=lambda: SRHT(DEFAULT_SIZE))
    step_size: Positive = 1.0
    aggregation: Literal["gram", "sum"] = "gram"
    line_search: Search | None = None
    growth: Literal["none", "log2", "adaptive"] = "none"
    rows: Literal["mixed", "leverage"] = "mixed"

    name: ClassVar[str] = "fedns"
    summary: ClassVar[str] = (
        "Newton steps from sketched square-root Hessians; nearly Newton's rounds at a fraction of its bytes"
    )
    paper: ClassVar[str] = "Li et al., FedNS, AAAI 2024, Algorithm 1"
    uplink: ClassVar[str] = "k M + M"
    theory: ClassVar[str] = "log log 1/δ claimed; log 1/δ with a fixed k"
    reports: ClassVar[tuple[str, ...]] = ("newton_decrement", "step_size")
    ends_by_decrement: ClassVar[bool] = True
    heterogeneous: ClassVar[str] = "yes"
    draws_random_numbers: ClassVar[bool] = True

    @property
    def way_out(self) -> str:
        return "" if self.line_search else f"{self.name}:line_search=aggregate, or more rows of the sketch (--sketch-size N)"

    def needs(self, features: int, clients: int, rows: int) -> Needs:
        size = self.sketch.size
        return sketch_needs(features, 1 if self.aggregation == "sum" else clients, size)

    def handlers(self) -> tuple[Handler, ...]:
        return (self._curvature, *search_handlers(self.line_search))

    @property
    def _curvature(self) -> Handler:
        if self.rows == "leverage":
            return self.sampled_curvature
        return self.sized_curvature if self.growth == "adaptive" else self.curvature

    @on_client(Iterate, SketchedCurvature)
    def curvature(self, problem: Problem, clients: Clients, request: Iterate) -> SketchedCurvature:
        return sketched_curvature(problem, clients, request.coefficients, self.sketch_in(clients.round))

    @on_client(SketchRequest, SketchedCurvature)
    def sized_curvature(self, problem: Problem, clients: Clients, request: SketchRequest) -> SketchedCurvature:
        return sketched_curvature(problem, clients, request.coefficients, resized(self.sketch, int(request.size)))

    @on_client(SketchRequest, SampledCurvature)
    def sampled_curvature(self, problem: Problem, clients: Clients, request: SketchRequest) -> SampledCurvature:
        return leverage_sample(problem, clients, request.coefficients, int(request.size))

    def sketch_in(self, round_number: int) -> Sketch:
        """The sketch of this round. Clients know the round from every request, so the size need not be sent."""
        if self.growth != "log2":
            return self.sketch
        return resized(self.sketch, math.ceil(self.sketch.size * math.log2(1 + round_number) ** 2))

    def init(self, problem: Problem, cohort: Cohort) -> State:
        if self.growth != "adaptive":
            return State(cohort.start)
        return SizedState(cohort.start, np.int64(self.sketch.size), np.float64(0.0))

    def round(self, problem: Problem, state: State, cohort: Cohort) -> Outcome:
        w = state.coefficients
        size = int(state.sketch_size) if isinstance(state, SizedState) else self.sketch_in(cohort.session.round).size
        request = Iterate(w) if self._curvature == self.curvature else SketchRequest(w, np.int32(size))
        gradient, hessian = self._fold(cohort.ask(self._curvature, request), size)
        newton = problem.newton_step(w, gradient, hessian)
        along = step_along(newton, self.line_search, self.step_size, problem, w, cohort)
        if isinstance(state, SizedState):
            grown, squared = self._grown(state, newton.newton_decrement**2)
            diagnostics = along.diagnostics | {"sketch_size": float(size)}
            return Outcome(SizedState(along.after, grown, squared), diagnostics, note=along.note)
        return Outcome(State(along.after), along.diagnostics, note=along.note)  # the next sketch is another one

    def _grown(self, state: SizedState, squared: float) -> tuple[np.int64, np.float64]:
        """The size of the next sketch, twice this one's where the last step has brought too little."""
        poor = 0 < state.squared_decrement < squared / _POOR
        return np.int64(state.sketch_size * (2 if poor else 1)), np.float64(squared)

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

    - sketch: kind and size of the sketch; SRHT(32) by default.
    - step_size: mu, above 0; used without a line search.
    - aggregation: "gram" or "sum", the same with one client.
    - line_search: how the step size is found: fedns.ArmijoSearch(), fedns.LocalSearch(), or None for `step_size`.
    - growth: "none", "log2" or "adaptive": the size stays, or grows as in FedNS.
    - rows: "mixed" or "leverage", as in FedNS.
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
