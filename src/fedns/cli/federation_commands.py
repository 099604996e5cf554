"""The commands of a federation, as the command line calls them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from fedns.core.errors import ConfigError
from fedns.core.termination import Ending
from fedns.federation.config import EXPERIMENT_FILE, read_experiment
from fedns.federation.coordinator.session import coordinate
from fedns.federation.coordinator.state import needing_disk
from fedns.federation.coordinator.supervised import open_transport
from fedns.federation.coordinator.watching import Watcher, serve_metrics
from fedns.federation.processes import ended_by_sigterm
from fedns.federation.protocol.transport import Transport
from fedns.lab.comparison.federation_demo import Demo, Shown, run_demo
from fedns.methods import METHODS
from fedns.reports.influence_part import apart_sentence
from fedns.reports.run_page import write_report
from fedns.reports.terminal import say, text_table
from fedns.reports.view import site_table, view_on
from fedns.runs.over_sites import ColumnRun
from fedns.studies.federated import fit_federation
from fedns.studies.inference.fitted import StudyFit
from fedns.studies.study import Study

DECIDED = 3  # exit status: trained, but one site decides the model
EXITS = {Ending.DIVERGED: 4, Ending.SITES_LOST: 5, Ending.ENGINE_LOST: 6, Ending.REFUSED: 7}  # without convergence, else 1


def run_coordinator(path: Path, *, resume: bool, metrics_port: int | None, quiet: bool, console: Console) -> int:
    """Run an experiment file; the exit status is 0 if it converged, and docs/deployment.md has the others."""
    experiment = read_experiment(path)
    with _watched(experiment, metrics_port, quiet, console) as (transport, watchers):
        result = coordinate(experiment, transport, resume=resume, watchers=watchers)
    with needing_disk(experiment.folder):
        report = write_report(experiment, result)
    if not quiet:
        console.print(site_table(result.statuses))
        say(console, result.history.stop_reason)
        for note in result.caveats:
            say(console, note)
        for site in result.deciding:
            say(console, f"{site}: it decides this model", "bold red")
        if sentence := apart_sentence(result.influences):
            say(console, sentence, "bold")
        say(console, f"report: {report}")
    ending = result.history.ending
    return EXITS.get(ending, DECIDED if result.deciding else 0 if ending.converged and not result.caveats else 1)


def fit_over_sites(
    study: Study,
    federation: Path,
    out: Path,
    *,
    resume: bool,
    overwrite: bool,
    metrics_port: int | None,
    quiet: bool,
    console: Console,
) -> StudyFit:
    """Fit a study over the sites of a federation, whichever its engine; they must be running, or start soon.

    What it goes on from stays until its outputs are written.
    """
    experiment = read_experiment(federation / "coordinator" / EXPERIMENT_FILE)
    with _watched(experiment, metrics_port, quiet, console) as (transport, watchers):
        return fit_federation(
            study, experiment, transport, out, resume=resume, overwrite=overwrite, keep=True, watchers=watchers
        )


@contextlib.contextmanager
def _watched(
    experiment: ColumnRun, metrics_port: int | None, quiet: bool, console: Console
) -> Iterator[tuple[Transport, list[Watcher]]]:
    """The experiment's engine, running, and who is shown what happens over it."""
    with ended_by_sigterm(), contextlib.ExitStack() as stack:
        metrics = [] if metrics_port is None else [stack.enter_context(serve_metrics(metrics_port))]
        transport = stack.enter_context(open_transport(experiment, logs=experiment.home / "logs"))
        yield transport, [*metrics, *stack.enter_context(view_on(console, quiet))]


def run_demonstration(demo: Demo, quiet: bool, console: Console) -> bool:
    """Show a federation on this machine; whether every method gave the simulator's bits and bytes."""

    @contextlib.contextmanager
    def watching(method: str) -> Iterator[Sequence[Watcher]]:
        if not quiet:
            console.print(f"{method} on {demo.engine}, {demo.sites} sites as processes of their own", markup=False)
        with view_on(console, quiet) as watchers:
            yield watchers

    headings = ("method", "rounds", "gradient norm", "seconds a round", "simulator's bits", "simulator's bytes", "ended")
    demonstrated = list(run_demo(demo, watching))
    if not quiet:
        console.print(text_table(headings, map(_row, demonstrated), left=("method", "ended")))
        say(console, f"report: {demonstrated[-1].report}")
    return all(shown.same_bits and shown.same_bytes for shown in demonstrated)


def _row(shown: Shown) -> list[str]:
    last = shown.result.history.records[-1]
    same = ["same" if equal else "DIFFERENT" for equal in (shown.same_bits, shown.same_bytes)]
    pace = f"{last.seconds / max(1, last.round):.2f}"
    return [shown.method, str(last.round), f"{last.gradient_norm:.1e}", pace, *same, shown.result.history.stop_reason]


def methods_to_show(text: str) -> tuple[str, ...]:
    """The methods of a comma-separated text, or all that sites can run."""
    federated = tuple(name for name, kind in METHODS.items() if not kind.pooled)
    chosen = federated if text == "all" else tuple(part.strip() for part in text.split(",") if part.strip())
    if not chosen:
        raise ConfigError(f"no method was given: choose from {', '.join(federated)}, or all")
    return chosen
