"""The estimators are scikit-learn's in manner, and in their answers, whatever site a row belongs to."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import statsmodels.api as sm
from sklearn.base import clone
from sklearn.linear_model import PoissonRegressor, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from fedns.core.errors import DataError, FednsError
from fedns.studies.estimators import FederatedGLM, FederatedLogisticRegression, FederatedRidge

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(300, 4))
MARGINS = X @ [0.5, -0.3, 0.2, 0.0] + 0.3
EVENTS = (RANDOM.random(300) < 1 / (1 + np.exp(-MARGINS))).astype(int)
NUMBERS = MARGINS + RANDOM.normal(size=300)
COUNTS = RANDOM.poisson(np.exp(MARGINS)).astype(float)
SITES = RANDOM.choice(["a", "b", "c"], 300)
CLASSES = np.array(list("abcd"))[(np.outer(MARGINS, [0.0, 1.0, -1.0, 0.5]) + RANDOM.gumbel(size=(300, 4))).argmax(axis=1)]
ESTIMATORS = [FederatedLogisticRegression(), FederatedRidge(), FederatedGLM()]
CHECKS = [
    pytest.param(estimator, check, id=f"{type(estimator).__name__}-{getattr(check, 'func', check).__name__}")
    for one in ESTIMATORS
    for estimator, check in estimator_checks_generator(one)
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("estimator", "check"), CHECKS)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def test_ridge_and_counts_are_scikit_learns():
    weights = RANDOM.integers(0, 3, 300).astype(float)
    ours = FederatedRidge(alpha=2.0).fit(X, NUMBERS, sample_weight=weights, sites=SITES)
    theirs = Ridge(alpha=2.0).fit(X, NUMBERS, sample_weight=weights)
    assert ours.coef_ == pytest.approx(theirs.coef_, rel=1e-9) and ours.intercept_ == pytest.approx(
        theirs.intercept_, rel=1e-9
    )
    assert ours.to_sklearn().predict(X) == pytest.approx(ours.predict(X), rel=1e-12)
    counts = FederatedGLM("poisson", alpha=0.1).fit(X, COUNTS, sites=SITES)
    theirs = PoissonRegressor(alpha=0.1, solver="newton-cholesky", tol=1e-10, max_iter=1000).fit(X, COUNTS)
    assert counts.predict(X) == pytest.approx(theirs.predict(X), rel=1e-9)


def test_names_and_standard_errors():
    frame = pd.DataFrame(X, columns=["age", "dose", "time", "size"])
    ours = FederatedGLM("poisson").fit(frame, COUNTS, sites=SITES)
    theirs = sm.GLM(COUNTS, sm.add_constant(X), sm.families.Poisson()).fit(tol=1e-14)
    assert ours.inference_.standard_errors() == pytest.approx([*theirs.bse[1:], theirs.bse[0]], rel=1e-6)
    assert "dose" in ours.summary() and "rate ratio" in ours.summary("HC0") and list(ours.feature_names_in_) == list(frame)


def test_a_link_that_is_not_canonical_takes_the_expected_information():
    positive = np.exp(MARGINS) * np.random.default_rng(1).gamma(2.0, 0.5, 300)
    ours = FederatedGLM("gamma").fit(X, positive, sites=SITES)
    theirs = sm.GLM(positive, sm.add_constant(X), sm.families.Gamma(sm.families.links.Log())).fit(tol=1e-14)
    assert ours.coef_ == pytest.approx(theirs.params[1:], rel=1e-8)
    assert ours.inference_.standard_errors() == pytest.approx([*theirs.bse[1:], theirs.bse[0]], rel=1e-6)


@pytest.mark.parametrize("sparse", [False, True])
def test_an_exposure_is_an_offset(sparse):
    days = RANDOM.uniform(0.5, 3.0, 300)
    weights = RANDOM.integers(1, 4, 300).astype(float)
    rows = scipy.sparse.csr_matrix(X) if sparse else X
    ours = FederatedGLM("poisson").fit(rows, COUNTS, sample_weight=weights, sites=SITES, offset=np.log(days))
    theirs = sm.GLM(COUNTS, sm.add_constant(X), sm.families.Poisson(), exposure=days, freq_weights=weights).fit(tol=1e-14)
    assert [ours.intercept_, *ours.coef_] == pytest.approx(theirs.params, abs=1e-8)
    assert ours.inference_.standard_errors() == pytest.approx([*theirs.bse[1:], theirs.bse[0]], rel=1e-6)
    assert ours.predict(rows, offset=np.log(days)) == pytest.approx(theirs.predict(), rel=1e-7)
    with pytest.raises(ValueError, match="offset must have one number for each of 300 rows"):
        FederatedGLM("poisson").fit(X, COUNTS, offset=[0.0])


def test_standard_errors_of_other_links_come_from_the_expected_information():
    positive = np.exp(MARGINS) * RANDOM.gamma(2.0, 0.5, 300)
    ours = FederatedGLM("gamma").fit(X, positive, sites=SITES)
    theirs = sm.GLM(positive, sm.add_constant(X), sm.families.Gamma(sm.families.links.Log())).fit(tol=1e-14)
    assert ours.inference_.standard_errors() == pytest.approx([*theirs.bse[1:], theirs.bse[0]], rel=1e-6)


def test_pipelines_and_clones():
    model = make_pipeline(StandardScaler(), FederatedLogisticRegression(C=0.3))
    model.fit(X, EVENTS, federatedlogisticregression__sites=SITES)
    assert model.score(X, EVENTS) > 0.6
    assert clone(model)[-1].C == 0.3


def test_what_cannot_be_fitted_is_refused():
    with pytest.raises(FednsError, match="site of each of 300 rows"):
        FederatedRidge().fit(X, NUMBERS, sites=["a"])
    with pytest.raises(FednsError, match="family"):
        FederatedGLM("cauchy").fit(X, NUMBERS)
    with pytest.raises(FednsError, match="FederatedCox"):
        FederatedGLM("cox").fit(X, NUMBERS)
    with pytest.raises(FednsError, match="C must be above 0"):
        FederatedLogisticRegression(C=0.0).fit(X, EVENTS)


@pytest.mark.parametrize("sum_of_weights", [1.0, 119.0])
def test_weights_that_count_no_rows_have_coefficients_and_no_standard_errors(sum_of_weights):
    random = np.random.default_rng(0)
    X, y, w = random.normal(size=(120, 2)), random.normal(size=120), random.uniform(0.5, 2.0, 120)
    normalised = FederatedRidge(alpha=0.0).fit(X, y, sample_weight=w * sum_of_weights / w.sum())
    counted = FederatedRidge(alpha=0.0).fit(X, y, sample_weight=w * 120 / w.sum())
    assert np.allclose(normalised.coef_, counted.coef_, rtol=1e-9) and counted.summary()
    with pytest.raises(DataError, match=rf"weights sum to {sum_of_weights:.4g} over 120 rows.*weights_are"):
        normalised.summary()
