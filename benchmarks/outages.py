"""Federations of real processes over a bad wire: network round trips of an exchange, and what outages cost.

    python benchmarks/outages.py --engine flower            # round trips by the slope over added delay, and the table
    python benchmarks/outages.py --engine nvflare --only round-trips

Every row says whether the coefficients are the simulator's to the last bit. The bound is what the wire itself takes: one
round trip for every exchange, its bytes at the line's rate, and the time that it was down.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
from wire import Quality, Wire

from fedns.comparison.federation_demo import Demo, _simulated, prepare, site_processes, start_site
from fedns.federation.config import CREDENTIALS_FOLDER, EXPERIMENT_FILE, read_experiment
from fedns.federation.coordinator.coordinate import Watcher, coordinate, open_transport
from fedns.federation.processes import ended_by_sigterm
from fedns.federation.protocol.transport import Arrival, Transport
from fedns.runs.policy import Policy

ADDED_SECONDS = (0.0, 0.1, 0.2, 0.4)  # round trips that the wire adds
METHOD, ROUNDS = "fednewton", 8


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
    """A federation behind a wire."""

    def __init__(self, engine: str, folder: Path, sites: int) -> None:
        self.engine, self.folder = engine, folder / engine
        self.shards = prepare(Demo(engine, self.folder, sites=sites, dataset="digits"))
        policy = Policy(timeout_seconds=60.0, patience_seconds=600.0)
        file = self.folder / "coordinator" / EXPERIMENT_FILE
        self.experiment = replace(read_experiment(file), methods=(METHOD,), gradient_tol=None, policy=policy)
        self.port = int(self.experiment.listen.rpartition(":")[2])
        self.runs = 0

    def send_sites_to(self, port: int) -> None:
        """Let every site connect there, and not to the coordinator itself."""
        for name in ("startup/fed_client.json", "site.toml"):  # NVFlare's, Flower's
            for file in self.folder.glob(f"sites/*/{CREDENTIALS_FOLDER}/{name}"):
                file.write_text(file.read_text().replace(f":{self.port}", f":{port}"))

    def run(self, transport: Transport, rounds: int = ROUNDS, watchers: tuple[Watcher, ...] = ()) -> tuple[float, bool]:
        """Seconds a round, and whether the bits are the simulator's."""
        self.runs += 1
        spec = replace(self.experiment, rounds=rounds, out=f"run-{self.runs}")
        history = coordinate(spec, transport, watchers=watchers).history
        same = history.coefficients.tobytes() == _simulated(spec, self.shards).coefficients.tobytes()
        return history.records[-1].seconds / rounds, same


def round_trips(trial: Trial, transport: Transport, wire: Wire) -> None:
    middles = []
    for added in ADDED_SECONDS:
        wire.quality = Quality(delay_seconds=added / 2)
        timed = Timed(transport)
        trial.run(timed)
        middles.append(statistics.median(timed.seconds[2:]))  # not the openings
        print(f"{trial.engine}: {1000 * added:3.0f} ms added, an exchange takes {1000 * middles[-1]:.0f} ms", flush=True)
    slope = np.polyfit(ADDED_SECONDS, middles, 1)[0]
    print(f"{trial.engine}: {slope:.2f} network round trips per exchange", flush=True)
    wire.quality = Quality()


def outages(trial: Trial, transport: Transport, wire: Wire, processes: dict) -> None:
    plain, same = trial.run(transport)
    print(f"{'wire':<36}{'seconds a round':>16}{'bound':>8}  bits", flush=True)

    def row(what: str, quality: Quality, bound: float, deed: Callable[[], Iterator[None]] | None = None) -> None:
        wire.quality = quality
        seconds, same = trial.run(transport, watchers=(Deed(2, deed),) if deed else ())
        wire.quality = Quality()
        print(f"{what:<36}{seconds:>16.2f}{bound:>8.2f}  {'same' if same else 'DIFFERENT'}", flush=True)

    def cut(seconds: float) -> Iterator[None]:
        wire.quality.down = True
        yield
        time.sleep(seconds)
        wire.quality.down = False

    def kill_site() -> Iterator[None]:
        for process in {processes["site-1"].pid, *descendants(processes["site-1"].pid)}:
            os.kill(process, signal.SIGKILL)
        processes["site-1"].wait()
        yield
        time.sleep(5.0)
        processes["site-1"] = start_site(trial.folder / "sites" / "site-1")

    def kill_engine() -> Iterator[None]:
        os.kill(engine_child(), signal.SIGKILL)
        yield

    print(f"{'as it is':<36}{plain:>16.2f}{0.0:>8.2f}  {'same' if same else 'DIFFERENT'}", flush=True)
    size = 8 * 65 * 66 / 2  # a Hessian: every site has a line of its own
    row("50 ms delay each way", Quality(delay_seconds=0.05), 0.1)
    row("1 % of packets lost", Quality(loss=0.01), 0.01 * 0.2)
    row("1 Mbit/s", Quality(bytes_per_second=125_000), size / 125_000)
    row("down for 20 s", Quality(), 20 / ROUNDS, lambda: cut(20.0))
    row("down for 90 s", Quality(), 90 / ROUNDS, lambda: cut(90.0))
    row("a site killed, back after 5 s", Quality(), 5 / ROUNDS, kill_site)
    row("the engine's process killed", Quality(), 0.0, kill_engine)


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
    parser.add_argument("--engine", choices=["flower", "nvflare"], default="flower")
    parser.add_argument("--sites", type=int, default=3)
    parser.add_argument("--only", choices=["round-trips", "outages"])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(given.engine, Path(folder), given.sites)
        with ended_by_sigterm(), Wire(trial.port) as wire:
            trial.send_sites_to(wire.port)
            logs = Path(folder) / "logs"
            with site_processes(trial.folder) as processes, open_transport(trial.experiment, logs=logs) as transport:
                if given.only != "outages":
                    round_trips(trial, transport, wire)
                if given.only != "round-trips":
                    outages(trial, transport, wire, processes)


if __name__ == "__main__":
    main()
