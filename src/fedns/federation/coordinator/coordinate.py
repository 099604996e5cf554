"""Running an experiment over real sites, from its file to its results."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from fedns.core.algorithm import Algorithm
from fedns.core.files import write_whole
from fedns.core.history import History, Observer
from fedns.core.run import Stop, run
from fedns.federation.config import CREDENTIALS_FOLDER, check_expiry, engine_named
from fedns.federation.coordinator.cohort import NetworkedCohort
from fedns.federation.coordinator.influence import SiteInfluence
from fedns.federation.coordinator.link import Link
from fedns.federation.coordinator.recorder import RECORDS, Recorder
from fedns.federation.coordinator.state import CHECKPOINT_FILE, EPOCH_FILE, RunState, needing_disk
from fedns.federation.coordinator.status import SiteStatus
from fedns.federation.coordinator.supervised import Supervised
from fedns.federation.processes import EngineLost
from fedns.federation.protocol.absence import FederationError
from fedns.federation.protocol.transport import Transport
from fedns.numerics.linalg import single_threaded_blas
from fedns.reports.influence_part import LEFT_OUT_FILE
from fedns.runs.builder import algorithm_of, caution, caution_of_size
from fedns.runs.results import Results
from fedns.runs.spec import Spec

HISTORY_FILE, SITES_FILE, REPORT_FILE, COEFFICIENTS_FILE = "history.jsonl", "sites.json", "report.html", "coefficients.csv"
_OUTCOME = (HISTORY_FILE, SITES_FILE, REPORT_FILE, COEFFICIENTS_FILE, LEFT_OUT_FILE)
log = logging.getLogger("fedns.coordinator")


class Watcher(Observer):
    """An observer that also gets to see how the sites are doing, before the first of them is asked."""

    statuses: Sequence[SiteStatus] = ()  # updated in place while the run goes on

    def on_start(self, statuses: Sequence[SiteStatus]) -> None:
        self.statuses = statuses


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


def coordinate(spec: Spec, transport: Transport, *, resume: bool = False, watchers: Sequence[Watcher] = ()) -> Result:
    """Run the experiment over this transport; after every round its state is on disk, and `resume` goes on from there."""
    with needing_disk(spec.folder):
        return _coordinated(spec, transport, resume, watchers)


def _coordinated(spec: Spec, transport: Transport, resume: bool, watchers: Sequence[Watcher]) -> Result:
    folder, algorithm = spec.folder, algorithm_of(spec)
    state = RunState.open(spec, folder, resume=resume)
    if not resume:  # also what is written at the end: better refused now
        Results(folder, "run over sites").claim([*RECORDS, CHECKPOINT_FILE, EPOCH_FILE, *_OUTCOME])
    recorder = Recorder(folder, state.records, spec.method)
    link = Link(transport, state, log_event=recorder.event, ledger=recorder.message)
    if resume and (folder / SITES_FILE).exists():
        link.statuses = [SiteStatus(**values) for values in json.loads((folder / SITES_FILE).read_text(encoding="utf-8"))]
    for watcher in watchers:
        watcher.on_start(link.statuses)
    try:
        with single_threaded_blas():
            cohort = NetworkedCohort(link)
            of_number = caution(algorithm, cohort.num_clients, cohort.num_features)
            for sentence in filter(None, (of_number, caution_of_size(algorithm, float(cohort.total_weights.min())))):
                recorder.event("caution", reason=sentence)
                log.warning("%s", sentence)
            try:
                history = train(algorithm, cohort, observers=[state, recorder, *watchers])
            except (FederationError, EngineLost) as error:
                if state.method_state is None:  # not even the start was reached: there is nothing to report on
                    raise
                history = _cut_short(algorithm, state, error)
            influences = cohort.influences(history.coefficients)
        result = Result(history, link.statuses, influences)
        for site in result.deciding:
            recorder.event("decides", site=site.name, reason=site.named)
        recorder.event("ended", reason=history.stop_reason, converged=history.converged)
    except BaseException as error:
        with suppress(OSError):  # of a disk that is full, perhaps: then that is what is said
            recorder.event("stopped", reason=f"{type(error).__name__}: {error}")
            _keep(link.statuses, folder)
        raise
    _keep(link.statuses, folder)
    history.save(folder / HISTORY_FILE)
    return result


def _keep(statuses: Sequence[SiteStatus], folder: Path) -> None:
    write_whole(folder / SITES_FILE, json.dumps([asdict(status) for status in statuses]).encode())


def _cut_short(algorithm: Algorithm, state: RunState, error: FederationError | EngineLost) -> History:
    """The run up to its last whole round, which is where --resume goes on."""
    coefficients = np.array(state.method_state.coefficients)  # type: ignore[union-attr]
    reason = f"{error.ending.label} after round {state.records[-1].round}: {error}"
    return History(algorithm.name, state.records, coefficients, error.ending, reason, list(state.session.meter.ledger))


def train(algorithm: Algorithm, cohort: NetworkedCohort, observers: Sequence[Observer]) -> History:
    """The rounds, from where the cohort's state stands to the end."""
    state = cohort.state
    return run(
        algorithm,
        state.session.problem,
        cohort,
        stop=Stop(state.spec.rounds, gradient_norm=state.spec.gradient_tol),
        evaluate=cohort.evaluate,
        observers=observers,
        resume=state.progress,
    )


def open_transport(spec: Spec, *, logs: Path) -> AbstractContextManager[Transport]:
    """The experiment's engine, started from the coordinator's credentials, for as long as the block lasts."""
    engine = engine_named(spec.engine)
    check_expiry(engine, spec.home / CREDENTIALS_FOLDER)
    return closing(Supervised(lambda: engine.open(spec.home / CREDENTIALS_FOLDER, spec.listen, logs)))
