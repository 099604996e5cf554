"""What travels, counted and written down in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedns.core.messages import Message

Shape = tuple[int, ...]


@dataclass(frozen=True)
class LedgerEntry:
    """One message of a site, or all messages of one exchange in one direction."""

    round: int
    exchange: int
    direction: str  # "uplink" or "downlink"
    kind: str
    fields: tuple[str, ...] | Mapping[str, Shape]  # with their shapes where it is one message
    messages: int
    bytes: int
    purpose: str = ""  # of one message: the handler that is asked, or what else it is for

    @property
    def shapes(self) -> Mapping[str, Shape]:
        """The shapes of the fields of one message, where they are known."""
        return self.fields if isinstance(self.fields, Mapping) else {}

    def line(self) -> dict[str, Any]:
        """Return one message as a line of ledger.jsonl has it, at a site and at the coordinator."""
        return {name: value for name, value in vars(self).items() if name != "messages"}

    @classmethod
    def of_line(cls, line: Mapping[str, Any]) -> LedgerEntry:
        """Read such a line of an answer; one in another form raises KeyError, TypeError or ValueError."""
        shapes = {str(name): tuple(map(int, shape)) for name, shape in dict(line["fields"]).items()}
        round, exchange = (int(line.get(name, 0)) for name in ("round", "exchange"))
        direction, kind, purpose = (str(line[name]) for name in ("direction", "kind", "purpose"))
        return cls(round, exchange, direction, kind, shapes, 1, int(line["bytes"]), purpose)

    def total(self) -> dict[str, Any]:
        """Return all messages of an exchange as histories and checkpoints have them."""
        return {name: value for name, value in vars(self).items() if name != "purpose"}

    @classmethod
    def of_total(cls, total: Mapping[str, Any]) -> LedgerEntry:
        return cls(**{**total, "fields": tuple(total["fields"])})


def shapes_of(message: Message) -> dict[str, Shape]:
    """Return the shape of every field of a message."""
    return {name: np.shape(getattr(message, name)) for name in message.specs()}


@dataclass
class Meter:
    """Bytes and exchanges so far, summed over all clients, with a ledger of every exchange."""

    uplink_bytes: int = 0
    downlink_bytes: int = 0
    exchanges: int = 0
    evaluation_bytes: int = 0  # both ways, for watching a run over sites: no part of the method
    ledger: list[LedgerEntry] = field(default_factory=list)

    def count(self, entry: LedgerEntry) -> None:
        if entry.direction == "uplink":
            self.uplink_bytes += entry.bytes
        else:
            self.downlink_bytes += entry.bytes
        self.ledger.append(entry)

    def add(self, other: Meter) -> None:
        """Count what another meter has counted, too."""
        self.uplink_bytes += other.uplink_bytes
        self.downlink_bytes += other.downlink_bytes
        self.exchanges += other.exchanges
        self.evaluation_bytes += other.evaluation_bytes
        self.ledger += other.ledger
