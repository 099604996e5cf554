"""All clients in this process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedns.core.algorithm import Algorithm
from fedns.core.checked import Count, checked
from fedns.core.clients import Handler, Ids
from fedns.core.cohort import Cohort, Holder, Session
from fedns.core.errors import ConfigError
from fedns.core.history import History, Observer
from fedns.core.messages import Message
from fedns.core.problem import Evaluation
from fedns.core.refusals import refuse_too_large
from fedns.core.run import Stop, run
from fedns.core.shards import Shards
from fedns.models.problem import Problem
from fedns.models.reference import Optimum, pooled_optimum
from fedns.numerics import parallel
from fedns.numerics.backends.devices import on_device
from fedns.numerics.linalg import single_threaded_blas
from fedns.simulation.answering import MEMORY_BUDGET_BYTES, LocalClients
from fedns.simulation.cluster import ClusterCohort


class SimulatedCohort(Cohort):
    """Clients answered in chunks, as many at a time as their replies fit into the memory budget."""

    def __init__(
        self,
        shards: Shards,
        session: Session,
        *,
        chunk_clients: int | None = None,
        memory_budget_bytes: int = MEMORY_BUDGET_BYTES,
    ) -> None:
        super().__init__(session, np.arange(shards.num_clients, dtype=np.int64))
        self.shards = shards
        self._clients = LocalClients(shards, self.ids, chunk_clients, memory_budget_bytes)
        self.memory = self._clients.memory
        self.register_clients()

    def bytes_needed(self, algorithm: Holder) -> float:
        """The clients' part too: of those that are asked at once, and of all what they keep."""
        needs = algorithm.needs(self.num_features, self.num_clients, self.largest_rows)
        at_once = min(self.num_clients, self._clients.at_first(self.num_features))
        return 8.0 * (needs.server + at_once * needs.client + self.num_clients * needs.kept)

    @property
    def largest_rows(self) -> int:
        return int(self.shards.sizes.max())

    def _deliver(self, handler: Handler, frame: bytes, ids: Ids) -> Iterator[tuple[Ids, Message]]:
        return self._clients.answer(self.session.problem, self.session.seed, handler, frame, ids)

    def evaluate(self, w: NDArray[np.float64]) -> Evaluation:
        """The objective and gradient norm over all rows; no part of the run, so that nothing is counted."""
        evaluation: Evaluation = self.session.problem.evaluate(w, self.shards)
        return evaluation


@checked
def simulated_cohort(problem: Problem, shards: Shards, *, seed: int = 0, wire: str = "float64") -> Cohort:
    """Clients with these shards in this process, registered and ready to be asked.

    A feature map of the problem is applied to the rows first; `cohort.session.problem` is the problem over its features.

    - problem: the objective.
    - shards: the clients' rows, from fedns.split.
    - seed: of all random streams.
    - wire: float64 or float32, the precision of real numbers in messages.
    """
    problem, shards = problem.linearised(shards)
    return SimulatedCohort(shards.onehot, Session(problem, seed, wire))


@checked
def simulate(
    algorithm: Algorithm,
    problem: Problem,
    shards: Shards,
    *,
    rounds: int,
    tol: float | None = None,
    gradient_tol: float | None = None,
    seed: int = 0,
    optimum: Optimum | Literal["find"] | None = None,
    start: ArrayLike | None = None,
    participation: float = 1.0,
    wire: str = "float64",
    threads: Count | None = None,
    device: Literal["cpu", "cuda"] | None = None,
    chunk_clients: Count | None = None,
    memory_budget_bytes: Count = MEMORY_BUDGET_BYTES,
    cluster: str | None = None,
    observers: Sequence[Observer] = (),
) -> History:
    """Run a method over these shards in this process; its history, with the coefficients.

    - algorithm: a method, for example fedns.FedNS(fedns.SRHT(16)).
    - problem: the objective, fedns.Problem(...).
    - shards: the clients' rows, from fedns.split.
    - rounds: most rounds, at least 0.
    - tol: stop when the gap F(w) - F* is at most this.
    - gradient_tol: stop when the gradient norm is at most this.
    - seed: of everything random.
    - optimum: what gaps are measured from. The pooled optimum, if it is known already; "find" to find it first, outside the
      clock. Without it, it is found only if tol needs it, and the history has no gaps otherwise (suboptimality is nan).
    - start: the coefficients to start from, with the intercept's last; zeros otherwise.
    - participation: the part of the clients drawn for each round, above 0 and at most 1.
    - wire: float64 or float32, the precision of real numbers in messages.
    - threads: processor threads; all unless given.
    - device: "cpu" or "cuda", what passes over the rows; the problem's own backend unless given.
    - chunk_clients: clients that are answered at once; by memory unless given.
    - memory_budget_bytes: for replies that are held at once.
    - cluster: dask://HOST:PORT, the scheduler of a Dask cluster whose workers hold the clients; this process unless given.
    - observers: see every round, and end the run by returning a reason.
    """
    problem.loss.check(shards)
    if device is not None:
        problem = replace(problem, backend=on_device(device))
    stop = Stop(rounds, tol, gradient_tol)

    with parallel.threads(threads), single_threaded_blas():
        problem, shards = problem.linearised(shards)
        shards = shards.onehot
        first = None if start is None else _checked_start(start, problem.num_features(shards.num_columns))
        visible = shards.pooled() if algorithm.pooled else shards
        session = Session(problem, seed, wire, metered=not algorithm.pooled, start=first)
        chunks: Any = {"chunk_clients": chunk_clients, "memory_budget_bytes": memory_budget_bytes}
        evaluate: Callable[[NDArray[np.float64]], Evaluation] = lambda w: problem.evaluate(w, shards)  # noqa: E731
        with contextlib.ExitStack() as stack:
            cohort: Cohort
            if cluster is None or algorithm.pooled:  # all rows as one client have nowhere to be spread to
                cohort = SimulatedCohort(visible, session, **chunks)
            else:
                cohort = stack.enter_context(contextlib.closing(ClusterCohort(shards, session, cluster, **chunks)))
                evaluate = cohort.evaluate
            refuse_too_large(algorithm, cohort.bytes_needed, cohort.num_features)
            best = _optimum(optimum, tol is not None, problem, shards)
            return run(
                algorithm,
                problem,
                cohort,
                stop=stop,
                evaluate=evaluate,
                optimal_value=None if best is None else best.value,
                participation=participation,
                observers=observers,
            )


def _optimum(given: Optimum | Literal["find"] | None, needed: bool, problem: Problem, shards: Shards) -> Optimum | None:
    if isinstance(given, Optimum):
        return given
    if given not in (None, "find"):
        raise ConfigError(f'optimum must be an Optimum, "find" or None, got {given!r}')
    return pooled_optimum(problem, shards) if needed or given == "find" else None


def _checked_start(start: ArrayLike, num_features: int) -> NDArray[np.float64]:
    try:
        coefficients = np.array(start, dtype=np.float64)
    except (TypeError, ValueError):
        raise ConfigError(f"start must be {num_features} numbers, got a {type(start).__name__} of something else") from None
    if coefficients.shape != (num_features,):
        raise ConfigError(f"start must have {num_features} coefficients, got an array of shape {coefficients.shape}")
    if not np.isfinite(coefficients).all():
        raise ConfigError("start must be finite, got NaN or infinity")
    return coefficients
