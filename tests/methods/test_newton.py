"""Newton's method, federated and pooled, against numpy and scikit-learn."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from tests.conftest import dense_features, make_shards
from tests.methods.local_oracles import VARIANTS, after
from tests.methods.plain import Plain

import fedns
from fedns.methods import FedNewton, Newton

PROBLEM = fedns.Problem(penalty=fedns.Ridge(1e-2))


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("search", [None, fedns.ArmijoSearch(), fedns.LocalSearch()], ids=str)
def test_three_rounds(variant, search):
    sparse, intercept, weighted = variant
    problem = fedns.Problem(penalty=fedns.Ridge(1e-2), intercept=intercept)
    shards = make_shards(sparse=sparse, weighted=weighted)
    plain, steps = Plain(problem, shards), []
    w = np.zeros(plain.M)
    for _ in range(3):
        d, slope = plain.newton(w, plain.mean(plain.hessians(w)))
        steps.append(0.9 if search is None else plain.step_of(search, w, d, slope))
        w = w + steps[-1] * d
    history = fedns.simulate(FedNewton(step_size=0.9, line_search=search), problem, shards, rounds=3)
    np.testing.assert_allclose(history.coefficients, w, rtol=0, atol=1e-10)
    found = [record.diagnostics["step_size"] for record in history.records[1:]]
    np.testing.assert_allclose(found, steps, rtol=0, atol=1e-9)  # a local search ends at steps too short for losses to tell


def test_least_squares_takes_one_step():
    shards = make_shards(regression=True, weighted=True)
    x, s = dense_features(shards), shards.sample_weights / shards.sample_weights.sum()
    expected = np.linalg.solve(x.T @ (s[:, None] * x) + 0.1 * np.eye(13), x.T @ (s * shards.targets))
    found = after(FedNewton(), fedns.Problem(fedns.Squared(), fedns.Ridge(0.1)), shards, 1)
    np.testing.assert_allclose(found, expected, rtol=1e-11)


def test_the_answer_is_scikit_learns():
    shards = make_shards()
    model = LogisticRegression(C=1 / (300 * 1e-2), solver="newton-cholesky", tol=1e-13).fit(
        dense_features(shards), shards.targets
    )
    intercept = fedns.Problem(penalty=fedns.Ridge(1e-2), intercept=True)
    found = after(FedNewton(), intercept, shards, 10)
    np.testing.assert_allclose(found, np.r_[model.coef_[0], model.intercept_], rtol=1e-8)


def test_the_gap_is_squared_in_every_round_near_the_optimum():
    gradient = fedns.simulate(FedNewton(), PROBLEM, make_shards(), rounds=6).gradient_norm
    near = gradient[1:][gradient[1:] < 1e-2]
    assert len(near) >= 3 and near[1] < 10 * near[0] ** 2 + 1e-15 and near[2] < 10 * near[1] ** 2 + 1e-15


@pytest.mark.parametrize("search", [None, fedns.ArmijoSearch()], ids=str)
def test_pooled_rows_and_clients_give_the_same_steps(search):
    shards = make_shards(sparse=True, weighted=True)
    federated, pooled = (after(kind(line_search=search), PROBLEM, shards, 3) for kind in (FedNewton, Newton))
    np.testing.assert_allclose(federated, pooled, rtol=1e-11)


def test_a_client_sends_its_gradient_and_half_its_hessian():
    history = fedns.simulate(FedNewton(), PROBLEM, make_shards(), rounds=1)
    (reply,) = [entry for entry in history.ledger if entry.round == 1 and entry.direction == "uplink"]
    numbers = 13 + 13 * 14 // 2
    assert reply.messages == 5 and 5 * 8 * numbers < reply.bytes < 5 * (8 * numbers + 64)
