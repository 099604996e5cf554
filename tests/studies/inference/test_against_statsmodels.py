"""Standard errors, likelihood and tests of random problems are those of statsmodels on the pooled rows."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import statsmodels.api as sm
from tests.studies.random_problems import FAMILIES, RandomProblem, pooled_design, random_problem

from fedns.core.errors import FednsError
from fedns.studies.fit import fit_study

FEW, ALL = 30, 500
SEEDS = [*range(FEW), *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(FEW, ALL))]


def fitted(problem: RandomProblem):
    """The fit, or None where a mishap or separation is refused, which other tests are about."""
    try:
        return fit_study(problem.study, problem.tables)
    except FednsError:
        return None


def expanded(problem: RandomProblem, fit):
    """Pooled rows for statsmodels, each as often as its weight says; the sites, and the way back to the original scale."""
    kept = tuple(name for name in fit.names if name not in problem.left_out)
    matrix, back, rows = pooled_design(problem, kept, dict(fit.agreed.design.agreement.fills))
    often = rows["weight"].to_numpy() if problem.study.weights else np.ones(len(rows), dtype=int)
    offset = np.log(rows["time"].to_numpy()) if problem.study.parsed.offset else np.zeros(len(rows))
    chosen = np.repeat(np.arange(len(rows)), often)
    model = sm.GLM(rows["y"].to_numpy()[chosen], matrix[chosen], FAMILIES[problem.study.family](), offset=offset[chosen])
    return model, back, rows["site"].to_numpy()[chosen], [fit.names.index(name) for name in kept]


def sandwich(model, rival, groups):
    """The robust covariance of a canonical link by its formula; rows by themselves, or in groups with the usual factor."""
    x, (count, size) = model.exog, model.exog.shape
    bread = np.linalg.inv((x * model.family.variance(rival.mu)[:, None]).T @ x)
    scores = np.zeros((groups.max() + 1, size))
    np.add.at(scores, groups, (model.endog - rival.mu)[:, None] * x)
    number = len(scores)
    factor = 1.0 if number == count else number / (number - 1) * (count - 1) / (count - size)
    return factor * bread @ scores.T @ scores @ bread


@pytest.mark.parametrize("seed", SEEDS)
def test_standard_errors_likelihood_and_tests(seed):
    problem = random_problem(seed)
    fit = fitted(problem)
    if fit is None:
        return
    model, back, sites, kept = expanded(problem, fit)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # statsmodels warns where outcomes are nearly separated
        rival = model.fit(tol=1e-15, maxiter=200)
        robust = model.fit(tol=1e-15, maxiter=200, cov_type="HC0")
        clustered = model.fit(tol=1e-15, maxiter=200, cov_type="cluster", cov_kwds={"groups": sites})
    count, size = model.exog.shape
    for kind, theirs, factor in (
        ("model", rival, 1.0), ("HC0", robust, 1.0), ("HC1", robust, count / (count - size)), ("site", clustered, 1.0),
    ):  # fmt: skip
        covariance = theirs.cov_params()
        if problem.near_separated and np.isnan(covariance).any():  # statsmodels divides 0 by 0 where a probability is 1
            covariance = sandwich(
                model, rival, np.arange(count) if theirs is robust else np.unique(sites, return_inverse=True)[1]
            )
        expected = np.sqrt(factor * np.diag(back @ covariance @ back.T))
        # Of a coefficient that one site alone tells of, the clustered error is 0: what is left there is rounding.
        scale = expected + (0.1 * fit.standard_errors()[kept] if kind == "site" else 0.0)
        assert (np.abs(fit.standard_errors(kind)[kept] - expected) <= 1e-6 * scale).all(), kind
    found = fit.goodness
    assert found.log_likelihood == pytest.approx(rival.llf, rel=1e-8)
    assert (found.aic, found.bic) == pytest.approx((rival.aic, rival.bic_llf), rel=1e-8)
    assert (found.deviance, found.pearson) == pytest.approx((rival.deviance, rival.pearson_chi2), rel=1e-7)
    assert found.null_deviance == pytest.approx(rival.null_deviance, rel=1e-8)
    assert found.dispersion == pytest.approx(rival.scale, rel=1e-8)
    if problem.study.family != "gaussian":  # the two have the variance of the null model differently there
        assert found.null_log_likelihood == pytest.approx(rival.llnull, rel=1e-8)
        expected = rival.pvalues if not problem.locations else None
        assert expected is None or fit.inference.p_values()[kept] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_metered_bytes_hold_all_that_was_asked(seed):
    fit = fitted(random_problem(seed))
    if fit is not None:
        kinds = [entry.kind for entry in fit.ledger if entry.direction == "uplink"]
        assert kinds[-3:-1] == ["Information", "Fit"] and kinds[-1] == "NullFit"
        assert fit.uplink_bytes == sum(entry.bytes for entry in fit.ledger if entry.direction == "uplink")
