"""Clients on a Dask cluster: the bits of one process, also where a worker is killed in mid-run."""

import os
import signal
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from tests.conftest import make_shards

import fedns
from fedns.core.errors import ConfigError, DataError
from fedns.lab.comparison.results import read_runs
from fedns.lab.comparison.sweep import Case, Sweep, run_sweep
from fedns.methods import METHODS
from fedns.numerics.cpu.backend import CpuBackend
from fedns.runs.compare import Compare
from fedns.simulation.cluster import connected

distributed = pytest.importorskip("distributed")
PROBLEM = fedns.Problem(penalty=fedns.Ridge(1e-2))
SIZES = (10, 90, 7, 150, 43)


@pytest.fixture(scope="module")
def cluster():
    """Four workers in processes of their own, on loopback."""
    settings = {"n_workers": 4, "threads_per_worker": 1, "host": "127.0.0.1", "dashboard_address": None, "memory_limit": 0}
    with distributed.LocalCluster(**settings, silence_logs=50) as running:
        yield running.scheduler_address.replace("tcp://", "dask://")


class KillsAWorker(fedns.Observer):
    """Ends a worker that holds clients, as a power cut would."""

    def __init__(self, cluster, after):
        self.cluster, self.after, self.killed = cluster, after, 0

    def on_round(self, record, state):
        if record.round == self.after:
            with connected(self.cluster) as client:
                pids = client.run(os.getpid)
            self.killed = pids[min(pids)]
            os.kill(self.killed, signal.SIGKILL)


def both(method, cluster, shards=None, observers=(), **settings):
    shards = shards or make_shards(sizes=SIZES, weighted=True)
    settings = {"rounds": 4, "seed": 3} | settings
    here = fedns.simulate(METHODS[method](), PROBLEM, shards, **settings)
    there = fedns.simulate(METHODS[method](), PROBLEM, shards, cluster=cluster, observers=observers, **settings)
    np.testing.assert_array_equal(here.coefficients, there.coefficients)
    assert [r.objective for r in here.records] == [r.objective for r in there.records]
    assert here.ledger == there.ledger


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedns", "fednl", "newton", pytest.param("scaffold", marks=pytest.mark.nightly)])
def test_the_bits_are_those_of_one_process(cluster, method):
    both(method, cluster)


@pytest.mark.slow
def test_compressed_rows_and_samples_of_clients(cluster):
    both("fednewton", cluster, make_shards(sizes=SIZES, sparse=True), participation=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedns", "fednl"])  # clients that remember nothing, and that do
def test_a_worker_that_is_killed_costs_time_and_no_bit(cluster, method):
    killer = KillsAWorker(cluster, after=2)
    both(method, cluster, observers=(killer,))
    assert killer.killed


@dataclass(frozen=True)
class EndsItsWorker(CpuBackend):
    """In the third pass of a worker's clients, the first time that it comes to that anywhere."""

    marks: str = ""

    def gradient_and_hessian(self, *given):
        with Path(self.marks).open("a+") as file:
            file.write("x")
            file.flush()
            if file.tell() == 3:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().gradient_and_hessian(*given)


@pytest.mark.slow
def test_a_worker_that_is_killed_while_it_works_costs_no_bit(cluster, tmp_path):
    shards = make_shards(sizes=SIZES)
    here = fedns.simulate(fedns.FedNewton(), PROBLEM, shards, rounds=3)
    mortal = replace(PROBLEM, backend=EndsItsWorker(str(tmp_path / "marks")))
    there = fedns.simulate(fedns.FedNewton(), mortal, shards, rounds=3, cluster=cluster)
    assert len((tmp_path / "marks").read_text()) > 3
    np.testing.assert_array_equal(here.coefficients, there.coefficients)


class Refuses(CpuBackend):
    def gradient_and_hessian(self, *given):
        raise DataError("these rows cannot be used")


@pytest.mark.slow
def test_what_a_client_raises_is_raised_here(cluster):
    with pytest.raises(DataError, match="these rows cannot be used"):
        fedns.simulate(fedns.FedNewton(), replace(PROBLEM, backend=Refuses()), make_shards(), rounds=1, cluster=cluster)


@pytest.mark.slow
def test_a_sweep_on_a_cluster_gives_the_files_of_one_machine(cluster, tmp_path):
    values = {"dataset": "synthetic:rows=300,columns=13", "methods": ["fedns", "gd"], "rounds": 3, "trials": 1, "threads": 1}
    written = []
    for where, address in (("here", None), ("there", cluster)):
        varied = [{"sketch_size": k, "out": str(tmp_path / where / f"{k}")} for k in (4, 8)]
        cases = [Case(f"{one['sketch_size']}", Compare.from_dict(values | one)) for one in varied]
        done, interrupted = run_sweep(Sweep(tmp_path / where, cases), processes=1, cluster=address)
        assert list(done) == ["4", "8"] and not interrupted
        rounds = [run.records for case in cases for run in read_runs(case.spec.folder)]
        written.append([[(r.objective, r.uplink_bytes) for r in records] for records in rounds])
    assert written[0] == written[1]


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "dask://127.0.0.1:1"])
def test_an_address_without_a_scheduler_is_refused(address, monkeypatch):
    monkeypatch.setattr("fedns.simulation.cluster._CONNECT_SECONDS", 0.2)
    with pytest.raises(ConfigError, match=r"Dask scheduler"):
        fedns.simulate(fedns.GradientDescent(), PROBLEM, make_shards(), rounds=1, cluster=address)
