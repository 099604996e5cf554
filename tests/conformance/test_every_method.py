"""What every method must keep, whoever wrote it. A new method is covered by being registered."""

from collections.abc import Iterator

import numpy as np
import pytest
from tests.conftest import dense_features, make_shards

import fedns
from fedns.core.clients import messages_of
from fedns.core.cohort import Session
from fedns.core.messages import reducers, split_batch
from fedns.core.messages.encoding import Envelope, encode
from fedns.core.run import Stop, run
from fedns.core.shards import Shards
from fedns.methods import METHODS
from fedns.numerics import parallel
from fedns.simulation.simulator import SimulatedCohort

PROBLEM = fedns.Problem(penalty=fedns.Ridge(1e-2), intercept=True)
ROUNDS = 4
FEDERATED = [name for name in METHODS if not METHODS[name].pooled]


@pytest.fixture(autouse=True)
def small_data_is_cut_like_large(monkeypatch):
    """Threads get a part for every client, and sketches are multiplied a few at a time, as they are on real sizes."""
    monkeypatch.setattr(parallel, "_SMALLEST_PART", 1)
    monkeypatch.setattr(reducers, "_GRAM_ROWS", 20)


def bits(history):
    """Everything of a run but the clock."""
    rows = [(r.round, r.exchanges, r.uplink_bytes, r.downlink_bytes, r.objective, r.gradient_norm) for r in history.records]
    return history.coefficients.tobytes(), rows, [r.diagnostics for r in history.records], history.stop_reason


@pytest.fixture(params=list(METHODS))
def method(request):
    return METHODS[request.param]()


def simulate(method, shards=None, **settings):
    return fedns.simulate(method, PROBLEM, shards or make_shards(), rounds=ROUNDS, seed=5, **settings)


def test_two_runs_give_the_same_bits(method):
    assert bits(simulate(method)) == bits(simulate(method))


def test_another_seed_is_another_run_only_for_random_methods(method):
    """Sanity of the suite: seeds do matter where there is randomness at all."""
    other = fedns.simulate(method, PROBLEM, make_shards(), rounds=ROUNDS, seed=6)
    assert (bits(other)[0] != bits(simulate(method))[0]) == method.draws_random_numbers


@pytest.mark.parametrize("chunk", [1, 3])
def test_chunks_do_not_matter(method, chunk):
    assert bits(simulate(method, chunk_clients=chunk)) == bits(simulate(method, chunk_clients=1000))


def test_a_tiny_memory_budget_does_not_matter(method):
    assert bits(simulate(method, memory_budget_bytes=1)) == bits(simulate(method))


def test_threads_do_not_matter(method):
    assert bits(simulate(method, threads=1)) == bits(simulate(method, threads=2))


class Shuffled(SimulatedCohort):
    """Clients answer one by one, in a random order."""

    def _deliver(self, handler, frame, ids):
        order = np.random.default_rng(int(self.session.meter.exchanges)).permutation(ids.size)
        answers: list[Iterator] = [super(Shuffled, self)._deliver(handler, frame, ids[j : j + 1]) for j in order]
        for answer in answers:
            yield from answer


class Encoding(SimulatedCohort):
    """Really encodes every message in both directions, and adds up the lengths."""

    def __init__(self, *arguments, **keywords):
        self.uplink = self.downlink = 0
        super().__init__(*arguments, **keywords)

    def _deliver(self, handler, frame, ids):
        self.downlink += len(frame) * ids.size
        for chunk, batch in super()._deliver(handler, frame, ids):
            for position, client in enumerate(chunk):
                message = split_batch(batch, position)
                self.uplink += len(encode(message, Envelope(self.session.round, int(client)), self.session.precision))
            yield chunk, batch


def run_on(cohort_class, method, wire="float64"):
    shards = make_shards()
    shards = shards.pooled() if method.pooled else shards
    cohort = cohort_class(shards, Session(PROBLEM, 5, wire))
    history = run(method, PROBLEM, cohort, stop=Stop(ROUNDS), evaluate=lambda w: PROBLEM.evaluate(w, make_shards()))
    return history, cohort


def test_the_order_of_answers_does_not_matter(method):
    assert bits(run_on(Shuffled, method)[0]) == bits(run_on(SimulatedCohort, method)[0])


@pytest.mark.parametrize("wire", ["float64", "float32"])
def test_the_meter_equals_the_encoded_messages(method, wire):
    history, cohort = run_on(Encoding, method, wire)
    assert history.uplink_bytes[-1] == cohort.uplink > 0
    assert history.downlink_bytes[-1] == cohort.downlink > 0
    ledger = history.ledger
    assert sum(e.bytes for e in ledger if e.direction == "uplink") == cohort.uplink
    assert sum(e.bytes for e in ledger if e.direction == "downlink") == cohort.downlink


class Listening(SimulatedCohort):
    """Writes down what it is asked for."""

    def _deliver(self, handler, frame, ids):
        self.asked = getattr(self, "asked", set()) | {handler.__name__}
        yield from super()._deliver(handler, frame, ids)


def test_a_method_asks_for_all_it_declares_and_nothing_else(method):
    """A real site answers what is declared: anything else would only be refused there."""
    _, cohort = run_on(Listening, method)
    declared = {"register"} | {handler.__name__ for handler in method.handlers()}
    assert cohort.asked == declared if method.asks_for_all else cohort.asked < declared


def test_every_reply_says_what_it_discloses(method):
    for handler in method.handlers():
        _, reply = messages_of(handler)
        assert reply.specs() and all(isinstance(spec.discloses, fedns.Discloses) for spec in reply.specs().values())
        assert reply.fallback in ("nothing", "last", "others", "unchanged")


def test_pooled_methods_send_nothing():
    for name in set(METHODS) - set(FEDERATED):
        history = simulate(METHODS[name]())
        assert history.uplink_bytes[-1] == history.downlink_bytes[-1] == 0 and history.ledger == []


def test_permuting_clients_does_not_change_methods_without_randomness(method):
    """Client numbers key the random streams, so sketches follow the number; the others must not notice the order."""
    if method.draws_random_numbers or method.pooled:
        pytest.skip("draws random numbers by client number")
    shards = make_shards()
    order = [3, 1, 4, 0, 2]
    rows = np.concatenate([np.r_[shards.starts[j] : shards.stops[j]] for j in order])
    permuted = Shards.from_arrays(dense_features(shards)[rows], shards.targets[rows], shards.sizes[order])
    a, b = simulate(method, shards), simulate(method, permuted)
    np.testing.assert_allclose(a.coefficients, b.coefficients, rtol=1e-7, atol=1e-9)


def test_moving_rows_between_clients_does_not_change_methods_that_do_not_see_it(method):
    if method.sees_partition:
        pytest.skip("depends on who holds which row")
    shards = make_shards()
    halves = Shards.from_arrays(dense_features(shards), shards.targets, [1, 45, 45, 7, 150, 52])
    a, b = simulate(method, shards), simulate(method, halves)
    np.testing.assert_allclose(a.coefficients, b.coefficients, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(a.objective, b.objective, rtol=1e-10)


def test_float32_messages_still_make_progress(method):
    history = simulate(method, wire="float32")
    assert history.objective[-1] < history.objective[0]


def test_every_method_introduces_itself(method):
    kind = type(method)
    assert method.name == kind.name and kind.summary and kind.paper and kind.uplink and kind.theory
    assert kind.heterogeneous in ("yes", "no", "-")


OTHERS = {  # parameters with which a method records something else
    "fednl": [{"variant": "pp"}],
    "fedavg": [{"learning_rate": 0.1}],
    "localnewton": [{"finish": "giant", "finish_after": 1}],
    "gd": [{"step_size": 0.1}],
}


def test_every_method_records_in_every_round_what_it_declares(method):
    """A run ends by a declared number: it is there in every round, and nothing that always is stays undeclared."""
    kind = type(method)
    assert len(set(kind.reports)) == len(kind.reports) and (not kind.ends_by_decrement or "newton_decrement" in kind.reports)
    made = [method, *(kind(**parameters) for parameters in OTHERS.get(method.name, []))]
    always = [set(record.diagnostics) for one in made for record in simulate(one).records[1:]]
    assert always and set.intersection(*always) == set(kind.reports)
