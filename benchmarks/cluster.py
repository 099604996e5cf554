"""What a round on a local Dask cluster costs over a round in this process: the bits must agree.

Four workers with a thread each on this machine, rows of covtype's shape; a small table shows the overhead alone. Medians.
"""

from __future__ import annotations

import numpy as np
from distributed import LocalCluster

import fedns

WORKERS, ROUNDS, SKETCH_SIZE = 4, 12, 20
SHAPES = {"small": (2_000, 20, 40), "covtype's shape": (581_012, 54, 200)}  # rows, columns, clients


def shards_of(rows: int, columns: int, clients: int) -> fedns.Shards:
    random = np.random.default_rng(0)
    targets = np.where(random.random(rows) < 0.5, -1.0, 1.0)
    return fedns.split(random.standard_normal((rows, columns)), targets, clients, "contiguous")


def main() -> None:
    settings = {"n_workers": WORKERS, "threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": None}
    with LocalCluster(**settings, silence_logs=50) as cluster:
        address = cluster.scheduler_address.replace("tcp://", "dask://")
        for label, shape in SHAPES.items():
            shards, method = shards_of(*shape), fedns.FedNS(fedns.SJLT(SKETCH_SIZE))
            runs = [
                fedns.simulate(method, fedns.Problem(), shards, rounds=ROUNDS, cluster=where)
                for where in (None, None, address, address)  # the first of each compiles
            ][1::2]
            here, there = (float(np.median(np.diff(run.seconds))) for run in runs)
            if not np.array_equal(runs[0].coefficients, runs[1].coefficients):
                raise SystemExit(f"{label}: the coefficients differ")
            print(
                f"{label}, {shape[0]:,} x {shape[1]}, {shape[2]} clients: a round takes {1e3 * here:.2f} ms here and "
                f"{1e3 * there:.1f} ms on {WORKERS} workers, {1e3 * (there - here):.1f} ms more; the same bits"
            )


if __name__ == "__main__":
    main()
