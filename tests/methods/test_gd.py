"""Gradient descent against numpy."""

import numpy as np
import pytest
from tests.conftest import dense_features, make_shards
from tests.methods.local_oracles import VARIANTS, after, assert_checkpoint_continues, problem_and_clients

import fedns
from fedns.methods import GradientDescent

PROBLEM = fedns.Problem(penalty=fedns.Ridge(1e-2))


@pytest.mark.parametrize("variant", VARIANTS)
def test_three_rounds_with_a_given_step(variant):
    problem, shards, clients, shares = problem_and_clients(variant)
    w = np.zeros(problem.num_features(13))
    for _ in range(3):
        w = w - 0.7 * sum(p * c.gradient(w) for p, c in zip(shares, clients, strict=True))
    np.testing.assert_allclose(after(GradientDescent(step_size=0.7), problem, shards, 3), w, rtol=0, atol=1e-13)


@pytest.mark.parametrize("variant", VARIANTS)
def test_three_rounds_with_the_search(variant):
    problem, shards, clients, shares = problem_and_clients(variant)
    w, step = np.zeros(problem.num_features(13)), 1.0
    for _ in range(3):
        value = lambda v: sum(p * c.value(v) for p, c in zip(shares, clients, strict=True))  # noqa: E731
        g = sum(p * c.gradient(w) for p, c in zip(shares, clients, strict=True))
        step *= 8
        while value(w - step * g) > value(w) - 0.1 * step * (g @ g) + 1e-14:
            step /= 2
        w = w - step * g
    np.testing.assert_allclose(after(GradientDescent(), problem, shards, 3), w, rtol=0, atol=1e-12)


def test_it_converges_and_never_rises():
    history = fedns.simulate(GradientDescent(), PROBLEM, make_shards(), rounds=600, tol=1e-10)
    assert history.converged
    assert (np.diff(history.objective) <= 1e-14).all()


@pytest.mark.slow
@pytest.mark.parametrize("unit", [1e-4, 1e4])
def test_the_search_finds_the_scale_of_the_columns(unit):
    shards = make_shards()
    scaled = fedns.Shards.from_arrays(unit * dense_features(shards), shards.targets, shards.sizes)
    problem = fedns.Problem(penalty=fedns.Ridge(1e-2 * unit**2))
    history = fedns.simulate(GradientDescent(), problem, scaled, rounds=60, optimum="find")
    reference = fedns.simulate(GradientDescent(), PROBLEM, shards, rounds=60, optimum="find")
    assert history.suboptimality[-1] < 10 * reference.suboptimality[-1] + 1e-9


def test_it_ends_by_itself_at_the_rounding_floor_or_stays_there():
    history = fedns.simulate(GradientDescent(), PROBLEM, make_shards(), rounds=1500, optimum="find")
    assert history.suboptimality[-1] < 1e-13


def test_a_step_that_is_too_long_ends_in_words():
    shards = make_shards(regression=True)
    problem = fedns.Problem(loss=fedns.Squared(), penalty=fedns.Ridge(1e-2))
    history = fedns.simulate(GradientDescent(step_size=50.0), problem, shards, rounds=200)
    assert history.ending is fedns.Ending.DIVERGED and np.isfinite(history.objective).all()


def test_a_state_can_be_checkpointed():
    assert_checkpoint_continues(GradientDescent(), PROBLEM, make_shards())


def test_a_negative_step_is_refused():
    with pytest.raises(fedns.ConfigError, match="step_size"):
        GradientDescent(step_size=-1.0)
