"""Running an experiment over real sites, from its file to its results."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from fedns.core.cohort import Session
from fedns.core.errors import ConfigError
from fedns.core.files import write_whole
from fedns.core.history import History
from fedns.core.observers import Observer
from fedns.core.run import run
from fedns.core.termination import Stop
from fedns.federation.config import Experiment, require_engine
from fedns.federation.coordinator.checkpoint import Checkpoint, Checkpointer
from fedns.federation.coordinator.cohort import NetworkedCohort
from fedns.federation.coordinator.link import Link, SiteStatus, new_run
from fedns.federation.coordinator.recorder import Recorder
from fedns.federation.protocol.transport import Transport
from fedns.numerics.linalg import single_threaded_blas
from fedns.runs.builder import algorithm_of, problem_of
from fedns.transports.processes import refuse_taken_port

CHECKPOINT_FILE, EPOCH_FILE, HISTORY_FILE, SITES_FILE = "checkpoint", "epoch", "history.jsonl", "sites.json"


class Watcher(Observer):
    """An observer that also gets to see how the sites are doing, before the first of them is asked."""

    def on_start(self, statuses: Sequence[SiteStatus]) -> None:
        """The list is updated in place while the run goes on."""


@dataclass(frozen=True)
class Result:
    """A run that has ended: its history, and what is known of the sites."""

    history: History
    statuses: list[SiteStatus]


def coordinate(
    experiment: Experiment, transport: Transport, *, resume: bool = False, watchers: Sequence[Watcher] = ()
) -> Result:
    """Run the experiment over this transport; after every round its state is on disk, and `resume` goes on from there."""
    folder = experiment.outputs
    path, epoch_path = folder / CHECKPOINT_FILE, folder / EPOCH_FILE
    saved = Checkpoint.load(path) if resume else None
    if saved is None and path.exists():
        raise ConfigError(f"{folder} holds a run already: go on with --resume, or give another 'out' in the experiment")
    job = experiment.job
    if saved is not None and saved.job != job:
        raise ConfigError(f"the experiment has changed since the run in {folder} began: give another 'out' to start anew")
    problem, algorithm = problem_of(job), algorithm_of(job)
    recorder = Recorder(folder, saved.records if saved else [], job.method)
    session = Session(problem, job.seed, job.wire)
    link = Link(
        transport,
        job,
        experiment.policy,
        saved.run if saved else new_run(),
        log_event=recorder.event,
        ledger=recorder.message,
        on_epoch=lambda epoch: write_whole(epoch_path, str(epoch).encode()),
    )
    if saved is not None and (folder / SITES_FILE).exists():
        link.statuses = [SiteStatus(**values) for values in json.loads((folder / SITES_FILE).read_text(encoding="utf-8"))]
    for watcher in watchers:
        watcher.on_start(link.statuses)
    weights = None
    if saved is not None:
        session.meter, session.round, session.num_features = saved.meter, saved.records[-1].round, saved.num_features
        link.exchange, link.committed_rounds = saved.exchange, saved.committed_rounds
        # A round may have been repeated since the checkpoint: no site may take this epoch for an old one.
        link.epoch = max(saved.epoch, int(epoch_path.read_text()) if epoch_path.exists() else 0)
        link.new_epoch()
        weights = np.array(saved.total_weights)
    try:
        with single_threaded_blas():
            cohort = NetworkedCohort(session, link, weights)
            history = run(
                algorithm,
                problem,
                cohort,
                stop=Stop(job.rounds, gradient_norm=experiment.gradient_tol),
                evaluate=cohort.evaluate,
                observers=[Checkpointer(path, cohort, saved.records if saved else ()), recorder, *watchers],
                resume=saved.progress if saved else None,
            )
        recorder.event("ended", reason=history.stop_reason, converged=history.converged)
    except BaseException as error:
        recorder.event("stopped", reason=f"{type(error).__name__}: {error}")
        raise
    finally:
        recorder.close()
        write_whole(folder / SITES_FILE, json.dumps([asdict(status) for status in link.statuses]).encode())
    history.save(folder / HISTORY_FILE)
    return Result(history, link.statuses)


@contextlib.contextmanager
def open_transport(experiment: Experiment, *, logs: Path) -> Iterator[Transport]:
    """The experiment's engine, started from the coordinator's credentials, for as long as the block lasts."""
    require_engine(experiment.engine)
    if experiment.engine == "flower":
        from fedns.transports.flower.credentials import CoordinatorCredentials
        from fedns.transports.flower.server import open_transport as open_flower

        host, _, port = experiment.listen.rpartition(":")
        with open_flower(CoordinatorCredentials.load(experiment.credentials), logs, int(port), host=host) as flower:
            yield flower
    else:
        from fedns.transports.nvflare.server import NVFlareTransport

        refuse_taken_port(int(experiment.listen.rpartition(":")[2]))  # NVFlare would only say so in its log
        with contextlib.closing(NVFlareTransport(experiment.credentials)) as nvflare:
            yield nvflare
