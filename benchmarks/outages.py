"""Federations of real processes over a bad wire: network round trips of an exchange, and what outages cost.

    python benchmarks/outages.py                    # what each trouble costs, some four minutes
    python benchmarks/outages.py --round-trips      # network round trips of an exchange, by the slope over added delay

Every row says whether the coefficients are the simulator's to the last bit. The bound is what the wire itself takes: one
round trip for every exchange, its bytes at the line's rate, and the time that it was down. Engines are timed one after the
other, and only wait for the end of an outage at the same time.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from wire import Quality, Wire

from fedns.federation.config import CREDENTIALS_FOLDER, EXPERIMENT_FILE, read_experiment
from fedns.federation.coordinator.session import coordinate
from fedns.federation.coordinator.supervised import open_transport
from fedns.federation.coordinator.watching import Watcher
from fedns.federation.processes import ended_by_sigterm
from fedns.federation.protocol.transport import Arrival, Transport
from fedns.lab.comparison.federation_demo import Demo, _simulated, prepare, site_processes, start_demo_site
from fedns.runs.over_sites import Policy

ENGINES = ("nvflare", "flower")
ADDED_SECONDS = (0.0, 0.1, 0.2, 0.4)  # round trips that the wire adds
METHOD, ROUNDS, SITES = "fednewton", 8, 3
HESSIAN_BYTES = 8 * 65 * 66 / 2  # what a site sends in a round of it on digits


class Timed(Transport):
    """Another transport, and how long each of its exchanges took."""

    def __init__(self, inner: Transport) -> None:
        self.inner, self.seconds = inner, []

    def connected(self) -> list[str]:
        return self.inner.connected()

    def exchange(self, requests: Mapping[str, bytes], timeout_seconds: float) -> Iterator[Arrival]:
        started = time.perf_counter()
        yield from self.inner.exchange(requests, timeout_seconds)
        self.seconds.append(time.perf_counter() - started)

    def close(self) -> None:
        self.inner.close()


class Deed(Watcher):
    """Does something when a round is over, and what is left of it, after a `yield`, while the next ones run."""

    def __init__(self, round: int, deed: Callable[[], Iterator[None]]) -> None:
        self.round, self.deed = round, deed

    def on_round(self, record, state) -> None:
        if record.round == self.round:
            doing = self.deed()
            next(doing)
            threading.Thread(target=list, args=(doing,), daemon=True).start()


class Trial:
    """A federation behind a wire, for as long as the block lasts."""

    def __init__(self, engine: str, folder: Path) -> None:
        self.engine, self.folder = engine, folder / engine
        shards = prepare(Demo(engine, self.folder, sites=SITES, dataset="digits"))
        policy = Policy(timeout_seconds=60.0, patience_seconds=600.0)
        file = self.folder / "coordinator" / EXPERIMENT_FILE
        spec = replace(read_experiment(file), method=METHOD, gradient_tol=None, policy=policy, rounds=ROUNDS)
        self.experiment, self.expected = spec, _simulated(spec, shards).coefficients.tobytes()
        self.runs = 0

    @contextmanager
    def running(self) -> Iterator[Trial]:
        port = int(self.experiment.listen.rpartition(":")[2])
        with ended_by_sigterm(), Wire(port) as self.wire:
            for name in ("startup/fed_client.json", "site.toml"):  # NVFlare's, Flower's: sites connect to the wire
                for file in self.folder.glob(f"sites/*/{CREDENTIALS_FOLDER}/{name}"):
                    file.write_text(file.read_text().replace(f":{port}", f":{self.wire.port}"))
            opened = open_transport(self.experiment, logs=self.folder / "logs")
            with site_processes(self.folder) as self.sites, opened as self.transport:
                yield self

    def run(self, transport: Transport | None = None, watchers: tuple[Watcher, ...] = ()) -> tuple[float, bool]:
        """Seconds a round, and whether the bits are the simulator's."""
        self.runs += 1
        spec = replace(self.experiment, out=f"run-{self.runs}")
        history = coordinate(spec, transport or self.transport, watchers=watchers).history
        return history.records[-1].seconds / ROUNDS, history.coefficients.tobytes() == self.expected

    def cut(self, seconds: float) -> Iterator[None]:
        self.wire.quality.down = True
        yield
        time.sleep(seconds)
        self.wire.quality.down = False

    def break_off(self) -> Iterator[None]:
        self.wire.break_off()
        yield

    def kill_site(self) -> Iterator[None]:
        for process in {self.sites["site-1"].pid, *descendants(self.sites["site-1"].pid)}:
            os.kill(process, signal.SIGKILL)
        self.sites["site-1"].wait()
        yield
        time.sleep(5.0)
        self.sites["site-1"] = start_demo_site(self.folder / "sites" / "site-1")

    def kill_engine(self) -> Iterator[None]:
        os.kill(engine_child(), signal.SIGKILL)
        yield


@dataclass(frozen=True)
class Row:
    """One kind of trouble; what it takes at least, in seconds a round."""

    what: str
    bound: float
    quality: Quality = field(default_factory=Quality)
    deed: Callable[[Trial], Iterator[None]] | None = None
    waits: bool = False  # nothing is computed while it lasts


ROWS = (
    Row("nothing", 0.0),
    Row("50 ms delay each way", 0.1, Quality(delay_seconds=0.05)),
    Row("1 % of packets lost", 0.01 * 0.2, Quality(loss=0.01)),
    Row("1 Mbit/s for each site", HESSIAN_BYTES / 125_000, Quality(bytes_per_second=125_000)),
    Row("all lines down for 20 s", 20 / ROUNDS, deed=partial(Trial.cut, seconds=20.0), waits=True),
    Row("all lines down for 90 s", 90 / ROUNDS, deed=partial(Trial.cut, seconds=90.0), waits=True),
    Row("all connections broken off", 0.0, deed=Trial.break_off),
    Row("a site killed, started again after 5 s", 5 / ROUNDS, deed=Trial.kill_site),
    Row("the engine's process killed", 0.0, deed=Trial.kill_engine),
)


def outages(trial: Trial, turn: Callable[[bool], None]) -> list[tuple[float, bool]]:
    found = []
    for row in ROWS:
        turn(row.waits)
        trial.wire.quality = replace(row.quality)
        deed = row.deed
        found.append(trial.run(watchers=(Deed(2, partial(deed, trial)),) if deed else ()))
        trial.wire.quality = Quality()
        print(f"{trial.engine}: {row.what}: {found[-1]}", file=sys.stderr, flush=True)
    return found


def round_trips(trial: Trial, turn: Callable[[bool], None]) -> list[tuple[float, bool]]:
    """Seconds of an exchange at each delay, and last how many network round trips that is, by the slope."""
    found = []
    for added in ADDED_SECONDS:
        turn(False)
        trial.wire.quality = Quality(delay_seconds=added / 2)
        timed = Timed(trial.transport)
        _, same = trial.run(timed)
        found.append((statistics.median(timed.seconds[2:]), same))  # not the openings
    slope = float(np.polyfit(ADDED_SECONDS, [seconds for seconds, _ in found], 1)[0])
    return [*found, (slope, all(same for _, same in found))]


def measured(engine: str, lock: Path, measure: Callable[..., list[tuple[float, bool]]]) -> list[tuple[float, bool]]:
    with tempfile.TemporaryDirectory() as folder, Trial(engine, Path(folder)).running() as trial, lock.open("w") as file:

        def turn(shared: bool) -> None:
            fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)

        turn(False)
        trial.run()  # what is compiled now is not compiled later
        return measure(trial, turn)


def engine_child() -> int:
    for process, parent in parents().items():
        command = Path(f"/proc/{process}/cmdline").read_bytes() if parent == os.getpid() else b""
        if b"flower.superlink" in command or b"server_train" in command:
            return process
    raise SystemExit("the engine's process was not found")


def descendants(process: int) -> set[int]:
    children = {child for child, parent in parents().items() if parent == process}
    return children.union(*map(descendants, children))


def parents() -> dict[int, int]:
    """The parent of every process of this machine."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            found[int(process.name)] = int((process / "stat").read_text().rpartition(")")[2].split()[1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", choices=ENGINES, help="one alone")
    parser.add_argument("--round-trips", action="store_true")
    given = parser.parse_args()
    engines = (given.engine,) if given.engine else ENGINES
    measure = round_trips if given.round_trips else outages
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(len(engines), get_context("spawn")) as pool:
        lock = Path(folder) / "lock"
        columns = list(pool.map(measured, engines, [lock] * len(engines), [measure] * len(engines)))
    if given.round_trips:
        rows = [*(f"{1000 * added:.0f} ms added" for added in ADDED_SECONDS), "round trips"]
        bounds = [f"{added:.2f}" for added in ADDED_SECONDS] + ["1"]
    else:
        rows, bounds = [row.what for row in ROWS], [f"{row.bound:.2f}" for row in ROWS]
    unit = "seconds an exchange" if given.round_trips else "seconds a round"
    print(f"| what happens | {' | '.join(f'{engine}, {unit}' for engine in engines)} | bound | same bits |")
    print("|---|" + "---|" * (len(engines) + 2))
    for what, bound, *cells in zip(rows, bounds, *columns, strict=True):
        same = "yes" if all(same for _, same in cells) else "NO"
        print(f"| {what} | {' | '.join(f'{number:.2f}' for number, _ in cells)} | {bound} | {same} |")


if __name__ == "__main__":
    main()
