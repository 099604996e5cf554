"""Running an experiment over real sites, from its file to its results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fedns.core.algorithm import Algorithm
from fedns.core.history import History, Observer
from fedns.core.run import Stop, run
from fedns.federation.coordinator.cohort import NetworkedCohort
from fedns.federation.coordinator.influence import LEFT_OUT_FILE, SiteInfluence
from fedns.federation.coordinator.session import FILES, Watcher, opened
from fedns.federation.coordinator.state import RunState
from fedns.federation.coordinator.status import SiteStatus
from fedns.federation.processes import EngineLost
from fedns.federation.protocol.absence import FederationError
from fedns.federation.protocol.transport import Transport
from fedns.runs.builder import algorithm_of
from fedns.runs.results import Results
from fedns.runs.spec import Spec

HISTORY_FILE, REPORT_FILE, COEFFICIENTS_FILE = "history.jsonl", "report.html", "coefficients.csv"


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
    return run(
        algorithm,
        state.session.problem,
        cohort,
        stop=Stop(state.spec.rounds, gradient_norm=state.spec.gradient_tol),
        evaluate=cohort.evaluate,
        observers=observers,
        resume=state.progress,
    )
