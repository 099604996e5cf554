"""L-BFGS against the BFGS matrix written out, and against measured rounds."""

import numpy as np
import pytest
from tests.conftest import dense_features, make_shards
from tests.methods.local_oracles import VARIANTS, after, armijo, assert_checkpoint_continues, problem_and_clients

import fedns
from fedns.methods import LBFGS
from fedns.methods.lbfgs import inverse_times

PROBLEM = fedns.Problem(penalty=fedns.Ridge(1e-2))


def inverse(pairs, features):
    """The BFGS recursion B <- (I - rho s y') B (I - rho y s') + rho s s' on full matrices."""
    if not pairs:
        return np.eye(features)
    s, y = pairs[-1]
    matrix = np.eye(features) * (s @ y) / (y @ y)
    for s, y in pairs:
        left = np.eye(features) - np.outer(s, y) / (s @ y)
        matrix = left @ matrix @ left.T + np.outer(s, s) / (s @ y)
    return matrix


def test_the_two_loops_are_the_matrix():
    random = np.random.default_rng(0)
    root = random.normal(size=(6, 6))
    moves = random.normal(size=(4, 6))
    changes = moves @ root @ root.T
    vector = random.normal(size=6)
    expected = inverse(list(zip(moves, changes, strict=True)), 6) @ vector
    np.testing.assert_allclose(inverse_times(moves, changes, vector), expected, rtol=1e-10)
    np.testing.assert_allclose(inverse_times(moves, changes, changes[-1]), moves[-1], rtol=1e-10)  # the secant equation


@pytest.mark.parametrize("variant", VARIANTS)
def test_eight_rounds_with_three_pairs(variant):
    problem, shards, clients, shares = problem_and_clients(variant)
    value = lambda v: sum(p * c.value(v) for p, c in zip(shares, clients, strict=True))  # noqa: E731
    w, pairs, last = np.zeros(problem.num_features(13)), [], None
    for _ in range(8):
        g = sum(p * c.gradient(w) for p, c in zip(shares, clients, strict=True))
        if last is not None:
            pairs = [*pairs, (w - last[0], g - last[1])][-3:]
        d = -inverse(pairs, w.size) @ g
        d = d if pairs else d / np.linalg.norm(g)
        last = (w, g)
        w = w + armijo(value, w, d, g @ d) * d
    np.testing.assert_allclose(after(LBFGS(memory=3), problem, shards, 8), w, rtol=0, atol=1e-10)


def test_it_converges_to_the_optimum():
    history = fedns.simulate(LBFGS(), PROBLEM, make_shards(), rounds=100, tol=1e-13)
    assert history.converged


@pytest.mark.parametrize("unit", [1e-4, 1e4])
def test_the_first_step_finds_the_scale_of_the_columns(unit):
    shards = make_shards()
    scaled = fedns.Shards.from_arrays(unit * dense_features(shards), shards.targets, shards.sizes)
    history = fedns.simulate(LBFGS(), fedns.Problem(penalty=fedns.Ridge(1e-2 * unit**2)), scaled, rounds=60, tol=1e-10)
    assert history.converged


def test_it_stays_at_the_optimum_without_noise():
    history = fedns.simulate(LBFGS(), PROBLEM, make_shards(), rounds=120, optimum="find")
    assert np.abs(history.suboptimality[-20:]).max() < 1e-14


def test_partial_participation_ends_in_numbers():
    shards = make_shards(sizes=(30,) * 10)
    history = fedns.simulate(LBFGS(), PROBLEM, shards, rounds=30, participation=0.5)
    assert np.isfinite(history.objective).all()


def test_a_state_can_be_checkpointed():
    assert_checkpoint_continues(LBFGS(memory=2), PROBLEM, make_shards(), rounds=5)


def test_no_memory_is_refused():
    with pytest.raises(fedns.ConfigError, match="memory"):
        LBFGS(memory=0)


@pytest.mark.parametrize(("name", "clients", "measured"), [("phishing", 40, 18), ("a9a", 80, 49)])
def test_measured_rounds(name, clients, measured, real_data):
    shards = fedns.split(*real_data(name), clients=clients, how="iid", seed=0)
    history = fedns.simulate(LBFGS(), fedns.Problem(penalty=fedns.Ridge(1e-3)), shards, rounds=100, tol=1e-10)
    assert history.converged
    assert abs(history.round[-1] - measured) <= max(1, 0.1 * measured)
