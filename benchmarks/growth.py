"""How time and memory of a round grow with rows, clients, columns and sketch size, for every method.

The cost of a round at several sizes gives an exponent by a straight line through the logarithms, after what a round over
almost nothing costs is taken off the time. A method whose exponent is above the stated one by more than the tolerance is
named, and the exit status is 1. Time is the processor's on one thread, the least of several turns in which every size is
run, and of more of them where it seems to grow too fast, so that other programs matter little; memory is the most that is
allocated in a round, beside the rows. Where rows, clients or columns grow, the rows take at least 50 MB, unless Hessians
are formed: they come from memory at every size, never from a cache.
"""

from __future__ import annotations

import argparse
import gc
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import fedns
from fedns.core.cohort import Session
from fedns.methods import METHODS as registered_methods
from fedns.numerics import parallel
from fedns.numerics.linalg import single_threaded_blas
from fedns.simulation.simulator import SimulatedCohort

ROUNDS, TURNS, ENOUGH_SECONDS = 2, (2, 10), 1.0  # rounds of a run; the fewest and the most turns, and when they are enough
ATTEMPTS = 4  # so many times these turns, where a busy machine has left its mark
HESSIAN_ROWS = 40_000  # so many that Hessians take the time, and not what is solved with them
HESSIAN_COLUMNS = (72, 108, 162, 243)
TOLERANCE = 0.1
OVERHEAD_MICROSECONDS = 2.0  # a round and client, for FedNS


@dataclass(frozen=True)
class Shape:
    """The size of a problem; where `rows_each` is given there are so many rows for each client."""

    rows: int = 20_000
    clients: int = 4
    columns: int = 16
    sketch_size: int = 8
    rows_each: int = 0

    @lru_cache(maxsize=10)  # noqa: B019  (the sizes of an axis, with and without Hessians)
    def shards(self) -> fedns.Shards:
        rows = self.rows_each * self.clients or self.rows
        random = np.random.default_rng(0)
        targets = np.where(random.random(rows) < 0.5, -1.0, 1.0)
        features = random.standard_normal((rows, self.columns)) / np.sqrt(self.columns)
        return fedns.split(features, targets, clients=self.clients, how="contiguous")


# What grows, from which shape, through which sizes; and the size at which what is left is the fixed cost.
AXES: dict[str, tuple[Shape, Sequence[int], int]] = {
    "rows": (Shape(), (400_000, 600_000, 900_000, 1_350_000), 40),
    "clients": (Shape(rows_each=800), (500, 750, 1_125, 1_700), 1),
    # So many columns that what a row costs whatever its length is little: it is hidden behind reading the row, and to take
    # it off then makes time seem to grow faster than it does. And so many rows that a cache keeps next to nothing of the
    # smallest table from one round to the next: of one twice its size it keeps enough to be seen.
    "columns": (Shape(rows=90_000), (240, 360, 536, 800), 1),
    "sketch_size": (Shape(), (16, 32, 64, 128), 1),
}
Make = Callable[[int], fedns.Algorithm]
Case = tuple[fedns.Algorithm, fedns.Shards]
# The method for a size of a sketch, and the stated exponent in the columns: 2 where Hessians are formed.
METHODS: dict[str, tuple[Make, float]] = {
    "FedNS, SJLT": (lambda k: fedns.FedNS(fedns.SJLT(k)), 1.0),
    "FedNS, SRHT": (lambda k: fedns.FedNS(fedns.SRHT(k)), 1.0),
    "FedNDES, SJLT": (lambda k: fedns.FedNDES(fedns.SJLT(k)), 1.0),
    "Newton sketch, SJLT": (lambda k: fedns.NewtonSketch(fedns.SJLT(k)), 1.0),
    "FedAvg": (lambda k: fedns.FedAvg(), 1.0),
    "FedProx": (lambda k: fedns.FedProx(), 1.0),
    "Scaffold": (lambda k: fedns.Scaffold(), 1.0),
    "GradientDescent": (lambda k: fedns.GradientDescent(step_size=1.0), 1.0),
    "L-BFGS": (lambda k: fedns.LBFGS(), 1.0),
    "Newton": (lambda k: fedns.Newton(), 2.0),
    "FedNewton": (lambda k: fedns.FedNewton(), 2.0),
    "DistributedNewton": (lambda k: fedns.DistributedNewton(), 2.0),
    "GIANT": (lambda k: fedns.GIANT(), 2.0),
    "LocalNewton": (lambda k: fedns.LocalNewton(), 2.0),
    "FedNL, rank 1": (lambda k: fedns.FedNL(compressor="rank1"), 2.0),
    "FedNL, top k": (lambda k: fedns.FedNL(compressor="topk"), 2.0),
    "FedNL-BC": (lambda k: fedns.FedNLBC(), 2.0),
    "Newton-Zero": (lambda k: fedns.NewtonZero(), 2.0),
    "FedNew": (lambda k: fedns.FedNew(), 2.0),
    "Q-FedNew": (lambda k: fedns.QFedNew(), 2.0),
    "SHED": (lambda k: fedns.SHED(), 2.0),
    "auto": (lambda k: fedns.Auto(), 2.0),
}
for own in registered_methods.values():  # with what they have by default, where nothing else is said of them above
    if own not in {type(make(8)) for make, _ in METHODS.values()}:
        METHODS[own.name] = (lambda k, own=own: own(), 2.0)
SKETCHED = ("FedNS, SJLT", "FedNS, SRHT", "FedNDES, SJLT", "Newton sketch, SJLT")


def rounds_of(algorithm: fedns.Algorithm, shards: fedns.Shards) -> Callable[[], None]:
    """The first rounds of a run that has been set up, to be called once."""
    problem = fedns.Problem()
    visible = shards.pooled() if algorithm.pooled else shards
    cohort = SimulatedCohort(visible, Session(problem, 0, metered=not algorithm.pooled))
    first: Any = algorithm.init(problem, cohort)

    def rounds() -> None:
        state = first
        for _ in range(ROUNDS):
            cohort.session.round += 1
            state = algorithm.round(problem, state, cohort).state

    return rounds


def least_seconds(cases: Sequence[Case], cost: Callable[[list[float]], float], most: float) -> list[float]:
    """Of the processor, for a round of each case; they take turns, again while the cost that follows is above `most`."""
    least = [float("inf")] * len(cases)
    for _ in range(ATTEMPTS):
        turns, began = 0, time.process_time()
        while turns < TURNS[0] or (turns < TURNS[1] and time.process_time() - began < ENOUGH_SECONDS):
            for case, (algorithm, shards) in enumerate(cases):
                rounds = rounds_of(algorithm, shards)
                started = time.process_time()
                rounds()
                least[case] = min(least[case], (time.process_time() - started) / ROUNDS)
            turns += 1
        if cost(least) <= most:
            break
    return least


def peak_bytes(algorithm: fedns.Algorithm, shards: fedns.Shards) -> float:
    """The most that a round holds beside the rows, what clients remember included."""
    gc.collect()
    tracemalloc.start()
    try:
        rounds_of(algorithm, shards)()
        return float(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def exponent(sizes: Sequence[int], costs: Sequence[float], fixed: float) -> float:
    """Of cost - fixed in the size. Where little is left, cost itself hardly grows, and its exponent says so."""
    cost = np.array(costs)
    beyond = cost - fixed if (cost - fixed > 0.3 * cost).all() else cost
    return float(np.polyfit(np.log(sizes), np.log(beyond), 1)[0])


def stated(method: str, axis: str) -> float:
    return METHODS[method][1] if axis == "columns" else 1.0


def measured(method: str, axis: str) -> tuple[float, float]:
    """The exponents of time and memory."""
    shape, sizes, least = AXES[axis]
    if axis == "columns" and stated(method, axis) > 1.0:
        shape, sizes = replace(shape, rows=HESSIAN_ROWS), HESSIAN_COLUMNS
    shapes = [replace(shape, **{axis: size}) for size in (least, *sizes)]
    cases = [(METHODS[method][0](changed.sketch_size), changed.shards()) for changed in shapes]

    def power(times: list[float]) -> float:
        return exponent(sizes, times[1:], times[0])

    times = least_seconds(cases, power, stated(method, axis) + TOLERANCE)
    # The most memory is one step's, not a sum of all: nothing is to be taken off.
    return power(times), exponent(sizes, [peak_bytes(*case) for case in cases[1:]], 0.0)


def overhead_microseconds() -> float:
    """What another client costs FedNS in a round where the rows stay as many."""
    few, many = 1_000, 9_000
    method = fedns.FedNS(fedns.SJLT(2))

    def each(times: list[float]) -> float:
        return 1e6 * (times[1] - times[0]) / (many - few)

    cases = [(method, Shape(rows=90_000, clients=count).shards()) for count in (few, many)]
    return each(least_seconds(cases, each, OVERHEAD_MICROSECONDS))


def table_of(found: dict[tuple[str, str], tuple[float, float]], methods: Sequence[str], axes: Sequence[str]) -> Table:
    """A row for each method; nothing where an axis does not concern it."""
    table = Table(title="exponents of time, memory of a round")
    for heading in ("", *axes):
        table.add_column(heading.replace("_", " "), justify="right" if heading else "left")
    for method in methods:
        values = [found.get((method, axis)) for axis in axes]
        table.add_row(method, *("" if value is None else f"{value[0]:.2f}, {value[1]:.2f}" for value in values))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), metavar="METHOD")
    parser.add_argument("--axes", nargs="+", choices=AXES, default=list(AXES))
    options = parser.parse_args()
    console, failures = Console(width=120), []
    found: dict[tuple[str, str], tuple[float, float]] = {}
    with parallel.threads(1), single_threaded_blas():
        for axis in options.axes:
            for method in options.methods:
                if axis == "sketch_size" and method not in SKETCHED:
                    continue
                most, value = stated(method, axis), measured(method, axis)
                found[method, axis] = value
                console.print(f"{method}, {axis.replace('_', ' ')}: {value[0]:.2f}, {value[1]:.2f}", highlight=False)
                failures += [
                    f"{method}: {what} grows with the {axis.replace('_', ' ')} to the power {power:.2f}, stated is {most:g}"
                    for what, power in zip(("time", "memory"), value, strict=True)
                    if power > most + TOLERANCE
                ]
        overhead = overhead_microseconds()
    console.print(table_of(found, options.methods, options.axes))
    console.print(
        f"FedNS, SJLT: another client costs {overhead:.2f} microseconds a round, at most {OVERHEAD_MICROSECONDS:g}"
    )
    if overhead > OVERHEAD_MICROSECONDS:
        failures.append(f"FedNS: {overhead:.2f} microseconds a round for a client, at most {OVERHEAD_MICROSECONDS:g}")
    if failures:
        raise SystemExit("\n".join(["growth above what is stated:", *failures]))


if __name__ == "__main__":
    main()
