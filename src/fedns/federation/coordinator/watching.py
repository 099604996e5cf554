"""A run as it is watched at the coordinator while it is under way: the last round, and how every site is doing."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fedns.core.history import Observer, Record
from fedns.core.messages.ledger import LedgerEntry
from fedns.federation.metrics import family, serve_text

SILENT_SECONDS = 10.0  # a site that is asked and says nothing for so long is called silent


@dataclass
class SiteStatus:
    """What the coordinator knows of a site."""

    name: str
    state: str = "not heard of"  # ready, asked, answered, away, refused, rejected
    detail: str = ""
    seconds: float = 0.0  # its last answer took
    answers: int = 0
    rejected: int = 0
    uplink_bytes: int = 0
    downlink_bytes: int = 0
    envelope_bytes: int = 0  # what engine and packets add to the messages
    blanked_columns: int = 0  # in which its owner's limits have replaced rare levels
    budget_spent: float = 0.0  # the mark that what has left it had passed when the run was opened, of what its owner permits
    budget_is_enough: bool = True  # for all rounds of the run
    runs: str = ""  # the versions that it computes with, in its own words
    heard: float = 0.0  # when it last spoke, in seconds since 1970; 0: never
    asked: float = 0.0  # since when it has been asked without a word; 0: it is not

    @property
    def waiting_seconds(self) -> float:
        """How long it has been asked without a word."""
        return max(0.0, time.time() - self.asked) if self.asked else 0.0

    @property
    def up(self) -> bool:
        """Whether it can be taken to be there: it spoke last, or was asked a moment ago."""
        return self.state in ("asked", "answered") and bool(self.heard) and self.waiting_seconds < SILENT_SECONDS

    @property
    def last_heard(self) -> str:
        return f"{max(0.0, time.time() - self.heard):.0f} s ago" if self.heard else "never"

    @property
    def budget_note(self) -> str:
        """Say what to know of the budget of its owner's limits before a run; nothing for most."""
        found = [f"more than {100 * self.budget_spent:.0f} % of what may leave it has left"] if self.budget_spent else []
        found += [] if self.budget_is_enough else ["what is left may end before the rounds of this run do"]
        return f"site '{self.name}': {'; '.join(found)}" if found else ""

    @property
    def note(self) -> str:
        """What a reader of the result must know of this site; nothing for most."""
        if not self.blanked_columns:
            return ""
        done = f"site '{self.name}' replaces rare levels in {self.blanked_columns} columns, as its owner's limits say"
        return f"{done}: the answer is not quite the pooled one"


class Journal:
    """How the sites of a run are doing, and what happens to them; a class that writes it down overrides the rest."""

    def __init__(self, sites: Iterable[str]) -> None:
        self.statuses = [SiteStatus(name) for name in sites]

    def event(self, event: str, **facts: Any) -> None:
        """Something that happened."""

    def message(self, site: str, entry: LedgerEntry, **facts: Any) -> None:
        """A message that was admitted."""


class Watcher(Observer):
    """An observer that also gets to see how the sites are doing, before the first of them is asked."""

    statuses: Sequence[SiteStatus] = ()  # updated in place while the run goes on

    def on_start(self, statuses: Sequence[SiteStatus]) -> None:
        self.statuses = statuses


_ROUND = {
    "round": ("gauge", "rounds finished"),
    "objective": ("gauge", "objective after the last round"),
    "gradient_norm": ("gauge", "gradient norm after the last round"),
    "seconds": ("counter", "seconds spent in rounds"),
    "uplink_bytes": ("counter", "bytes of messages sent by all sites"),
    "downlink_bytes": ("counter", "bytes of messages sent to all sites"),
    "evaluation_bytes": ("counter", "bytes both ways for the objective over all sites"),
    "exchanges": ("counter", "exchanges with sites"),
}
_SITE = {
    "answers": ("counter", "answers accepted"),
    "rejected": ("counter", "answers rejected"),
    "uplink_bytes": ("counter", "bytes of messages that left the site"),
    "downlink_bytes": ("counter", "bytes of messages that reached the site"),
    "envelope_bytes": ("counter", "bytes that packets and the engine added"),
    "seconds": ("gauge", "how long the last answer took"),
    "up": ("gauge", "1 while the site answers, 0 while it is away or has been silent for ten seconds"),
    "heard": ("gauge", "when the site last spoke, in seconds since 1970"),
    "waiting_seconds": ("gauge", "for how long the site has been asked without a word"),
}


class Metrics(Watcher):
    """Remembers the last round and the sites, and writes them down when asked."""

    def __init__(self) -> None:
        self._record: Record | None = None
        self.port = 0  # where it is served

    def on_round(self, record: Record, state: Any) -> None:
        self._record = record

    def text(self) -> str:
        families = []
        if self._record is not None:
            families += [
                family(f"fedns_{name}", *about, {"": getattr(self._record, name)}) for name, about in _ROUND.items()
            ]
        for name, about in _SITE.items():
            families.append(family(f"fedns_site_{name}", *about, {s.name: getattr(s, name) for s in self.statuses}))
        return "".join(families)


@contextlib.contextmanager
def serve_metrics(port: int) -> Iterator[Metrics]:
    """Answer GET /metrics on this loopback port, any free one for 0, for as long as the block lasts."""
    metrics = Metrics()
    server = serve_text(metrics.text, port)
    metrics.port = server.server_port
    try:
        yield metrics
    finally:
        server.shutdown()
        server.server_close()
