"""Milliseconds a round of every method at the shapes of covtype, w8a and random features; beside an older version's.

python benchmarks/methods.py --against OLDER/src

A round is everything but the evaluation: sending, passes over the rows, metering, folding, solving. Each figure is the mean
of the first rounds of the best of several runs; two versions take turns, so that a busy machine slows both.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import fedns

ROUNDS = 5
NO_OPTIMUM = fedns.Optimum(np.zeros(0), 0.0, 0.0, 0)  # older versions would look for one
SHAPES = ("covtype", "w8a", "random features")
METHODS: dict[str, Callable[[int], Any]] = {  # what is run, given the size of a sketch
    "FedNewton": lambda k: fedns.FedNewton(),
    "FedNS, SJLT": lambda k: fedns.FedNS(fedns.SJLT(k)),
    "FedNS, SRHT": lambda k: fedns.FedNS(fedns.SRHT(k)),
    "FedNDES, SRHT": lambda k: fedns.FedNDES(fedns.SRHT(k)),
    "FedAvg": lambda k: fedns.FedAvg(),
    "FedProx": lambda k: fedns.FedProx(),
    "Scaffold": lambda k: fedns.Scaffold(),
    "GradientDescent": lambda k: fedns.GradientDescent(),
    "L-BFGS": lambda k: fedns.LBFGS(),
    "DistributedNewton": lambda k: fedns.DistributedNewton(),
    "GIANT": lambda k: fedns.GIANT(),
    "LocalNewton": lambda k: fedns.LocalNewton(),
    "FedNL, rank 1": lambda k: fedns.FedNL(compressor="rank1"),
    "FedNL, top k": lambda k: fedns.FedNL(compressor="topk"),
    "FedNL, random k": lambda k: fedns.FedNL(compressor="randk"),
    "FedNL-PP, rank 1": lambda k: fedns.FedNL(compressor="rank1", variant="pp"),
    "FedNL-BC": lambda k: fedns.FedNLBC(),
    "Newton-Zero": lambda k: fedns.NewtonZero(),
    "FedNew": lambda k: fedns.FedNew(),
    "Q-FedNew": lambda k: fedns.QFedNew(),
    "SHED": lambda k: fedns.SHED(),
    "auto": lambda k: fedns.Auto(),
}


@cache
def case(shape: str) -> tuple[fedns.Problem, fedns.Shards, int]:
    """Problem, rows and sketch size. A client of the random features has half as many rows as there are features."""
    if shape == "random features":
        shards = fedns.split(*fedns.load("phishing"), clients=40, how="iid", seed=0)
        return *fedns.Problem(feature_map=fedns.RandomFourier(552, width=4.0)).linearised(shards), 60
    clients, size = {"covtype": (200, 20), "w8a": (142, 60)}[shape]
    shards = fedns.split(*fedns.load(shape), clients=clients, how="iid", seed=0)
    return fedns.Problem(), fedns.scale(shards, "maxabs")[0], size


def milliseconds(shape: str, method: str, threads: int | None) -> float:
    """Of a round of one run; no number where this version does not have the method."""
    problem, shards, size = case(shape)
    try:
        algorithm = METHODS[method](size)
    except (AttributeError, TypeError, ValueError):
        return float("nan")
    history = fedns.simulate(algorithm, problem, shards, rounds=ROUNDS, optimum=NO_OPTIMUM, threads=threads)
    return 1e3 * float(history.seconds[-1] - history.seconds[0]) / (len(history.records) - 1)


def answer(threads: int | None) -> None:
    """A line of JSON for every one that is read: the side of `Version` that runs a version."""
    for line in sys.stdin:
        print(json.dumps(milliseconds(*json.loads(line), threads)), flush=True)


class Version:
    """A version of fedns in a process of its own."""

    def __init__(self, source: str, processor_time: bool) -> None:
        command = [sys.executable, __file__, "--answer", *(["--processor-time"] if processor_time else [])]
        environment = {**os.environ, "PYTHONPATH": source} if source else None
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)

    def milliseconds(self, shape: str, method: str) -> float:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps([shape, method]), file=self._process.stdin, flush=True)
        return float(json.loads(self._process.stdout.readline() or "NaN"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", default="", metavar="FOLDER", help="the sources of an older version")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=SHAPES)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), metavar="METHOD")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--processor-time", action="store_true", help="of one thread: for a busy machine")
    parser.add_argument("--answer", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.processor_time:
        time.perf_counter = time.process_time  # what every version looks at
    if options.answer:
        answer(1 if options.processor_time else None)
        return
    versions = [Version(source, options.processor_time) for source in dict.fromkeys((options.against, ""))]
    table = Table(title="milliseconds a round" + (", before and after" if options.against else ""))
    table.add_column("")
    for shape in options.shapes:
        table.add_column(shape, justify="right")
    for method in options.methods:
        cells = []
        for shape in options.shapes:
            taken = [[version.milliseconds(shape, method) for version in versions] for _ in range(1 + options.turns)]
            cells.append(", ".join("-" if np.isnan(best) else f"{best:.3g}" for best in np.min(taken[1:], axis=0)))
        table.add_row(method, *cells)
        print(method, *cells, file=sys.stderr, flush=True)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
