"""SCAFFOLD: local gradient steps, each corrected by how a client's gradients differ from everybody's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedns.core.algorithm import Algorithm, Outcome, StateOfAll
from fedns.core.checked import Count, NotNegative
from fedns.core.clients import Clients, Handler, on_client
from fedns.core.cohort import Cohort
from fedns.core.messages import Message, Payload, as_received, wire
from fedns.core.messages.reducers import mean
from fedns.methods.curvature import Iterate
from fedns.methods.fedavg import ask_smoothness, local_smoothness
from fedns.models.problem import Problem

_CAUTION = 0.125  # of 1 / L, where the curvature has no bound and L is that at the start


class ControlledRequest(Iterate):
    """The model, everybody's control, and the local learning rate."""

    control: Payload = wire("features")
    learning_rate: Payload = wire(dtype="float64")
    number_bytes: Payload = wire(dtype="uint8")  # of a real number in the replies: both ends make the control from them


class ModelChange(Message):
    """How far a client's local steps have led. Its control follows from this."""

    change: Payload = wire("features", discloses="direction")


class ScaffoldState(StateOfAll):
    """The model, the clients' mean control, and the learning rate, 0 until it is known."""

    control: Payload = wire("features", dtype="float64")
    learning_rate: Payload = wire(dtype="float64")


@dataclass(frozen=True)
class Scaffold(Algorithm):
    """w <- w + sum_j p_j (u_j - w), where client j takes steps u <- u - mu (grad F_j(u) - c_j + c) from u = w.

    After K steps its control is c_j <- c_j - c + (w - u_j) / (K mu), the mean of the gradients it has seen; c is the mean of
    all c_j. At the optimum every corrected gradient is zero: unlike FedAvg it does not stall short of it.

    Pitfall: it is gradient descent with K steps a round at best, and needs hundreds of rounds on badly conditioned data. Too
    large a learning rate diverges where clients differ.

    - local_steps: K, full-batch steps of a client in a round, at least 1.
    - learning_rate: mu; 0 means 1 / L, with L from an exchange in the first round.
    """

    # Deviation (SCAFFOLD, Alg. 1 line 14): the change of c_j is not sent. With option II it follows from u_j - w, which is,
    # so that the uplink is half of what the paper counts.
    local_steps: Count = 5
    learning_rate: NotNegative = 0.0  # 0 means 1 / L

    name: ClassVar[str] = "scaffold"
    summary: ClassVar[str] = "FedAvg with corrected local steps; reaches the optimum, as slowly as gradient descent"
    paper: ClassVar[str] = "Karimireddy et al., SCAFFOLD, ICML 2020, Algorithm 1, option II"
    uplink: ClassVar[str] = "M"
    theory: ClassVar[str] = "κ log 1/δ"
    reports: ClassVar[tuple[str, ...]] = ("control_norm", "learning_rate")

    def handlers(self) -> tuple[Handler, ...]:
        return (self.local_change, *(() if self.learning_rate else (local_smoothness,)))

    def init(self, problem: Problem, cohort: Cohort) -> ScaffoldState:
        return ScaffoldState.first(cohort, learning_rate=self.learning_rate)

    @on_client(ControlledRequest, ModelChange)
    def local_change(self, problem: Problem, clients: Clients, request: ControlledRequest) -> ModelChange:
        w, control, rate = request.coefficients, request.control, float(request.learning_rate)
        own = clients.read_copy("scaffold_control", w.size)
        models = np.tile(w, (clients.shards.num_clients, 1))
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused when it is sent
            for _ in range(self.local_steps):
                gradient = problem.gradient(models, clients.shards) + problem.penalty_gradient(models)
                models = models - rate * (gradient - own + control)
            change = as_received(models - w, int(request.number_bytes))
            clients.remember("scaffold_control", own - control - change / (self.local_steps * rate))
        return ModelChange(change=change)

    def round(self, problem: Problem, state: ScaffoldState, cohort: Cohort) -> Outcome:
        rate = float(state.learning_rate) or self._safe_rate(problem, cohort)
        request = ControlledRequest(state.coefficients, state.control, np.float64(rate), cohort.number_bytes)
        (change,) = cohort.ask(self.local_change, request).fold(mean("change"))
        heard = as_received(state.control, int(cohort.number_bytes))
        control = state.control - state.share(cohort) * (heard + change / (self.local_steps * rate))
        after = state.after(coefficients=state.coefficients + change, control=control, learning_rate=rate)
        return Outcome(after, {"learning_rate": rate, "control_norm": float(np.linalg.norm(control))})

    def _safe_rate(self, problem: Problem, cohort: Cohort) -> float:
        smoothness = ask_smoothness(problem, cohort)
        caution = 1.0 if math.isfinite(problem.loss.curvature_bound) else _CAUTION
        return caution / smoothness if smoothness > 0 else 1.0
