"""A whole federation on this machine: separate processes, TLS, keys, and nothing but the loopback address."""

from __future__ import annotations

import contextlib
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedns.core.errors import ConfigError
from fedns.core.history import History
from fedns.core.shards import Shards
from fedns.federation.config import EXPERIMENT_FILE, SITE_FILE, engine_named, read_experiment
from fedns.federation.coordinator.session import Result, coordinate
from fedns.federation.coordinator.supervised import open_transport
from fedns.federation.coordinator.watching import Watcher
from fedns.federation.processes import end_group, ended_by_sigterm, free_port
from fedns.federation.provision import AUTHORITY_FOLDER, README_FILE, init_federation
from fedns.lab.data.datasets import load
from fedns.lab.data.partition import split_dataset
from fedns.methods.exchanges.effective_dimension import effective_dimension
from fedns.models.problem import Problem
from fedns.reports.run_page import write_report
from fedns.runs.builder import algorithm_of, problem_of
from fedns.runs.methods import parse_methods
from fedns.runs.over_sites import ColumnRun
from fedns.simulation.simulator import simulate
from fedns.sketches import DEFAULT_SIZE
from fedns.studies.tables.scaling import scale

MARKER = "made-by-demo-federation"
GIVE_UP_SECONDS = 10.0
# What these sites permit beyond the defaults. Every line is the owner's to write, and not to be copied to rows of people.
_PERMIT = """[permit]                         # the rows are public and few; real rows are safer with the defaults
job_seed = true                  # so that the simulator can draw the same sketches, to the last bit
rare_levels = "show"             # and see the same rows
smallest_level = 0
smallest_rows = 1
rows_per_coefficient = 0.0
rows_beyond_coefficients = -1000000
largest_sketch_fraction = inf
rows_per_bucket = 0.0
row_sampling = true
smallest_effective_rows = 0.0
effective_rows_per_coefficient = 0.0
largest_record_share = 1.0
smallest_mean_curvature = 0.0
points = 1000000                 # one method after the other, all of them over the same rows
largest_released_fraction = inf
largest_sketched_fraction = inf
requests_per_minute = 1000000
"""


@dataclass(frozen=True)
class Shown:
    """One method of a demonstration: what came of it, and whether it is the simulator's result."""

    method: str
    result: Result
    report: Path
    same_bits: bool
    same_bytes: bool


@dataclass(frozen=True)
class Demo:
    """What to show."""

    engine: str
    folder: Path
    sites: int = 3
    methods: Sequence[str] = ("fedns",)
    dataset: str = "digits"
    rounds: int = 30
    wire: str = "float64"
    sketch_size: int | None = 16  # None: as docs/choosing.md has it, four effective dimensions over all sites
    overwrite: bool = False  # an earlier demonstration


def run_demo(demo: Demo, watchers: Callable[[str], contextlib.AbstractContextManager[Sequence[Watcher]]]) -> Iterator[Shown]:
    """Provision, start every site as a process of its own, train with each method, and compare with the simulator."""
    shards = prepare(demo)
    experiment = replace(
        read_experiment(demo.folder / "coordinator" / EXPERIMENT_FILE),
        rounds=demo.rounds,
        wire=demo.wire,
        gradient_tol=1e-9,
    )
    experiment = replace(experiment, sketch_size=demo.sketch_size or advised_size(problem_of(experiment), shards))
    with (
        ended_by_sigterm(),
        site_processes(demo.folder),
        open_transport(experiment, logs=demo.folder / "coordinator" / "logs") as transport,
    ):
        for method in demo.methods:
            one = replace(experiment, method=method, out=f"run-{re.sub('[^0-9A-Za-z]', '-', method)}")
            with watchers(method) as watching:
                result = coordinate(one, transport, watchers=watching)
            here = _simulated(one, shards)
            there, report = result.history, write_report(one, result)
            same_bits = there.coefficients.tobytes() == here.coefficients.tobytes()
            yield Shown(method, result, report, same_bits, same_bytes=there.ledger == here.ledger)


def advised_size(problem: Problem, shards: Shards) -> int:
    """Rows of every site's sketch: together four times the effective dimension, and no more than there are columns."""
    wanted = math.ceil(4.0 * effective_dimension(problem, shards) / shards.num_clients)
    return min(wanted, problem.num_features(shards.num_columns))


def prepare(demo: Demo) -> Shards:
    """A federation folder with the rows of every site in a file of its own; the same rows for the simulator."""
    engine_named(demo.engine)  # nothing is made or replaced for what cannot be shown
    parse_methods(demo.methods, "srht", demo.sketch_size or DEFAULT_SIZE)
    shards, _ = scale(split_dataset(load(demo.dataset), demo.sites, "iid", 0), "maxabs")
    if demo.folder.exists():
        if not (demo.folder / MARKER).exists():
            raise ConfigError(f"{demo.folder} is there and is no earlier demonstration: choose another --out")
        if not demo.overwrite:
            raise ConfigError(
                f"{demo.folder} holds an earlier demonstration: choose another --out, or replace it with --overwrite"
            )
        for name in (AUTHORITY_FOLDER, "coordinator", "sites"):  # whatever else lies there is somebody's
            shutil.rmtree(demo.folder / name, ignore_errors=True)
        (demo.folder / README_FILE).unlink(missing_ok=True)
    (demo.folder / AUTHORITY_FOLDER).mkdir(parents=True)
    (demo.folder / MARKER).touch()
    names = [f"site-{number + 1}" for number in range(demo.sites)]
    init_federation(demo.folder, demo.engine, names, f"localhost:{free_port()}")
    for number, name in enumerate(names):
        start, stop = int(shards.starts[number]), int(shards.stops[number])
        folder = demo.folder / "sites" / name
        np.savez(folder / "rows.npz", X=shards.rows.dense(start, stop), y=shards.targets[start:stop])
        text = f'name = "{name}"\nengine = "{demo.engine}"\n\n[data]\ndataset = "rows.npz"\n\n{_PERMIT}'
        (folder / SITE_FILE).write_text(text, encoding="utf-8")
    return shards


@contextlib.contextmanager
def site_processes(folder: Path) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """A `fedns site` for every site of a federation; all of them are gone when the block ends, however it ends."""
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for site in sorted((folder / "sites").iterdir()):
            running[site.name] = start_demo_site(site)
        yield running
    finally:
        for process in running.values():
            process.terminate()  # all at once, before the first of them is waited for
        for process in running.values():
            end_group(process, GIVE_UP_SECONDS)


def start_demo_site(folder: Path) -> subprocess.Popen[bytes]:
    """One site, its output in a file beside its settings."""
    with (folder / "output.txt").open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "fedns.cli", "site", str(folder / SITE_FILE)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C reaches the demonstration alone, which then ends its sites
        )


def _simulated(spec: ColumnRun, shards: Shards) -> History:
    return simulate(
        algorithm_of(spec),
        problem_of(spec),
        shards,
        rounds=spec.rounds,
        gradient_tol=spec.gradient_tol,
        seed=spec.seed,
        wire=spec.wire,
    )
