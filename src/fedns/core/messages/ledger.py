"""Counting what travels, in one place."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class LedgerEntry:
    """All messages of one exchange in one direction."""

    round: int
    exchange: int
    direction: str  # "uplink" or "downlink"
    kind: str
    fields: tuple[str, ...]
    messages: int
    bytes: int


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
