"""The one door between the server and its clients. Whatever goes through it is rounded, checked and counted."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedns.core.clients import Clients, Handler, Ids, messages_of, on_client
from fedns.core.errors import ConfigError, MessageError, NonFiniteError
from fedns.core.messages import (
    WIRE_PRECISIONS,
    Message,
    Payload,
    batch_on_wire,
    refuse_batch_shape,
    refuse_non_finite,
    wire,
)
from fedns.core.messages.encoding import Envelope, encode, total_bytes
from fedns.core.messages.ledger import LedgerEntry, Meter
from fedns.core.messages.reducers import Reducer, mean, mean_gram
from fedns.core.problem import Objective
from fedns.core.types import DType, FloatArray
from fedns.numerics.backend import triangle_size
from fedns.numerics.rng import generator

T = TypeVar("T")
_LARGEST_MEAN_WEIGHT = 1e6  # of a row: a site that claims more would decide everything


class Hello(Message):
    """The server opens a run."""

    seed: Payload = wire(dtype="int64")


class Registration(Message):
    """How much data a client has; weights follow from it."""

    num_rows: Payload = wire(dtype="int64", discloses="count")
    total_weight: Payload = wire(dtype="float64", discloses="count")
    num_columns: Payload = wire(dtype="int64", discloses="schema")

    def check(self) -> None:
        if not (0 < self.num_rows < 2**48 and 0 < self.num_columns < 2**31):
            raise MessageError(f"{self.kind} states {self.num_rows} rows and {self.num_columns} columns")
        if not 0 < self.total_weight <= _LARGEST_MEAN_WEIGHT * self.num_rows:
            raise MessageError(f"{self.kind} states a weight of {self.total_weight:g} for {self.num_rows} rows")


@on_client(Hello, Registration)
def register(problem: Objective, clients: Clients, request: Hello) -> Registration:
    shards = clients.shards
    columns = np.full(shards.num_clients, shards.num_columns)
    return Registration(num_rows=shards.sizes, total_weight=shards.total_weights, num_columns=columns)


@dataclass(frozen=True)
class Needs:
    """The numbers of eight bytes that a method holds at a time, beside the rows.

    - server: at the server, within a round.
    - client: at a client, while it answers.
    - kept: what a client remembers between rounds.
    """

    server: float
    client: float
    kept: float = 0.0


class Holder(Protocol):
    """A method as a cohort sees it that asks whether it fits into memory."""

    def needs(self, features: int, clients: int, rows: int) -> Needs: ...


@dataclass
class Session:
    """What a cohort and the samples drawn from it share."""

    problem: Any  # an Objective; whoever makes a session knows which class it is
    seed: int
    wire: str = "float64"
    meter: Meter = field(default_factory=Meter)
    round: int = 0
    num_features: int = 0
    metered: bool = True  # False where the data are pooled and nothing is sent
    start: FloatArray | None = None  # the coefficients to start from, where it is not 0

    def __post_init__(self) -> None:
        if self.wire not in WIRE_PRECISIONS:
            raise ConfigError(f"wire precision must be {' or '.join(WIRE_PRECISIONS)}, got {self.wire!r}")

    @property
    def precision(self) -> DType:
        return WIRE_PRECISIONS[self.wire]


class Cohort(ABC):
    """The clients of a run. An engine implements `_deliver` and calls `register_clients` when it is set up."""

    def __init__(self, session: Session, ids: Ids) -> None:
        self.session = session
        self.ids = ids  # (clients,), increasing
        self.weights: FloatArray = np.zeros(0)  # p_j, summing to 1 over this cohort
        self.total_weights: FloatArray = np.zeros(0)
        self.rows: FloatArray = np.zeros(0)  # of each client, however they are weighted

    @abstractmethod
    def _deliver(self, handler: Handler, frame: bytes, ids: Ids) -> Iterator[tuple[Ids, Message]]:
        """Send the encoded request to these clients; yield (ids, batch of replies) as they answer, in any order."""

    @property
    def num_clients(self) -> int:
        return int(self.ids.size)

    @property
    def num_features(self) -> int:
        return self.session.num_features

    def bytes_needed(self, algorithm: Holder) -> float:
        """Estimate the memory of a run here beside the rows; where clients are elsewhere, the server's part of it."""
        needs = algorithm.needs(self.num_features, self.num_clients, self.largest_rows)
        return 8.0 * (needs.server + needs.client)  # one client's reply as bytes and as numbers

    @property
    def largest_rows(self) -> int:
        """Rows of the largest client, as the weights tell."""
        return int(np.ceil(self.total_weights.max(initial=0.0)))

    @property
    def number_bytes(self) -> np.uint8:
        """The size of a real number on this run's wire, for clients that must keep what the server receives."""
        return np.uint8(self.session.precision.itemsize)

    @property
    def start(self) -> FloatArray:
        """The coefficients that a run starts from: (features,)."""
        start = self.session.start
        return np.zeros(self.num_features) if start is None else start.copy()

    def ask(self, handler: Handler, request: Message) -> Replies:
        """Send a request to every client of this cohort; the replies are read once, in client order."""
        expected, _ = messages_of(handler)
        if not isinstance(request, expected):
            raise ConfigError(f"{handler.__name__} takes a {expected.kind}, got a {request.kind}")
        session = self.session
        frame = encode(request, Envelope(session.round, handler=handler.__name__), session.precision)
        session.meter.exchanges += int(session.metered)
        asked = self._asked(handler)
        reached = asked._reached(asked.ids).size
        asked._count("downlink", request, reached, len(frame) * reached)
        return Replies(asked, handler, asked._deliver(handler, frame, asked.ids))

    def _label(self, client: int) -> str:
        """What an error calls this client."""
        return f"client {client}"

    def _asked(self, handler: Handler) -> Self:
        """Those of the cohort who answer: all, unless an engine knows that some are away and others speak for them."""
        return self

    def _reached(self, ids: Ids) -> Ids:
        """Those of these clients to whom messages really travel; the rest may fall back on an older reply."""
        return ids

    def with_retries(self, round: Callable[[Cohort], T]) -> T:
        """One round with this cohort. An engine whose clients come and go may repeat it, with those it has."""
        return round(self)

    def sample(self, fraction: float) -> Cohort:
        """A random part of the cohort for this round, of at least one client; weights are renormalised over it."""
        if not 0.0 < fraction <= 1.0:
            raise ConfigError(f"participation must be in (0, 1], got {fraction}")
        count = max(1, round(fraction * self.num_clients))
        draw = generator(self.session.seed, "participation", self.session.round)
        return self.part(np.sort(draw.choice(self.num_clients, size=count, replace=False)))

    def part(self, positions: NDArray[np.int64]) -> Self:
        """These clients of the cohort, their weights summing to 1 again."""
        part = copy.copy(self)
        part.ids = self.ids[positions]
        part.total_weights = self.total_weights[positions]
        part.weights = part.total_weights / part.total_weights.sum()
        part.rows = self.rows[positions]
        return part

    def with_problem(self, problem: Objective, start: FloatArray | None = None) -> Self:
        """The same clients under another objective, and where its run starts; what is sent goes on being counted."""
        other = copy.copy(self)
        other.session = replace(self.session, problem=problem, start=start)
        return other

    def register_clients(self) -> None:
        """Ask every client how much data it has, and set weights and the number of features from the answers."""
        replies = list(self.ask(register, Hello(np.int64(self.session.seed))))
        columns = np.concatenate([batch.num_columns for _, batch in replies])
        if (columns != columns[0]).any():
            other = int(np.argmax(columns != columns[0]))
            one, first = self._label(int(self.ids[other])), self._label(int(self.ids[0]))
            raise MessageError(
                f"{one} has {columns[other]} columns, {first} has {columns[0]}: all clients must have the same columns"
            )
        self.total_weights = np.concatenate([batch.total_weight for _, batch in replies])
        self.weights = self.total_weights / self.total_weights.sum()
        self.rows = np.concatenate([batch.num_rows for _, batch in replies]).astype(np.float64)
        self.session.num_features = self.session.problem.num_features(int(columns[0]))

    def _count(self, direction: str, message: Message | type[Message], messages: int, length: int) -> None:
        meter = self.session.meter
        if not self.session.metered:
            return
        fields = tuple(message.specs())
        meter.count(LedgerEntry(self.session.round, meter.exchanges, direction, message.kind, fields, messages, length))


class Replies:
    """The answers to one request, in client order whatever the order of arrival; read once."""

    def __init__(self, cohort: Cohort, handler: Handler, arrivals: Iterator[tuple[Ids, Message]]) -> None:
        self._cohort = cohort
        self._handler = handler
        self._arrivals = arrivals
        features = cohort.num_features  # known once clients are registered
        self._lengths = {"features": features, "entries": triangle_size(features)} if features else {}
        self._unchecked: set[str] = set()  # fields whose sums are looked at instead

    @property
    def weights(self) -> FloatArray:
        """The weights of those who were asked, summing to 1."""
        return self._cohort.weights

    def fold(self, *reducers: Reducer) -> list[Any]:
        """One streaming pass; each reducer sees every client once. The server never holds all replies."""
        means = [reducer for reducer in reducers if isinstance(reducer, mean)]
        # Large replies are read once, while they are in the cache.
        self._unchecked = {reducer.field for reducer in reducers if isinstance(reducer, mean | mean_gram)}
        for positions, batch in self:
            try:
                for reducer in reducers:
                    reducer.add(batch, self._cohort.weights[positions])
            except NonFiniteError:  # which ends a run as diverged, whoever sent it
                raise
            except MessageError as error:
                raise MessageError(f"{self._labels(positions)}: {error}") from None
            for reducer in means:
                refuse_non_finite(batch.kind, reducer.field, getattr(batch, reducer.field), reducer.result())
            del batch
        return [reducer.result() for reducer in reducers]

    def _labels(self, positions: slice) -> str:
        first, *others = (self._cohort._label(int(client)) for client in self._cohort.ids[positions])
        return f"{first} to {others[-1]}" if others else first

    def __iter__(self) -> Iterator[tuple[slice, Any]]:
        """(positions in the cohort, batch) in client order; early arrivals wait for their turn."""
        ids = self._cohort.ids
        waiting: dict[int, tuple[int, Message]] = {}
        position, total, count, travelled = 0, 0, 0, 0
        for chunk, arrived in self._arrivals:
            batch, length = self._admit(chunk, arrived)
            reached = self._cohort._reached(chunk).size
            total, count = total + length * reached // chunk.size, count + chunk.size
            travelled += reached
            waiting[int(ids.searchsorted(chunk[0]))] = (chunk.size, batch)
            del arrived, batch  # the next replies take the memory of these, which the cache knows
            while position in waiting:
                size, ready = waiting.pop(position)
                yield slice(position, position + size), ready
                del ready
                position += size
        if position != ids.size:
            raise MessageError(f"{self._handler.__name__}: {ids.size - count} of {ids.size} clients did not answer")
        self._cohort._count("uplink", messages_of(self._handler)[1], travelled, total)

    def _admit(self, ids: Ids, batch: Message) -> tuple[Message, int]:
        _, expected = messages_of(self._handler)
        if type(batch) is not expected:
            raise MessageError(f"{self._handler.__name__} must give {expected.kind}, got {batch.kind}")
        refuse_batch_shape(batch, ids.size, self._lengths)
        session = self._cohort.session
        length = total_bytes(batch, session.precision)
        return batch_on_wire(batch, session.precision, self._unchecked), length
