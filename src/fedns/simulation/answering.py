"""Clients whose rows are in this process, asked in chunks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedns.core.clients import ClientMemory, Clients, Handler, Ids, messages_of
from fedns.core.messages import Message, Ragged
from fedns.core.messages.encoding import decode
from fedns.core.problem import Objective
from fedns.core.shards import Shards
from fedns.numerics import parallel

MEMORY_BUDGET_BYTES = 128 * 2**20
# Replies are folded while they are in the third-level cache. Fewer still would gain little, and threads start for each part.
_IN_CACHE_BYTES = 12 * 2**20
_CLIENTS_PER_THREAD = 4


class LocalClients:
    """Clients answered as many at a time as their replies fit into the memory budget."""

    def __init__(
        self, shards: Shards, ids: Ids, chunk_clients: int | None = None, memory_budget_bytes: int = MEMORY_BUDGET_BYTES
    ) -> None:
        self.shards = shards
        self.ids = ids  # (clients,) their numbers in the federation, increasing
        self.memory = ClientMemory(ids)
        self._chunk_clients = chunk_clients
        self._budget = memory_budget_bytes
        self._reply_bytes: dict[str, int] = {}  # the largest reply of one client seen so far, per handler
        self._ragged: set[str] = set()  # the handlers whose replies have rows, as many as a client has or wants

    def answer(
        self, problem: Objective, seed: int, handler: Handler, frame: bytes, ids: Ids
    ) -> Iterator[tuple[Ids, Message]]:
        """The replies of these clients to an encoded request, a chunk at a time."""
        request, envelope = decode(messages_of(handler)[0], frame)
        start = 0
        while start < ids.size:
            left = ids.size - start
            chunks = -(-left // self._most_at_once(handler, problem))  # of one size: few clients keep few threads busy
            chunk = ids[start : start - (-left // chunks)]
            all_at_once = chunk.size == self.ids.size
            own = self.shards if all_at_once else self.shards.select(np.searchsorted(self.ids, chunk))
            batch = handler(problem, Clients(own, chunk, seed, envelope.round, self.memory), request)
            self._note_size(handler, batch, chunk.size)
            yield chunk, batch
            del batch
            start += chunk.size

    def _most_at_once(self, handler: Handler, problem: Objective) -> int:
        if self._chunk_clients is not None:
            return self._chunk_clients
        known = self._reply_bytes.get(handler.__name__)
        if known is None:  # as many as could send a Hessian each: a few tell what others will need
            return self.at_first(int(problem.num_features(self.shards.num_columns)))
        most = self._budget // max(1, known)
        if handler.__name__ not in self._ragged:  # rows would have to be put together again, for a product of many
            most = min(most, max(_IN_CACHE_BYTES // max(1, known), _CLIENTS_PER_THREAD * parallel.thread_count()))
        return max(1, most)

    def at_first(self, features: int) -> int:
        """Clients that are asked at once before the size of an answer is known: as many as could send a Hessian each."""
        hessian = 8 * features**2
        fewest = 16 if 16 * hessian <= 16 * self._budget else 1
        return max(fewest, min(self._budget, 2 * _IN_CACHE_BYTES) // (2 * hessian))

    def _note_size(self, handler: Handler, batch: Message, clients: int) -> None:
        size, name = 0, handler.__name__
        for field in batch.specs():
            value = getattr(batch, field)
            if isinstance(value, Ragged):
                self._ragged.add(name)
                value = value.values
            size += np.asarray(value).nbytes
        self._reply_bytes[name] = max(size // clients, self._reply_bytes.get(name, 0))
