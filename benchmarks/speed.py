"""Speed as ratios taken in one run: a round against one parallel read of the data, a whole run against scikit-learn.

Every figure is the best of several repetitions, in turns with its yardstick, so that a busy machine slows both. A turn is
three in a row, since a round of a run follows a round: after a read of another matrix Python itself is not in the cache.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np
from numba import njit, prange
from rich.console import Console
from rich.table import Table
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

import fedns
from fedns.core.cohort import Session
from fedns.core.shards import Shards
from fedns.numerics import parallel
from fedns.numerics.linalg import single_threaded_blas
from fedns.simulation.simulator import SimulatedCohort

SHAPES = {
    # name: rows, columns, clients, sketch size, allowed ratios for SJLT and SRHT where memory is read at USUAL_SPEED
    "covtype shape": (581_012, 54, 200, 20, 1.2, 1.8),
    "SUSY shape": (5_000_000, 18, 1000, 10, 1.3, 2.0),
}
OWN_VALUES = ("covtype", 200, 20, 0.5, 0.9)  # a data set, clients, sketch size, and the same, its rows in a narrow type
USUAL_SPEED = 36  # GB/s. Where memory is faster a round may take the same milliseconds, which are more reads.
IN_A_ROW = 3
console = Console(width=120)


# Additions in any order, unlike those of kernels: in order each would wait for the one before, and memory for both.
@njit(fastmath=True, nogil=True, cache=True)
def total(values):
    """The sum of a run of numbers: reading it, and nothing else."""
    result = 0.0
    for i in range(values.size):
        result += values[i]
    return result


@njit(parallel=True, fastmath=True, cache=True)
def total_in_parts(values, cuts, out):
    for part in prange(cuts.size - 1):
        out[part] = total(values[cuts[part] : cuts[part + 1]])


def synthetic(rows: int, columns: int, clients: int) -> Shards:
    """Random data of this shape; what the numbers are does not matter to the speed."""
    random = np.random.default_rng(0)
    features = random.standard_normal((rows, columns))
    targets = np.where(random.random(rows) < 0.5, -1.0, 1.0)
    offsets = np.linspace(0, rows, clients + 1).astype(np.int64)
    return Shards.from_arrays(features, targets, np.diff(offsets))


def one_read(shards: Shards, threads: int) -> Callable[[], None]:
    """All of the matrix, in parts like those of a round."""
    flat = shards.rows.flat  # type: ignore[union-attr]
    cuts = np.linspace(0, flat.size, 8 * threads + 1).astype(np.int64)
    out = np.zeros(8 * threads)

    def read() -> None:
        numba.set_num_threads(threads)
        total_in_parts(flat, cuts, out)

    read()
    return read


def one_round(method: fedns.Algorithm, problem: fedns.Problem, shards: Shards) -> Callable[[], None]:
    """A whole round: sending, kernels, metering, folding, the Newton step."""
    cohort = SimulatedCohort(shards, Session(problem, 0))
    state = method.init(problem, cohort)

    def round_() -> None:
        nonlocal state
        cohort.session.round += 1
        state = method.round(problem, state, cohort).state

    return round_


def best_times(actions: list[Callable[[], None]], repetitions: int) -> list[float]:
    """The best time of each action, all taken in turns."""
    best = [np.inf] * len(actions)
    for _ in range(repetitions):
        for i, action in enumerate(actions):
            for _ in range(IN_A_ROW):
                started = time.perf_counter()
                action()
                best[i] = min(best[i], time.perf_counter() - started)
    return best


class MemoryWatch:
    """The most memory this process holds while the block runs, above what it held before, by looking every millisecond."""

    def __enter__(self) -> MemoryWatch:
        self.before = self.most = resident_bytes()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def _look(self) -> None:
        while not self._stop.wait(1e-3):
            self.most = max(self.most, resident_bytes())

    def __exit__(self, *details: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def added(self) -> int:
        return self.most - self.before


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def add_rows(
    table: Table, name: str, shards: Shards, size: int, most: tuple[float, float], repetitions: int, threads: int
) -> None:
    """A round with each sketch, over rows as a run holds them, against a read of the float64 matrix."""
    problem, read, narrow = fedns.Problem(), one_read(shards, threads), shards.onehot
    for sketch, allowed in zip((fedns.SJLT(size), fedns.SRHT(size)), most, strict=True):
        with MemoryWatch() as memory:
            round_ = one_round(fedns.FedNS(sketch), problem, narrow)
            for _ in range(5):
                round_()
        read_seconds, round_seconds = best_times([read, round_], repetitions)
        speed = shards.rows.nbytes / read_seconds / 1e9
        table.add_row(
            f"{name} {shards.num_samples} x {shards.num_columns}, m = {shards.num_clients}",
            f"{type(sketch).__name__}, k = {size}",
            f"{narrow.rows.nbytes / 1e6:.0f} of {shards.rows.nbytes / 1e6:.0f}",
            f"{1e3 * read_seconds:.1f}",
            f"{speed:.0f}",
            f"{1e3 * round_seconds:.1f}",
            f"{round_seconds / read_seconds:.2f}",
            f"{allowed * max(1.0, speed / USUAL_SPEED):.2f}",
            f"{memory.added / shards.rows.nbytes:.1%}",
        )


def has_real(name: str) -> bool:
    folder = os.environ.get("FEDNS_DATA")
    found = bool(folder) and (Path(folder or "") / f"{name}.npz").exists()
    if not found:
        console.print(f"{name} is not in FEDNS_DATA: what needs it is left out")
    return found


def rounds_against_reading(repetitions: int, threads: int) -> None:
    table = Table(title="one FedNS round against one parallel read of the matrix")
    for column in ("data", "method", "stored MB", "read ms", "GB/s", "round ms", "ratio", "at most", "memory added"):
        table.add_column(column, justify="left" if column in ("data", "method") else "right")
    problem = fedns.Problem()
    one_round(fedns.FedNS(fedns.SRHT(4)), problem, synthetic(50_000, 50, 10))()  # kernels compiled, those for threads too
    for name, (rows, columns, clients, size, sjlt, srht) in SHAPES.items():
        shards = synthetic(rows, columns, clients)
        add_rows(table, name, shards, size, (sjlt, srht), repetitions, threads)
    name, clients, size, sjlt, srht = OWN_VALUES
    if has_real(name):
        shards = fedns.split(*fedns.load(name), clients=clients, how="iid", seed=0)
        add_rows(table, f"{name}'s own values", shards, size, (sjlt, srht), repetitions, threads)
    console.print(table)


def run_against_scikit_learn(repetitions: int) -> None:
    if not has_real("phishing"):
        return
    import warnings

    dataset = fedns.load("phishing")
    shards = fedns.split(*dataset, clients=40, how="iid", seed=0)
    problem = fedns.Problem()
    optimum = fedns.pooled_optimum(problem, shards)
    tolerance, model = lbfgs_tolerance(dataset, problem, shards, optimum.value)

    def federated(sketch: fedns.Sketch) -> Callable[[], None]:
        def run() -> None:
            history = fedns.simulate(fedns.FedNS(sketch), problem, shards, rounds=30, tol=1e-10, optimum=optimum)
            assert history.converged

        return run

    def pooled() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(dataset.features, dataset.targets)

    actions = [federated(fedns.SJLT(17)), federated(fedns.SRHT(17)), pooled]
    for action in actions:
        action()
    sjlt, srht, theirs = best_times(actions, repetitions)
    console.print(
        f"phishing to a gap of 1e-10, m = 40, everything counted: FedNS with SJLT {1e3 * sjlt:.1f} ms, with SRHT "
        f"{1e3 * srht:.1f} ms; scikit-learn's lbfgs on the pooled data (tol = {tolerance:g}, the loosest power of ten that "
        f"gets there) {1e3 * theirs:.1f} ms; ratios {sjlt / theirs:.2f} and {srht / theirs:.2f}, at most 0.5"
    )


def lbfgs_tolerance(dataset, problem, shards, optimal_value):  # type: ignore[no-untyped-def]
    """The loosest tolerance with which scikit-learn's lbfgs reaches the same gap."""
    strength = problem.penalty.strength
    for exponent in range(2, 13):
        model = LogisticRegression(
            C=1.0 / (shards.num_samples * strength), fit_intercept=False, tol=10.0**-exponent, max_iter=10_000
        ).fit(dataset.features, dataset.targets)
        if problem.evaluate(model.coef_[0], shards).objective - optimal_value <= 1e-10:
            return 10.0**-exponent, model
    raise RuntimeError("lbfgs did not reach a gap of 1e-10")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=30)
    options = parser.parse_args()
    console.print(f"{platform.machine()}, {os.cpu_count()} cores, {options.threads} threads, best of {options.repetitions}")
    with parallel.threads(options.threads), single_threaded_blas():
        rounds_against_reading(options.repetitions, options.threads)
        run_against_scikit_learn(2 * options.repetitions)


if __name__ == "__main__":
    main()
