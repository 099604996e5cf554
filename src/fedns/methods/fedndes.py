"""FedNDES: FedNS with two sketch sizes, a line search and a tolerance (Algorithm 2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from fedns.core.algorithm import Algorithm, Needs, Outcome, State
from fedns.core.checked import CountOrZero, NotNegative
from fedns.core.clients import Clients, Handler, on_client
from fedns.core.cohort import Cohort
from fedns.core.messages import Payload, wire
from fedns.core.messages.reducers import mean, mean_gram
from fedns.methods.curvature import SketchedCurvature, SketchRequest, resized, sketch_needs, sketched_curvature
from fedns.methods.searches import ArmijoSearch, Search, search_handlers, step_along
from fedns.models.problem import Problem
from fedns.sketches import DEFAULT_SIZE, SRHT, Sketch


class SketchSizeState(State):
    """Coefficients and the sketch size of the next round."""

    sketch_size: Payload = wire(dtype="int64")


@dataclass(frozen=True)
class FedNDES(Algorithm):
    """Sketch to `sketch.size` rows while the Newton decrement is above `switch_decrement`, to `second_size` below it.

    Ends by itself when the squared decrement, about twice the gap, falls to `decrement_tolerance`.

    - sketch: fedns.SRHT(32) by default, or SJLT, Gaussian, Rademacher or RowSampling of some size.
    - second_size: rows of the second sketch; 0 means twice the first.
    - switch_decrement: the Newton decrement below which the second size is used, at least 0.
    - decrement_tolerance: the squared decrement at which the run ends, at least 0.
    - line_search: how the step size is found: fedns.ArmijoSearch(), fedns.LocalSearch(), or None for 1.
    """

    sketch: Sketch = field(default_factory=lambda: SRHT(DEFAULT_SIZE))
    second_size: CountOrZero = 0  # 0 means twice the first
    switch_decrement: NotNegative = 0.05
    decrement_tolerance: NotNegative = 1e-20
    line_search: Search | None = ArmijoSearch()

    name: ClassVar[str] = "fedndes"
    summary: ClassVar[str] = "FedNS with a line search and a larger sketch near the optimum; safe from any start"
    paper: ClassVar[str] = "Li et al., FedNS, AAAI 2024, Algorithm 2"
    uplink: ClassVar[str] = "k M + M + 13, k doubling near the optimum"
    theory: ClassVar[str] = "log log 1/δ claimed; log 1/δ with a fixed k"
    reports: ClassVar[tuple[str, ...]] = ("newton_decrement", "sketch_size", "step_size")
    ends_by_decrement: ClassVar[bool] = True
    heterogeneous: ClassVar[str] = "yes"
    draws_random_numbers: ClassVar[bool] = True

    def needs(self, features: int, clients: int, rows: int) -> Needs:
        return sketch_needs(features, clients, self.second_size or 2 * self.sketch.size)

    def handlers(self) -> tuple[Handler, ...]:
        return (self.curvature, *search_handlers(self.line_search))

    def init(self, problem: Problem, cohort: Cohort) -> SketchSizeState:
        return SketchSizeState(cohort.start, np.int64(self.sketch.size))

    @on_client(SketchRequest, SketchedCurvature)
    def curvature(self, problem: Problem, clients: Clients, request: SketchRequest) -> SketchedCurvature:
        return sketched_curvature(problem, clients, request.coefficients, resized(self.sketch, int(request.size)))

    def round(self, problem: Problem, state: SketchSizeState, cohort: Cohort) -> Outcome:
        w, size = state.coefficients, int(state.sketch_size)
        replies = cohort.ask(self.curvature, SketchRequest(w, np.int32(size)))
        gradient, hessian = replies.fold(mean("gradient"), mean_gram("sketched_root"))
        newton = problem.newton_step(w, gradient, hessian)
        decrement = newton.newton_decrement
        diagnostics = {"newton_decrement": decrement, "sketch_size": float(size), "step_size": 0.0}
        # Deviation (FedNS, Alg. 2 line 4): the paper squares g' Delta w, which already is the squared decrement, and
        # compares it with 3/4 delta.
        if decrement**2 <= self.decrement_tolerance:
            reason = f"squared Newton decrement {decrement**2:.1e} reached the tolerance {self.decrement_tolerance:g}"
            return Outcome(state, diagnostics, finished=reason)
        along = step_along(newton, self.line_search, 1.0, problem, w, cohort)
        # Deviation (FedNS, Alg. 2 line 6): the paper tests g' Delta w > eta, which is never true since it is negative.
        next_size = self.sketch.size if decrement > self.switch_decrement else self.second_size or 2 * self.sketch.size
        return Outcome(SketchSizeState(along.after, np.int64(next_size)), diagnostics | along.diagnostics, note=along.note)
