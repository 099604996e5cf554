"""What every penalty must keep, whoever wrote it, and every method with it. A new penalty is covered by being registered."""

import numpy as np
import pytest
from scipy.optimize import minimize
from tests.conftest import make_shards

import fedns
from fedns.core.shards import Shards
from fedns.methods import METHODS

POINTS = np.linspace(-4.0, 4.0, 42)


@pytest.fixture(params=list(fedns.PENALTIES))
def penalty(request):
    return fedns.PENALTIES[request.param](0.3)


def rows():
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 3))
    return x, x @ np.array([2.0, -1.0, 0.2]) + random.normal(size=60)


def pooled_answer(penalty):
    """The minimiser of the mean squared loss and the penalty by a solver that is not ours; the intercept is free."""
    x, y = rows()
    x = np.column_stack([x, np.ones(len(x))])

    def objective(w):
        residuals = x @ w - y
        gradient = x.T @ residuals / len(y)
        gradient[:-1] += penalty.strength * penalty.slope(w[:-1])
        return 0.5 * np.mean(residuals**2) + penalty.strength * penalty.value(w[:-1]).sum(), gradient

    return minimize(objective, np.zeros(4), jac=True, method="BFGS", options={"gtol": 1e-10}).x


def test_its_derivatives_are_those_of_its_value(penalty):
    h = 1e-5
    difference = (penalty.value(POINTS + h) - penalty.value(POINTS - h)) / (2 * h)
    np.testing.assert_allclose(penalty.slope(POINTS), difference, rtol=1e-6, atol=1e-8)
    difference = (penalty.slope(POINTS + h) - penalty.slope(POINTS - h)) / (2 * h)
    np.testing.assert_allclose(penalty.curvature(POINTS), difference, rtol=1e-6, atol=1e-8)


def test_it_is_convex_nowhere_negative_and_as_smooth_as_it_says(penalty):
    curvature = penalty.curvature(POINTS)
    assert (curvature >= 0).all() and (curvature <= penalty.curvature_bound * (1 + 1e-12)).all()
    assert (penalty.value(POINTS) > 0).all() and penalty.value(np.zeros(1)) == penalty.slope(np.zeros(1)) == 0
    if penalty.quadratic:
        np.testing.assert_allclose(curvature, curvature[0])


def test_every_column_has_its_factor_and_the_intercept_none(penalty):
    weighted = type(penalty)(0.3, (1.0, 2.0, 0.0))
    problem, w = fedns.Problem(penalty=weighted, intercept=True), np.array([0.5, -2.0, 3.0, 7.0])
    strengths = 0.3 * np.array([1.0, 2.0, 0.0, 0.0])
    assert problem.penalty_value(w) == pytest.approx(strengths @ penalty.value(w))
    np.testing.assert_allclose(problem.penalty_gradient(w), strengths * penalty.slope(w))
    np.testing.assert_allclose(problem.penalty_curvature(w), strengths * penalty.curvature(w))
    along = problem.penalty_along(np.stack([w, 2 * w]), np.stack([w, w]), np.array([0.0, 1.0]))
    expected = [[problem.penalty_value(f * w) for f in row] for row in ((1, 2), (2, 3))]
    np.testing.assert_allclose(along, expected)


def test_the_pooled_optimum_is_that_of_a_solver_that_is_not_ours(penalty):
    shards = Shards.from_arrays(*rows(), [60])
    optimum = fedns.pooled_optimum(fedns.Problem(fedns.Squared(), penalty, intercept=True), shards)
    np.testing.assert_allclose(optimum.coefficients, pooled_answer(penalty), atol=1e-7)


@pytest.mark.parametrize("name", list(METHODS))
def test_every_method_ends_at_the_answer_of_a_solver_that_is_not_ours(penalty, name):
    """Both clients have the same rows, so that methods that average local answers have no bias."""
    x, y = rows()
    shards = Shards.from_arrays(np.vstack([x, x]), np.concatenate([y, y]), [60, 60])
    problem = fedns.Problem(fedns.Squared(), penalty, intercept=True)
    history = fedns.simulate(METHODS[name](), problem, shards, rounds=200, gradient_tol=1e-9)
    np.testing.assert_allclose(history.coefficients, pooled_answer(penalty), atol=1e-6)


@pytest.mark.parametrize("prefer", ["bytes", "balanced", "rounds"])
@pytest.mark.parametrize("clients", [(15, 25, 20), (3,) * 20], ids=len)
def test_auto_and_fednl_with_absent_clients_end_there_with_unlike_clients_too(penalty, prefer, clients):
    """Hessians that clients solve with, roots and learnt ones have the penalty's curvature where the run is."""
    shards = make_shards(60, 30, clients)
    problem = fedns.Problem(penalty=penalty)
    optimum = fedns.pooled_optimum(problem, shards)
    for method in (fedns.Auto(prefer=prefer), fedns.FedNL(variant="pp")):
        history = fedns.simulate(method, problem, shards, rounds=100, tol=1e-10, optimum=optimum)
        assert history.converged, history.stop_reason


def test_a_method_that_is_made_for_a_quadratic_penalty_refuses_others_in_one_sentence(penalty):
    problem, method = fedns.Problem(penalty=penalty), fedns.FedAvg(batch_size=8)
    if penalty.quadratic:
        assert len(fedns.simulate(method, problem, make_shards(), rounds=1).records) == 2
        return
    with pytest.raises(fedns.ConfigError, match=f"fedavg does not take the penalty {penalty.name}: .*set batch_size=0"):
        fedns.simulate(method, problem, make_shards(), rounds=1)
