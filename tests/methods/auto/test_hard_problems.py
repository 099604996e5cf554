"""auto where methods fail: it has to reach the optimum of every one of these, whatever it is told to save."""

import numpy as np
import pytest
from sklearn.datasets import load_wine
from tests.conftest import make_shards

import fedns
from fedns.core.cohort import Session
from fedns.core.shards import Shards
from fedns.methods.exchanges.effective_dimension import effective_dimension
from fedns.simulation.simulator import SimulatedCohort

pytestmark = pytest.mark.slow
PREFER = ["bytes", "balanced", "rounds"]


def assert_converges(prefer, problem, shards, tol=1e-10, rounds=150, **settings):
    history = fedns.simulate(fedns.Auto(prefer=prefer), problem, shards, rounds=rounds, tol=tol, **settings)
    assert history.converged, history.stop_reason


def logistic_targets(random, margins):
    return np.where(margins + random.logistic(size=margins.size) > 0, 1.0, -1.0)


@pytest.mark.parametrize("prefer", PREFER)
def test_fewer_sketched_rows_than_the_effective_dimension(prefer):
    """All columns matter alike and the penalty is small: 120 rows of all sites together are too few."""
    random = np.random.default_rng(1)
    features = random.normal(size=(2000, 160))
    targets = logistic_targets(random, features @ random.normal(size=160) / 8)
    problem, shards = fedns.Problem(penalty=fedns.Ridge(1e-5)), Shards.from_arrays(features, targets, [50] * 40)
    assert effective_dimension(problem, shards) > 40 * 3
    assert_converges(prefer, problem, shards)


@pytest.mark.parametrize("prefer", PREFER)
@pytest.mark.parametrize("clients", [3, 30])
def test_nearly_separated_classes(prefer, clients):
    random = np.random.default_rng(2)
    features = random.normal(size=(900, 40))
    targets = np.where(features @ random.normal(size=40) > 0, 1.0, -1.0)
    targets[:3] *= -1.0  # all that keeps the coefficients finite beside a tiny penalty
    shards = Shards.from_arrays(features, targets, [900 // clients] * clients)
    assert_converges(prefer, fedns.Problem(penalty=fedns.Ridge(1e-6)), shards)


@pytest.mark.parametrize("prefer", PREFER)
def test_rare_columns_that_were_standardised(prefer):
    """Full steps go far too far, to where there is hardly any curvature: Hessians from there are of no use further back."""
    random = np.random.default_rng(0)
    features = (random.random((5000, 60)) < 0.002).astype(float)
    targets = logistic_targets(random, 6 * features @ random.normal(size=60) - 3)
    features = (features - features.mean(axis=0)) / features.std(axis=0)
    shards = Shards.from_arrays(features, targets, [500] * 10)
    assert_converges(prefer, fedns.Problem(penalty=fedns.Ridge(1e-3)), shards, rounds=40)


@pytest.mark.parametrize("prefer", PREFER)
def test_one_client_has_half_of_the_rows(prefer):
    random = np.random.default_rng(3)
    features = random.normal(size=(2000, 60)) * np.geomspace(1, 30, 60)
    targets = logistic_targets(random, features @ random.normal(size=60) / 60)
    shards = Shards.from_arrays(features, targets, [1000, *[25] * 40])
    assert_converges(prefer, fedns.Problem(penalty=fedns.Ridge(1e-3)), shards)


@pytest.mark.parametrize("prefer", PREFER)
@pytest.mark.parametrize("clients", [4, 40])
def test_columns_from_a_thousandth_to_a_thousand(prefer, clients):
    random = np.random.default_rng(4)
    mixed = random.normal(size=(3000, 50)) @ (np.eye(50) + 0.3 * random.normal(size=(50, 50)))
    targets = logistic_targets(random, mixed @ random.normal(size=50) / 8)
    shards = Shards.from_arrays(mixed * np.geomspace(1e-3, 1e3, 50), targets, [3000 // clients] * clients)
    assert_converges(prefer, fedns.Problem(penalty=fedns.Ridge(1e-3)), shards)


@pytest.mark.parametrize("prefer", PREFER)
@pytest.mark.parametrize("columns", [12, 45])
def test_a_start_a_thousand_times_too_far_away(prefer, columns):
    random = np.random.default_rng(5)
    features = random.normal(size=(1000, columns))
    targets = logistic_targets(random, features @ random.normal(size=columns) / 3)
    problem, shards = fedns.Problem(penalty=fedns.Ridge(1e-3)), Shards.from_arrays(features, targets, [50] * 20)
    far = 1000 * np.linalg.norm(fedns.pooled_optimum(problem, shards).coefficients)
    direction = random.normal(size=columns)
    assert_converges(prefer, problem, shards, start=far * direction / np.linalg.norm(direction))


@pytest.mark.parametrize("prefer", PREFER)
def test_clients_whose_columns_are_empty(prefer):
    """Their own Hessians know nothing of these columns: the penalty alone bounds a step along them."""
    random = np.random.default_rng(6)
    features = 1000 * random.normal(size=(800, 30))
    for client in range(8):
        features[100 * client : 100 * (client + 1), 3 * client : 3 * client + 9] = 0.0
    targets = logistic_targets(random, features @ random.normal(size=30) / 3000)
    shards = Shards.from_arrays(features, targets, [100] * 8)
    assert_converges(prefer, fedns.Problem(penalty=fedns.Ridge(1e-3)), shards)


WINES = [
    (4, 0),
    *(pytest.param(*place, marks=pytest.mark.nightly) for place in ((4, 1), (10, 0), (10, 1), (10, 2), (10, 3))),
]


@pytest.mark.parametrize("prefer", PREFER)
@pytest.mark.parametrize(("clients", "seed"), WINES)
def test_raw_columns_of_three_wines_where_nothing_but_hessians_serves(prefer, clients, seed):
    """The least curvature is 1e-9 of the largest. Whatever was tried first, the run is not dearer than Newton's method."""
    features, targets = load_wine(return_X_y=True)
    shards = fedns.split(features, targets.astype(float), clients=clients, how="sorted", seed=seed)
    problem = fedns.Problem(fedns.Softmax(classes=3), fedns.Ridge(1e-3), intercept=True)
    best = fedns.pooled_optimum(problem, shards)
    history = fedns.simulate(fedns.Auto(prefer=prefer), problem, shards, rounds=150, tol=1e-10, seed=seed, optimum=best)
    newton = fedns.simulate(fedns.FedNewton(), problem, shards, rounds=150, tol=1e-10, optimum=best)
    assert history.converged and newton.converged, history.stop_reason
    assert history.uplink_bytes[-1] < newton.uplink_bytes[-1]
    gave_up = [record.note for record in history.records if "bytes a client are spent" in record.note]
    assert len(gave_up) == (prefer != "rounds")


@pytest.mark.parametrize("prefer", PREFER)
def test_counts_and_squared_errors(prefer):
    random = np.random.default_rng(7)
    features = random.normal(size=(900, 30)) * np.geomspace(0.01, 10, 30)
    margins = features @ (random.normal(size=30) / np.geomspace(0.01, 10, 30)) / 6
    for loss, targets in ((fedns.Poisson(), random.poisson(np.exp(margins)).astype(float)), (fedns.Squared(), margins)):
        shards = Shards.from_arrays(features, targets, [30] * 30)
        assert_converges(prefer, fedns.Problem(loss, fedns.Ridge(1e-4)), shards)


def test_squared_errors_take_one_round_where_rounds_count():
    shards = make_shards(regression=True)
    problem = fedns.Problem(fedns.Squared(), fedns.Ridge(1e-3), intercept=True)
    history = fedns.simulate(fedns.Auto(prefer="rounds"), problem, shards, rounds=5, tol=1e-10)
    assert history.converged and history.round[-1] == 1


def test_on_counts_a_promise_far_above_the_last_one_shortens_the_step():
    """Nothing bounds the loss of counts from below: rounding noise in a Hessian may promise any gain."""
    random = np.random.default_rng(8)
    features = random.normal(size=(300, 13))
    shards = Shards.from_arrays(features, random.poisson(np.exp(features[:, 0])).astype(float), [100] * 3)
    problem = fedns.Problem(fedns.Poisson(), fedns.Ridge(1e-3))
    method, cohort = fedns.Auto(), SimulatedCohort(shards, Session(problem, 0))
    state = method.init(problem, cohort).after(decrement=1e-12)
    outcome = method.round(problem, state, cohort)
    assert "promised more than 100 times the last one" in outcome.note
    assert outcome.state.decrement == pytest.approx(1e-10, rel=0.01)
