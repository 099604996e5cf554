"""What scikit-learn's contract says of estimators: scores, targets, weights, sites and tags."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from sklearn.metrics import d2_tweedie_score, r2_score
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import estimator_checks_generator
from tests.studies.estimators.test_linear import CLASSES, COUNTS, EVENTS, MARGINS, NUMBERS, SITES, X

from fedns.core.errors import ConfigError, DataError
from fedns.studies.estimators import FederatedGLM, FederatedLogisticRegression, FederatedRidge

WEIGHTS = np.random.default_rng(3).integers(0, 4, 300).astype(float)
POSITIVE = np.exp(MARGINS) * np.random.default_rng(1).gamma(2.0, 0.5, 300)
CHECKS = [
    pytest.param(estimator, check, id=f"{estimator.family}-{getattr(check, 'func', check).__name__}")
    for one in (FederatedGLM("poisson", alpha=0.1), FederatedGLM("gamma", alpha=0.1))
    for estimator, check in estimator_checks_generator(one)
]


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("estimator", "check"), CHECKS)
def test_scikit_learns_own_checks_of_families_above_0(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    ("family", "power", "y"), [("gaussian", 0, NUMBERS), ("poisson", 1, COUNTS), ("gamma", 2, POSITIVE)]
)
def test_scores_are_the_share_of_the_deviance(family, power, y):
    model = FederatedGLM(family).fit(X, y, sites=SITES)
    assert model.score(X, y) == pytest.approx(d2_tweedie_score(y, model.predict(X), power=power), rel=1e-10)
    theirs = d2_tweedie_score(y, model.predict(X), sample_weight=WEIGHTS, power=power)
    assert model.score(X, y, sample_weight=WEIGHTS) == pytest.approx(theirs, rel=1e-10)


def test_a_score_with_an_exposure_is_that_of_what_is_predicted_with_it():
    days = np.random.default_rng(5).uniform(0.5, 3.0, 300)
    model = FederatedGLM("poisson").fit(X, COUNTS, offset=np.log(days))
    theirs = d2_tweedie_score(COUNTS, model.predict(X, offset=np.log(days)), power=1)
    assert model.score(X, COUNTS, offset=np.log(days)) == pytest.approx(theirs, rel=1e-10)


def test_ridge_keeps_r2():
    model = FederatedRidge().fit(X, NUMBERS)
    assert model.score(X, NUMBERS) == pytest.approx(r2_score(NUMBERS, model.predict(X)), rel=1e-12)


@pytest.mark.parametrize(
    ("event", "y"),
    [(1, EVENTS), (1.0, EVENTS.astype(float)), (1, 2 * EVENTS - 1), (True, EVENTS.astype(bool))],
)
def test_events_are_written_in_any_usual_way(event, y):
    model = FederatedGLM("binomial").fit(X, y, sites=SITES)
    plain = FederatedGLM("binomial").fit(X, 2.0 * EVENTS - 1.0, sites=SITES)
    assert model.event_ == event and type(model.event_) is type(y.flat[0]) and model.coef_.tobytes() == plain.coef_.tobytes()
    assert f"event: {event}" in model.summary() and model.score(X, y) == plain.score(X, 2.0 * EVENTS - 1.0) > 0


def test_events_that_are_none_are_refused():
    with pytest.raises(ValueError, match=r"binomial needs events written as 0 and 1, .* found 0, 1, 2"):
        FederatedGLM("binomial").fit(X, np.arange(300) % 3)


def test_the_dispersion_of_counts_must_be_given():
    with pytest.raises(ConfigError, match=r"negative_binomial needs its dispersion"):
        FederatedGLM("negative_binomial").fit(X, COUNTS)
    with pytest.raises(ConfigError, match=r"family poisson has no dispersion"):
        FederatedGLM("poisson", dispersion=0.5).fit(X, COUNTS)
    for dispersion in (0.3, 2.0):
        ours = FederatedGLM("negative_binomial", dispersion=dispersion).fit(X, COUNTS, sites=SITES)
        rival = sm.GLM(COUNTS, sm.add_constant(X), sm.families.NegativeBinomial(alpha=dispersion)).fit(tol=1e-14)
        assert [ours.intercept_, *ours.coef_] == pytest.approx(rival.params, abs=1e-8)


@pytest.mark.parametrize("make", [FederatedRidge, FederatedGLM, FederatedLogisticRegression])
def test_weights_below_0_are_refused_and_one_number_is_for_all(make):
    with pytest.raises(ValueError, match="Negative values in data passed to `sample_weight`"):
        make().fit(X, EVENTS, sample_weight=np.where(np.arange(300) == 7, -1.0, 1.0))
    one = make().fit(X, EVENTS, sample_weight=2.0)
    assert one.coef_ == pytest.approx(make().fit(X, EVENTS, sample_weight=np.full(300, 2.0)).coef_, rel=1e-12)


@pytest.mark.parametrize(
    "sites",
    [[*SITES[:-1], None], [*np.arange(299.0), np.nan], pd.Series([*SITES[:-1], pd.NA]), pd.array([1] * 299 + [None])],
)
def test_every_row_has_a_site(sites):
    with pytest.raises(DataError, match="sites must name the site of each row: row 299 has none"):
        FederatedRidge().fit(X, NUMBERS, sites=sites)


def test_sites_of_names_and_numbers_are_told_apart_from_nothing():
    mixed = np.array([*SITES[:-1], 7], dtype=object)
    assert FederatedRidge().fit(X, NUMBERS, sites=mixed).coef_ == pytest.approx(FederatedRidge().fit(X, NUMBERS).coef_)


@pytest.mark.parametrize("family", ["poisson", "negative_binomial", "gamma", "gaussian", "binomial"])
def test_tags_say_which_targets_are_possible(family):
    assert get_tags(FederatedGLM(family)).target_tags.positive_only == (family not in ("gaussian", "binomial"))


def test_rounds_are_counted_as_scikit_learn_does():
    for model in (FederatedLogisticRegression(), FederatedRidge()):
        assert model.fit(X, EVENTS).n_iter_.shape == (1,) and model.n_iter_.dtype == np.int32 and model.n_iter_ >= 1
    assert isinstance(FederatedGLM().fit(X, NUMBERS).n_iter_, int)


def test_logarithms_of_probabilities_stay_finite():
    for y in (EVENTS, CLASSES):
        model = FederatedLogisticRegression().fit(X, y, sites=SITES)
        assert model.predict_log_proba(X) == pytest.approx(np.log(model.predict_proba(X)), rel=1e-9)
        assert np.isfinite(model.predict_log_proba(1e4 * X)).all()
