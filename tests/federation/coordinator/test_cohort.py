"""The networked engine against the simulator, with sites that answer real packets in this process."""

import json

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


def test_watching_is_metered_apart_and_nothing_that_travelled_is_left_out(tmp_path):
    """Against the sites' own ledgers, which know nothing of the coordinator's meter."""
    there = Federation(SHARDS, tmp_path, run_of("fedndes"))
    history = there.start()
    travelled = {"evaluate_locally": 0, "the method": 0}
    for site in there.spec.sites:
        for line in map(json.loads, (tmp_path / site / "ledger.jsonl").read_text().splitlines()):
            if line["kind"] != "Opening":
                travelled["evaluate_locally" if line["purpose"] == "evaluate_locally" else "the method"] += line["bytes"]
    assert history.evaluation_bytes[-1] == travelled["evaluate_locally"] > 0
    assert history.uplink_bytes[-1] + history.downlink_bytes[-1] == travelled["the method"]
    assert len(set(history.evaluation_bytes.tolist())) == len(history.records)  # more after every round
    assert not simulated(there.spec).evaluation_bytes.any()
