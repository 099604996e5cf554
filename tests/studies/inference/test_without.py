"""Models without a site, against statsmodels' fits of the other sites' rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from tests.studies.conftest import made_up
from tests.studies.inference.test_sites import CASE, rows_of
from tests.studies.situations import STUDY, save
from tests.studies.test_federated import Federation

from fedns.reports.fit_page import report
from fedns.studies.fit import fit_study
from fedns.studies.study import Study


def uneven():
    """Three sites that differ, one of them with most of the rows: without it the model is far from the joint one."""
    tables = made_up(rows=400)
    large = pd.concat([tables["north"]] * 6, ignore_index=True)
    large.loc[large["age"] > large["age"].median(), "ill"] = "case"
    return {**tables, "north": large}


@pytest.mark.parametrize("tables", [made_up(), uneven()], ids=["alike", "uneven"])
def test_they_are_fits_of_the_other_rows(tables):
    fit, rows = fit_study(Study("ill ~ age + dose", "binomial", **CASE), tables), rows_of(tables)
    assert fit.without.refitted and not fit.without.notes
    for place, site in enumerate(tables):
        rest = smf.glm("y ~ age + dose", rows[rows["site"] != site], family=sm.families.Binomial()).fit(tol=1e-14)
        off = (fit.site_estimates.without[place] - rest.params.to_numpy()) / rest.bse.to_numpy()
        assert np.abs(off).max() < 1e-4  # standard errors


def test_counts_and_times_too():
    tables = made_up()
    fit, rows = fit_study(Study("falls ~ age + dose", "poisson"), tables), rows_of(tables)
    for place, site in enumerate(tables):
        rest = smf.glm("falls ~ age + dose", rows[rows["site"] != site], family=sm.families.Poisson()).fit(tol=1e-14)
        assert fit.site_estimates.without[place] == pytest.approx(rest.params.to_numpy(), rel=1e-4, abs=1e-6)
    for table in tables.values():
        table["died"] = np.where(np.arange(len(table)) % 3 == 0, "no", "yes")
    study = Study("time ~ age + dose", "cox", status="died", event=("yes",), non_event=("no",))
    whole = fit_study(study, tables)
    for place, site in enumerate(tables):
        rest = fit_study(study, {name: table for name, table in tables.items() if name != site})
        assert whole.site_estimates.without[place] == pytest.approx(rest.coefficients, rel=1e-4)


def test_least_squares_need_no_exchange():
    fit = fit_study(Study("score ~ age + dose", "gaussian"), made_up())
    assert fit.without.refitted and "Gradients" not in {entry.kind for entry in fit.ledger}


def test_over_sites_they_are_the_same_and_counted(tmp_path):
    paths = save(made_up(rows=600), tmp_path)
    here, there = fit_study(STUDY, paths), Federation(paths, tmp_path).fit(STUDY)
    assert there.without.fitted.tobytes() == here.without.fitted.tobytes()
    sent = [entry for entry in there.ledger if entry.kind == "Gradients"]
    assert 1 <= len(sent) <= 6 and sum(entry.bytes for entry in sent) > 0
    assert "fitted without it until it converged" in report(there)


def test_an_owner_who_does_not_permit_it_leaves_one_step(tmp_path):
    paths = save(made_up(rows=600), tmp_path)
    whole = fit_study(STUDY, paths)
    asked = {line.purpose for line in whole.site_lines.sites["north"]} - {"look_at_gradients"}
    fit = Federation(paths, tmp_path, handlers=("evaluate_locally", *asked)).fit(STUDY)
    assert not fit.without.refitted and "does not permit 'look_at_gradients'" in fit.summary()
    assert "taken one Newton step from the joint one" in report(fit)
    assert np.allclose(fit.site_estimates.without, whole.site_estimates.without, rtol=0.2, atol=0.02)
