"""Logistic regression of two classes and of several is scikit-learn's, with standard errors of statsmodels."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from sklearn.linear_model import LogisticRegression
from tests.studies.estimators.test_linear import CLASSES, EVENTS, SITES, X

from fedns.core.errors import FednsError
from fedns.studies.estimators import FederatedLogisticRegression


def test_logistic_regression_is_scikit_learns():
    ours = FederatedLogisticRegression(C=0.5).fit(X, EVENTS, sites=SITES)
    theirs = LogisticRegression(C=0.5, solver="newton-cholesky", tol=1e-12, max_iter=1000).fit(X, EVENTS)
    assert ours.coef_ == pytest.approx(theirs.coef_, abs=1e-9)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, abs=1e-9)
    assert ours.predict_proba(X) == pytest.approx(theirs.predict_proba(X), abs=1e-9)
    assert np.array_equal(ours.to_sklearn().predict_proba(X), ours.predict_proba(X))
    assert ours.history_.converged and ours.n_iter_ >= 1


@pytest.mark.parametrize("C", [0.3, 5.0, np.inf])
@pytest.mark.parametrize("class_weight", [None, "balanced", {"a": 1.0, "b": 2.0, "c": 0.5, "d": 1.0}])
def test_several_classes_are_scikit_learns(C, class_weight):
    weights = np.random.default_rng(1).uniform(0.5, 2.0, 300)
    ours = FederatedLogisticRegression(C=C, class_weight=class_weight).fit(X, CLASSES, sample_weight=weights, sites=SITES)
    theirs = LogisticRegression(C=C, class_weight=class_weight, tol=1e-14, max_iter=1000, solver="newton-cg")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its line search says that it cannot come closer
        theirs.fit(X, CLASSES, sample_weight=weights)
    assert ours.coef_ == pytest.approx(theirs.coef_, abs=1e-8)
    own = theirs.intercept_ - theirs.intercept_.mean()  # scikit-learn leaves what all have in common to its solver
    assert ours.intercept_ == pytest.approx(own, abs=1e-8)
    assert ours.predict_proba(X) == pytest.approx(theirs.predict_proba(X), abs=1e-8)
    assert np.array_equal(ours.predict(X), theirs.predict(X)) and ours.decision_function(X).shape == (300, 4)
    assert np.array_equal(ours.to_sklearn().predict_proba(X), ours.predict_proba(X))


def test_standard_errors_of_several_classes_are_those_of_statsmodels():
    frame = pd.DataFrame(X, columns=["age", "dose", "time", "size"])
    ours = FederatedLogisticRegression(C=np.inf).fit(frame, CLASSES, sites=SITES)
    theirs = sm.MNLogit(np.searchsorted(["a", "b", "c", "d"], CLASSES), np.column_stack([X, np.ones(300)]))
    theirs = theirs.fit(method="newton", disp=0, tol=1e-14)
    assert ours.inference_.standard_errors() == pytest.approx(theirs.bse.T.ravel(), rel=1e-6)
    assert "b: dose" in ours.summary() and "d: Intercept" in ours.summary("HC0")
    with pytest.raises(FednsError, match=r"C=numpy\.inf"):
        FederatedLogisticRegression().fit(X, CLASSES).summary()
