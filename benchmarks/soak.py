"""Many rounds over real processes on this machine: seconds a round, and what processes hold and take.

    python benchmarks/soak.py --engine nvflare                          # 1000 rounds of gradients over 5 sites
    python benchmarks/soak.py --engine flower --sites 50 --rounds 30
    python benchmarks/soak.py --engine nvflare --megabytes 16 --rounds 100      # answers of so much, and nothing computed

After tens of rounds the numbers of an engine that keeps nothing stay where they are.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

from outages import descendants, engine_child

from fedns.federation.config import CREDENTIALS_FOLDER, EXPERIMENT_FILE, SITE_FILE, engine_named, read_experiment
from fedns.federation.coordinator.session import coordinate
from fedns.federation.coordinator.supervised import open_transport
from fedns.federation.coordinator.watching import Watcher
from fedns.federation.processes import ended_by_sigterm
from fedns.federation.protocol.transport import Transport
from fedns.lab.comparison.federation_demo import Demo, prepare, site_processes
from fedns.runs.over_sites import Policy

ROUNDS_SHOWN = (5, 10, 20, 30, 50, 70, 100, 200, 300, 500, 700, 900)
HEAD = f"""
{"":>48}{"coordinator":>22}{"engine":>22}{"largest of a site":>22}
 round  seconds a round  of the engine's processor{"  threads files     MB" * 3}"""


class Gauge(Watcher):
    """Prints a line at chosen rounds: threads and files at most since the line before, and megabytes in the middle of it."""

    def __init__(self, shown: set[int]) -> None:
        self.shown, self.seen = shown, []
        self.round, self.began = 0, time.perf_counter()
        self.child, self.sites, self.taken = 0, set[int](), 0.0

    def on_round(self, record, state) -> None:
        self.look(record.round)

    def look(self, round: int) -> None:
        if not self.child:
            self.child = engine_child()
            self.sites = descendants(os.getpid()) - {self.child}
        now_held = held(os.getpid()), held(self.child), tuple(map(max, zip(*map(held, self.sites), strict=True)))
        self.seen.append(now_held)
        if round not in self.shown:
            return
        now, taken, rounds = time.perf_counter(), processor_seconds(self.child), max(1, round - self.round)
        print(
            f"{round:>6}{(now - self.began) / rounds:>17.2f}{(taken - self.taken) / rounds:>21.3f}    "
            + "".join(map(summary, *self.seen)),
            flush=True,
        )
        self.round, self.began, self.taken, self.seen = round, now, taken, []


def summary(*seen: tuple[int, int, int]) -> str:
    """What one kind of process held over some rounds."""
    threads, files, kilobytes = zip(*seen, strict=True)
    return f"{max(threads):>9}{max(files):>6}{median(kilobytes) / 1000:>7.0f}"


def held(process: int) -> tuple[int, int, int]:
    """Threads, open files and resident kilobytes."""
    values = dict(line.split(":", 1) for line in Path(f"/proc/{process}/status").read_text().splitlines())
    return int(values["Threads"]), len(list(Path(f"/proc/{process}/fd").iterdir())), int(values["VmRSS"].split()[0])


def processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def much(_: object) -> Callable[[bytes], bytes]:
    """A service that answers with as many bytes as it is asked for."""
    return lambda request: bytes(int(request))


@contextmanager
def answering(engine: str, folder: Path) -> Iterator[None]:
    """A process for every site that answers so."""
    here = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, __file__, "--engine", engine, "--serve"]
    sites = sorted((folder / "sites").iterdir())
    processes = [
        subprocess.Popen([*command, site / CREDENTIALS_FOLDER], env=here, stderr=subprocess.DEVNULL) for site in sites
    ]
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def exchanges(transport: Transport, gauge: Gauge, sites: Sequence[str], rounds: int, megabytes: float) -> None:
    request = str(int(1e6 * megabytes)).encode()
    while set(transport.connected()) < set(sites):
        time.sleep(0.2)
    gauge.began = time.perf_counter()
    for round in range(1, rounds + 1):
        arrivals = list(transport.exchange(dict.fromkeys(sites, request), 300.0))
        failures = [arrival.failure for arrival in arrivals if len(arrival.payload) != int(request)]
        assert not failures, failures
        gauge.look(round)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", default="flower")
    parser.add_argument("--sites", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--megabytes", type=float, default=0.0)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        with ended_by_sigterm():
            engine_named(given.engine).serve(given.serve, "soak:much", given.serve)
        return
    with tempfile.TemporaryDirectory() as name, ended_by_sigterm():
        folder, gauge = Path(name) / "f", Gauge({*ROUNDS_SHOWN, given.rounds})
        prepare(Demo(given.engine, folder, sites=given.sites))
        for file in (folder / "sites").glob(f"*/{SITE_FILE}"):
            file.write_text(f"{file.read_text()}rounds = {given.rounds}\n")
        experiment = replace(
            read_experiment(folder / "coordinator" / EXPERIMENT_FILE),
            method="gd",
            rounds=given.rounds,
            gradient_tol=None,
            policy=Policy(timeout_seconds=120.0, patience_seconds=600.0),
        )
        print(f"{given.engine}, {given.sites} sites{HEAD}")
        sites = answering(given.engine, folder) if given.megabytes else site_processes(folder)
        with sites, open_transport(experiment, logs=folder / "logs") as transport:
            if given.megabytes:
                exchanges(transport, gauge, experiment.sites, given.rounds, given.megabytes)
            else:
                coordinate(experiment, transport, watchers=[gauge])


if __name__ == "__main__":
    main()
