"""What a site's guard costs: the same requests with its defaults and with every rule switched off, answered in turns.

python benchmarks/guard_cost.py              the site's answers, and what a request costs whatever the rows
python benchmarks/guard_cost.py --engines    rounds over real engines, as a user waits for them
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedns.comparison.federation_demo import Demo, prepare, site_processes
from fedns.core.history import Record
from fedns.core.shards import Shards
from fedns.federation.config import EXPERIMENT_FILE, SITE_FILE, read_experiment
from fedns.federation.coordinator.cohort import NetworkedCohort
from fedns.federation.coordinator.coordinate import Watcher, coordinate, open_transport, train
from fedns.federation.coordinator.link import Link
from fedns.federation.coordinator.state import RunState
from fedns.federation.protocol.packets import ANSWER, Packet
from fedns.federation.protocol.transport import Arrival, Transport
from fedns.federation.site.permissions import Permissions
from fedns.federation.site.service import SiteService
from fedns.runs.builder import algorithm_of, at_site
from fedns.runs.policy import Policy
from fedns.runs.spec import Spec

ROUNDS, WARM_UP = 24, 4
# Seeds are the run's on both sides, so that both get the same requests; the ledger stays, whatever is permitted.
GUARDED = Permissions(requests_per_minute=2**31, points=2**31, job_seed=True)
UNGUARDED = replace(
    GUARDED, smallest_level=0, smallest_effective_rows=0.0, effective_rows_per_coefficient=0.0, largest_record_share=1.0,
    smallest_mean_curvature=0.0, largest_released_fraction=float("inf"), largest_sketched_fraction=float("inf"),
)  # fmt: skip
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
ENGINES, ENGINE_ROUNDS, REPEATS = ("flower", "nvflare"), 12, 3


class Both(Transport):
    """Every request goes to two sites with the same rows, one without a guard; the first to be asked changes each time."""

    def __init__(self, shards: Shards, folder: Path) -> None:
        self._services = [
            SiteService("site", lambda spec: shards, at_site, permissions, folder / str(number))
            for number, permissions in enumerate((UNGUARDED, GUARDED))
        ]
        self._turn = 0
        self.seconds: dict[int, list[list[float]]] = {}  # by rounds that were made, of every request: off, on, off, on

    def connected(self) -> list[str]:
        return ["site"]

    def exchange(self, requests: Mapping[str, bytes], timeout_seconds: float) -> Iterator[Arrival]:
        frame, self._turn, taken, answers = requests["site"], 1 - self._turn, [0.0] * 4, [b"", b""]
        for number in (self._turn, 1 - self._turn):
            clock, processor = time.perf_counter(), time.process_time()
            answers[number] = self._services[number].answer(frame)
            taken[number], taken[2 + number] = time.perf_counter() - clock, time.process_time() - processor
        on = Packet.decode(answers[1])
        if on.kind != ANSWER:
            raise RuntimeError(on.body.decode())
        self.seconds.setdefault(on.committed_rounds, []).append(taken)
        yield Arrival("site", answers[0])

    def close(self) -> None:
        """Nothing is held."""


class Cost(NamedTuple):
    """Of a round: seconds by the clock and of processors, guard off and on, and how many requests it has."""

    off: float
    on: float
    processors_off: float
    processors_on: float
    requests: float

    @property
    def shares(self) -> str:
        return f"{100 * (self.on / self.off - 1):+.1f} % | {100 * (self.processors_on / self.processors_off - 1):+.1f} %"


def rounds_of(shards: Shards, method: str, loss: str) -> Cost:
    """The medians over rounds."""
    policy = Policy(patience_seconds=0.0)
    spec = Spec(sites=("site",), methods=(method,), sketch_size=20, loss=loss, rounds=ROUNDS, strength=1e-3, policy=policy)
    with tempfile.TemporaryDirectory() as name:
        both = Both(shards, Path(name))
        state = RunState.open(replace(spec, gradient_tol=None), Path(name), resume=False)
        train(algorithm_of(spec), NetworkedCohort(Link(both, state)), observers=[])
    rounds = [(*np.sum(taken, axis=0), len(taken)) for round, taken in sorted(both.seconds.items()) if round >= WARM_UP]
    return Cost(*np.median(rounds, axis=0).tolist())


def table(rows: int, columns: int, loss: str) -> Shards:
    random = np.random.default_rng(1)
    features = 0.3 * random.standard_normal((rows, columns))
    z = features @ random.normal(size=columns) / np.sqrt(columns)
    targets = random.poisson(np.exp(z)) if loss == "poisson" else np.where(random.random(rows) < 1 / (1 + np.exp(-z)), 1, -1)
    return Shards.from_arrays(features, targets.astype(np.float64), [rows])


def answers(shapes: Sequence[tuple[int, int]]) -> None:
    """Rounds of every method over these shapes, and the cost of a request where there is nearly nothing to compute."""
    print("| rows | method | guard off, ms a round | defaults, ms a round | costs | of processor time |", flush=True)
    print("|---|---|---|---|---|---|", flush=True)
    for rows, columns in shapes:
        for method, loss in CASES:
            found = rounds_of(table(rows, columns, loss), method, loss)
            name = f"{method.partition(':')[0]}{' with a line search' if ':' in method else ''}, {loss}"
            print(
                f"| {rows:,} x {columns} | {name} | {1e3 * found.off:.1f} | {1e3 * found.on:.1f} | {found.shares} |",
                flush=True,
            )
    found = rounds_of(table(20_000, 4, "logistic"), "fednewton", "logistic")
    of_one = (1e6 * (found.on - found.off) / found.requests, 1e6 * found.on / found.requests)
    print("\nA request about 20,000 x 4 rows: the guard takes {:.0f} of {:.0f} microseconds.".format(*of_one), flush=True)


class Clock(Watcher):
    """When the rounds of a run were over, evaluations included."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_round(self, record: Record, state: Any) -> None:
        self.times.append(time.perf_counter())


def engine_seconds(engine: str, permissions: Permissions) -> float:
    """The median seconds of a round over real processes: four sites with a quarter of 20,000 x 54 rows each."""
    with tempfile.TemporaryDirectory() as name:
        demo = Demo(engine, Path(name, "demo"), sites=4, dataset="synthetic:covtype,rows=20000", rounds=ENGINE_ROUNDS)
        prepare(demo)
        defaults = f"[permit]\njob_seed = true\npoints = {permissions.points}\n"
        for path in (demo.folder / "sites").glob(f"*/{SITE_FILE}") if permissions is GUARDED else ():
            path.write_text(path.read_text(encoding="utf-8").partition("[permit]")[0] + defaults, encoding="utf-8")
        written = read_experiment(demo.folder / "coordinator" / EXPERIMENT_FILE)
        experiment = replace(written, rounds=ENGINE_ROUNDS, methods=("fedns",), gradient_tol=None)
        with site_processes(demo.folder), open_transport(experiment, logs=demo.folder / "logs") as transport:
            clock = Clock()
            coordinate(experiment, transport, watchers=[clock])
    return float(np.median(np.diff(clock.times)[1:]))


def engines() -> None:
    """Guard off and on in turns, engine by engine."""
    print("| engine | guard off, ms a round | defaults, ms a round | costs |\n|---|---|---|---|", flush=True)
    for engine in ENGINES:
        found = [(engine_seconds(engine, UNGUARDED), engine_seconds(engine, GUARDED)) for _ in range(REPEATS)]
        off, on = np.median(found, axis=0).tolist()
        print(f"| {engine} | {1e3 * off:.0f} | {1e3 * on:.0f} | {100 * (on / off - 1):+.1f} % |", flush=True)


def main() -> None:
    logging.disable(logging.ERROR)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, help="only tables of so many rows")
    parser.add_argument("--engines", action="store_true", help="rounds over Flower and NVFlare")
    given = parser.parse_args()
    engines() if given.engines else answers([shape for shape in SHAPES if given.rows in (None, shape[0])])


if __name__ == "__main__":
    main()
