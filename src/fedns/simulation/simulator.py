"""All clients in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedns.core.algorithm import Algorithm
from fedns.core.checked import Count, checked
from fedns.core.clients import ClientMemory, Clients, Handler, Ids, messages_of
from fedns.core.cohort import Cohort, Session
from fedns.core.encoding import decode
from fedns.core.errors import ConfigError
from fedns.core.history import History, Observer
from fedns.core.messages import Message, Ragged
from fedns.core.run import run
from fedns.core.shards import Shards
from fedns.core.termination import Stop
from fedns.numerics import parallel
from fedns.numerics.backend import on_device
from fedns.numerics.linalg import single_threaded_blas
from fedns.problems.problem import Problem
from fedns.problems.reference import Optimum, pooled_optimum

MEMORY_BUDGET_BYTES = 128 * 2**20


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
        self.memory = ClientMemory(self.ids)
        self._chunk_clients = chunk_clients
        self._budget = memory_budget_bytes
        self._reply_bytes: dict[str, int] = {}  # the largest reply of one client seen so far, per handler
        self.register_clients()

    def _deliver(self, handler: Handler, frame: bytes, ids: Ids) -> Iterator[tuple[Ids, Message]]:
        request, envelope = decode(messages_of(handler)[0], frame)
        session = self.session
        start = 0
        while start < ids.size:
            chunk = ids[start : start + self._chunk_size(handler)]
            clients = Clients(self.shards.select(chunk), chunk, session.seed, envelope.round, self.memory)
            batch = handler(session.problem, clients, request)
            self._note_size(handler, batch, chunk.size)
            yield chunk, batch
            start += chunk.size

    def _chunk_size(self, handler: Handler) -> int:
        if self._chunk_clients is not None:
            return self._chunk_clients
        known = self._reply_bytes.get(handler.__name__)
        # Nothing is known of the first reply: a few clients tell what the others will need.
        return 16 if known is None else max(1, self._budget // max(1, known))

    def _note_size(self, handler: Handler, batch: Message, clients: int) -> None:
        values = [getattr(batch, name) for name in batch.specs()]
        size = sum(v.values.nbytes if isinstance(v, Ragged) else np.asarray(v).nbytes for v in values) // clients
        self._reply_bytes[handler.__name__] = max(size, self._reply_bytes.get(handler.__name__, 0))


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
    return SimulatedCohort(shards.narrowed, Session(problem, seed, wire))


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
    - observers: see every round, and end the run by returning a reason.
    """
    problem.loss.check_targets(shards)
    if device is not None:
        problem = replace(problem, backend=on_device(device))
    stop = Stop(rounds, tol, gradient_tol)

    with parallel.threads(threads), single_threaded_blas():
        problem, shards = problem.linearised(shards)
        shards = shards.narrowed
        first = None if start is None else _checked_start(start, problem.num_features(shards.num_columns))
        best = _optimum(optimum, tol is not None, problem, shards)
        visible = shards.pooled() if algorithm.pooled else shards
        cohort = SimulatedCohort(
            visible,
            Session(problem, seed, wire, metered=not algorithm.pooled, start=first),
            chunk_clients=chunk_clients,
            memory_budget_bytes=memory_budget_bytes,
        )
        return run(
            algorithm,
            problem,
            cohort,
            stop=stop,
            evaluate=lambda w: problem.evaluate(w, shards),
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
