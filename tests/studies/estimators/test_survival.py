"""Cox regression as an estimator: statsmodels' answer with sites as strata, and scikit-learn's manners."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator
from tests.studies.questions.test_concordance import brute_force

from fedns.studies.estimators import FederatedCox
from fedns.studies.estimators.survival import signed_times

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(240, 3))
TIMES = np.ceil(RANDOM.exponential(8 * np.exp(-X @ [0.6, -0.4, 0.0])))
EVENTS = RANDOM.random(240) < 0.7
SITES = RANDOM.choice(["a", "b", "c"], 240)
STRUCTURED = np.array(list(zip(EVENTS, TIMES, strict=True)), dtype=[("died", bool), ("months", float)])


class CoxOfAnyNumbers(FederatedCox):
    """The checks of scikit-learn draw targets of 0 and below, which are no times: here they are moved above 0."""

    def fit(self, X, y, sample_weight=None, sites=None):
        return super().fit(X, moved(y), sample_weight, sites)

    def score(self, X, y):
        return super().score(X, moved(y))


def moved(y):
    if y is None or np.asarray(y).dtype.names:
        return y
    values = np.asarray(y, dtype=np.float64)
    return values - np.min(values, initial=0) + 1.0


CANNOT = dict.fromkeys(
    ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data"),
    "by Efron's rule two events at one time are not one of weight 2: the first is not at risk in full at the second",
)


def named(estimator, check):
    name = getattr(check, "func", check).__name__
    return pytest.param(
        estimator, check, id=name, marks=[pytest.mark.xfail(reason=CANNOT[name], strict=True)] if name in CANNOT else []
    )


CHECKS = [named(estimator, check) for estimator, check in estimator_checks_generator(CoxOfAnyNumbers())]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("estimator", "check"), CHECKS)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("y", [STRUCTURED, np.column_stack([EVENTS, TIMES]), np.where(EVENTS, TIMES, -TIMES)])
def test_the_answer_is_that_of_statsmodels_however_the_outcome_is_written(y):
    ours = FederatedCox().fit(pd.DataFrame(X, columns=["age", "dose", "time"]), y, sites=SITES)
    rival = sm.PHReg(TIMES, X, status=EVENTS.astype(int), strata=SITES, ties="efron")
    rival = rival.fit(method="newton", disp=0, tol=1e-14)
    assert ours.coef_ == pytest.approx(rival.params, abs=1e-8)
    assert ours.inference_.standard_errors() == pytest.approx(rival.bse, rel=1e-6)
    assert "hazard ratio" in ours.summary("HC0") and "dose" in ours.summary()
    assert ours.predict(pd.DataFrame(X, columns=["age", "dose", "time"])) == pytest.approx(X @ rival.params, abs=1e-7)


def test_scores_are_the_share_of_pairs_in_the_right_order():
    model = FederatedCox().fit(X, STRUCTURED, sites=SITES)
    agree, pairs = brute_force(TIMES, EVENTS, X @ model.coef_)
    assert model.score(X, STRUCTURED) == pytest.approx(agree / pairs, rel=1e-12) and agree / pairs > 0.6


def test_pipelines_clones_and_penalties():
    model = make_pipeline(StandardScaler(), FederatedCox(alpha=0.1))
    model.fit(X, STRUCTURED, federatedcox__sites=SITES)
    assert model.score(X, STRUCTURED) > 0.6 and clone(model)[-1].alpha == 0.1
    assert np.linalg.norm(model[-1].coef_) < np.linalg.norm(FederatedCox().fit(X, STRUCTURED).coef_)


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (np.column_stack([TIMES, EVENTS]), "two columns: 1 where"),
        (np.column_stack([EVENTS, -TIMES]), "above 0"),
        (np.zeros(240, dtype=[("time", float), ("event", bool)]), "two fields, true or false"),
        (None, "requires y"),
    ],
)
def test_outcomes_that_are_none_are_refused(y, words):
    with pytest.raises(ValueError, match=words):
        FederatedCox().fit(X, y)
    if y is not None:
        with pytest.raises(ValueError, match=words):
            signed_times(y)
