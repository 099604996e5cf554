"""Standard errors, likelihood and tests of random problems are those of statsmodels on the pooled rows."""

from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest
import scipy.stats
import statsmodels.api as sm
from tests.models.test_cox import scores_by_loops
from tests.studies.random_problems import FAMILIES, OTHERS, RandomProblem, pooled_design, random_problem

from fedns.core.errors import FednsError
from fedns.studies.fit import fit_study
from fedns.studies.fitting.estimate import SeparationError

FEW, ALL = 30, 500
FEW_OTHERS, ALL_OTHERS = 8, 200
ROUNDED = 294  # two sites, and a variance clustered by them that is below 0 by rounding
SEEDS = [seed if seed < FEW or seed == ROUNDED else pytest.param(seed, marks=pytest.mark.nightly) for seed in range(ALL)]


def fitted(problem: RandomProblem):
    """The fit, or None where a mishap or separation is refused; how often that is, is counted below."""
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


def same_tests(fit, kind, kept, estimates, errors):
    """p values and intervals, from estimates and standard errors that are somebody else's."""
    exact = kind == "model" and fit.study.family == "gaussian"
    distribution = scipy.stats.t(fit.goodness.residual_df) if exact else scipy.stats.norm()
    half = distribution.ppf(0.95) * errors
    ends = np.stack([estimates - half, estimates + half], axis=1)
    known = errors > 1e-3 * fit.standard_errors()[kept]  # of what one site alone tells, the clustered error is 0
    np.testing.assert_allclose(
        fit.conf_int(0.9, kind)[kept][known], ends[known], rtol=0, atol=1e-5 * (np.abs(ends[known]).max() + 1)
    )
    wanted = 2 * distribution.sf(np.abs(estimates / np.where(known, errors, 1.0)))
    np.testing.assert_allclose(fit.inference.p_values(kind)[kept][known], wanted[known], rtol=1e-4, atol=1e-12)


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
        same_tests(fit, kind, kept, back @ rival.params, expected)
    found = fit.goodness
    assert found.log_likelihood == pytest.approx(rival.llf, rel=1e-8)
    assert (found.aic, found.bic) == pytest.approx((rival.aic, rival.bic_llf), rel=1e-8)
    assert (found.deviance, found.pearson) == pytest.approx((rival.deviance, rival.pearson_chi2), rel=1e-7)
    assert found.null_deviance == pytest.approx(rival.null_deviance, rel=1e-8)
    assert found.dispersion == pytest.approx(rival.scale, rel=1e-8)
    if problem.study.family != "gaussian":  # the two have the variance of the null model differently there
        assert found.null_log_likelihood == pytest.approx(rival.llnull, rel=1e-8)


def rival_of(problem: RandomProblem, fit):
    """Estimates, covariances by kind, log-likelihood and places of classes or of times until an event, by statsmodels."""
    design, kept = fit.agreed.design, [name for name in fit.names if name not in problem.left_out]
    own = tuple(dict.fromkeys(design.parts_of(name)[1] for name in kept))
    matrix, back, rows = pooled_design(problem, own, dict(design.agreement.fills))
    chosen = np.repeat(np.arange(len(rows)), rows["weight"].to_numpy() if problem.study.weights else 1)
    x, y, sites = matrix[chosen], rows["y"].to_numpy()[chosen], rows["site"].to_numpy()[chosen]
    if problem.study.family == "multinomial":
        model, outputs = sm.MNLogit(y, x), design.outputs
        found = model.fit(method="newton", disp=0, tol=1e-15, maxiter=200)
        estimates, bread = found.params.T.ravel(), np.asarray(found.cov_params())
        slopes = found.predict(x)[:, 1:] - (y[:, None] == np.arange(1, outputs + 1))
        scores = (slopes[:, :, None] * x[:, None, :]).reshape(len(x), -1)
    else:
        outputs, status = 1, (rows["status"] == "sick").to_numpy()
        model = sm.PHReg(y, x, status=status.astype(int), strata=sites, ties="efron")
        found = model.fit(method="newton", disp=0, tol=1e-15, maxiter=200)
        estimates, bread, scores = found.params, found.cov_params(), np.zeros_like(x)
        for site in np.unique(sites):
            here = sites == site
            signed = np.where(status, y, -y)[here]
            scores[here] = scores_by_loops(x[here], signed, np.ones(here.sum()), estimates)
    totals = np.stack([scores[sites == site].sum(axis=0) for site in np.unique(sites)])
    (count, size), groups = scores.shape, len(totals)
    back = np.kron(np.eye(outputs), back)
    kinds = {
        "model": bread,
        "HC0": bread @ scores.T @ scores @ bread,
        "HC1": count / (count - size) * bread @ scores.T @ scores @ bread,
        "site": groups / (groups - 1) * (count - 1) / (count - size) * bread @ totals.T @ totals @ bread,
    }
    covariances = {kind: back @ covariance @ back.T for kind, covariance in kinds.items()}
    return back @ estimates, covariances, float(found.llf), [fit.names.index(name) for name in kept]


@pytest.mark.parametrize(
    "seed", [*range(FEW_OTHERS), *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(FEW_OTHERS, ALL_OTHERS))]
)
def test_classes_and_times(seed):
    problem = random_problem(seed, OTHERS)
    fit = fitted(problem)
    if fit is None:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimates, covariances, likelihood, kept = rival_of(problem, fit)
    assert fit.converged and (np.abs(fit.coefficients[kept] - estimates) <= 1e-8 * (1 + np.abs(estimates))).all()
    for kind, covariance in covariances.items():
        errors = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        scale = errors + (0.1 * fit.standard_errors()[kept] if kind == "site" else 0.0)
        assert (np.abs(fit.standard_errors(kind)[kept] - errors) <= 1e-6 * scale).all(), kind
        same_tests(fit, kind, kept, estimates, errors)
    assert fit.goodness.log_likelihood == pytest.approx(likelihood, rel=1e-8)
    assert fit.goodness.aic == pytest.approx(2 * len(kept) - 2 * likelihood, rel=1e-8)


@pytest.mark.nightly
@pytest.mark.parametrize(("families", "number", "least"), [(tuple(FAMILIES), ALL, 300), (OTHERS, ALL_OTHERS, 110)])
def test_most_problems_are_fitted_and_the_others_refused_for_what_is_wrong_with_them(families, number, least, capsys):
    counts = {"fitted": 0, "refused for a mishap": 0, "separated": 0}
    for seed in range(number):
        problem = random_problem(seed, families)
        try:
            fit_study(problem.study, problem.tables)
            counts["fitted"] += 1
        except SeparationError:
            counts["separated"] += 1
        except FednsError as refusal:
            assert problem.mishaps, refusal
            counts["refused for a mishap"] += 1
    with capsys.disabled():
        print(f"\n{', '.join(families)}: {counts}")
    assert counts["fitted"] >= least


@pytest.mark.parametrize("seed", range(3))
def test_metered_bytes_hold_all_that_was_asked(seed):
    fit = fitted(random_problem(seed))
    if fit is not None:
        kinds = [kind for kind, _ in groupby(entry.kind for entry in fit.ledger if entry.direction == "uplink")]
        after = kinds[len(kinds) - kinds[::-1].index("Information") - 1 :]
        assert after[:4] == ["Information", "Fit", "NullFit", "ScoreTable"]  # the last is what diagnostics are made of
        assert after[4:] in ([], ["Gradients", "ScoreTable"])  # models without each site, which some solve without asking
        assert fit.uplink_bytes == sum(entry.bytes for entry in fit.ledger if entry.direction == "uplink")


def test_what_clustered_errors_cannot_tell_is_not_called_certain():
    """x0 is told of by one site, and c0 has three columns: two sites have one direction in which they differ."""
    problem = random_problem(ROUNDED)
    fit = fit_study(replace(problem.study, tolerance=1e-13), problem.tables)
    place = fit.names.index("x0")
    random, curvature, errors = np.random.default_rng(0), fit.inference.curvature, []
    for _ in range(20):  # the same but for rounding, which is above 0 or below
        moved = replace(
            curvature,
            triangles=curvature.triangles * (1 + 4e-16 * random.normal(size=curvature.triangles.shape)),
            gradients=curvature.gradients * (1 + 4e-16 * random.normal(size=curvature.gradients.shape)),
        )
        errors.append(replace(fit.inference, curvature=moved).standard_errors("site")[place])
    assert min(errors) == 0.0 and max(errors) < 1e-5 * fit.standard_errors()[place]
    assert np.isnan(fit.inference.statistics("site")[place]) and np.isnan(fit.inference.p_values("site")[place])
    tests = {test.term: test for test in fit.term_tests("site")}
    assert all(np.isnan(tests[term].statistic) and np.isnan(tests[term].p_value) for term in ("x0", "c0"))
    assert np.isfinite([test.p_value for test in fit.term_tests("model")]).all()
    assert "c0     chi2 -   3" in fit.summary("site")
