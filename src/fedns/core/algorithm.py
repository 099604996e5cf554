"""What an algorithm is: hyper-parameters, a server round, and handlers that run at the clients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from fedns.core.checked import Checked
from fedns.core.clients import Handler, messages_of
from fedns.core.cohort import Cohort
from fedns.core.cohort import Needs as Needs
from fedns.core.messages import Message, Payload, wire


class State(Message):
    """The server's state between rounds. It is a message so that it can be written to disk and read back."""

    coefficients: Payload = wire("features", dtype="float64")

    @classmethod
    def first(cls, cohort: Cohort, **known: Any) -> Self:
        """The state before the first round: what is known, and zeros, with no entry along axes that only rounds give."""
        lengths = {"features": cohort.num_features, "clients": cohort.num_clients}
        zeros = {name: np.zeros([lengths.get(axis, 0) for axis in spec.dimensions]) for name, spec in cls.specs().items()}
        return cls(**_as_declared(cls, zeros | {"coefficients": cohort.start} | known))

    def after(self, **changes: Any) -> Self:
        """The state with other values in some fields."""
        return replace(self, **_as_declared(type(self), changes))


class StateOfAll(State):
    """A state of means over all clients, of whom a round may see a part."""

    total_weight: Payload = wire(dtype="float64")  # of all clients

    @classmethod
    def first(cls, cohort: Cohort, **known: Any) -> Self:
        return super().first(cohort, total_weight=cohort.total_weights.sum(), **known)

    def share(self, cohort: Cohort) -> float:
        """The weight of the clients that take part in this round among all."""
        return float(cohort.total_weights.sum() / self.total_weight)


def _as_declared(kind: type[State], values: dict[str, Any]) -> dict[str, Any]:
    """Arrays and numbers of the types that the fields of a state have."""
    specs = kind.specs()
    return {name: np.asarray(value, dtype=specs[name].kind)[()] for name, value in values.items()}


@dataclass(frozen=True)
class Outcome:
    """What one round gives.

    - state: the next state, a message with coefficients.
    - diagnostics: numbers worth recording.
    - finished: a reason if the method itself is done.
    - note: what the method chose in this round and why, in words; nothing where it has no choice.
    - stuck: why the method cannot go on though it is not done; the coefficients are those of the round before.
    """

    state: State
    diagnostics: Mapping[str, float] = field(default_factory=dict)
    finished: str = ""
    note: str = ""
    stuck: str = ""


def smallest_batch(rows: int, batch_size: int, steps: int) -> int:
    """The fewest rows of one of so many steps through a client's rows; the last batch of an epoch may be short."""
    batch_size = max(1, min(batch_size, rows))
    last = rows % batch_size if steps >= -(-rows // batch_size) else 0
    return last or batch_size


class Algorithm(Checked, ABC):
    """A frozen dataclass of hyper-parameters, the same at the server and at every client."""

    example: ClassVar[str] = "fedns.FedNS()"
    name: ClassVar[str]
    summary: ClassVar[str]  # one sentence for people who choose a method
    paper: ClassVar[str]
    uplink: ClassVar[str]  # what a client sends per round, in numbers
    theory: ClassVar[str]  # rounds to a gap of δ, as the papers have it
    heterogeneous: ClassVar[str] = (
        "-"  # the FedNS paper's word on clients that differ, "yes" or "no"; this where it has none
    )
    reports: ClassVar[tuple[str, ...]] = ()  # diagnostics that it records in every round, whatever its parameters
    ends_by_decrement: ClassVar[bool] = False  # its Newton decrement is that of the round's Hessian, exact or sketched
    pooled: ClassVar[bool] = False  # runs on the union of the data: a yardstick, nothing is sent
    sees_partition: ClassVar[bool] = True  # False where moving rows between clients does not change the iterates
    asks_for_all: ClassVar[bool] = True  # False where the data decide which of its handlers a run needs
    draws_random_numbers: ClassVar[bool] = False  # True where the seed decides the iterates, with the default parameters
    takes_any_width: ClassVar[bool] = False  # True where it reaches the pooled answer, and needs grow with the columns alone

    @property
    def way_out(self) -> str:
        """Say what to try where a run of it has diverged, as the end of a sentence; nothing where there is no advice."""
        unsearched = getattr(self, "line_search", "no such setting") is None
        return f"{self.name}:line_search=aggregate" if unsearched else ""

    @property
    def quadratic_penalty_only(self) -> str:
        """Say why it takes no penalty but a quadratic one, and the way out; nothing where it takes every penalty."""
        return ""

    def needs(self, features: int, clients: int, rows: int) -> Needs:
        """Estimate what it holds with so many coefficients and clients, of which the largest has so many rows.

        Here as the messages tell: whoever sends Hessians holds them whole, and the server solves with one.
        A method that holds more than it sends, or less, says so itself.
        """
        messages = [message for handler in self.handlers() for message in messages_of(handler)]
        hessians = any("entries" in spec.dimensions for message in messages for spec in message.specs().values())
        square = float(features) ** 2 if hessians else 0.0
        return Needs(server=20.0 * features + 2.0 * square, client=20.0 * features + square)

    def init(self, problem: Any, cohort: Cohort) -> State:
        """The state before the first round: the coefficients to start from, unless a method needs more."""
        return State(coefficients=cohort.start)

    def fewest_rows(self, rows: int) -> int:
        """Count how many of a client's rows a single step may be about: all, unless a method takes some at a time."""
        return rows

    @abstractmethod
    def handlers(self) -> tuple[Handler, ...]:
        """Everything that `init` and `round` may ask a client for: a site answers these and no others."""

    @abstractmethod
    def round(self, problem: Any, state: Any, cohort: Cohort) -> Outcome:
        """One model update; may ask the cohort as often as it needs."""
