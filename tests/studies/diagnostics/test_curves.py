"""Curves of groups against scikit-learn and statsmodels on the rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import expit
from sklearn.calibration import calibration_curve
from sklearn.metrics import roc_auc_score, roc_curve
from statsmodels.stats.proportion import proportion_confint

from fedns.studies.diagnostics.curves import calibration, groups_of, quantiles, roc, together
from fedns.studies.questions.cells import CELLS, SCORE_EDGES, cells_of, merged, summed


def rows(count, seed=0, slope=1.2):
    random = np.random.default_rng(seed)
    margins = slope * random.normal(size=count) - 0.5
    return margins, (random.random(count) < expit(margins)).astype(float)


def groups(margins, outcomes, smallest=5):
    cells, means = cells_of(margins, SCORE_EDGES), expit(margins)
    kinds = [np.bincount(cells[outcomes == kind], minlength=CELLS) for kind in (0, 1)]
    stops = merged(np.stack(kinds, axis=1), smallest)
    sums = [np.bincount(cells, weights=part, minlength=CELLS) for part in (np.ones_like(means), outcomes, means)]
    return groups_of(stops, *summed(np.array(sums), stops))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("count", "bound"), [(60, 0.2), (1000, 0.02), (30000, 0.007)])
def test_the_area_is_scikit_learns_within_its_bounds(count, bound, seed):
    margins, outcomes = rows(count, seed)
    found = roc(groups(margins, outcomes))
    low, high = found.bounds
    theirs = roc_auc_score(outcomes, margins)
    assert low <= theirs <= high and low <= found.area <= high
    assert (high - low) / 2 <= bound and abs(found.area - theirs) <= (high - low) / 2 + 1e-12


@pytest.mark.parametrize("seed", range(10))
def test_sites_together_are_within_their_bounds_too(seed):
    parts = [rows(count, seed * 7 + place) for place, count in enumerate((40, 300, 2000))]
    found = roc(together([groups(*part) for part in parts]))
    margins, outcomes = (np.concatenate(column) for column in zip(*parts, strict=True))
    low, high = found.bounds
    assert low <= roc_auc_score(outcomes, margins) <= high and abs(found.area - roc_auc_score(outcomes, margins)) < 0.006


def test_the_curve_goes_through_scikit_learns_points():
    margins, outcomes = rows(5000)
    false, true = roc(groups(margins, outcomes)).curve
    theirs = roc_curve(outcomes, margins, drop_intermediate=False)
    corners = {(round(a, 12), round(b, 12)) for a, b in zip(theirs[0], theirs[1], strict=True)}
    assert all((round(a, 12), round(b, 12)) in corners for a, b in zip(false, true, strict=True))


def test_the_standard_error_is_that_of_the_bootstrap():
    margins, outcomes = rows(400)
    random = np.random.default_rng(1)
    areas = []
    for _ in range(400):
        chosen = random.integers(0, 400, 400)
        areas.append(roc_auc_score(outcomes[chosen], margins[chosen]))
    assert roc(groups(margins, outcomes)).standard_error == pytest.approx(np.std(areas), rel=0.12)


def test_one_group_per_row_gives_delongs_formula():
    margins, outcomes = rows(80)
    order = np.argsort(margins)
    margins, outcomes = margins[order], outcomes[order]
    cells = np.arange(1, 81)
    found = roc(groups_of(cells, np.ones(80), outcomes, expit(margins)))
    above = (margins[outcomes == 1][:, None] > margins[outcomes == 0][None, :]).astype(float)
    variance = above.mean(axis=1).var(ddof=1) / above.shape[0] + above.mean(axis=0).var(ddof=1) / above.shape[1]
    assert found.area == pytest.approx(roc_auc_score(outcomes, margins), abs=1e-12)
    assert found.standard_error == pytest.approx(math.sqrt(variance), rel=1e-10)
    assert found.bounds == pytest.approx((found.area, found.area))


def test_one_outcome_has_no_curve():
    assert roc(groups(np.linspace(-1, 1, 50), np.zeros(50))) is None


def test_one_group_has_no_curve():
    margins, outcomes = np.linspace(-1, 1, 50), (np.arange(50) < 6).astype(float)
    one = groups(margins, outcomes)
    assert one.weights.size == 1 and roc(one) is None  # the area could be anything


def test_calibration_is_scikit_learns_but_for_rows_at_the_ends_of_a_tenth():
    margins, outcomes = rows(20000)
    found = calibration(groups(margins, outcomes), events=True)
    observed, predicted = calibration_curve(outcomes, expit(margins), n_bins=10, strategy="quantile")
    assert [tenth.observed for tenth in found] == pytest.approx(observed, abs=0.03)
    assert [tenth.predicted for tenth in found] == pytest.approx(predicted, abs=0.01)
    assert sum(tenth.weight for tenth in found) == 20000
    assert sum(tenth.weight * tenth.observed for tenth in found) == pytest.approx(outcomes.sum(), rel=1e-12)
    assert sum(tenth.weight * tenth.predicted for tenth in found) == pytest.approx(expit(margins).sum(), rel=1e-12)
    for tenth in found:
        theirs = proportion_confint(tenth.weight * tenth.observed, tenth.weight, method="wilson")
        assert (tenth.low, tenth.high) == pytest.approx(theirs, rel=1e-9)


def test_quantiles_are_numpys_of_the_inverted_distribution():
    values = np.random.default_rng(3).normal(size=101)
    theirs = np.quantile(values, (0.05, 0.25, 0.5, 0.75, 0.95), method="inverted_cdf")
    assert quantiles(values, np.ones(101)) == pytest.approx(theirs)
    assert all(map(math.isnan, quantiles(np.zeros(0), np.zeros(0))))
