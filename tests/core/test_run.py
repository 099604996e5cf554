from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from tests.conftest import make_shards

import fedns
from fedns.core.algorithm import Algorithm, Outcome, State
from fedns.core.errors import ConfigError

PROBLEM = fedns.Problem(penalty=fedns.Ridge(1e-2))


@dataclass(frozen=True)
class Scripted(Algorithm):
    """Multiplies the coefficients, or does what it is told: for testing the loop."""

    factor: float = 2.0
    name: ClassVar[str] = "scripted"

    def handlers(self):
        return ()

    def init(self, problem, cohort):
        return State(np.ones(cohort.num_features))

    def round(self, problem, state, cohort):
        return Outcome(State(self.factor * state.coefficients), {"factor": self.factor})


def test_history_starts_at_round_zero_and_is_cumulative():
    history = fedns.simulate(fedns.FedNS(fedns.SRHT(16)), PROBLEM, make_shards(), rounds=6, optimum="find", seed=0)
    assert history.round.tolist() == list(range(7))
    assert history.exchanges.tolist() == list(range(1, 8))  # registration, then one a round
    for column in (history.seconds, history.uplink_bytes, history.downlink_bytes):
        assert (np.diff(column) > 0).all()
    assert history.suboptimality[0] == pytest.approx(np.log(2) - fedns.pooled_optimum(PROBLEM, make_shards()).value)
    assert history.coefficients.shape == (13,) and history.stop_reason == "used all 6 rounds"


def test_tolerances_stop_the_run_with_a_reason():
    shards = make_shards()
    gap = fedns.simulate(fedns.FedNewton(), PROBLEM, shards, rounds=50, tol=1e-8)
    assert gap.ending is fedns.Ending.GAP and gap.converged and gap.suboptimality[-1] <= 1e-8 < gap.suboptimality[-2]
    assert "suboptimality" in gap.stop_reason and "tolerance 1e-08" in gap.stop_reason
    gradient = fedns.simulate(fedns.FedNewton(), PROBLEM, shards, rounds=50, gradient_tol=1e-10)
    assert (
        gradient.ending is fedns.Ending.GRADIENT
        and gradient.gradient_norm[-1] <= 1e-10
        and "gradient norm" in gradient.stop_reason
    )
    assert fedns.simulate(fedns.FedNewton(), PROBLEM, shards, rounds=5, tol=10.0).round.tolist() == [0]


def test_divergence_ends_in_words_and_leaves_no_nan():
    history = fedns.simulate(Scripted(1e30), PROBLEM, make_shards(), rounds=50)
    assert history.ending is fedns.Ending.DIVERGED and history.stop_reason.startswith("diverged in round")
    assert np.isfinite(history.objective).all() and np.isfinite(history.coefficients).all()

    class Overflowing(Scripted):
        def round(self, problem, state, cohort):
            return Outcome(State(np.inf * state.coefficients))

    overflow = fedns.simulate(Overflowing(), PROBLEM, make_shards(), rounds=50)
    assert "no longer finite" in overflow.stop_reason and len(overflow.records) == 1


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_from_a_client_ends_the_run_in_words(folded, value):
    from fedns.core.clients import on_client
    from fedns.core.messages import Message, Payload, wire
    from fedns.core.messages.reducers import mean
    from fedns.methods.curvature import Iterate

    class Echo(Message):
        coefficients: Payload = wire("features", discloses="nothing")

    @dataclass(frozen=True)
    class Broken(Scripted):
        @on_client(Iterate, Echo)
        def echo(self, problem, clients, request):
            return Echo(np.where(np.arange(13) == 5, value, np.ones((clients.ids.size, 13))))

        def round(self, problem, state, cohort):
            replies = cohort.ask(self.echo, Iterate(state.coefficients))
            replies.fold(mean("coefficients")) if folded else list(replies)
            raise AssertionError("the door let NaN through")

    history = fedns.simulate(Broken(), PROBLEM, make_shards(), rounds=3)
    assert "field 'coefficients' of Echo holds NaN" in history.stop_reason


@pytest.mark.parametrize("block_rows", [4096, 8])  # multiplied at the end, or as soon as they come
def test_rows_that_are_not_finite_end_the_run_too(block_rows, monkeypatch):
    from fedns.core.messages import reducers

    monkeypatch.setattr(reducers, "_GRAM_ROWS", block_rows)
    honest = fedns.Problem.gradient_and_sketch

    def broken(self, *arguments):
        gradient, rows, offsets = honest(self, *arguments)
        rows[-1, 3] = np.nan
        return gradient, rows, offsets

    monkeypatch.setattr(fedns.Problem, "gradient_and_sketch", broken)
    history = fedns.simulate(fedns.FedNS(fedns.SRHT(4)), PROBLEM, make_shards(), rounds=3)
    assert history.ending is fedns.Ending.DIVERGED
    assert "field 'sketched_root' of SketchedCurvature holds NaN" in history.stop_reason


def test_evaluation_is_outside_clock_and_meter(monkeypatch):
    """A clock on which evaluating takes 100 seconds, a round's curvature 1, and nothing else any time."""
    shards, clock = make_shards(), [0.0]
    undisturbed = fedns.simulate(fedns.FedNewton(), PROBLEM, shards, rounds=3)

    def slow_down(name, seconds):
        original = getattr(fedns.Problem, name)

        def slow(self, *arguments):
            clock[0] += seconds
            return original(self, *arguments)

        monkeypatch.setattr(fedns.Problem, name, slow)

    optimum = fedns.pooled_optimum(PROBLEM, shards)
    slow_down("evaluate", 100.0)
    slow_down("gradient_and_hessian", 1.0)
    monkeypatch.setattr("fedns.core.run.time.perf_counter", lambda: clock[0])
    slowed = fedns.simulate(fedns.FedNewton(), PROBLEM, shards, rounds=3, optimum=optimum)
    assert slowed.seconds.tolist() == [0.0, 1.0, 2.0, 3.0] and clock[0] == 403.0
    assert slowed.uplink_bytes.tolist() == undisturbed.uplink_bytes.tolist()


def test_partial_participation_asks_some_clients_and_reweights_them():
    shards = make_shards(sizes=(30,) * 10)
    full = fedns.simulate(fedns.FedNS(fedns.SRHT(16)), PROBLEM, shards, rounds=4, optimum="find")
    part = fedns.simulate(fedns.FedNS(fedns.SRHT(16)), PROBLEM, shards, rounds=4, optimum="find", participation=0.4)
    registration = full.uplink_bytes[0]
    assert part.uplink_bytes[0] == registration
    assert 5 * (part.uplink_bytes[-1] - registration) == 2 * (full.uplink_bytes[-1] - registration)
    assert part.suboptimality[-1] < 0.2 * part.suboptimality[0]
    assert full.suboptimality[-1] < part.suboptimality[-1]  # a part of the clients is another objective each round


def test_participation_varies_by_round_and_is_reproducible():
    from fedns.core.cohort import Session
    from fedns.simulation.simulator import SimulatedCohort

    cohort = SimulatedCohort(make_shards(sizes=(10,) * 30), Session(PROBLEM, seed=3))
    chosen = []
    for cohort.session.round in (1, 2, 3):
        sample = cohort.sample(0.3)
        assert sample.num_clients == 9 and sample.weights.sum() == pytest.approx(1.0)
        np.testing.assert_array_equal(sample.ids, cohort.sample(0.3).ids)
        chosen.append(tuple(sample.ids))
    assert len(set(chosen)) == 3


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"rounds": -1}, "rounds must be a whole number >= 0"),
        ({"rounds": 2.5}, "rounds of simulate must be a whole number, got 2.5"),
        ({"rounds": 1, "tol": -1.0}, "suboptimality must be a finite number >= 0"),
        ({"rounds": 1, "participation": 0.0}, "participation must be in"),
        ({"rounds": 1, "wire": "float16"}, "wire precision must be float64 or float32"),
        ({"rounds": 1, "chunk_clients": 0}, "chunk_clients of simulate must be a whole number >= 1"),
        ({"rounds": 1, "threads": 0}, "threads of simulate must be a whole number >= 1"),
    ],
)
def test_bad_settings_are_refused_in_words(arguments, sentence):
    with pytest.raises(ConfigError, match=sentence):
        fedns.simulate(fedns.FedNewton(), PROBLEM, make_shards(), **arguments)


def test_a_history_is_saved_and_read_back_to_the_last_bit(tmp_path):
    history = fedns.simulate(fedns.FedNDES(fedns.SRHT(8)), PROBLEM, make_shards(), rounds=5)
    history.save(tmp_path / "run.jsonl")
    again = fedns.History.load(tmp_path / "run.jsonl")
    assert again.records == history.records and again.ledger == history.ledger
    np.testing.assert_array_equal(again.coefficients, history.coefficients)
    assert (again.method, again.ending, again.stop_reason) == ("fedndes", history.ending, history.stop_reason)
    assert again.converged == history.converged


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is not a saved history"),
        ("{}", "is not a saved history"),
        ('{"fedns_history": 1}', "of version 1, not 2 as here"),
    ],
)
def test_what_is_no_saved_history_is_refused(tmp_path, text, sentence):
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(fedns.DataError, match=sentence):
        fedns.History.load(tmp_path / "other.json")


def test_observers_see_every_round():
    seen, ends = [], []

    class Watch(fedns.Observer):
        def on_round(self, record, state):
            seen.append((record.round, state.coefficients.copy()))

        def on_end(self, history):
            ends.append(history)

    history = fedns.simulate(fedns.FedNewton(), PROBLEM, make_shards(), rounds=3, observers=[Watch()])
    assert [r for r, _ in seen] == [0, 1, 2, 3] and ends == [history]
    np.testing.assert_array_equal(seen[-1][1], history.coefficients)


def test_an_observer_ends_the_run_and_every_observer_sees_the_last_round():
    class Impatient(fedns.Observer):
        def on_round(self, record, state):
            return "enough" if record.round == 2 else None

    class Watch(fedns.Observer):
        def __init__(self):
            self.rounds, self.ends = [], []

        def on_round(self, record, state):
            self.rounds.append(record.round)

        def on_end(self, history):
            self.ends.append(history)

    watch = Watch()
    history = fedns.simulate(Scripted(1.0), PROBLEM, make_shards(), rounds=9, observers=[Impatient(), watch])
    assert (history.ending, history.stop_reason) == (fedns.Ending.STOPPED, "stopped in round 2: enough")
    assert not history.converged and watch.rounds == history.round.tolist() == [0, 1, 2] and watch.ends == [history]
    met = fedns.simulate(Scripted(1.0), PROBLEM, make_shards(), rounds=9, gradient_tol=1e9, observers=[Impatient()])
    assert met.ending is fedns.Ending.GRADIENT and met.round.tolist() == [0]


def test_a_method_that_says_it_is_done_has_converged():
    class Done(Scripted):
        def round(self, problem, state, cohort):
            return Outcome(state, finished="there is nothing left to do")

    history = fedns.simulate(
        Done(), PROBLEM, make_shards(), rounds=1
    )  # the last round, too: done is more than out of rounds
    assert (history.ending, history.stop_reason) == (fedns.Ending.METHOD, "there is nothing left to do")
    assert history.converged


@pytest.mark.parametrize(
    ("method", "advice"),
    [
        (fedns.FedNS(fedns.SRHT(2)), "; try fedns:line_search=aggregate, or more rows of the sketch (--sketch-size N)"),
        (fedns.FedNewton(step_size=50.0), "; try fednewton:line_search=aggregate"),
        (fedns.GradientDescent(step_size=1e3), ""),
    ],
    ids=lambda part: getattr(part, "name", ""),
)
def test_a_run_that_diverged_says_what_to_try(method, advice):
    shards = make_shards(columns=60, sizes=(100, 100, 100))
    history = fedns.simulate(method, PROBLEM, shards, rounds=8)
    assert history.ending is fedns.Ending.DIVERGED
    assert history.stop_reason.partition("; try ")[2] == advice.removeprefix("; try ")
