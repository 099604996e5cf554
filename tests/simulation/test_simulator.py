"""simulate: what it solves for beforehand, and where it starts."""

import numpy as np
import pytest
from tests.conftest import make_shards

import fedns
from fedns.core.messages.encoding import Envelope, encode
from fedns.methods import METHODS
from fedns.methods.curvature import Iterate, local_gradient
from fedns.simulation import simulator

PROBLEM = fedns.Problem(penalty=fedns.Ridge(1e-2))


class Points(fedns.Observer):
    """Keeps the coefficients of every round."""

    def __init__(self):
        self.points = []

    def on_round(self, record, state):
        self.points.append(np.array(state.coefficients))


@pytest.fixture
def solved(monkeypatch):
    """How often the pooled optimum was solved for."""
    calls = []
    solve = simulator.pooled_optimum
    monkeypatch.setattr(simulator, "pooled_optimum", lambda *given: calls.append(1) or solve(*given))
    return calls


@pytest.mark.parametrize(
    ("settings", "times"),
    [
        ({}, 0),
        ({"gradient_tol": 1e-6}, 0),
        ({"tol": 1e-6}, 1),
        ({"optimum": "find"}, 1),
        ({"tol": 1e-6, "optimum": "find"}, 1),
    ],
)
def test_the_optimum_is_solved_for_only_where_a_gap_is_needed(solved, settings, times):
    history = fedns.simulate(fedns.FedNewton(), PROBLEM, make_shards(), rounds=3, **settings)
    assert len(solved) == times
    assert np.isnan(history.suboptimality).all() == (times == 0)
    assert np.isfinite(history.suboptimality).all() == (times == 1)


def test_a_known_optimum_is_taken_as_it_is(solved):
    optimum = fedns.pooled_optimum(PROBLEM, make_shards())
    history = fedns.simulate(fedns.FedNewton(), PROBLEM, make_shards(), rounds=30, tol=1e-9, optimum=optimum)
    assert history.converged and not solved
    np.testing.assert_array_equal(history.suboptimality, history.objective - optimum.value)


def test_data_without_an_optimum_can_be_run_on_rounds():
    """Separable classes and no penalty: the loss has no minimum, and only a gap needs one."""
    shards = fedns.Shards.from_arrays(np.array([[1.0], [2.0], [-1.0], [-3.0]]), np.array([1.0, 1.0, -1.0, -1.0]), [2, 2])
    problem = fedns.Problem(penalty=fedns.Ridge(0.0))
    history = fedns.simulate(fedns.GradientDescent(), problem, shards, rounds=5)
    assert history.ending is fedns.Ending.OUT_OF_ROUNDS and history.objective[-1] < history.objective[0]
    with pytest.raises(fedns.DataError):
        fedns.simulate(fedns.GradientDescent(), problem, shards, rounds=5, tol=1e-3)


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_starts_where_it_is_told(name):
    problem, shards = fedns.Problem(penalty=fedns.Ridge(1e-2), intercept=True), make_shards()
    start = 0.1 * np.arange(14.0)
    seen = Points()
    history = fedns.simulate(METHODS[name](), problem, shards, rounds=2, start=start, observers=[seen])
    np.testing.assert_array_equal(seen.points[0], start)
    assert history.objective[0] == problem.evaluate(start, shards).objective
    at_zero = fedns.simulate(METHODS[name](), problem, shards, rounds=2)
    explicit = fedns.simulate(METHODS[name](), problem, shards, rounds=2, start=np.zeros(14))
    assert at_zero.coefficients.tobytes() == explicit.coefficients.tobytes() != history.coefficients.tobytes()


@pytest.mark.parametrize("name", ["fednl", "newtonzero"])
def test_hessians_learned_at_the_start_are_those_of_the_start(name):
    start = np.linspace(-1.0, 1.0, 13)
    learned = fedns.simulate(METHODS[name](), PROBLEM, make_shards(), rounds=1, start=start)
    newton = fedns.simulate(fedns.FedNewton(), PROBLEM, make_shards(), rounds=1, start=start)
    np.testing.assert_allclose(learned.coefficients, newton.coefficients, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"start": np.zeros(12)}, r"start must have 13 coefficients, got an array of shape \(12,\)"),
        ({"start": 0.0}, "start of simulate must be a list or an array or None, got 0.0"),
        ({"start": [np.inf] * 13}, "start must be finite"),
        ({"start": "zero"}, "start of simulate must be a list or an array or None, got 'zero'"),
        ({"optimum": "Find"}, "optimum of simulate must be Optimum or 'find' or None, got 'Find'"),
    ],
)
def test_what_makes_no_sense_is_refused(settings, sentence):
    with pytest.raises(fedns.ConfigError, match=sentence):
        fedns.simulate(fedns.FedNewton(), PROBLEM, make_shards(), rounds=1, **settings)


def test_clients_are_answered_in_chunks_of_about_one_size():
    shards = make_shards(rows=110, columns=3, sizes=(10,) * 11)
    cohort = simulator.SimulatedCohort(shards, simulator.Session(fedns.Problem(), 0), chunk_clients=5)
    frame = encode(Iterate(np.zeros(3)), Envelope(0, handler="local_gradient"), cohort.session.precision)
    chunks = [ids for ids, _ in cohort._deliver(local_gradient, frame, cohort.ids)]
    assert [ids.size for ids in chunks] == [4, 4, 3]
    assert np.concatenate(chunks).tolist() == cohort.ids.tolist()
