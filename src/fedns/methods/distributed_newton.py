"""DistributedNewton: every client's own Newton step, averaged, with optional trimming (COMRADE)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from fedns.core.algorithm import Algorithm, Needs, Outcome, State
from fedns.core.checked import Limit, Positive
from fedns.core.clients import Clients, Handler, on_client
from fedns.core.cohort import Cohort
from fedns.core.messages import Message, Payload, wire
from fedns.core.types import FloatArray
from fedns.methods.curvature import Iterate, newton_needs, newton_steps
from fedns.models.problem import Problem


class LocalNewtonStep(Message):
    """A client's Newton step on its own objective."""

    step: Payload = wire("features", discloses="direction")


class trimmed_mean:
    """sum_j p_j step_j / sum_j p_j over all clients but the `trimmed` with the longest steps.

    The longest so far are held back and each is added once a longer one comes: the server keeps only so many steps. Of
    equally long ones the later is taken to be longer.
    """

    def __init__(self, trimmed: int) -> None:
        self._trimmed = trimmed
        self._held: list[tuple[float, float, FloatArray]] = []  # (length, weight, step), shortest first
        self._total: FloatArray | None = None
        self._weight = 0.0

    def add(self, batch: Message, weights: FloatArray) -> None:
        steps: FloatArray = batch.step  # type: ignore[attr-defined]
        if self._total is None:
            self._total = np.zeros(steps.shape[1])
        for step, weight in zip(steps, weights.tolist(), strict=True):
            self._held.append((float(np.linalg.norm(step)), weight, step.copy()))
            self._held.sort(key=lambda entry: entry[0])
            if len(self._held) > self._trimmed:
                _, shortest_weight, shortest = self._held.pop(0)
                self._total += shortest_weight * shortest
                self._weight += shortest_weight

    def result(self) -> FloatArray:
        assert self._total is not None
        # Without trimming the weights sum to 1 but for rounding, which must not touch the result.
        return self._total / self._weight if self._trimmed else self._total


@dataclass(frozen=True)
class DistributedNewton(Algorithm):
    """w <- w - mu sum_j p_j (H_j + lambda I)^-1 g_j, with each client's own Hessian and own gradient.

    One exchange of M numbers. `trim` is the fraction of the clients, those with the longest steps, that the server leaves
    out, as COMRADE does against clients that send anything they like; it must be at least the fraction of such clients.

    Pitfall: it does not converge to the optimum. At its fixed point the local steps cancel, not the local gradients; the
    distance depends on the rows per client and on how much clients differ. GIANT, with one more exchange, has no such bias.

    - step_size: mu, above 0.
    - trim: the part of the clients that is left out, at least 0 and below 0.5.
    """

    # Deviation (COMRADE, Alg. 1): clients count by their rows, where the paper's all have the same number; its compression
    # of the steps is left out.
    step_size: Positive = 1.0
    trim: Annotated[float, Limit(">= 0 and < 0.5", lambda part: 0 <= part < 0.5)] = 0.0

    name: ClassVar[str] = "distributednewton"
    summary: ClassVar[str] = "averaged local Newton steps; one small message a round, but stalls short of the optimum"
    paper: ClassVar[str] = (
        "Ghosh, Maity and Mazumdar, Distributed Newton Can Communicate Less and Resist Byzantine Workers, NeurIPS 2020"
    )
    uplink: ClassVar[str] = "M"
    theory: ClassVar[str] = "log 1/δ, to a biased point"
    reports: ClassVar[tuple[str, ...]] = ("step_norm", "trimmed_clients")
    heterogeneous: ClassVar[str] = "no"

    def needs(self, features: int, clients: int, rows: int) -> Needs:
        return newton_needs(features, rows)

    def handlers(self) -> tuple[Handler, ...]:
        return (self.newton_step,)

    @on_client(Iterate, LocalNewtonStep)
    def newton_step(self, problem: Problem, clients: Clients, request: Iterate) -> LocalNewtonStep:
        return LocalNewtonStep(step=newton_steps(problem, request.coefficients, clients.shards)[0])

    def round(self, problem: Problem, state: State, cohort: Cohort) -> Outcome:
        w = state.coefficients
        trimmed = int(self.trim * cohort.num_clients)
        (step,) = cohort.ask(self.newton_step, Iterate(w)).fold(trimmed_mean(trimmed))
        diagnostics = {"step_norm": float(np.linalg.norm(step)), "trimmed_clients": float(trimmed)}
        return Outcome(State(w + self.step_size * step), diagnostics)
