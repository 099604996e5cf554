"""FedAvg and FedProx: gradient steps at the clients, then averaging."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedns.core.algorithm import Algorithm, Outcome, State, smallest_batch
from fedns.core.checked import Count, CountOrZero, NotNegative
from fedns.core.clients import Clients, Handler, on_client
from fedns.core.cohort import Cohort
from fedns.core.messages import Message, Payload, wire
from fedns.core.messages.reducers import mean
from fedns.core.types import FloatArray
from fedns.methods.searches import refusable
from fedns.models.losses import Squared
from fedns.models.problem import Problem
from fedns.numerics.backend import LocalSteps
from fedns.numerics.rng import generator

# Learning rates that the search races, in units of 1 / L: below 2 the local steps are sure to descend.
CANDIDATES = (1.0, 1.9, 4.0, 8.0)
CAUTIOUS_CANDIDATES = (1 / 64, 1 / 16, 1 / 4, 1.0)  # where the curvature has no bound and L is that at the start
_HUGE = 1e30  # what a diverged candidate is sent as: numbers that are not finite cannot travel
_POWER_ITERATIONS = 30


class SmoothnessRequest(Message):
    """How many power iterations to spend."""

    iterations: Payload = wire(dtype="int32")


class LocalSmoothness(Message):
    """An estimate of the largest eigenvalue that the Hessian of a client's mean loss has anywhere."""

    smoothness: Payload = wire(dtype="float64", discloses="moments")


class Candidates(Message):
    """Coefficients to start local training from, one row for each learning rate; a single row once the rate is known."""

    coefficients: Payload = wire("candidates", "features")
    learning_rates: Payload = wire("candidates", dtype="float64")


class LocalModels(Message):
    """Where a client's local training has led, for each learning rate."""

    fallback: ClassVar[str] = "others"

    coefficients: Payload = wire("candidates", "features", discloses="direction")


class CandidateModels(Message):
    """Averaged coefficients to compare."""

    coefficients: Payload = wire("candidates", "features")


class CandidateLosses(Message):
    """A client's mean loss at each of them."""

    fallback: ClassVar[str] = "others"

    losses: Payload = wire("candidates", dtype="float64", discloses="loss")


class AveragingState(State):
    """The model, the learning rates still in the race with their models (one once it is decided), and the rounds raced."""

    candidates: Payload = wire("candidates", "features", dtype="float64")
    learning_rates: Payload = wire("candidates", dtype="float64")
    raced: Payload = wire(dtype="int64")


@on_client(SmoothnessRequest, LocalSmoothness)
def local_smoothness(problem: Problem, clients: Clients, request: SmoothnessRequest) -> LocalSmoothness:
    """Power iteration on Phi' Phi / n, times the bound on the loss's curvature; on the Hessian at 0 where it has none.

    The former is the Hessian of the squared loss, and no M x M matrix is formed. The Rayleigh quotient is at most the
    eigenvalue; adding the norm of its residual errs on the other, safe side.
    """
    bound, bounded = problem.loss.curvature_bound, math.isfinite(problem.loss.curvature_bound)
    shards, linear = clients.shards, replace(problem, loss=Squared()) if bounded else problem
    v = generator(0, "power iteration").standard_normal(problem.num_features(shards.num_columns))
    directions = np.tile(v / np.linalg.norm(v), (shards.num_clients, 1))
    quotients = residuals = np.zeros(shards.num_clients)
    for _ in range(int(request.iterations)):
        images = linear.hessian_times(np.zeros_like(v), directions[:, None], shards)[:, 0]
        quotients = np.sum(images * directions, axis=1)
        residuals = np.sqrt(np.sum((images - quotients[:, None] * directions) ** 2, axis=1))
        norms = np.sqrt(np.sum(images**2, axis=1, keepdims=True))
        directions = images / np.where(norms > 0, norms, 1.0)
    return LocalSmoothness(smoothness=(bound if bounded else 1.0) * (quotients + residuals))


def ask_smoothness(problem: Problem, cohort: Cohort) -> float:
    """A bound on the smoothness of the least smooth local objective, penalty included."""
    replies = cohort.ask(local_smoothness, SmoothnessRequest(np.int32(_POWER_ITERATIONS)))
    return max(float(batch.smoothness.max()) for _, batch in replies) + problem.penalty.smoothness


@dataclass(frozen=True)
class FedAvg(Algorithm):
    """w <- sum_j p_j u_j, where client j starts at u = w and takes local steps u <- u - mu (grad f_j(u) + lambda u).

    Clients send their models, M numbers. batch_size=0 takes the gradient over all rows of the client, so that an epoch is a
    step. Otherwise an epoch walks through the rows in a fresh random order, batch_size at a time. local_steps > 0 counts
    steps in place of epochs. Which clients take part is the run's `participation`.

    learning_rate=0 means a search on the server, every message of which is counted. In the first round clients send a
    smoothness estimate, whose largest is L (one number). Then the rates 1/L, 1.9/L, 4/L and 8/L race for `search_rounds`
    rounds, all four in one exchange and their aggregate losses in a second (4 M + 4 numbers a round). The best one goes on
    alone; while they race the model is the best so far.

    Pitfall: with more than one local step the fixed point is not the optimum unless all clients agree on it. The run ends
    on a plateau, lower for fewer steps and smaller rates. With a single full-batch step this is gradient descent.

    - local_epochs: passes over its rows that a client makes in a round, at least 1.
    - local_steps: steps of a round in place of epochs; 0 counts epochs.
    - batch_size: rows of a step; 0 means all rows of the client.
    - learning_rate: mu; 0 means that it is searched for.
    - search_rounds: rounds that the four rates race for.
    """

    local_epochs: Count = 5
    local_steps: CountOrZero = 0  # 0 means that local_epochs counts
    batch_size: CountOrZero = 0  # 0 means all rows of the client
    learning_rate: NotNegative = 0.0  # 0 means found by a search
    search_rounds: Count = 10

    name: ClassVar[str] = "fedavg"
    summary: ClassVar[str] = "local gradient steps, averaged models; cheap rounds, stalls short of the optimum"
    paper: ClassVar[str] = "McMahan et al., Communication-Efficient Learning of Deep Networks, AISTATS 2017, Algorithm 1"
    uplink: ClassVar[str] = "M (4 M + 4 while the learning rate is searched for)"
    theory: ClassVar[str] = "1/δ, to a biased point"
    reports: ClassVar[tuple[str, ...]] = ("candidates", "learning_rate")
    heterogeneous: ClassVar[str] = "yes"

    @property
    def pull(self) -> float:
        """The weight of |u - w|^2 / 2 in the local objective."""
        return 0.0

    @property
    def quadratic_penalty_only(self) -> str:
        return "mini-batch steps add a multiple of the coefficients: set batch_size=0" if self.batch_size else ""

    def fewest_rows(self, rows: int) -> int:
        if not self.batch_size:
            return rows
        return smallest_batch(rows, self.batch_size, int(self._steps(rows)))

    def handlers(self) -> tuple[Handler, ...]:
        return (self.local_models, *(() if self.learning_rate else (local_smoothness, self.candidate_losses)))

    def init(self, problem: Problem, cohort: Cohort) -> AveragingState:
        rates = np.full(int(self.learning_rate > 0), self.learning_rate)
        return AveragingState(cohort.start, np.tile(cohort.start, (rates.size, 1)), rates, np.int64(0))

    @on_client(Candidates, LocalModels)
    def local_models(self, problem: Problem, clients: Clients, request: Candidates) -> LocalModels:
        rates = np.atleast_1d(request.learning_rates).tolist()
        with np.errstate(over="ignore", invalid="ignore"):
            trained = [self._train(problem, clients, w, r) for w, r in zip(request.coefficients, rates, strict=True)]
        models = np.stack(trained, axis=1)
        if len(rates) > 1:
            models = np.clip(np.nan_to_num(models, nan=_HUGE), -_HUGE, _HUGE)
        return LocalModels(coefficients=models)

    @on_client(CandidateModels, CandidateLosses)
    def candidate_losses(self, problem: Problem, clients: Clients, request: CandidateModels) -> CandidateLosses:
        losses = [problem.value(w, clients.shards) for w in request.coefficients]
        return CandidateLosses(losses=refusable(np.stack(losses, axis=1)))

    def round(self, problem: Problem, state: AveragingState, cohort: Cohort) -> Outcome:
        diagnostics = {}
        rates, starts = state.learning_rates, state.candidates
        if rates.size == 0:
            smoothness = ask_smoothness(problem, cohort)
            diagnostics["smoothness"] = smoothness
            bounded = math.isfinite(problem.loss.curvature_bound)
            rates = np.array(CANDIDATES if bounded else CAUTIOUS_CANDIDATES) / (smoothness if smoothness > 0 else 1.0)
            starts = np.tile(state.coefficients, (rates.size, 1))
        diagnostics["candidates"] = float(rates.size)
        (models,) = cohort.ask(self.local_models, Candidates(starts, rates)).fold(mean("coefficients"))
        best, raced = 0, state.raced
        if rates.size > 1:
            (losses,) = cohort.ask(self.candidate_losses, CandidateModels(models)).fold(mean("losses"))
            best = int(np.argmin(refusable(losses + np.array([problem.penalty_value(model) for model in models]))))
            raced = np.int64(raced + 1)
        diagnostics["learning_rate"] = float(rates[best])
        model = models[best]
        if raced >= self.search_rounds:
            models, rates = models[best : best + 1], rates[best : best + 1]
        return Outcome(AveragingState(model, models, rates, raced), diagnostics)

    def _steps(self, rows: int | NDArray[np.int64]) -> NDArray[np.int64]:
        """Mini-batch steps of clients with so many rows."""
        batches = -(-np.asarray(rows) // self.batch_size)  # of an epoch
        return np.full_like(batches, self.local_steps) if self.local_steps else self.local_epochs * batches

    def _train(self, problem: Problem, clients: Clients, w: FloatArray, rate: float) -> FloatArray:
        """Every client's coefficients after its local steps from w: (clients, features)."""
        shards = clients.shards
        if self.batch_size > 0:
            diagonal = problem.penalty_curvature(w)  # the same everywhere: others are refused
            local = LocalSteps(self._steps(shards.sizes), self.batch_size, rate, diagonal, self.pull)
            return problem.local_steps(w, shards, local, clients.keys("local batches"))
        models = np.tile(w, (shards.num_clients, 1))
        for _ in range(self.local_steps or self.local_epochs):
            gradient = problem.gradient(models, shards)
            models = models - rate * (gradient + problem.penalty_gradient(models) + self.pull * (models - w))
        return models


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg whose local objective has a term (proximal / 2) |u - w|^2 that holds clients near the common model.

    Local steps are u <- u - mu (grad f_j(u) + lambda u + proximal (u - w)); w <- sum_j p_j u_j. proximal=0 is FedAvg.

    Pitfall: it damps the drift and the progress alike; the fixed point is still biased. With a given learning rate keep
    learning_rate < 2 / (L + proximal), or the local steps diverge.

    - local_epochs: passes over its rows that a client makes in a round, at least 1.
    - local_steps: steps of a round in place of epochs; 0 counts epochs.
    - batch_size: rows of a step; 0 means all rows of the client.
    - learning_rate: mu; 0 means that it is searched for.
    - search_rounds: rounds that the four rates race for.
    - proximal: strength of the term that holds clients near the common model, at least 0.
    """

    # Deviation (FedProx, Alg. 2): clients count by their rows in the average and are drawn uniformly; the paper draws them
    # by their rows and averages uniformly. The expectation is the same. Its inexactness gamma is the number of local steps.
    proximal: NotNegative = 0.01

    name: ClassVar[str] = "fedprox"
    summary: ClassVar[str] = "FedAvg with local models held near the common one; less drift, slower, stalls too"
    paper: ClassVar[str] = "Li et al., Federated Optimization in Heterogeneous Networks, MLSys 2020, Algorithm 2"

    @property
    def pull(self) -> float:
        return self.proximal
