"""Running every method on the same data, trial after trial, and writing down each round as it happens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from fedns.core.checked import checked
from fedns.core.shards import Shards
from fedns.lab.comparison import prepare
from fedns.lab.comparison.display import Display, Watched
from fedns.lab.comparison.results import ROUNDS_FILE, RUNS_FILE, RoundsWriter, TrialRun, keep_finished, read_runs
from fedns.models.problem import Problem
from fedns.reports.gap_charts import AXES, GAP_CHART
from fedns.runs.compare import Compare
from fedns.runs.methods import Method, parse_methods
from fedns.runs.results import Results
from fedns.simulation.simulator import simulate
from fedns.studies.tables.dataset import Dataset

SETTINGS_FILE = "settings.toml"
SUMMARY_FILE, REPORT_FILE = "summary.csv", "report.html"
FINISHED_FILE = "finished"  # in a sweep: the comparison need not be run again
_FIGURES = tuple(f"{GAP_CHART}_{against}.{suffix}" for against in AXES for suffix in ("png", "svg", "pdf"))
_FILES = (ROUNDS_FILE, RUNS_FILE, SETTINGS_FILE, SUMMARY_FILE, REPORT_FILE, FINISHED_FILE, *_FIGURES)
WARM_UP_ROWS = 64


@dataclass
class Comparison:
    """A comparison: its settings, facts about its data, and every run that was made."""

    spec: Compare
    folder: Path
    facts: dict[str, str] = field(default_factory=dict)  # about the data, by name
    notes: list[str] = field(default_factory=list)
    num_clients: int = 0
    runs: list[TrialRun] = field(default_factory=list)
    interrupted: bool = False


@checked
def compare(
    spec: Compare,
    display: Display | None = None,
    *,
    resume: bool = False,
    cluster: str | None = None,
    overwrite: bool = False,
) -> Comparison:
    """Run a spec into its folder. After Ctrl-C, what was finished is still there and is returned.

    - spec: fedns.Spec(...): data, problem, methods and when to stop.
    - display: is told of every round; nothing is shown unless given.
    - resume: keep the runs that an earlier process with the same settings finished there, and make only the others.
    - cluster: dask://HOST:PORT, the scheduler of a Dask cluster whose workers hold the clients; this process unless given.
    - overwrite: put the results in place of an earlier comparison's; without it a folder that holds some is refused.
    """
    display = display or Display()
    methods = parse_methods(spec.methods, spec.sketch, spec.sketch_size)
    comparison = Comparison(spec, spec.folder)
    if not (resume and has_settings(spec)):
        refuse_results(spec.folder, overwrite=overwrite)
    with display.open([method.label for method in methods], spec.trials):
        try:
            _run_all(comparison, methods, display, resume, cluster)
        except KeyboardInterrupt:
            comparison.interrupted = True
    if (comparison.folder / ROUNDS_FILE).is_file() and comparison.num_clients:
        comparison.runs = read_runs(comparison.folder)
    return comparison


def _run_all(comparison: Comparison, methods: list[Method], display: Display, resume: bool, cluster: str | None) -> None:
    spec = comparison.spec
    display.stage(f"loading {spec.dataset}")
    dataset, problem = prepare.load_data(spec)
    display.stage("giving rows to clients")
    shards = prepare.split_and_scale(spec, dataset, 0)
    problem.loss.check(shards)
    comparison.facts = prepare.describe_data(spec, dataset, problem, shards)
    comparison.notes = prepare.notes_on_sketches(methods, shards, problem.num_features(shards.num_columns))
    finished: set[tuple[str, int]] = set()
    if resume and has_settings(spec):
        finished = keep_finished(spec.folder)
    else:
        prepare_folder(spec)
    comparison.num_clients = shards.num_clients
    pending = {
        number: [method for method in methods if (method.label, number) not in finished] for number in range(spec.trials)
    }
    trials = [number for number, left in pending.items() if left]
    rounds_file, runs_file = spec.folder / ROUNDS_FILE, spec.folder / RUNS_FILE
    with rounds_file.open("a", encoding="utf-8") as rounds, runs_file.open("a", encoding="utf-8") as runs:
        for trial in _trials(spec, dataset, problem, shards, display, trials):
            if trial.number == trials[0]:
                display.stage("warming up")
                _warm_up(spec, methods, problem, trial)
            for method in pending[trial.number]:
                display.stage(f"trial {trial.number + 1} of {spec.trials}")
                writer = RoundsWriter(rounds, runs, method.label, trial.number)
                simulate(
                    method.algorithm,
                    problem,
                    trial.shards,
                    rounds=spec.rounds,
                    tol=spec.tol,
                    seed=trial.seed,
                    optimum=trial.optimum,
                    participation=spec.participation,
                    wire=spec.wire,
                    threads=spec.threads,
                    cluster=cluster,
                    observers=(writer, Watched(display, method.label, trial.number)),
                )


def _trials(
    spec: Compare, dataset: Dataset, problem: Problem, shards: Shards, display: Display, numbers: list[int]
) -> Iterator[prepare.Trial]:
    """The data and optimum of these trials; a split that draws nothing is made once."""
    trial: prepare.Trial | None = None
    for number in numbers:
        if trial is not None and spec.split in prepare.SAME_EVERY_TRIAL:
            trial = replace(trial, number=number, seed=spec.seed + number)
        else:
            display.stage("giving rows to clients")
            rows = shards if number == 0 else prepare.split_and_scale(spec, dataset, number)
            display.stage("finding the pooled optimum")
            trial = prepare.prepare_trial(spec, problem, rows, number)
        yield trial


def _warm_up(spec: Compare, methods: list[Method], problem: Problem, trial: prepare.Trial) -> None:
    """Two rounds of every method on a few rows, so that no method's clock holds the compilation of its kernels."""
    shards = trial.shards
    clients = shards.num_clients  # as many as in the run: methods choose by their number
    rows = min(max(WARM_UP_ROWS, 2 * clients), shards.num_samples)
    cuts = np.arange(clients + 1) * rows // clients
    weights = None if shards.sample_weights is None else np.ones_like(shards.sample_weights)
    few = replace(shards, starts=cuts[:-1], stops=cuts[1:], sample_weights=weights)
    for method in methods:
        simulate(method.algorithm, problem, few, rounds=2, optimum=trial.optimum, wire=spec.wire, threads=spec.threads)


def refuse_results(folder: Path, *, overwrite: bool) -> None:
    """Raise where the results of a comparison cannot be put there."""
    Results(folder, "comparison").refuse(_FILES, overwrite=overwrite)


def prepare_folder(spec: Compare) -> None:
    """The folder of the results with the settings in it, free of what an earlier comparison left there."""
    Results(spec.folder, "comparison").begin(_FILES)
    (spec.folder / SETTINGS_FILE).write_text(spec.to_toml(), encoding="utf-8")


def has_settings(spec: Compare) -> bool:
    """Say whether the folder has results of exactly these settings, complete or not."""
    settings = spec.folder / SETTINGS_FILE
    return settings.is_file() and settings.read_text(encoding="utf-8") == spec.to_toml()
