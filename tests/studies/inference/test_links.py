"""Families and links beyond the canonical ones: standard errors from the expected information, as statsmodels has them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from tests.studies.conftest import made_up

from fedns.studies.fit import fit_study
from fedns.studies.study import Study

CASE = {"event": ("case",), "non_event": ("control",)}
LINKS = sm.families.links
CASES = {
    "probit": (Study("ill ~ age + dose", "binomial", link="probit", **CASE), sm.families.Binomial(LINKS.Probit())),
    "cloglog": (Study("ill ~ age + dose", "binomial", link="cloglog", **CASE), sm.families.Binomial(LINKS.CLogLog())),
    "negative_binomial": (
        Study("falls ~ age + dose", "negative_binomial", parameters={"dispersion": 0.7}),
        sm.families.NegativeBinomial(alpha=0.7),
    ),
    "gamma": (Study("time ~ age + dose", "gamma"), sm.families.Gamma(LINKS.Log())),
}


@pytest.mark.parametrize("name", CASES)
def test_as_statsmodels(name):
    study, family = CASES[name]
    tables = made_up()
    rows = pd.concat(tables.values(), ignore_index=True)
    outcome = (rows["ill"] == "case").astype(float) if study.has_events else rows[study.parsed.outcome]
    columns = rows[["age", "dose"]]
    scaled = sm.add_constant((columns - columns.mean()) / columns.std())
    back = np.diag([1.0, *(1 / columns.std())])
    back[0, 1:] = -columns.mean() / columns.std()
    model = sm.GLM(outcome, scaled, family)
    rival, robust = (model.fit(tol=1e-15, maxiter=300, cov_type=kind) for kind in ("nonrobust", "HC0"))
    fit = fit_study(study, tables)
    assert fit.coefficients == pytest.approx(back @ rival.params.to_numpy(), rel=1e-7)
    for kind, theirs in (("model", rival), ("HC0", robust)):
        expected = np.sqrt(np.diag(back @ theirs.cov_params().to_numpy() @ back.T))
        assert fit.standard_errors(kind) == pytest.approx(expected, rel=1e-6), kind
    found = fit.goodness
    assert (found.log_likelihood, found.deviance) == pytest.approx((rival.llf, rival.deviance), rel=1e-8)
    assert (found.null_deviance, found.pearson) == pytest.approx((rival.null_deviance, rival.pearson_chi2), rel=1e-7)
    assert found.aic == pytest.approx(rival.aic, rel=1e-8)


def test_a_loss_without_a_likelihood_has_robust_errors():
    fit = fit_study(Study("ill ~ age + dose", "squared_hinge", **CASE), made_up())
    assert np.array_equal(fit.standard_errors(), fit.standard_errors("HC1")) and np.isnan(fit.goodness.log_likelihood)
    assert "has no likelihood" in fit.summary()
