"""Rounds on wide data, where the server solves in the size of the stacked sketches: against solving in that of the columns.

Every figure is the median of several rounds. The other form is what a round takes when the server forms and factors the
M x M matrix, taken in turns with it, so that a busy machine slows both.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from unittest import mock

import numpy as np
import scipy.sparse
from rich.console import Console
from rich.table import Table

import fedns
from fedns.methods.searches import ArmijoSearch
from fedns.numerics import linalg

ROWS, CLIENTS, SKETCH_SIZE = 2000, 20, 17
WORDS, WORDS_PER_ROW = 4862, 60
MAPPED = 5000
LEAST_SPEEDUP = {"text": 10.0, "random Fourier features": 5.0}


def text_like() -> tuple[fedns.Problem, fedns.Shards]:
    """Rows of unit norm with some sixty words of a vocabulary in which few are frequent; an intercept."""
    random = np.random.default_rng(0)
    frequency = np.arange(1, WORDS + 1) ** -0.8
    frequency /= frequency.sum()
    counts = random.poisson(WORDS_PER_ROW, ROWS).clip(1)
    words = [np.sort(random.choice(WORDS, size=count, replace=False, p=frequency)) for count in counts]
    values = np.concatenate([np.full(count, 1 / np.sqrt(count)) for count in counts])
    starts = np.concatenate([[0], np.cumsum(counts)])
    rows = scipy.sparse.csr_matrix((values, np.concatenate(words), starts), shape=(ROWS, WORDS))
    return fedns.Problem(penalty=fedns.Ridge(1e-3), intercept=True), _split(rows, random)


def mapped() -> tuple[fedns.Problem, fedns.Shards]:
    random = np.random.default_rng(0)
    feature_map = fedns.RandomFourier(MAPPED, width=4.0)
    problem = fedns.Problem(penalty=fedns.Ridge(1e-3), feature_map=feature_map)
    return problem.linearised(_split(random.standard_normal((ROWS, 20)), random))


def _split(rows: object, random: np.random.Generator) -> fedns.Shards:
    scores = rows @ random.standard_normal(rows.shape[1])  # type: ignore[operator, attr-defined]
    targets = np.where(scores > np.median(scores), 1.0, -1.0)
    return fedns.split(rows, targets, clients=CLIENTS, how="iid", seed=0)


@contextlib.contextmanager
def forming_the_matrix() -> Iterator[None]:
    """The server as it is with as many sketched rows as columns."""
    with mock.patch.object(linalg, "_solve_low_rank", lambda *given: None):
        yield


def round_seconds(problem: fedns.Problem, shards: fedns.Shards, rounds: int) -> tuple[list[float], np.ndarray]:
    method = fedns.FedNS(fedns.SRHT(SKETCH_SIZE), line_search=ArmijoSearch())
    history = fedns.simulate(method, problem, shards, rounds=rounds)
    return np.diff(history.seconds).tolist(), history.coefficients


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=3, help="of both forms, in turns (default: 3)")
    repetitions = parser.parse_args().repetitions
    table = Table(title=f"FedNS, k = {SKETCH_SIZE}, m = {CLIENTS}, {ROWS:,} rows: seconds of a round")
    for heading in ("data", "features", "size of the sketches", "size of the columns", "times faster", "difference"):
        table.add_column(heading, justify="right")
    slow = []
    for name, make in (("text", text_like), ("random Fourier features", mapped)):
        problem, shards = make()
        round_seconds(problem, shards, 1)  # compiles
        quick, formed = [], []
        for _ in range(repetitions):
            seconds, found = round_seconds(problem, shards, 3)
            quick += seconds
            with forming_the_matrix():
                seconds, dense = round_seconds(problem, shards, 3)
            formed += seconds
        speedup = float(np.median(formed) / np.median(quick))
        difference = np.linalg.norm(found - dense) / np.linalg.norm(dense)
        medians = (f"{np.median(taken):.3f}" for taken in (quick, formed))
        table.add_row(name, f"{found.size:,}", *medians, f"{speedup:.0f}", f"{difference:.0e}")
        slow += [name] if speedup < LEAST_SPEEDUP[name] else []
    Console(width=120).print(table)
    if slow:
        raise SystemExit(f"slower than it should be: {', '.join(slow)}")


if __name__ == "__main__":
    main()
