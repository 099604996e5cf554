"""Many rounds over real processes on this machine: seconds a round, and what the engine's process holds and takes.

    python benchmarks/soak.py --engine nvflare                          # 1000 rounds of gradients over 5 sites
    python benchmarks/soak.py --engine flower --sites 50 --rounds 30
    python benchmarks/soak.py --engine nvflare --megabytes 16 --sites 2 --rounds 100    # a Hessian of so much each time

After tens of rounds the numbers of an engine that keeps nothing stay where they are.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from outages import engine_child

from fedns.comparison.federation_demo import Demo, prepare, site_processes
from fedns.federation.config import EXPERIMENT_FILE, SITE_FILE, read_experiment
from fedns.federation.coordinator.coordinate import Watcher, coordinate, open_transport
from fedns.federation.processes import ended_by_sigterm
from fedns.runs.policy import Policy

ROUNDS_SHOWN = (10, 50, 100, 200, 300, 500, 700)
ROWS = 100  # of a site, where messages are to be large


class Gauge(Watcher):
    """Prints a line at chosen rounds: the most that the engine's process held since the line before."""

    def __init__(self, shown: set[int]) -> None:
        self.shown, self.most = shown, (0, 0, 0)
        self.round, self.began = 0, time.perf_counter()
        self.child, self.taken = 0, 0.0

    def on_round(self, record, state) -> None:
        self.child = self.child or engine_child()
        self.most = tuple(map(max, self.most, held(self.child)))
        if record.round not in self.shown:
            return
        now, taken, rounds = time.perf_counter(), processor_seconds(self.child), max(1, record.round - self.round)
        threads, files, kilobytes = self.most
        print(
            f"{record.round:>6}{(now - self.began) / rounds:>17.2f}{(taken - self.taken) / rounds:>21.3f}"
            f"{threads:>9}{files:>7}{kilobytes / 1000:>8.0f}",
            flush=True,
        )
        self.round, self.began, self.taken, self.most = record.round, now, taken, (0, 0, 0)


def held(process: int) -> tuple[int, int, int]:
    """Threads, open files and resident kilobytes."""
    values = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
    return int(values["Threads"]), len(list(Path(f"/proc/{process}/fd").iterdir())), int(values["VmRSS"].split()[0])


def processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wide_rows(folder: Path, megabytes: float, sites: int) -> str:
    """Rows with as many columns as make a packed Hessian of so many bytes."""
    columns = int((2 * megabytes * 1e6 / 8) ** 0.5)
    rng = np.random.default_rng(0)
    rows, targets = rng.standard_normal((ROWS * sites, columns)) / columns**0.5, rng.choice([-1.0, 1.0], ROWS * sites)
    np.savez(folder / "wide.npz", X=rows, y=targets)
    return str(folder / "wide.npz")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", default="flower")
    parser.add_argument("--sites", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--megabytes", type=float, default=0.0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        dataset = wide_rows(folder, given.megabytes, given.sites) if given.megabytes else "digits"
        prepare(Demo(given.engine, folder / "f", sites=given.sites, dataset=dataset))
        for file in (folder / "f" / "sites").glob(f"*/{SITE_FILE}"):
            file.write_text(f"{file.read_text()}rounds = {given.rounds}\nlargest_job_bytes = 1000000000\n")
        experiment = replace(
            read_experiment(folder / "f" / "coordinator" / EXPERIMENT_FILE),
            methods=("fednewton" if given.megabytes else "gd",),
            rounds=given.rounds,
            gradient_tol=None,
            policy=Policy(timeout_seconds=120.0, patience_seconds=600.0),
        )
        gauge = Gauge({*ROUNDS_SHOWN, given.rounds})
        print(f"{given.engine}, {given.sites} sites\n round  seconds a round  of the engine's processor  threads  files  MB")
        with (
            ended_by_sigterm(),
            site_processes(folder / "f"),
            open_transport(experiment, logs=folder / "logs") as transport,
        ):
            coordinate(experiment, transport, watchers=[gauge])


if __name__ == "__main__":
    main()
