"""A fit that has not converged says so and gives no standard errors; nor does one whose rows do not determine it."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, Ridge
from tests.studies.estimators.test_linear import COUNTS, EVENTS, NUMBERS, SITES, X

from fedns.core.errors import DataError
from fedns.studies.estimators import FederatedCox, FederatedGLM, FederatedLogisticRegression, FederatedRidge
from fedns.studies.fitting.rank import Rank

NAMED = pd.DataFrame(X, columns=["age", "dose", "time", "size"])


@pytest.mark.parametrize(
    "model",
    [
        FederatedLogisticRegression(max_iter=1),
        FederatedLogisticRegression(method="fedavg", max_iter=5),
        FederatedGLM("poisson", max_iter=2),
        FederatedRidge(method="gd", max_iter=3),
    ],
)
def test_rounds_that_were_too_few(model):
    with pytest.warns(ConvergenceWarning, match=r"not converged: used all \d rounds"):
        model.fit(X, EVENTS, sites=SITES)
    assert not model.converged_ and model.inference_ is None and "used all" in model.ending_
    with pytest.raises(DataError, match=r"has not converged \(used all"):
        model.summary()
    first, *rest = model.summary(unconverged=True).splitlines()
    assert first == f"not converged: {model.ending_}" and "std err" in rest[0]
    assert model.predict(X).shape == (300,)


@pytest.mark.parametrize("method", ["lbfgs", "gd", "fednl:line_search=aggregate", "giant"])
def test_a_method_that_tells_no_decrement_has_converged_where_the_optimum_is(method):
    exact = FederatedLogisticRegression().fit(X, EVENTS, sites=SITES)
    model = FederatedLogisticRegression(method=method, max_iter=200).fit(X, EVENTS, sites=SITES)
    assert model.converged_ and model.coef_ == pytest.approx(exact.coef_, abs=1e-8)
    assert model.inference_.standard_errors() == pytest.approx(exact.inference_.standard_errors(), rel=1e-8)


def test_a_tolerance_below_rounding_is_no_failure():
    model = FederatedLogisticRegression(method="lbfgs", tol=0.0, max_iter=60).fit(X, EVENTS, sites=SITES)
    assert model.converged_ and "standard errors from the maximum" in model.ending_


def test_a_run_that_diverges():
    with pytest.warns(ConvergenceWarning, match="not converged: diverged in round"):
        model = FederatedGLM("poisson", method="gd:step_size=100").fit(X, COUNTS, sites=SITES)
    assert not model.converged_ and model.inference_ is None


@pytest.mark.parametrize(
    ("model", "y"),
    [
        (FederatedGLM("binomial"), (X[:, 1] > 0.1).astype(int)),
        (FederatedLogisticRegression(C=np.inf), (X[:, 1] > 0.1).astype(int)),
        (FederatedGLM("poisson"), np.where(X[:, 1] > 0, COUNTS + 1, 0)),
        (FederatedCox(), np.where(X[:, 1] > 0, 1.0, 9.0) + np.arange(300) % 7),
    ],
)
def test_outcomes_that_a_column_separates(model, y):
    rows = NAMED if set(y) == {0, 1} else NAMED.assign(dose=(X[:, 1] > 0).astype(float))
    with pytest.warns(
        ConvergenceWarning, match=r"not converged: .*dose.* separates? .*: the coefficients would be infinite"
    ):
        model.fit(rows, y, sites=SITES)
    assert not model.converged_ and model.inference_ is None
    with pytest.raises(DataError, match="would be infinite"):
        model.summary()


@pytest.mark.parametrize("model", [FederatedGLM("poisson"), FederatedGLM(), FederatedLogisticRegression(C=np.inf)])
def test_columns_that_say_the_same_share_their_coefficients(model):
    twice = NAMED.assign(twin=2.0 * X[:, 1], constant=5.0, far=1e4 + X[:, 2])
    y = COUNTS if model.get_params().get("family") == "poisson" else EVENTS
    with pytest.warns(ConvergenceWarning, match="nothing is told by twin, constant, far that columns before do not tell"):
        model.fit(twice, y, sites=SITES)
    plain = type(model)(**model.get_params()).fit(NAMED, y, sites=SITES)
    assert model.converged_ and model.inference_ is None and model.predict(twice) == pytest.approx(plain.predict(NAMED))
    shared = plain.coef_.ravel()
    expected = [shared[0], shared[1] / 5, shared[2] / 2, shared[3], 2 * shared[1] / 5, 0.0, shared[2] / 2]
    assert model.coef_.ravel() == pytest.approx(expected, abs=1e-7)
    with pytest.raises(DataError, match="nothing is told by twin, constant, far that"):
        model.summary()


@pytest.mark.parametrize("alpha", [0.0, 1e-16])
@pytest.mark.parametrize("intercept", [True, False])
def test_more_columns_than_rows_give_the_smallest_coefficients(intercept, alpha):
    """With a penalty that is lost in rounding, too: the coefficients tend to these as it tends to 0."""
    wide, y = np.random.default_rng(2).normal(size=(20, 50)) + 3.0, NUMBERS[:20]
    with pytest.warns(ConvergenceWarning, match="and 2[45] more that columns before do not tell"):
        ours = FederatedRidge(alpha=alpha, fit_intercept=intercept).fit(wide, y, sites=SITES[:20])
    theirs = LinearRegression(fit_intercept=intercept).fit(wide, y)
    assert ours.coef_ == pytest.approx(theirs.coef_, abs=1e-9) and ours.intercept_ == pytest.approx(
        theirs.intercept_, abs=1e-8
    )


@pytest.mark.parametrize(("alpha", "times"), [(0.0, 1), (1e-16, 1), (1e-12, 0), (1.0, 0)])
def test_the_rank_costs_an_exchange_only_where_no_penalty_tells(alpha, times, monkeypatch):
    asked, own = [], Rank.of_raw
    monkeypatch.setattr(Rank, "of_raw", lambda *given: asked.append(given) or own(*given))
    FederatedRidge(alpha=alpha).fit(X[:20], NUMBERS[:20], sites=SITES[:20])
    assert len(asked) == times


@pytest.mark.parametrize("small", [1e-9, 1.0])
def test_a_column_in_small_units_keeps_its_penalty(small):
    """Of 1e-9 its part of the Hessian is 1e-18, beside which a penalty of 5e-19 is much."""
    wide, y = np.random.default_rng(2).normal(size=(20, 3)) * [1.0, 1.0, small], NUMBERS[:20]
    alpha = 20 * 0.5 * small**2
    ours = FederatedRidge(alpha=alpha).fit(wide, y, sites=SITES[:20])
    theirs = Ridge(alpha=alpha, solver="svd").fit(wide, y)
    assert ours.coef_ == pytest.approx(theirs.coef_, rel=1e-9)


def test_a_column_that_is_constant_within_sites_tells_nothing_of_times():
    """Rows are compared within their site: what is left of such a column in the Hessian is rounding."""
    times = np.ceil(np.random.default_rng(4).exponential(8 * np.exp(-X[:, 0])))
    beds = np.select([SITES == "a", SITES == "b"], [120.0, 333.3], 87.7)
    with pytest.warns(ConvergenceWarning, match="nothing is told by beds that"):
        model = FederatedCox().fit(NAMED.assign(beds=beds), times, sites=SITES)
    assert model.coef_ == pytest.approx([*FederatedCox().fit(NAMED, times, sites=SITES).coef_, 0.0], abs=1e-9)


def test_a_column_far_from_0_is_no_constant():
    far = np.column_stack([X, 1e5 + X[:, 0] ** 2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours = FederatedGLM().fit(far, NUMBERS)
    theirs = LinearRegression().fit(far, NUMBERS)
    assert ours.coef_ == pytest.approx(theirs.coef_, rel=1e-5)
