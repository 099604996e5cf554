"""What sites say alone and without one of them, and whether they disagree, against fits of statsmodels."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from statsmodels.stats.outliers_influence import variance_inflation_factor
from tests.studies.conftest import made_up

from fedns.core.errors import ConfigError
from fedns.studies.fit import fit_study
from fedns.studies.study import Study

CASE = {"event": ("case",), "non_event": ("control",)}


@pytest.fixture(scope="module")
def tables():
    return made_up()


def rows_of(tables):
    rows = pd.concat([table.assign(site=name) for name, table in tables.items()], ignore_index=True)
    return rows.assign(y=(rows["ill"] == "case").astype(float))


def test_gaussian_sites_alone_and_without_one_are_exact(tables):
    fit, rows = fit_study(Study("score ~ age + dose", "gaussian"), tables), rows_of(tables)
    own = fit.site_estimates
    for place, site in enumerate(tables):
        alone = smf.ols("score ~ age + dose", rows[rows["site"] == site]).fit()
        assert own.coefficients[place] == pytest.approx(alone.params.to_numpy(), rel=1e-8)
        assert own.standard_errors[place] == pytest.approx(alone.bse.to_numpy(), rel=1e-8)
        rest = smf.ols("score ~ age + dose", rows[rows["site"] != site]).fit()
        assert own.without[place] == pytest.approx(rest.params.to_numpy(), rel=1e-8)


def test_other_families_take_one_newton_step_for_a_site_alone(tables):
    fit, rows = fit_study(Study("ill ~ age + dose", "binomial", **CASE), tables), rows_of(tables)
    for place, site in enumerate(tables):
        model = smf.glm("y ~ age + dose", rows[rows["site"] == site], family=sm.families.Binomial())
        with pytest.warns(match=""):
            step = model.fit(start_params=fit.coefficients, maxiter=1, method="newton", disp=0)
        assert fit.site_estimates.coefficients[place] == pytest.approx(step.params.to_numpy(), rel=1e-6)


def test_heterogeneity_is_cochrans(tables):
    fit = fit_study(Study("score ~ age + dose", "gaussian"), tables)
    values, errors = fit.site_estimates.coefficients[:, 1], fit.site_estimates.standard_errors[:, 1]
    joined = sm.stats.combine_effects(values, errors**2, method_re="dl")
    found = next(one for one in fit.heterogeneity if one.name == "age")
    assert found.q == pytest.approx(joined.q, rel=1e-10) and found.i_squared == pytest.approx(max(0.0, joined.i2), abs=1e-10)


def test_a_site_without_a_level_speaks_of_the_others_only(tables):
    tables = {**tables, "west": tables["west"][tables["west"]["arm"] != "high"]}
    fit = fit_study(Study("score ~ age + arm", "gaussian"), tables)
    west = fit.site_estimates.coefficients[list(tables).index("west")]
    # Without its reference level 'high' that site cannot tell the intercept from the arms, and says nothing.
    assert np.isnan(west).all()
    assert all(one.sites == 2 for one in fit.heterogeneity)


def test_wald_tests_of_terms_and_inflation(tables):
    fit, rows = fit_study(Study("score ~ age + dose + arm", "gaussian"), tables), rows_of(tables)
    rival = smf.ols("score ~ age + dose + C(arm)", rows).fit()
    theirs = rival.wald_test_terms(scalar=True).table
    for test, name in zip(fit.term_tests(), ("age", "dose", "C(arm)"), strict=True):
        assert (test.statistic, test.p_value) == pytest.approx(
            (theirs.loc[name, "statistic"], theirs.loc[name, "pvalue"]), rel=1e-7
        )
        assert test.df == theirs.loc[name, "df_constraint"]
    inflation = variance_inflation_factor(rival.model.exog, rival.model.exog_names.index("age"))
    assert fit.term_tests()[0].inflation == pytest.approx(inflation, rel=1e-8)
    chi2 = fit_study(Study("ill ~ age + arm", "binomial", **CASE), tables)
    theirs = smf.glm("y ~ age + C(arm)", rows, family=sm.families.Binomial()).fit(tol=1e-14)
    expected = theirs.wald_test_terms(scalar=True).table.loc["C(arm)", "statistic"]
    assert chi2.term_tests()[1].statistic == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("family", ["binomial", "gaussian"])
def test_two_models_are_compared(tables, family):
    outcome, more = ("ill", CASE) if family == "binomial" else ("score", {})
    larger, smaller = (
        fit_study(Study(f"{outcome} ~ {terms}", family, **more), tables) for terms in ("age + dose + arm", "age")
    )
    rows = rows_of(tables)
    found = larger.compared_with(smaller)
    if family == "gaussian":
        theirs = smf.ols("score ~ age + dose + C(arm)", rows).fit().compare_f_test(smf.ols("score ~ age", rows).fit())
    else:
        two = [smf.logit(f"y ~ {terms}", rows).fit(disp=0, tol=1e-12) for terms in ("age + dose + C(arm)", "age")]
        statistic = 2 * (two[0].llf - two[1].llf)
        theirs = statistic, found.p_value, 3.0
    assert (found.statistic, found.p_value, found.df) == pytest.approx(theirs, rel=1e-7)
    with pytest.raises(ConfigError, match="some of the coefficients"):
        smaller.compared_with(larger)
