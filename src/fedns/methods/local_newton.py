"""LocalNewton: several Newton steps at the clients, then averaging, and a finish with GIANT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np

from fedns.core.algorithm import Algorithm, Needs, Outcome, State
from fedns.core.checked import Count, CountOrZero, Limit
from fedns.core.clients import Clients, Handler, on_client
from fedns.core.cohort import Cohort
from fedns.core.errors import ConfigError
from fedns.core.messages import Message, Payload, wire
from fedns.core.messages.reducers import mean
from fedns.core.shards import Shards
from fedns.core.types import FloatArray
from fedns.methods.curvature import Iterate, newton_needs, newton_steps
from fedns.methods.giant import GIANT
from fedns.methods.searches import ArmijoSearch, StepState
from fedns.models.problem import Problem


class LocalRun(Iterate):
    """The current coefficients and how many local steps to take from them."""

    local_steps: Payload = wire(dtype="int32")


class LocalModel(Message):
    """The coefficients a client has arrived at by itself."""

    coefficients: Payload = wire("features", discloses="direction")


class LocalModelAndLoss(LocalModel):
    """Where a client's local steps have led, and its mean loss where they began."""

    loss: Payload = wire(dtype="float64", discloses="loss")


class LocalNewtonState(State):
    """Coefficients, local steps of the next round (0: GIANT has taken over), rounds, GIANT's step, objectives seen."""

    local_steps: Payload = wire(dtype="int64")
    rounds: Payload = wire(dtype="int64")
    step_size: Payload = wire(dtype="float64")
    objectives: Payload = wire("seen", dtype="float64")  # the first and the last, or none


@dataclass(frozen=True)
class LocalNewton(Algorithm):
    """w <- sum_j p_j u_j, where client j starts at u = w and takes `local_steps` Newton steps on its own objective.

    A local step is u <- u - mu (H_j(u) + lambda I)^-1 (grad f_j(u) + lambda u), mu from an Armijo search on the client's own
    objective. Clients send their models, M numbers, in one exchange.

    finish="giant" goes on with GIANT (2 M + 13 numbers in three exchanges), which has no bias:
    finish_after > 0: after that many rounds.
    finish_after = 0: when averaging stalls. Clients then send their loss at the common model too (one number). Whenever the
    objective has fallen by less than stall_fraction of its whole fall, the next round has one local step less; with none
    left GIANT takes over for good. The server hears of a stall one round late, since it costs no exchange of its own.

    Pitfall: alone it does not converge to the optimum. More local steps go towards the average of the clients' own optima,
    which is far off when clients differ.

    - local_steps: Newton steps of a client in a round, at least 1.
    - line_search: of a client on its own objective: fedns.ArmijoSearch(...).
    - finish: "none" or "giant".
    - finish_after: rounds before GIANT takes over; 0 means when averaging stalls.
    - stall_fraction: the part of the whole decrease below which a round counts as a stall.
    """

    # Deviation (LocalNewton, adaptive variant): the paper takes away local steps when the loss no longer decreases enough
    # and ends with GIANT; the measure of "enough" is ours, relative to the whole decrease, so that it has no unit.
    local_steps: Count = 3
    line_search: ArmijoSearch = ArmijoSearch()
    finish: Literal["none", "giant"] = "none"
    finish_after: CountOrZero = 0
    stall_fraction: Annotated[float, Limit(">= 0 and < 1", lambda part: 0 <= part < 1)] = 1e-3

    name: ClassVar[str] = "localnewton"
    summary: ClassVar[str] = "several local Newton steps, averaged models; a quick start, stalls without a finish"
    paper: ClassVar[str] = "Gupta et al., LocalNewton: Reducing Communication Rounds for Distributed Learning, UAI 2021"
    uplink: ClassVar[str] = "M; 2 M + 13 once GIANT finishes"
    theory: ClassVar[str] = "log 1/δ, to a biased point"
    reports: ClassVar[tuple[str, ...]] = ("local_steps",)
    heterogeneous: ClassVar[str] = "no"

    def __post_init__(self) -> None:
        if self.finish_after and self.finish == "none":
            raise ConfigError(f"finish_after needs finish='giant', got {self.finish_after} without")

    @property
    def _giant(self) -> GIANT:
        return GIANT(self.line_search)

    def needs(self, features: int, clients: int, rows: int) -> Needs:
        return newton_needs(features, rows)

    def handlers(self) -> tuple[Handler, ...]:
        if self.finish == "none":
            return (self.local_model,)
        first = self.local_model if self.finish_after else self.local_model_and_loss
        return (first, *self._giant.handlers())

    def init(self, problem: Problem, cohort: Cohort) -> LocalNewtonState:
        return LocalNewtonState.first(cohort, local_steps=self.local_steps, step_size=1.0)

    @on_client(LocalRun, LocalModel)
    def local_model(self, problem: Problem, clients: Clients, request: LocalRun) -> LocalModel:
        models, _ = self._steps(problem, clients.shards, request)
        return LocalModel(coefficients=models)

    @on_client(LocalRun, LocalModelAndLoss)
    def local_model_and_loss(self, problem: Problem, clients: Clients, request: LocalRun) -> LocalModelAndLoss:
        models, losses = self._steps(problem, clients.shards, request)
        return LocalModelAndLoss(coefficients=models, loss=losses)

    def round(self, problem: Problem, state: LocalNewtonState, cohort: Cohort) -> Outcome:
        w, local_steps, objectives = state.coefficients, int(state.local_steps), state.objectives
        rounds = int(state.rounds) + 1
        diagnostics = {"local_steps": float(local_steps)}
        if local_steps == 0:
            return self._giant_round(problem, state, cohort)
        request = LocalRun(w, np.int32(local_steps))
        if self.finish == "giant" and self.finish_after == 0:
            model, loss = cohort.ask(self.local_model_and_loss, request).fold(mean("coefficients"), mean("loss"))
            objective = float(loss) + problem.penalty_value(w)
            local_steps -= int(self._stalled(objectives, objective))
            objectives = np.array([objectives[0] if objectives.size else objective, objective])
        else:
            (model,) = cohort.ask(self.local_model, request).fold(mean("coefficients"))
            if 0 < self.finish_after <= rounds:
                local_steps = 0
        after = state.after(coefficients=model, local_steps=local_steps, rounds=rounds, objectives=objectives)
        return Outcome(after, diagnostics)

    def _giant_round(self, problem: Problem, state: LocalNewtonState, cohort: Cohort) -> Outcome:
        outcome = self._giant.round(problem, StepState(state.coefficients, state.step_size), cohort)
        after = outcome.state
        assert isinstance(after, StepState)
        ended = state.after(coefficients=after.coefficients, rounds=state.rounds + 1, step_size=after.step_size)
        return Outcome(ended, {"local_steps": 0.0, **outcome.diagnostics}, outcome.finished, stuck=outcome.stuck)

    def _stalled(self, objectives: FloatArray, now: float) -> bool:
        return bool(objectives.size and objectives[1] - now <= self.stall_fraction * (objectives[0] - now))

    def _steps(self, problem: Problem, shards: Shards, request: LocalRun) -> tuple[FloatArray, FloatArray]:
        """Every client's model after its steps, and its mean loss before the first."""
        models = np.tile(request.coefficients, (shards.num_clients, 1))
        first_losses = np.zeros(shards.num_clients)
        for index in range(int(request.local_steps)):
            directions, slopes = newton_steps(problem, models, shards)
            step_sizes, losses = self._step_sizes(problem, shards, models, directions, slopes)
            models = models + step_sizes[:, None] * directions
            if index == 0:
                first_losses = losses
        return models, first_losses

    def _step_sizes(
        self, problem: Problem, shards: Shards, models: FloatArray, directions: FloatArray, slopes: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """The largest trial step with enough decrease of each client's own objective, and the losses before it."""
        steps = self.line_search.steps
        losses = problem.losses_along(models, directions, steps, shards)
        values = losses + problem.penalty_along(models, directions, steps)
        # The same slack for rounding as in the aggregate search.
        allowed = values[:, :1] + self.line_search.armijo_slope * steps[1:] * slopes[:, None]
        passing = values[:, 1:] <= allowed + 1e-14 * np.maximum(1.0, np.abs(values[:, :1]))
        # A client that finds no step stays where it is.
        return np.where(passing.any(axis=1), steps[1 + passing.argmax(axis=1)], 0.0), losses[:, 0]
