"""What a fit says of its predictions, on one machine and over sites, against scikit-learn on the pooled rows."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from scipy.special import softmax
from sklearn.metrics import roc_auc_score
from tests.studies.conftest import made_up
from tests.studies.questions.test_concordance import brute_force
from tests.studies.situations import STUDY, save
from tests.studies.test_federated import Federation

from fedns.core.errors import DataError
from fedns.reports.fit_page import report
from fedns.studies.fit import fit_study
from fedns.studies.outputs import write_fit
from fedns.studies.study import Study

FORMULA = "y ~ age + dose + C(arm) + C(sex)"


@pytest.fixture(scope="module")
def tables():
    return made_up(rows=3000)


@pytest.fixture(scope="module")
def fit(tables):
    return fit_study(STUDY, tables)


def pooled(tables):
    rows = pd.concat([table.assign(site=name) for name, table in tables.items()], ignore_index=True)
    return rows.assign(y=(rows["ill"] == "case").astype(float))


def test_areas_and_means_are_those_of_the_rows(tables, fit):
    rows = pooled(tables)
    rows["p"] = smf.glm(FORMULA, rows, family=sm.families.Binomial()).fit(tol=1e-12).predict(rows)
    parts = {"all": rows, **{site: rows[rows["site"] == site] for site in tables}}
    found = {"all": fit.diagnostics.total, **fit.diagnostics.sites}
    for name, part in parts.items():
        one = found[name]
        low, high = one.roc.bounds
        theirs = roc_auc_score(part["y"], part["p"])
        assert low <= theirs <= high and abs(one.roc.area - theirs) < 0.01
        assert one.groups.observed == pytest.approx(part["y"].mean(), rel=1e-12)
        assert one.groups.expected == pytest.approx(part["p"].mean(), rel=1e-7)


def test_a_held_out_site_is_predicted_by_the_others(tables, fit):
    rows = pooled(tables)
    for site in tables:
        others = smf.glm(FORMULA, rows[rows["site"] != site], family=sm.families.Binomial()).fit(tol=1e-12)
        own = rows[rows["site"] == site]
        one, p = fit.diagnostics.held_out[site], others.predict(own)
        assert abs(one.roc.area - roc_auc_score(own["y"], p)) < (one.roc.bounds[1] - one.roc.bounds[0]) / 2 + 0.002
        assert one.groups.expected == pytest.approx(p.mean(), rel=1e-5)


def test_residuals_of_numbers_and_counts(tables):
    rows = pooled(tables)
    for study, family in (
        (Study("score ~ age + dose", "gaussian"), sm.families.Gaussian()),
        (Study("falls ~ age + dose", "poisson"), sm.families.Poisson()),
    ):
        theirs = smf.glm(study.formula, rows, family=family).fit(tol=1e-12)
        found = fit_study(study, tables).diagnostics.total
        expected = np.quantile(theirs.resid_pearson, (0.05, 0.25, 0.5, 0.75, 0.95), method="inverted_cdf")
        assert found.quantiles == pytest.approx(expected, rel=0.1, abs=0.02)
        assert found.groups.observed == pytest.approx(theirs.model.endog.mean())
        assert found.roc is None and len(found.calibration) == 10


def test_sites_tell_what_the_simulator_tells(tmp_path):
    paths = save(made_up(rows=600), tmp_path)
    here, there = fit_study(STUDY, paths), Federation(paths, tmp_path).fit(STUDY)
    assert json.dumps(there.diagnostics.as_dict()) == json.dumps(here.diagnostics.as_dict())


def test_a_refusal_costs_these_figures_alone(tmp_path):
    paths = save(made_up(), tmp_path)
    fit, whole = Federation(paths, tmp_path, score_tables=0).fit(STUDY), fit_study(STUDY, paths)
    assert fit.converged and np.array_equal(fit.standard_errors("HC0"), whole.standard_errors("HC0"))
    with pytest.raises(DataError, match="permits no table of scores"):
        _ = fit.diagnostics
    assert "how the model predicts is not known" in fit.summary() and "permits no table of scores" in report(fit)


def test_a_site_with_few_of_an_outcome_says_nothing(tables):
    few = tables["west"]
    cases = few.index[few["ill"] == "case"]
    tables = {**tables, "west": few.drop(cases[3:])}
    found = fit_study(STUDY, tables).diagnostics
    assert set(found.sites) == {"north", "south"} and "too few rows" in found.notes[0]


def test_figures_are_in_every_output(fit, tmp_path):
    write_fit(fit, tmp_path)
    model = json.loads((tmp_path / "model.json").read_text(encoding="utf-8"))
    assert model["diagnostics"]["total"]["auc"]["area"] == fit.diagnostics.total.roc.area
    assert set(model["diagnostics"]["held_out"]) == {"north", "south", "west"}
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert 'id="chart-roc"' in text and 'id="chart-calibration"' in text
    assert f"{fit.diagnostics.total.roc.area:.4f}" in text and f"{fit.diagnostics.total.roc.area:.4f}" in fit.summary()


def timed(rows=240):
    tables = made_up(rows)
    for table in tables.values():
        table["died"] = np.where(np.arange(len(table)) % 3 == 0, "no", "yes")
    return tables


def test_times_have_a_concordance_within_sites(tmp_path):
    tables = timed()
    study = Study("time ~ age + dose", "cox", status="died", event=("yes",), non_event=("no",))
    fit = fit_study(study, tables)
    agree = pairs = 0.0
    for site, table in tables.items():
        risk, event = table[["age", "dose"]].to_numpy() @ fit.coefficients, (table["died"] == "yes").to_numpy()
        own = brute_force(table["time"].to_numpy(), event, risk)
        assert fit.diagnostics.sites[site].index == pytest.approx(own[0] / own[1], rel=1e-12)
        agree, pairs = agree + own[0], pairs + own[1]
    assert fit.diagnostics.total.index == pytest.approx(agree / pairs, rel=1e-12)
    rest = fit_study(study, {name: table for name, table in tables.items() if name != "south"})
    south, event = tables["south"], (tables["south"]["died"] == "yes").to_numpy()
    own = brute_force(south["time"].to_numpy(), event, south[["age", "dose"]].to_numpy() @ rest.coefficients)
    assert fit.diagnostics.held_out["south"].index == pytest.approx(own[0] / own[1], rel=1e-12)
    assert f"{fit.diagnostics.total.index:.4f}" in fit.summary() and "Harrell" in report(fit)
    there = Federation(save(tables, tmp_path), tmp_path).fit(study)
    assert json.dumps(there.diagnostics.as_dict()) == json.dumps(fit.diagnostics.as_dict())


def test_classes_have_areas_one_against_the_rest(tmp_path):
    tables = made_up(rows=1500)
    study = Study("arm ~ age + dose + score", "multinomial")
    fit, rows = fit_study(study, tables), pooled(tables)
    classes = fit.agreed.design.classes
    margins = np.column_stack([np.ones(len(rows)), rows[["age", "dose", "score"]]]) @ fit.coefficients.reshape(2, 4).T
    likely = softmax(np.pad(margins, ((0, 0), (1, 0))), axis=1)
    for place, name in enumerate(classes):
        one, y = fit.diagnostics.classes[name], (rows["arm"] == name).to_numpy()
        low, high = one.total.roc.bounds
        theirs = roc_auc_score(y, likely[:, place])
        assert low <= theirs <= high and abs(one.total.roc.area - theirs) < 0.01
        assert one.total.groups.expected == pytest.approx(likely[:, place].mean(), rel=1e-8)
        assert set(one.held_out) == set(tables) and one.refitted
        assert f"{name}: all sites" in fit.summary()
        assert f"{name}, {one.total.roc.area:.3f}" in report(fit)
    there = Federation(save(tables, tmp_path), tmp_path).fit(study)
    assert json.dumps(there.diagnostics.as_dict()) == json.dumps(fit.diagnostics.as_dict())


def test_tables_of_classes_are_counted_one_by_one(tmp_path):
    fit = Federation(save(made_up(rows=1500), tmp_path), tmp_path, score_tables=2).fit(
        Study("arm ~ age + dose", "multinomial")
    )
    assert len(fit.diagnostics.classes) == 2 and "permits 2 tables" in fit.summary()
