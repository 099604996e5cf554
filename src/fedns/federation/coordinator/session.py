"""A run over sites from its opening to its end: how its sites are doing, and what is written down of it."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fedns.core.algorithm import Algorithm
from fedns.core.files import append_line, write_whole
from fedns.core.history import History, Observer, Record
from fedns.core.messages.ledger import LedgerEntry
from fedns.core.run import Stop, run
from fedns.core.types import FloatArray
from fedns.federation.coordinator.cohort import NetworkedCohort
from fedns.federation.coordinator.influence import LEFT_OUT_FILE, SiteInfluence
from fedns.federation.coordinator.link import Link
from fedns.federation.coordinator.state import CHECKPOINT_FILE, EPOCH_FILE, RunState, needing_disk
from fedns.federation.coordinator.watching import Journal, SiteStatus, Watcher
from fedns.federation.processes import EngineLost
from fedns.federation.protocol.absence import FederationError
from fedns.federation.protocol.transport import Transport
from fedns.federation.site.explain import caution_of_size
from fedns.numerics.linalg import single_threaded_blas
from fedns.runs.builder import algorithm_of, caution
from fedns.runs.over_sites import ColumnRun
from fedns.runs.results import Results

LOG_FILE, LEDGER_FILE, ROUNDS_FILE, SITES_FILE = "log.jsonl", "ledger.jsonl", "rounds.jsonl", "sites.json"
FILES = (LOG_FILE, LEDGER_FILE, ROUNDS_FILE, SITES_FILE, CHECKPOINT_FILE, EPOCH_FILE)  # of every run, in its folder
HISTORY_FILE, REPORT_FILE, COEFFICIENTS_FILE = "history.jsonl", "report.html", "coefficients.csv"
log = logging.getLogger("fedns.coordinator")


class RunOverSites(Journal, Observer):
    """A run while it is under way. Every event, message and round becomes a line of a file the moment it happens.

    method: what the lines of rounds call it. resumed: go on with the files that are there, but for rounds: those that the
    checkpoint does not have are repeated.
    """

    def __init__(self, folder: Path, sites: Sequence[str], method: str, transport: Transport, *, resumed: bool) -> None:
        super().__init__(sites)
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._method, self._transport = folder, method, transport
        for name in (ROUNDS_FILE,) if resumed else (ROUNDS_FILE, LOG_FILE, LEDGER_FILE):
            (folder / name).write_bytes(b"")
        if resumed and (folder / SITES_FILE).exists():
            earlier = json.loads((folder / SITES_FILE).read_text(encoding="utf-8"))
            self.statuses = [SiteStatus(**values) for values in earlier]

    def event(self, event: str, **facts: Any) -> None:
        append_line(self._folder / LOG_FILE, json.dumps({"time": _now(), "event": event, **facts}))

    def message(self, site: str, entry: LedgerEntry, **facts: Any) -> None:
        append_line(self._folder / LEDGER_FILE, json.dumps({"time": _now(), "site": site, **entry.line(), **facts}))

    def on_round(self, record: Record, state: Any) -> None:
        line = json.dumps({"method": self._method, "trial": 0, **record.as_dict()})
        append_line(self._folder / ROUNDS_FILE, line)

    def cohort(self, state: RunState) -> NetworkedCohort:
        """The sites of this state, registered unless they were when it was saved."""
        for record in state.records:
            self.on_round(record, None)
        return NetworkedCohort(Link(self._transport, state, self))

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


@dataclass(frozen=True)
class Result:
    """A run that has ended: its history, what is known of the sites, and what each did to the model."""

    history: History
    statuses: list[SiteStatus]
    influences: list[SiteInfluence] = field(default_factory=list)

    @property
    def caveats(self) -> list[str]:
        """Why this is not the answer that all rows in one place would give."""
        return [status.note for status in self.statuses if status.note]

    @property
    def deciding(self) -> list[SiteInfluence]:
        """The sites, if any, that decide the model."""
        return [site for site in self.influences if site.named]


def coordinate(spec: ColumnRun, transport: Transport, *, resume: bool = False, watchers: Sequence[Watcher] = ()) -> Result:
    """Run the experiment over this transport; after every round its state is on disk, and `resume` goes on from there."""
    folder, algorithm = spec.folder, algorithm_of(spec)
    state = RunState.open(spec, folder, resume=resume)
    if not resume:  # also what is written at the end: better refused now
        Results(folder, "run over sites").claim([*FILES, HISTORY_FILE, REPORT_FILE, COEFFICIENTS_FILE, LEFT_OUT_FILE])
    with opened(folder, spec.sites, spec.method, transport, resume=resume, watchers=watchers) as session:
        cohort = session.cohort(state)
        session.caution(algorithm, cohort)
        try:
            history = train(algorithm, cohort, observers=[state, session, *watchers])
        except (FederationError, EngineLost) as error:
            if state.method_state is None:  # not even the start was reached: there is nothing to report on
                raise
            history = _cut_short(algorithm, state, error)
        influences = session.ended(cohort, history.coefficients, history.stop_reason, converged=history.converged)
        history.save(folder / HISTORY_FILE)
    return Result(history, session.statuses, influences)


def _cut_short(algorithm: Algorithm, state: RunState, error: FederationError | EngineLost) -> History:
    """The run up to its last whole round, which is where --resume goes on."""
    coefficients = np.array(state.method_state.coefficients)  # type: ignore[union-attr]
    reason = f"{error.ending.label} after round {state.records[-1].round}: {error}"
    return History(algorithm.name, state.records, coefficients, error.ending, reason, list(state.session.meter.ledger))


def train(algorithm: Algorithm, cohort: NetworkedCohort, observers: Sequence[Observer]) -> History:
    """The rounds, from where the cohort's state stands to the end."""
    state = cohort.state
    assert isinstance(state.spec, ColumnRun)
    return run(
        algorithm,
        state.session.problem,
        cohort,
        stop=Stop(state.spec.rounds, gradient_norm=state.spec.gradient_tol),
        evaluate=cohort.evaluate,
        observers=observers,
        resume=state.progress,
    )


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
