"""LocalNewton against numpy, its finish, and measured plateaus."""

import numpy as np
import pytest
from tests.conftest import make_shards
from tests.methods.local_oracles import VARIANTS, after, armijo, assert_checkpoint_continues, problem_and_clients

import fedns
from fedns.methods import DistributedNewton, LocalNewton

PROBLEM = fedns.Problem(penalty=fedns.Ridge(1e-2))
SHARDS = make_shards(sizes=(60,) * 5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_two_rounds(variant):
    problem, shards, clients, shares = problem_and_clients(variant)
    w = np.zeros(problem.num_features(13))
    for _ in range(2):
        models = []
        for client in clients:
            u = w
            for _ in range(3):
                d = client.newton(u)
                u = u + armijo(client.value, u, d, client.gradient(u) @ d) * d
            models.append(u)
        w = shares @ np.array(models)
    np.testing.assert_allclose(after(LocalNewton(), problem, shards, 2), w, rtol=0, atol=1e-10)


def test_one_step_is_distributed_newton_where_full_steps_pass():
    one = after(LocalNewton(local_steps=1), PROBLEM, SHARDS, 3)
    np.testing.assert_allclose(one, after(DistributedNewton(), PROBLEM, SHARDS, 3), rtol=0, atol=1e-12)


def test_many_steps_average_the_local_optima():
    averaged = after(LocalNewton(local_steps=12), PROBLEM, SHARDS, 1)
    optima = [fedns.pooled_optimum(PROBLEM, SHARDS.select([j])).coefficients for j in range(5)]
    np.testing.assert_allclose(averaged, np.mean(optima, axis=0), atol=1e-9)


def test_its_fixed_point_is_biased_and_the_history_says_so():
    history = fedns.simulate(LocalNewton(), PROBLEM, SHARDS, rounds=30, optimum="find")
    assert history.ending is fedns.Ending.PLATEAU
    assert history.suboptimality[-1] > 1e-6
    assert all(r.diagnostics["local_steps"] == 3 for r in history.records[1:])


def test_giant_finishes_after_the_given_rounds():
    history = fedns.simulate(LocalNewton(finish="giant", finish_after=2), PROBLEM, SHARDS, rounds=30, tol=1e-13)
    assert history.converged
    steps = [r.diagnostics["local_steps"] for r in history.records[1:]]
    assert steps[:3] == [3, 3, 0] and set(steps[2:]) == {0}
    assert np.diff(history.exchanges).tolist() == [1, 1] + [3] * (len(steps) - 2)


def test_giant_finishes_once_averaging_stalls():
    history = fedns.simulate(LocalNewton(finish="giant"), PROBLEM, SHARDS, rounds=40, tol=1e-13)
    assert history.converged
    steps = [int(r.diagnostics["local_steps"]) for r in history.records[1:]]
    assert steps == sorted(steps, reverse=True) and {3, 2, 1, 0} == set(steps)
    assert {e.kind for e in history.ledger if e.direction == "uplink" and e.round == 1} == {"LocalModelAndLoss"}


def test_without_a_finish_only_models_are_sent():
    history = fedns.simulate(LocalNewton(), PROBLEM, SHARDS, rounds=3)
    assert {e.kind for e in history.ledger if e.direction == "uplink" and e.round > 0} == {"LocalModel"}
    assert np.diff(history.exchanges).tolist() == [1, 1, 1]


@pytest.mark.parametrize("settings", [{}, {"finish": "giant"}, {"finish": "giant", "finish_after": 2}])
def test_a_state_can_be_checkpointed(settings):
    assert_checkpoint_continues(LocalNewton(**settings), PROBLEM, SHARDS, rounds=7)


@pytest.mark.parametrize(
    "settings",
    [{"local_steps": 0}, {"finish": "newton"}, {"finish_after": 3}, {"finish_after": -1}, {"stall_fraction": 1.0}],
)
def test_settings_out_of_range_are_refused(settings):
    with pytest.raises(fedns.ConfigError):
        LocalNewton(**settings)


@pytest.mark.parametrize(
    ("name", "clients", "how", "measured"),
    [
        ("phishing", 40, "iid", 7e-5),
        pytest.param("a9a", 80, "iid", 4e-3, marks=pytest.mark.nightly),
        ("phishing", 40, "sorted", 0.3),
    ],
)
def test_measured_plateaus(name, clients, how, measured, real_data):
    dataset = real_data(name)
    gaps = []
    for seed in range(3):
        shards = fedns.split(*dataset, clients=clients, how=how, seed=seed)
        history = fedns.simulate(LocalNewton(), fedns.Problem(penalty=fedns.Ridge(1e-3)), shards, rounds=20, optimum="find")
        assert history.ending is fedns.Ending.PLATEAU
        gaps.append(history.suboptimality[-1])
    assert measured / 2 < np.mean(gaps) < 2 * measured


@pytest.mark.parametrize("how", ["iid", "sorted"])
def test_the_finish_reaches_the_optimum_on_real_data(how, real_data):
    shards = fedns.split(*real_data("phishing"), clients=40, how=how, seed=0)
    problem = fedns.Problem(penalty=fedns.Ridge(1e-3))
    assert fedns.simulate(LocalNewton(finish="giant"), problem, shards, rounds=40, tol=1e-10).converged
