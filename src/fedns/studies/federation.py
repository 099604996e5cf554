"""A federation from Python: its coordinator for as long as a block lasts, with runs and fits one after another."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fedns.core.errors import ConfigError
from fedns.core.history import History
from fedns.federation.config import EXPERIMENT_FILE, read_experiment
from fedns.federation.coordinator.cohort import NetworkedCohort
from fedns.federation.coordinator.session import FILES, RunOverSites, coordinate, opened
from fedns.federation.coordinator.state import RunState
from fedns.federation.coordinator.supervised import open_transport
from fedns.federation.coordinator.watching import Watcher
from fedns.federation.protocol.absence import FederationError
from fedns.federation.protocol.transport import Transport
from fedns.runs.over_sites import OVER_SITES, ColumnRun
from fedns.runs.results import Results
from fedns.studies.federated import RESULTS, fit_federation
from fedns.studies.inference.fitted import StudyFit
from fedns.studies.pages import pages
from fedns.studies.study import Study

LOOK_SECONDS = 0.2


class Federation:
    """The coordinator of a federation. Sites stay connected while several runs and fits are made, one after another.

        with fedns.Federation("trial/") as federation:
            history = federation.run(method="fednewton")
            fit = federation.fit(fedns.Study.read("study.toml"))

    The engine is started when the block is entered and ends with it. Calls block until their run has ended, also inside a
    notebook, whose event loop is neither needed nor disturbed; `await asyncio.to_thread(federation.run)` leaves it free.

    - folder: what `fedns init-federation` wrote, or the coordinator's part of it alone.
    """

    def __init__(self, folder: str | Path) -> None:
        home = Path(folder)
        candidates = [home / "coordinator" / EXPERIMENT_FILE, home / EXPERIMENT_FILE]
        found = next((file for file in candidates if file.is_file()), None)
        if found is None:
            raise ConfigError(f"{home} has no {EXPERIMENT_FILE}: give the folder that `fedns init-federation` wrote")
        self.experiment = read_experiment(found)
        self._held = ExitStack()
        self._transport: Transport | None = None

    def __enter__(self) -> Self:
        if self._transport is not None:
            raise ConfigError("this federation is open already: leave its block first")
        self._transport = self._held.enter_context(open_transport(self.experiment, logs=self.experiment.home / "logs"))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._transport = None
        self._held.close()

    @property
    def sites(self) -> tuple[str, ...]:
        """Their names, in order."""
        return self.experiment.sites

    def connected(self) -> list[str]:
        """The sites that could be asked now."""
        return self._open().connected()

    def wait(self, seconds: float = 600.0) -> None:
        """Return once all sites are connected.

        - seconds: how long to wait for them.
        """
        deadline = time.monotonic() + seconds
        while missing := sorted(set(self.sites) - set(self.connected())):
            if time.monotonic() > deadline:
                raise FederationError(f"{', '.join(missing)} did not connect within {seconds:g} s: start them")
            time.sleep(LOOK_SECONDS)

    def run(
        self, *, out: str | None = None, resume: bool = False, watchers: Sequence[Watcher] = (), **settings: Any
    ) -> History:
        """Run the experiment, with what is given here in place of its file's settings; a report is in its folder.

        - out: the folder of the run, beside the experiment's file; a new one if left out.
        - resume: go on with the run in `out`.
        - watchers: told of sites and rounds.
        - settings: as in the file, such as method="fedns", sketch_size=64, rounds=50.
        """
        spec = self._described(settings, out or self._new_folder("run"))
        result = coordinate(spec, self._open(), resume=resume, watchers=watchers)
        pages().write_report(spec, result)
        return result.history

    def fit(self, study: Study, *, out: str | None = None, watchers: Sequence[Watcher] = ()) -> StudyFit:
        """Make the handshake with the sites about a study, then fit it.

        - study: fedns.Study(...), or one read from a file.
        - out: the folder of the fit's ledger and log, beside the experiment's file; a new one if left out.
        - watchers: told of sites and rounds.
        """
        folder = self.experiment.home / (out or self._new_folder("fit"))
        Results(folder, RESULTS).refuse((), overwrite=False)
        return fit_federation(study, self.experiment, self._open(), folder, watchers=watchers)

    @contextmanager
    def cohort(self, **settings: Any) -> Iterator[NetworkedCohort]:
        """The sites of a run that is opened and registered, for as long as the block lasts; what they send is in its ledger.

        - settings: as in the file.
        """
        with self.session(**settings) as (_, cohort):
            yield cohort

    @contextmanager
    def session(self, **settings: Any) -> Iterator[tuple[RunOverSites, NetworkedCohort]]:
        """The same with the run itself, whose files say what happens.

        - settings: as in the file.
        """
        spec = self._described(settings, out=self._new_folder("run"))
        Results(spec.folder, "run over sites").claim(FILES)
        with opened(spec.folder, spec.sites, spec.method, self._open()) as session:
            yield session, session.cohort(RunState.fresh(spec, spec.folder))

    def _described(self, settings: dict[str, Any], out: str) -> ColumnRun:
        unknown = sorted(set(settings) - (set(OVER_SITES) - {"engine", "sites", "listen"}))
        if unknown:
            raise ConfigError(f"{', '.join(unknown)}: no settings of a run over sites")
        return replace(self.experiment, **settings, out=out)

    def _open(self) -> Transport:
        if self._transport is None:
            raise ConfigError("the federation is not open: use it in a block, `with fedns.Federation(...) as federation:`")
        return self._transport

    def _new_folder(self, kind: str) -> str:
        number = 1
        while (self.experiment.home / f"{kind}-{number}").exists():
            number += 1
        return f"{kind}-{number}"
