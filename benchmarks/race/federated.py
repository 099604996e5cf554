"""What needs no row to leave its site: our methods, Flower's FedAvg and NVFlare's Newton regression."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.race.contender import Attempt, Contender, Fit, Task

import fedns

NVFLARE_SITES = 4  # a process each, on two cores
NVFLARE_ROUNDS = 10  # damped by 0.8, each round takes the gap to about a twenty-fifth
NVFLARE_LIMIT_SECONDS = 60.0
HERE = Path(__file__).parent


def ours(name: str, method: Any) -> Contender:
    """The tolerance is of the gradient's norm; evaluations are on the clock."""

    def prepare(task: Task, features: Any) -> Attempt:
        algorithm = method(task.sketch_size)

        def fit(tolerance: float) -> Fit:
            history = fedns.simulate(algorithm, task.problem, task.shards, rounds=500, gradient_tol=tolerance)
            last = history.records[-1]
            return Fit(history.coefficients, last.exchanges, last.uplink_bytes + last.downlink_bytes)

        return fit

    return Contender(f"fedns {name}", "fedns", "fedns", prepare, layouts=("dense",), limit_seconds=30.0, warm_up=1e-9)


def _flower(task: Task, features: Any) -> Attempt:
    """Flower's scikit-learn example: one step of lbfgs a round at each of half of the sites, then the average.

    Its records are made, read and averaged in this process, so that no network or process is on its clock.
    """
    from flwr.app import ArrayRecord, MetricRecord, RecordDict
    from flwr.serverapp.strategy.strategy_utils import aggregate_arrayrecords
    from sklearn.linear_model import LogisticRegression

    shards = task.shards
    parts = [(features[a:b], shards.targets[a:b]) for a, b in zip(shards.starts, shards.stops, strict=True)]
    models = [
        LogisticRegression(C=1.0 / (y.size * task.strength), fit_intercept=False, max_iter=1, warm_start=True)
        for _, y in parts
    ]

    def train(client: int, request: RecordDict) -> RecordDict:
        x, y = parts[client]
        models[client].coef_ = request["arrays"].to_numpy_ndarrays()[0]
        coefficients = ArrayRecord([models[client].fit(x, y).coef_])
        return RecordDict({"arrays": coefficients, "metrics": MetricRecord({"num-examples": y.size})})

    def fit(rounds: int) -> Fit:
        draws, travelled = np.random.default_rng(0), 0
        arrays = ArrayRecord([np.zeros((1, shards.num_columns))])
        for _ in range(rounds):
            request = RecordDict({"arrays": arrays})
            chosen = draws.choice(shards.num_clients, shards.num_clients // 2, replace=False)
            replies = [train(client, request) for client in chosen]
            travelled += chosen.size * _array_bytes(request) + sum(_array_bytes(reply) for reply in replies)
            arrays = aggregate_arrayrecords(replies, "num-examples")
        return Fit(arrays.to_numpy_ndarrays()[0][0], rounds, travelled)

    return fit


def _array_bytes(content: Any) -> int:
    return sum(len(array.data) for record in content.array_records.values() for array in record.values())


def _nvflare(task: Task, features: Any) -> Attempt:
    """NVFlare's own controller and recipe in its simulator; the clock runs from its first round to its end."""
    rows = np.linspace(0, task.shards.num_samples, NVFLARE_SITES + 1).astype(int)

    def fit(rounds: int) -> Fit:
        with tempfile.TemporaryDirectory() as folder:
            for site, (a, b) in enumerate(pairwise(rows), start=1):
                np.savez(Path(folder) / f"site-{site}.npz", x=features[a:b], y=(task.shards.targets[a:b] + 1.0) / 2.0)
            command = [sys.executable, str(HERE / "nvflare_job.py"), folder, str(task.shards.num_columns), str(rounds)]
            command += [str(NVFLARE_SITES), repr(task.strength)]
            one_thread = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=NVFLARE_LIMIT_SECONDS, cwd=folder, env=one_thread
            )
            weights = next(Path(folder).rglob("weights.npy"), None)
            if weights is None:
                raise RuntimeError(f"no model was written: {(done.stdout + done.stderr).strip().splitlines()[-1]}")
            entries = task.shards.num_columns * (task.shards.num_columns + 2)  # weights down, gradient and Hessian up
            seconds = seconds_of_rounds(done.stdout + done.stderr)
            return Fit(np.load(weights).ravel(), rounds, 8 * entries * rounds * NVFLARE_SITES, seconds)

    return fit


def seconds_of_rounds(log: str) -> float:
    """From the line that starts the first round to the one that says the controller is done."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", log)
    times = [
        datetime.fromisoformat(match[1].replace(",", "."))
        for match in re.finditer(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+).*(?:Round 0 started|Finished FedAvg)", plain, re.M)
    ]
    if len(times) != 2:
        raise RuntimeError("the log does not say when the rounds began and ended")
    return (times[1] - times[0]).total_seconds()


OURS = (
    ours("FedNewton", lambda size: fedns.FedNewton()),
    ours("FedNS, SJLT", lambda size: fedns.FedNS(fedns.SJLT(size))),
    ours("auto", lambda size: fedns.Auto()),
)
PEERS = (
    Contender(
        "Flower FedAvg", "flwr", "flwr", _flower, (10, 100), ("dense",), warm_up=3,
        note="its example's settings, up to 100 rounds"
    ),
    Contender(
        "NVFlare Newton", "nvflare", "nvflare", _nvflare, (NVFLARE_ROUNDS,), ("dense",), NVFLARE_LIMIT_SECONDS, warm_up=None,
        note=f"{NVFLARE_SITES} sites; bytes of the arrays alone", only_on=("phishing", "a9a"),
    ),
)  # fmt: skip
