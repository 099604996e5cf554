"""The federated answer equals the pooled one: against scikit-learn on real data."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import fedns

STRENGTH = 1e-3
CASES = {  # name: clients, scaling, sketch size
    "phishing": (40, "none", 17),
    "a9a": (80, "none", 30),
    "w8a": (142, "none", 60),
    "cod_rna": (60, "maxabs", 10),
    "covtype": (200, "maxabs", 20),
}


LONG = ("w8a", "covtype")


@pytest.fixture
def case(name, real_data):
    clients, scaling, size = CASES[name]
    x, y = real_data(name)
    every = max(1, len(y) // 150_000)  # covtype has half a million rows, most of them for scikit-learn to wait for
    shards, _ = fedns.scale(fedns.split(x[::every], y[::every], clients=clients, how="iid", seed=0), scaling)
    return shards, size


def scikit_learn(shards, intercept):
    rows = shards.rows
    import scipy.sparse

    x = rows.values if hasattr(rows, "flat") else scipy.sparse.csr_matrix((rows.data, rows.indices, rows.indptr), rows.shape)
    model = LogisticRegression(
        C=1.0 / (shards.num_samples * STRENGTH),
        solver="newton-cholesky",
        tol=1e-13,
        max_iter=200,
        fit_intercept=intercept,
    ).fit(x, shards.targets)
    return np.r_[model.coef_[0], model.intercept_] if intercept else model.coef_[0]


@pytest.mark.parametrize(
    ("name", "intercept"),
    [
        pytest.param(name, intercept, marks=pytest.mark.nightly if name in LONG and not intercept else ())
        for name in CASES
        for intercept in (False, True)
    ],
)
def test_optimum_and_every_converged_method_equal_scikit_learn(case, name, intercept):
    shards, size = case
    problem = fedns.Problem(penalty=fedns.Ridge(STRENGTH), intercept=intercept)
    expected = scikit_learn(shards, intercept)
    optimum = fedns.pooled_optimum(problem, shards)
    assert relative_error(optimum.coefficients, expected) < 1e-8
    methods = [
        fedns.Newton(),
        fedns.FedNewton(),
        fedns.FedNS(fedns.SRHT(size)),
        fedns.FedNS(fedns.SJLT(size)),
        fedns.FedNDES(fedns.SRHT(size)),
    ]
    for method in methods:
        history = fedns.simulate(method, problem, shards, rounds=60, gradient_tol=1e-12, seed=0, optimum=optimum)
        assert history.converged, f"{method} on {name}: {history.stop_reason}"
        assert relative_error(history.coefficients, expected) < 1e-8, f"{method} on {name}"


def relative_error(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


@pytest.mark.parametrize("name", ["phishing", "a9a", "cod_rna", "covtype"])
def test_raw_columns_reach_machine_precision(name, real_data):
    """Collinear (phishing, a9a) and badly scaled (cod_rna, covtype) columns, as they are in the file."""
    shards = fedns.split(*real_data(name), clients=10, how="contiguous")
    optimum = fedns.pooled_optimum(fedns.Problem(penalty=fedns.Ridge(STRENGTH), intercept=True), shards)
    assert optimum.relative_gradient <= 1e-12


@pytest.mark.parametrize("how", ["sorted", "quantity:0.5", "dirichlet:0.1"])
@pytest.mark.parametrize("intercept", [False, True])
def test_unequal_and_sorted_sites_give_the_same_answer(how, intercept, real_data):
    problem = fedns.Problem(penalty=fedns.Ridge(STRENGTH), intercept=intercept)
    shards = fedns.split(*real_data("phishing"), clients=40, how=how, seed=0)
    expected = scikit_learn(shards, intercept)
    for method in (fedns.FedNewton(), fedns.FedNDES(fedns.SRHT(17)), fedns.GIANT(), fedns.LBFGS()):
        history = fedns.simulate(method, problem, shards, rounds=400, gradient_tol=1e-12, seed=0)
        assert history.converged, f"{method} on {how}: {history.stop_reason}"
        assert relative_error(history.coefficients, expected) < 1e-8, f"{method} on {how}"
