"""A run over sites from its opening to its end: how its sites are doing, and what is written down of it."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedns.core.algorithm import Algorithm
from fedns.core.files import append_line, write_whole
from fedns.core.history import Observer, Record
from fedns.federation.coordinator.cohort import NetworkedCohort
from fedns.federation.coordinator.influence import SiteInfluence
from fedns.federation.coordinator.link import Link
from fedns.federation.coordinator.state import CHECKPOINT_FILE, EPOCH_FILE, RunState, needing_disk
from fedns.federation.coordinator.status import SiteStatus
from fedns.federation.protocol.transport import Transport
from fedns.numerics.linalg import FloatArray, single_threaded_blas
from fedns.runs.builder import caution, caution_of_size

LOG_FILE, LEDGER_FILE, ROUNDS_FILE, SITES_FILE = "log.jsonl", "ledger.jsonl", "rounds.jsonl", "sites.json"
FILES = (LOG_FILE, LEDGER_FILE, ROUNDS_FILE, SITES_FILE, CHECKPOINT_FILE, EPOCH_FILE)  # of every run, in its folder
log = logging.getLogger("fedns.coordinator")


class Watcher(Observer):
    """An observer that also gets to see how the sites are doing, before the first of them is asked."""

    statuses: Sequence[SiteStatus] = ()  # updated in place while the run goes on

    def on_start(self, statuses: Sequence[SiteStatus]) -> None:
        self.statuses = statuses


class RunOverSites(Observer):
    """A run while it is under way. Every event, message and round becomes a line of a file the moment it happens.

    method: what the lines of rounds call it. resumed: go on with the files that are there, but for rounds: those that the
    checkpoint does not have are repeated.
    """

    def __init__(self, folder: Path, sites: Sequence[str], method: str, transport: Transport, *, resumed: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._method, self._transport = folder, method, transport
        for name in (ROUNDS_FILE,) if resumed else (ROUNDS_FILE, LOG_FILE, LEDGER_FILE):
            (folder / name).write_bytes(b"")
        self.statuses = [SiteStatus(name) for name in sites]
        if resumed and (folder / SITES_FILE).exists():
            earlier = json.loads((folder / SITES_FILE).read_text(encoding="utf-8"))
            self.statuses = [SiteStatus(**values) for values in earlier]

    def event(self, event: str, **facts: Any) -> None:
        append_line(self._folder / LOG_FILE, json.dumps({"time": _now(), "event": event, **facts}))

    def message(self, **facts: Any) -> None:
        append_line(self._folder / LEDGER_FILE, json.dumps({"time": _now(), **facts}))

    def on_round(self, record: Record, state: Any) -> None:
        line = json.dumps({"method": self._method, "trial": 0, **record.as_dict()})
        append_line(self._folder / ROUNDS_FILE, line)

    def cohort(self, state: RunState) -> NetworkedCohort:
        """The sites of this state, registered unless they were when it was saved."""
        for record in state.records:
            self.on_round(record, None)
        link = Link(self._transport, state, log_event=self.event, ledger=self.message, statuses=self.statuses)
        return NetworkedCohort(link)

    def caution(self, algorithm: Algorithm, cohort: NetworkedCohort) -> None:
        """Say what to know before the first round of this method."""
        of_number = caution(algorithm, cohort.num_clients, cohort.num_features)
        for sentence in filter(None, (of_number, caution_of_size(algorithm, float(cohort.total_weights.min())))):
            self.event("caution", reason=sentence)
            log.warning("%s", sentence)

    def ended(self, cohort: NetworkedCohort, w: FloatArray, reason: str, *, converged: bool) -> list[SiteInfluence]:
        """Note how the run ended, at the coefficients w; what each site did to them."""
        influences = cohort.influences(w)
        for site in (site for site in influences if site.named):
            self.event("decides", site=site.name, reason=site.named)
        self.event("ended", reason=reason, converged=converged)
        return influences

    def save_statuses(self) -> None:
        write_whole(self._folder / SITES_FILE, json.dumps([asdict(status) for status in self.statuses]).encode())


@contextmanager
def opened(
    folder: Path,
    sites: Sequence[str],
    method: str,
    transport: Transport,
    *,
    resume: bool = False,
    watchers: Sequence[Watcher] = (),
) -> Iterator[RunOverSites]:
    """A run in this folder, for as long as the block lasts; an error that ends it is a line of its log."""
    with needing_disk(folder):
        session = RunOverSites(folder, sites, method, transport, resumed=resume)
        for watcher in watchers:
            watcher.on_start(session.statuses)
        try:
            with single_threaded_blas():
                yield session
        except BaseException as error:
            with suppress(OSError):  # of a disk that is full, perhaps: then that is what is said
                session.event("stopped", reason=f"{type(error).__name__}: {error}")
                session.save_statuses()
            raise
        session.save_statuses()


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
