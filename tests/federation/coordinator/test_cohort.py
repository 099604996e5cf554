"""The networked engine against the simulator, with sites that answer real packets in this process."""

import pytest
from tests.conftest import make_shards
from tests.federation.in_process import Federation, run_of

import fedns
from fedns.algorithms import METHODS
from fedns.runs.builder import algorithm_of, problem_of

FEDERATED = [name for name in METHODS if not METHODS[name].pooled]
SHARDS = make_shards(sizes=(90, 60, 150))


def simulated(description, **settings):
    return fedns.simulate(
        algorithm_of(description), problem_of(description), SHARDS, rounds=description.rounds, seed=description.seed,
        wire=description.wire, **settings,
    )  # fmt: skip


def measured(history):
    rows = [(r.round, r.exchanges, r.uplink_bytes, r.downlink_bytes, r.objective, r.gradient_norm) for r in history.records]
    return rows, [r.diagnostics for r in history.records], history.ledger


@pytest.mark.parametrize("wire", ["float64", "float32"])
@pytest.mark.parametrize("method", FEDERATED)
def test_every_method_gives_the_simulators_bits_and_bytes(method, wire, tmp_path):
    description = run_of(method, wire=wire)
    there = Federation(SHARDS, tmp_path, description).start()
    here = simulated(description)
    assert there.coefficients.tobytes() == here.coefficients.tobytes()
    assert measured(there) == measured(here)
