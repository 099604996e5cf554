"""Clients on the workers of a Dask cluster: rows live there, handlers run there, requests and replies travel.

A worker's clients are a function of their rows and of the requests they have answered. One that is lost is set up anew on
another worker; where its clients remember something, they answer the requests so far again, to nobody.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from fedns.core.clients import Handler, Ids
from fedns.core.cohort import Cohort, Session
from fedns.core.errors import ConfigError, FednsError
from fedns.core.messages import Message
from fedns.core.messages.encoding import Envelope, encode
from fedns.core.problem import Evaluation
from fedns.core.shards import Shards
from fedns.core.types import FloatArray, IntArray
from fedns.models.evaluation import EvaluationPoint, evaluate_locally
from fedns.models.problem import Problem
from fedns.numerics import parallel
from fedns.numerics.linalg import single_threaded_blas
from fedns.simulation.answering import MEMORY_BUDGET_BYTES, LocalClients

SCHEME = "dask://"
_CONNECT_SECONDS = 10.0
_LOOK_SECONDS = 0.5  # between two looks at who is still there
_MOST_MOVES = 20  # of one part: a part that ends every worker it comes to must not go round for ever


@dataclass(frozen=True)
class Placed:
    """What a worker needs to answer for a part of the clients."""

    problem: Problem
    seed: int
    shards: Shards
    ids: Ids
    chunk_clients: int | None
    memory_budget_bytes: int


@dataclass
class _Part:
    """A part of the clients as the server sees it."""

    name: str
    placed: Placed
    worker: str = ""
    remembers: bool = False
    answered: list[tuple[Handler, bytes, Ids]] = field(default_factory=list)
    moves: int = 0


class ClusterCohort(Cohort):
    """The clients in parts of about equal size, one for each thread of the cluster."""

    def __init__(
        self,
        shards: Shards,
        session: Session,
        cluster: str,
        *,
        chunk_clients: int | None = None,
        memory_budget_bytes: int = MEMORY_BUDGET_BYTES,
    ) -> None:
        super().__init__(session, np.arange(shards.num_clients, dtype=np.int64))
        self._client = connected(cluster)
        run = uuid.uuid4().hex
        threads = sum(worker["nthreads"] for worker in self._workers().values())
        self._parts = [
            _Part(
                f"{run}-{low}",
                Placed(
                    session.problem,
                    session.seed,
                    shards.extract(low, high),
                    self.ids[low:high],
                    chunk_clients,
                    memory_budget_bytes,
                ),
            )
            for low, high in pairwise(_even_cuts(shards.sizes, threads))
        ]
        self.register_clients()

    def _deliver(self, handler: Handler, frame: bytes, ids: Ids) -> Iterator[tuple[Ids, Message]]:
        for part, own, replies in self._gather(handler, frame, ids):
            part.answered.append((handler, frame, own))
            yield from replies

    def _gather(self, handler: Handler, frame: bytes, ids: Ids) -> Iterator[tuple[_Part, Ids, list[tuple[Ids, Message]]]]:
        """Each part with those of its clients who were asked and their replies, as they come."""
        news = threading.Event()
        waiting = [
            [part, own, self._submit(part, handler, frame, own, news)]
            for part in self._parts
            if (own := ids[np.isin(ids, part.placed.ids)]).size
        ]
        while waiting:
            workers = None if news.wait(_LOOK_SECONDS) else self._workers()
            news.clear()
            for entry in list(waiting):
                part, own, future = entry
                answer = self._result(future) if future.done() else None
                if answer is not None:
                    replies, part.remembers = answer
                    waiting.remove(entry)
                    yield part, own, replies
                elif future.done() or (workers is not None and part.worker not in workers):
                    part.worker = ""  # also where the worker is back: whether the request was answered is not known
                    entry[2] = self._submit(part, handler, frame, own, news)

    def evaluate(self, w: FloatArray) -> Evaluation:
        """Objective and gradient norm over all clients; no part of the run, so that nothing is counted."""
        frame = encode(EvaluationPoint(w), Envelope(0, handler=evaluate_locally.__name__), np.dtype(np.float64))
        answers = [reply for _, _, replies in self._gather(evaluate_locally, frame, self.ids) for reply in replies]
        batches: list[Any] = [batch for _, batch in sorted(answers, key=lambda reply: int(reply[0][0]))]
        losses, gradients = (np.concatenate([getattr(one, name) for one in batches]) for name in ("loss", "gradient"))
        evaluation: Evaluation = self.session.problem.combine(self.weights, losses, gradients, w)
        return evaluation

    def close(self) -> None:
        """Let the workers forget the rows."""
        held = {part.worker: part for part in self._parts}
        self._client.run(_forget, [part.name for part in self._parts], workers=[*held.keys() & self._workers().keys()])
        self._client.close()

    def _submit(self, part: _Part, handler: Handler, frame: bytes, ids: Ids, news: threading.Event) -> Any:
        """The future of a part's replies, on the worker that has it, or is given it now."""
        asked: tuple[Any, ...] = (_answer, part.name, handler, frame, ids)
        if not part.worker:
            part.worker = self._new_worker(part)
            placed = self._client.scatter(part.placed, workers=[part.worker], hash=False)
            again = part.answered if part.remembers else []
            asked = (_set_up_and_answer, part.name, placed, again, handler, frame, ids)
        future = self._client.submit(*asked, workers=[part.worker], pure=False, retries=0)
        future.add_done_callback(lambda _: news.set())
        return future

    def _new_worker(self, part: _Part) -> str:
        """The worker that has the fewest parts for its threads."""
        part.moves += 1
        if part.moves > _MOST_MOVES:
            raise FednsError(f"{_MOST_MOVES} workers were lost with the same clients: give workers more memory")
        workers = self._workers()
        if not workers:
            raise FednsError("the cluster has no workers: start some with `dask worker`, and this run again")
        held = [other.worker for other in self._parts]
        return min(workers, key=lambda address: held.count(address) / workers[address]["nthreads"])

    def _workers(self) -> dict[str, Any]:
        found: dict[str, Any] = self._client.scheduler_info(n_workers=-1)["workers"]
        return found

    def _result(self, future: Any) -> Any:
        """What the worker gave; None where it was lost. What a handler raised is raised."""
        if future.status == "finished":
            return future.result()
        error = future.exception() if future.status == "error" else None
        if error is not None and not type(error).__module__.startswith("distributed"):
            raise error
        return None


def connected(cluster: str) -> Any:
    """A client of the cluster at dask://HOST:PORT."""
    try:
        from distributed import Client
    except ImportError:
        raise ConfigError("a cluster needs Dask: pip install 'fedns[cluster]'") from None
    if not cluster.startswith(SCHEME):
        raise ConfigError(f"cluster must be dask://HOST:PORT, the address of a Dask scheduler, got {cluster!r}")
    try:
        client: Any = Client
        return client(cluster.replace(SCHEME, "tcp://", 1), timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        raise ConfigError(f"no Dask scheduler answers at {cluster}: start one with `dask scheduler` ({error})") from None


def spread(cluster: str, work: Sequence[Callable[[], Any]]) -> Iterator[tuple[int, Any]]:
    """The number of each piece of work and what it gave, as they finish; one that a lost worker had is begun again.

    Workers see the files of this machine's folders, under the same paths.
    """
    from distributed import as_completed

    with connected(cluster) as client:
        futures = {client.submit(_work, Path.cwd(), piece, pure=False): at for at, piece in enumerate(work)}
        done: Any = as_completed
        for future in done(list(futures), loop=client.loop):
            yield futures[future], future.result()


def _work(folder: Path, piece: Callable[[], Any]) -> Any:
    from distributed import get_worker

    os.chdir(folder)
    with parallel.threads(get_worker().state.nthreads):
        return piece()


def _even_cuts(sizes: IntArray, parts: int) -> list[int]:
    """Where to cut the clients into at most so many parts of about equal rows."""
    ends = np.cumsum(sizes)
    cuts = np.searchsorted(ends, np.linspace(0, ends[-1], max(1, parts) + 1)[1:-1])
    return [int(cut) for cut in np.unique([0, *cuts, len(sizes)])]


_held: dict[str, tuple[Placed, LocalClients]] = {}  # of this worker, by name


def _set_up_and_answer(
    name: str, placed: Placed, again: list[tuple[Handler, bytes, Ids]], handler: Handler, frame: bytes, ids: Ids
) -> tuple[list[tuple[Ids, Message]], bool] | None:
    clients = LocalClients(placed.shards, placed.ids, placed.chunk_clients, placed.memory_budget_bytes)
    _held[name] = placed, clients
    for earlier in again:
        _answer(name, *earlier)
    return _answer(name, handler, frame, ids)


def _answer(name: str, handler: Handler, frame: bytes, ids: Ids) -> tuple[list[tuple[Ids, Message]], bool] | None:
    """The replies of these clients, and whether they remember something; None where the worker was started anew."""
    from distributed import get_worker

    if name not in _held:
        return None
    placed, clients = _held[name]
    with parallel.threads(get_worker().state.nthreads), single_threaded_blas():
        replies = list(clients.answer(placed.problem, placed.seed, handler, frame, ids))
    return replies, bool(clients.memory.arrays)


def _forget(names: list[str]) -> None:
    for name in names:
        _held.pop(name, None)
