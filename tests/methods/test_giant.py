"""GIANT against numpy and against measured rounds."""

import numpy as np
import pytest
from tests.conftest import make_shards
from tests.methods.local_oracles import VARIANTS, after, armijo, assert_checkpoint_continues, problem_and_clients

import fedns
from fedns.methods import GIANT

PROBLEM = fedns.Problem(penalty=fedns.Ridge(1e-2))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("search", [None, fedns.ArmijoSearch()], ids=["none", "aggregate"])
def test_three_rounds(variant, search):
    problem, shards, clients, shares = problem_and_clients(variant)
    value = lambda v: sum(p * c.value(v) for p, c in zip(shares, clients, strict=True))  # noqa: E731
    w = np.zeros(problem.num_features(13))
    for _ in range(3):
        g = sum(p * c.gradient(w) for p, c in zip(shares, clients, strict=True))
        d = -sum(p * np.linalg.solve(c.hessian(w), g) for p, c in zip(shares, clients, strict=True))
        w = w + (armijo(value, w, d, g @ d) if search else 0.3) * d
    method = GIANT(line_search=search, step_size=0.3)
    np.testing.assert_allclose(after(method, problem, shards, 3), w, rtol=0, atol=1e-10)


def test_with_one_client_it_is_newtons_method():
    shards = make_shards().pooled()
    newton = after(fedns.FedNewton(), PROBLEM, shards, 3)
    np.testing.assert_allclose(after(GIANT(line_search=None), PROBLEM, shards, 3), newton, rtol=1e-10)


def test_its_fixed_point_is_the_optimum():
    shards = make_shards(sizes=(60,) * 5)
    history = fedns.simulate(GIANT(), PROBLEM, shards, rounds=40, tol=1e-14)
    assert history.converged


def test_few_hessians_at_a_time_give_the_same_bits(monkeypatch):
    shards = make_shards(sizes=(10,) * 30)
    whole = after(GIANT(), PROBLEM, shards, 2)
    monkeypatch.setattr("fedns.methods.curvature._HESSIAN_BYTES", 1)
    assert np.array_equal(after(GIANT(), PROBLEM, shards, 2), whole)


def test_a_state_can_be_checkpointed():
    assert_checkpoint_continues(GIANT(), PROBLEM, make_shards())


def test_an_unknown_search_is_refused():
    with pytest.raises(fedns.ConfigError, match="line_search"):
        GIANT(line_search=fedns.LocalSearch())


@pytest.mark.parametrize(("name", "clients", "measured"), [("phishing", 40, 4), ("a9a", 80, 11)])
def test_measured_rounds(name, clients, measured, real_data):
    dataset = real_data(name)
    rounds = []
    for seed in range(3):
        shards = fedns.split(*dataset, clients=clients, how="iid", seed=seed)
        history = fedns.simulate(GIANT(), fedns.Problem(penalty=fedns.Ridge(1e-3)), shards, rounds=30, tol=1e-10, seed=seed)
        assert history.converged
        rounds.append(history.round[-1])
    assert abs(np.mean(rounds) - measured) <= 1


@pytest.mark.parametrize(("name", "clients"), [("phishing", 40), ("a9a", 80)])
def test_sorted_labels_need_the_line_search(name, clients, real_data):
    shards = fedns.split(*real_data(name), clients=clients, how="sorted", seed=0)
    problem = fedns.Problem(penalty=fedns.Ridge(1e-3))
    optimum = fedns.pooled_optimum(problem, shards)
    assert fedns.simulate(GIANT(), problem, shards, rounds=40, tol=1e-10, optimum=optimum).converged
    history = fedns.simulate(GIANT(line_search=None), problem, shards, rounds=40, tol=1e-10, optimum=optimum)
    assert not history.converged and history.stop_reason
    assert np.isfinite(history.objective).all() and np.isfinite(history.suboptimality).all()
    assert history.suboptimality[-1] > 1e-3


def test_the_gradient_goes_on_shrinking_where_losses_agree_to_rounding(real_data):
    """On w8a a full step is too long even at the optimum; losses cannot tell once the gap is below 1e-14."""
    shards = fedns.split(*real_data("w8a"), clients=142, how="iid", seed=0)
    problem = fedns.Problem(penalty=fedns.Ridge(1e-3))
    history = fedns.simulate(GIANT(), problem, shards, rounds=60, gradient_tol=1e-9)
    assert history.converged
    assert history.records[-1].diagnostics["step_size"] < 1
