"""What a site's guard costs: the same requests to sites with its defaults and to sites without any guard, in turns.

python benchmarks/guard_cost.py                    the sites' answers, request by request
python benchmarks/guard_cost.py --engine nvflare   rounds over a real engine, as a user waits for them
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedns.core.clients import Handler
from fedns.core.history import Record
from fedns.core.messages import Message
from fedns.core.messages.encoding import handler_named_in
from fedns.core.shards import Shards
from fedns.federation.config import EXPERIMENT_FILE, SITE_FILE, SiteConfig, read_experiment
from fedns.federation.coordinator.cohort import NetworkedCohort
from fedns.federation.coordinator.link import Link
from fedns.federation.coordinator.session import coordinate, train
from fedns.federation.coordinator.state import RunState
from fedns.federation.coordinator.supervised import open_transport
from fedns.federation.coordinator.watching import Journal, Watcher
from fedns.federation.permissions import Permissions
from fedns.federation.processes import end_group, ended_by_sigterm
from fedns.federation.protocol.packets import ANSWER, ASK, OPEN, Packet
from fedns.federation.protocol.transport import Arrival, Transport
from fedns.federation.site.answering import Answering
from fedns.federation.site.guard import Asked, Guard
from fedns.federation.site.service import SiteService
from fedns.federation.site.table_kind import TableKind
from fedns.federation.site_command import run_site
from fedns.lab.comparison.federation_demo import Demo, prepare
from fedns.lab.data.datasets import load
from fedns.models.problem import Problem
from fedns.runs.builder import algorithm_of, at_site
from fedns.runs.over_sites import ColumnRun, Policy
from fedns.studies.serving.columns import Columns

SITES, ROUNDS, LEAST_RUNS, SKETCH = ("a", "b"), 20, 5, 108
# Seeds are the run's at all sites, so that both of a pair compute the same.
GUARDED = Permissions(requests_per_minute=2**31, largest_released_fraction=1e3, job_seed=True)
SHAPES = ((20_000, 54), (581_012, 54))
CASES = (  # method, loss
    ("fedns", "logistic"),
    ("fednewton", "logistic"),
    ("auto", "logistic"),
    ("fedavg", "logistic"),
    ("lbfgs", "logistic"),
    ("fedns:line_search=aggregate", "logistic"),
    ("fedns:line_search=aggregate", "poisson"),
)
MEMORY = Path("/dev/shm")  # where sites write, if there is such a folder: a disk's times vary more than a guard's
RESAMPLED = 400


class _Free(Answering):
    """An answer that nobody watches or counts."""

    def reply(self, handler: Handler, problem: Any, clients: Any, request: Any) -> Message:
        return handler(problem, clients, request)

    def spend(self, reply: Message | None, answer: bytes) -> None:
        """Nothing is counted."""

    def settle(self) -> None:
        """Nothing is waited for."""


class Unguarded(SiteService):
    """A site without a guard."""

    def _admit(self, guard: Guard, handler: Handler, request: Message, **about: Any) -> Answering:
        return _Free(guard, Asked(about["run"], about["round"], []))


class Rows(TableKind):
    """Rows at hand."""

    def __init__(self, shards: Shards, mark: str = "") -> None:
        self._shards, self._mark = shards, mark

    def rows(self, spec: ColumnRun) -> Shards:
        return self._shards

    def build(self, spec: ColumnRun) -> tuple[Problem, Mapping[str, Handler]]:
        return at_site(spec)

    @property
    def mark(self) -> str:
        return self._mark

    def compiles(self) -> bool:
        return not self._mark


class Both(Transport):
    """Every request goes to two sites with the same rows, one without a guard; the first to be asked changes each time."""

    def __init__(self, shards: Shards, folder: Path) -> None:
        self._services = {
            site: [
                kind(site, Rows(shards, "rows"), GUARDED, folder / site / kind.__name__) for kind in (Unguarded, SiteService)
            ]
            for site in SITES
        }
        self._turn = 0
        self.seconds: list[list[float]] = []  # of every request: clock and processors
        self.handlers: list[str] = []  # who was asked for

    def connected(self) -> list[str]:
        return list(SITES)

    def exchange(self, requests: Mapping[str, bytes], timeout_seconds: float) -> Iterator[Arrival]:
        for site, frame in requests.items():
            self._turn, taken, answers = 1 - self._turn, [0.0] * 4, [b"", b""]
            for number in (self._turn, 1 - self._turn):
                clock, processor = time.perf_counter(), time.process_time()
                answers[number] = self._services[site][number].answer(frame)
                taken[number], taken[2 + number] = time.perf_counter() - clock, time.process_time() - processor
            guarded, asked = Packet.decode(answers[1]), Packet.decode(frame)
            if guarded.kind != ANSWER:
                raise RuntimeError(guarded.body.decode())
            if asked.kind == ASK:
                self.seconds.append(taken)
                self.handlers.append(handler_named_in(asked.body))
            yield Arrival(site, answers[1])

    def close(self) -> None:
        """Nothing is held."""


def one_run(shards: Shards, method: str, loss: str) -> tuple[list[str], NDArray[np.float64]]:
    """Who was asked for in every request of a run, and the seconds: (requests, 4). Some sites may be asked more often."""
    spec = ColumnRun(
        sites=SITES, method=method, sketch_size=SKETCH, loss=loss, rounds=ROUNDS, gradient_tol=None,
        policy=Policy(patience_seconds=0.0),
    )  # fmt: skip
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as name:
        both = Both(shards, Path(name))
        state = RunState.open(spec, Path(name), resume=False)
        train(algorithm_of(spec), NetworkedCohort(Link(both, state, Journal(SITES))), observers=[])
    return both.handlers, np.array(both.seconds)


class Share(NamedTuple):
    """A part of the time without a guard, and between which values it is with 95 %."""

    share: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.share:+.1f} % ({100 * self.low:+.1f} to {100 * self.high:+.1f})"


def added(off: NDArray[np.float64], on: NDArray[np.float64]) -> Share:
    """What the guard adds to all these requests, each by the medians over its repetitions: (repetitions, requests)."""
    random = np.random.default_rng(0)

    def of(chosen: NDArray[np.int64]) -> float:
        return float(np.median((on - off)[chosen], axis=0).sum() / np.median(off[chosen], axis=0).sum())

    repetitions = len(off)
    found = sorted(of(random.integers(repetitions, size=repetitions)) for _ in range(RESAMPLED))
    return Share(of(np.arange(repetitions)), found[RESAMPLED // 40], found[-RESAMPLED // 40])


def measure(rows: int, columns: int, method: str, loss: str, seconds: float) -> None:
    """Print a line for every kind of request of this method, and one for all of them."""
    shards, end = table(rows, columns, loss), time.monotonic() + seconds
    handlers, _ = one_run(shards, method, loss)  # compiles what is called
    runs: list[NDArray[np.float64]] = []
    while len(runs) < LEAST_RUNS or time.monotonic() < end:
        runs.append(one_run(shards, method, loss)[1])
    taken = np.stack(runs)  # (repetitions, requests, 4)
    kinds = defaultdict(list)
    for place, handler in enumerate(handlers):
        kinds[handler].append(place)
    del kinds["register"]
    name = f"{method.partition(':')[0]}{' with a line search' if ':' in method else ''}, {loss}"
    for kind, places in [*kinds.items(), ("all of it", [*chain(*kinds.values())])]:
        own = taken[:, places]
        off, on = (1e6 * np.median(own[..., which], axis=0).mean() for which in (0, 1))
        clock, processor = added(own[..., 0], own[..., 1]), added(own[..., 2], own[..., 3])
        print(
            f"| {rows:,} x {columns} | {name} | {kind} | {off:,.0f} | {on - off:+,.0f} | {clock} | {processor} |", flush=True
        )


def table(rows: int, columns: int, loss: str) -> Shards:
    random = np.random.default_rng(1)
    features = 0.3 * random.standard_normal((rows, columns))
    z = features @ random.normal(size=columns) / np.sqrt(columns)
    targets = random.poisson(np.exp(z)) if loss == "poisson" else np.where(random.random(rows) < 1 / (1 + np.exp(-z)), 1, -1)
    return Shards.from_arrays(features, targets.astype(np.float64), [rows])


# A round over an engine takes longer than a guard by far: what counts is that both are measured in the same processes.
ENGINES, ENGINE_ROUNDS, BLOCK, SKIPPED, WARM_UP = ("flower", "nvflare"), 160, 5, 2, 20


def in_turns(path: str | Path) -> Callable[[bytes], bytes]:
    """The service of a site in a process of its own: five rounds without a guard, five with its defaults, and so on."""
    config = SiteConfig.read(Path(path))
    table = Rows(Columns(config, load).shards)
    without, guarded = (
        kind(config.name, table, config.permit, config.folder / kind.__name__) for kind in (Unguarded, SiteService)
    )

    def answer(frame: bytes) -> bytes:
        packet = Packet.decode(frame)
        if packet.kind == OPEN:
            without.answer(frame)
        return (without if packet.kind != OPEN and is_without(packet.committed_rounds) else guarded).answer(frame)

    return answer


def is_without(round: int) -> bool:
    return round // BLOCK % 2 == 0


class Clock(Watcher):
    """When the rounds of a run were over, evaluations included."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_round(self, record: Record, state: Any) -> None:
        self.times.append(time.perf_counter())


@contextlib.contextmanager
def sites_in_turns(folder: Path) -> Iterator[None]:
    """A process for every site of a federation; all of them are gone when the block ends."""
    running = []
    module = str(Path(__file__).parent)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([module, os.environ.get("PYTHONPATH", "")])}
    try:
        for site in sorted((folder / "sites").iterdir()):
            path = site / SITE_FILE
            text = path.read_text(encoding="utf-8").partition("[permit]")[0]  # the defaults, but for the rate
            path.write_text(f"{text}[permit]\nrequests_per_minute = 1000000\n", encoding="utf-8")
            command = [sys.executable, __file__, "--site", str(path)]
            with (site / "output.txt").open("ab") as output:
                started = subprocess.Popen(command, stdout=output, stderr=output, env=environment, start_new_session=True)
            running.append(started)
        yield
    finally:
        for process in running:
            end_group(process, 10.0)


def over_engine(engine: str) -> None:
    """Four sites with a quarter of 20,000 x 54 rows each."""
    with tempfile.TemporaryDirectory() as name:
        demo = Demo(engine, Path(name, "demo"), sites=4, dataset="synthetic:covtype,rows=20000", rounds=ENGINE_ROUNDS)
        prepare(demo)
        written = read_experiment(demo.folder / "coordinator" / EXPERIMENT_FILE)
        experiment = replace(written, rounds=ENGINE_ROUNDS, method="fedns", sketch_size=54, gradient_tol=None)
        clock, logs = Clock(), demo.folder / "logs"
        with ended_by_sigterm(), sites_in_turns(demo.folder), open_transport(experiment, logs=logs) as transport:
            coordinate(experiment, transport, watchers=[clock])
    seconds = np.diff(clock.times)  # of rounds 2, 3, ..., the first of which is about rows that others have not yet read
    kept = [round for round in range(WARM_UP, seconds.size) if round % BLOCK >= SKIPPED]
    rounds = [np.array([seconds[round] for round in kept if is_without(round) == without]) for without in (True, False)]
    off, on = (rounds_of[: min(map(len, rounds)), None] for rounds_of in rounds)
    random = np.random.default_rng(0)
    draws = [[np.median(random.choice(one, len(one))) for one in rounds] for _ in range(RESAMPLED)]
    shares = sorted(with_guard / without - 1 for without, with_guard in draws)
    share = Share(float(np.median(on) / np.median(off) - 1), shares[RESAMPLED // 40], shares[-RESAMPLED // 40])
    print(f"| {engine} | {1e3 * np.median(off):.1f} | {1e3 * np.median(on):.1f} | {share} |", flush=True)


def main() -> None:
    logging.disable(logging.ERROR)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, help="only tables of so many rows")
    parser.add_argument("--case", type=int, nargs="*", default=range(len(CASES)), help="only these methods, from 0 on")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each method and table")
    parser.add_argument("--engine", nargs="*", choices=ENGINES, default=[], help="rounds over engines instead")
    parser.add_argument("--site", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.site:
        run_site(given.site, importlib.import_module(Path(__file__).stem).in_turns)  # by this name others find it, too
        return
    if given.engine:
        print("| engine | without a guard, ms a round | with its defaults | adds |\n|---|---|---|---|", flush=True)
    for engine in given.engine:
        over_engine(engine)
    if not given.engine:
        print("| rows | method | request | without a guard, us | adds, us | share | of processor time |")
        print("|---|---|---|---|---|---|---|", flush=True)
        for rows, columns in SHAPES:
            for case in given.case if given.rows in (None, rows) else ():
                measure(rows, columns, *CASES[case], given.seconds)


if __name__ == "__main__":
    main()
