"""What a client handler is given: the rows, the numbers and the memory of a batch of clients."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedns.core.errors import ConfigError
from fedns.core.messages import Discloses, Message
from fedns.core.shards import Shards
from fedns.core.types import Array, DType
from fedns.numerics.rng import stream_keys

Ids = NDArray[np.int64]
# Matrices of a few clients at a time: they fit into the caches, and a handler's memory does not grow with the cohort.
_SLAB_BYTES = 8 * 2**20
_FORMER = {"recall": "read_copy", "held": "in_place"}  # names of 0.1


@dataclass
class ClientMemory:
    """Arrays that clients keep between rounds, one row per client. What a checkpoint of the clients has to hold."""

    ids: Ids  # (clients,), increasing
    arrays: dict[str, Array] = field(default_factory=dict)


def _at_least(values: Array, shape: tuple[int, ...]) -> Array:
    """Clients' arrays with zeros appended on every axis that is shorter than here."""
    missing = [max(0, wanted - there) for there, wanted in zip(values.shape[1:], shape, strict=True)]
    return np.pad(values, [(0, 0), *((0, more) for more in missing)]) if any(missing) else values


@dataclass(frozen=True)
class Clients:
    """A batch of clients, in the simulator many and at a site one."""

    shards: Shards
    ids: Ids  # (clients,) their numbers in the federation
    seed: int
    round: int
    memory: ClientMemory

    def keys(self, purpose: str) -> NDArray[np.uint64]:
        """Keys of the random streams of these clients for this purpose in this round: (clients, 2)."""
        return stream_keys(self.seed, purpose, self.round, self.ids)

    def seed_for(self, purpose: str, agreed: int) -> int:
        """The seed of a choice among rows: the agreed one, unless a site has random numbers of its own."""
        return agreed

    def read_copy(self, name: str, *shape: int) -> Array:
        """What each client remembers under this name, of at least this shape; zeros where it is smaller, or nothing."""
        if name not in self.memory.arrays:
            return np.zeros((self.ids.size, *shape))
        return _at_least(self.memory.arrays[name][self._places], shape)

    def __getattr__(self, name: str) -> Any:
        if name not in _FORMER:
            raise AttributeError(f"'Clients' has no attribute '{name}'")
        said = f"Clients.{name} is Clients.{_FORMER[name]} now; the former name goes with fedns 0.3"
        warnings.warn(said, DeprecationWarning, stacklevel=2)
        return getattr(self, _FORMER[name])

    def remember(self, name: str, values: Array) -> None:
        every = self._all(name, values.shape[1:], values.dtype)
        every = self.memory.arrays[name] = _at_least(every, values.shape[1:])
        every[self._places] = _at_least(values, every.shape[1:])

    def in_place(self, name: str, *shape: int) -> list[Array]:
        """What each client remembers under this name, to be changed in place: for arrays that are costly to copy."""
        every = self._all(name, shape, np.dtype(np.float64))
        return [every[place] for place in self._places.tolist()]

    @property
    def _places(self) -> Ids:
        return np.searchsorted(self.memory.ids, self.ids)

    def _all(self, name: str, shape: tuple[int, ...], dtype: DType) -> Array:
        """The array of all clients, zeros at first."""
        if name not in self.memory.arrays:
            self.memory.arrays[name] = np.zeros((self.memory.ids.size, *shape), dtype=dtype)
        return self.memory.arrays[name]

    def slabs(self, bytes_each: int) -> Iterator[Clients]:
        """These clients, a few at a time, where a handler needs this much working memory for each."""
        count = max(1, _SLAB_BYTES // bytes_each)
        for start in range(0, self.ids.size, count):
            part = np.arange(start, min(start + count, self.ids.size))
            yield replace(self, shards=self.shards.select(part), ids=self.ids[part])


# A client's half of an exchange: handler(problem, clients, request) -> batch of replies.
Handler = Callable[..., Message]
F = TypeVar("F", bound=Handler)


def on_client(request: type[Message], reply: type[Message]) -> Callable[[F], F]:
    """Mark a function or method as running at the clients, with the messages it takes and gives.

    Every field of the reply must declare what it discloses.

    - request: the class of what the handler is asked.
    - reply: the class of what it answers.
    """
    for name, spec in reply.specs().items():
        if spec.discloses is None:
            words = ", ".join(Discloses)
            raise ConfigError(f"field '{name}' of {reply.kind} must say what it tells: wire(..., discloses=one of {words})")

    def mark(function: F) -> F:
        function.__dict__["messages"] = (request, reply)
        return function

    return mark


def messages_of(handler: Handler) -> tuple[type[Message], type[Message]]:
    """The request and the reply of a handler."""
    messages: tuple[type[Message], type[Message]] | None = getattr(handler, "messages", None)
    if messages is None:
        raise ConfigError(f"{handler.__name__} is not marked with @on_client(Request, Reply): it cannot be asked")
    return messages
