"""Studies whose outcome has several classes, against statsmodels' MNLogit on the pooled rows."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from tests.studies.situations import save
from tests.studies.test_federated import OPEN, Federation

from fedns.core.errors import ConfigError, DataError, FednsError
from fedns.federation.permissions import Permissions
from fedns.reports.fit_page import report
from fedns.studies.checking import check_table
from fedns.studies.draft import draft_study, draft_text
from fedns.studies.fit import fit_study
from fedns.studies.fitting.estimate import SeparationError
from fedns.studies.outputs import fit_csv, write_fit
from fedns.studies.prediction import Model
from fedns.studies.study import Study
from fedns.studies.tables.column_rule import ColumnRule
from fedns.studies.tables.files.frames import read_frame

STUDY = Study("travel ~ age + sex", "multinomial", columns={"travel": ColumnRule(reference="car")})
NAMES = ("Intercept", "age", "sex[m]")


def commuters(rows=200, seed=0):
    """Three sites; nobody in the west takes the bus."""
    random = np.random.default_rng(seed)
    found = {}
    for site in ("north", "south", "west"):
        frame = pd.DataFrame({"age": random.normal(45, 12, rows).round(1), "sex": random.choice(["f", "m"], rows)})
        z = np.column_stack([np.zeros(rows), 0.03 * (frame["age"] - 45), 0.8 * (frame["sex"] == "m") - 0.5])
        which = (z + random.gumbel(size=(rows, 3))).argmax(axis=1)
        which[(which == 1) & (site == "west")] = 0
        found[site] = frame.assign(travel=np.array(["car", "bus", "foot"])[which], count=random.integers(1, 4, rows))
    return found


def pooled(tables, often=None):
    """statsmodels' model of all rows, age centred and scaled; the way back to the original scale; the sites."""
    rows = pd.concat(tables.values(), ignore_index=True)
    sites = np.repeat(np.arange(len(tables)), [len(table) for table in tables.values()])
    chosen = np.repeat(np.arange(len(rows)), rows[often] if often else 1)
    x = np.column_stack([np.ones(len(rows)), (rows["age"] - 45) / 12, rows["sex"] == "m"]).astype(float)[chosen]
    y = rows["travel"].map({"car": 0, "bus": 1, "foot": 2}).to_numpy()[chosen]
    back = np.array([[1, -45 / 12, 0], [0, 1 / 12, 0], [0, 0, 1]])
    return sm.MNLogit(y, x), np.kron(np.eye(2), back), sites[chosen]


@pytest.mark.parametrize("weights", ["", "count"])
def test_coefficients_errors_likelihood_and_tests_are_those_of_statsmodels(weights):
    tables = commuters()
    fit = fit_study(replace(STUDY, weights=weights), tables)
    model, back, sites = pooled(tables, weights)
    theirs = model.fit(method="newton", disp=0, tol=1e-14, maxiter=100)
    robust = model.fit(method="newton", disp=0, tol=1e-14, maxiter=100, cov_type="HC0")
    clustered = model.fit(method="newton", disp=0, tol=1e-14, maxiter=100, cov_type="cluster", cov_kwds={"groups": sites})
    assert fit.converged and fit.names == tuple(f"{one}: {name}" for one in ("bus", "foot") for name in NAMES)
    expected = back @ theirs.params.T.ravel()
    assert (np.abs(fit.coefficients - expected) <= 1e-8 * (1 + np.abs(expected))).all()
    for kind, rival in (("model", theirs), ("HC0", robust), ("site", clustered)):
        covariance = back @ np.asarray(rival.cov_params()) @ back.T
        np.testing.assert_allclose(fit.standard_errors(kind), np.sqrt(np.diag(covariance)), rtol=1e-6)
    found = fit.goodness
    assert (found.log_likelihood, found.null_log_likelihood) == pytest.approx((theirs.llf, theirs.llnull), rel=1e-10)
    assert (found.aic, found.bic, found.r_squared) == pytest.approx((theirs.aic, theirs.bic, theirs.prsquared), rel=1e-8)
    assert (found.model_df, found.test_p_value) == pytest.approx((theirs.df_model, theirs.llr_pvalue), rel=1e-7)


def test_a_term_is_tested_over_all_classes():
    tables = commuters()
    fit, smaller = fit_study(STUDY, tables), fit_study(replace(STUDY, formula="travel ~ age"), tables)
    model, _, _ = pooled(tables)
    theirs = model.fit(method="newton", disp=0, tol=1e-14)
    restriction = np.zeros((2, 6))
    restriction[0, 2] = restriction[1, 5] = 1.0
    wald = theirs.wald_test(restriction, scalar=True)
    by_term = {test.term: test for test in fit.term_tests()}
    assert by_term["sex"].df == 2 and by_term["sex"].statistic == pytest.approx(float(wald.statistic), rel=1e-7)
    likelihood = sm.MNLogit(model.endog, model.exog[:, :2]).fit(method="newton", disp=0, tol=1e-14).llf
    assert fit.compared_with(smaller).statistic == pytest.approx(2 * (theirs.llf - likelihood), rel=1e-8)
    assert fit.compared_with(smaller).df == 2


def test_a_class_that_few_rows_have_is_refused_where_it_is():
    tables = commuters()
    tables["west"].loc[:2, "travel"] = "bus"
    assert fit_study(STUDY, tables, smallest_count=1).converged
    strange = commuters()
    strange["west"].loc[:2, "travel"] = "horse"
    with pytest.raises(FednsError, match="site 'west': column 'travel' has rows in 1 level that were not agreed on"):
        fit_study(STUDY, strange)


def test_sites_give_the_simulators_bits_under_their_own_rules(tmp_path):
    paths = save(commuters(rows=500), tmp_path)
    limits = {name: getattr(Permissions(), name) for name in OPEN}
    there = Federation(paths, tmp_path, **limits).fit(STUDY)
    here = fit_study(STUDY, paths)
    assert there.coefficients.tobytes() == here.coefficients.tobytes()
    assert there.standard_errors("HC0").tobytes() == here.standard_errors("HC0").tobytes()
    assert there.uplink_bytes == here.uplink_bytes


def test_a_site_with_a_rare_class_refuses(tmp_path):
    tables = commuters()
    tables["west"].loc[:2, "travel"] = "bus"
    with pytest.raises(FednsError, match=r"'west'.*R2: a group of its rows is too small"):
        Federation(save(tables, tmp_path), tmp_path).fit(STUDY)
    listed = replace(STUDY, columns={"travel": ColumnRule(levels=("car", "bus", "foot"))})
    check = check_table(listed, read_frame(tmp_path / "west.csv"), Permissions(rare_levels="show"))
    assert "an outcome has fewer rows than your limit of 5: this site will refuse" in check.sections["what your limits say"]
    assert "200 rows, 6 coefficients with the intercept" in check.sections["what your limits say"]


def test_classes_that_a_column_separates_are_named():
    tables = commuters()
    tables = {site: frame.assign(far=1.0 * (frame["travel"] == "foot")) for site, frame in tables.items()}
    with pytest.raises(SeparationError, match=r": far.* some classes from the rest"):
        fit_study(replace(STUDY, formula="travel ~ age + far"), tables)


def test_a_column_that_others_determine_is_left_out_of_every_class():
    tables = {site: frame.assign(months=12 * frame["age"]) for site, frame in commuters().items()}
    fit = fit_study(replace(STUDY, formula="travel ~ age + sex + months"), tables)
    kept = ~np.isnan(fit.coefficients)
    assert [alias.name for alias in fit.aliased] == ["bus: months", "foot: months"]
    plain = fit_study(STUDY, tables)
    np.testing.assert_allclose(fit.coefficients[kept], plain.coefficients, rtol=1e-7)
    np.testing.assert_allclose(fit.standard_errors("HC0")[kept], plain.standard_errors("HC0"), rtol=1e-7)


def test_predictions_are_class_probabilities(tmp_path):
    tables = commuters()
    write_fit(fit_study(STUDY, tables), tmp_path)
    new = pd.DataFrame({"age": [30.0, 61.5, 40.0], "sex": ["m", "f", "x"]})
    found = Model.load(tmp_path / "model.json").predict(new)
    model, _, _ = pooled(tables)
    theirs = model.fit(method="newton", disp=0, tol=1e-14)
    x = np.array([[1.0, (30 - 45) / 12, 1.0], [1.0, (61.5 - 45) / 12, 0.0]])
    assert found.classes == ("car", "bus", "foot")
    np.testing.assert_allclose(found.means[:2], theirs.predict(x), rtol=1e-8)

    def likely(flat):  # by finite differences in the coefficients, class by class
        z = np.column_stack([np.zeros(2), x @ flat.reshape(2, 3).T])
        return np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)

    w, step = theirs.params.T.ravel(), 1e-6
    slopes = np.stack([(likely(w + step * e) - likely(w - step * e)) / (2 * step) for e in np.eye(6)], axis=-1)
    errors = np.sqrt(np.einsum("rcn,nm,rcm->rc", slopes, np.asarray(theirs.cov_params()), slopes))
    np.testing.assert_allclose(found.standard_errors[:2], errors, rtol=1e-6)
    assert ((found.low[:2] > 0) & (found.low[:2] < found.means[:2]) & (found.high[:2] < 1)).all()
    assert np.isnan(found.means[2]).all() and "which no site had" in found.refusals[2]
    lines = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert float(lines[1]["prediction[foot]"]) == found.means[1, 2] and lines[2]["prediction[car]"] == ""


def test_table_page_and_file_go_class_by_class():
    fit = fit_study(STUDY, commuters())
    text = fit.summary("HC1")
    assert "travel = bus, compared with car" in text and "travel = foot, compared with car" in text
    assert "odds ratio" in text and "Pearson" not in text and "nan" not in text
    page = report(fit)
    assert page.count("Odds ratios with 95 % intervals") == 2 and page.count("compared with car</h3>") == 2
    rows = list(csv.DictReader(io.StringIO(fit_csv(fit))))
    assert [(row["class"], row["name"], row["term"]) for row in rows[3:]] == [
        ("foot", "Intercept", "Intercept"), ("foot", "age", "age"), ("foot", "sex[m]", "sex"),
    ]  # fmt: skip


def test_a_draft_of_an_outcome_with_three_texts_is_multinomial():
    draft = draft_study({site: read_frame(table) for site, table in commuters().items()}, "travel")
    assert draft.study.family == "multinomial" and "[columns.travel]" in draft_text(draft)
    assert fit_study(draft.study, commuters()).converged


def test_what_such_a_study_cannot_have_is_refused():
    with pytest.raises(ConfigError, match="offset"):
        Study("travel ~ age + offset(count)", "multinomial")
    with pytest.raises(ConfigError, match="event and non_event"):
        Study("travel ~ age", "multinomial", event=("car",), non_event=("bus",))
    with pytest.raises(DataError, match="fewer than two classes"):
        fit_study(STUDY, {"north": commuters()["north"].assign(travel="car")})


def test_weights_of_classes_are_weights_of_their_rows():
    tables = commuters()
    weighted = fit_study(replace(STUDY, class_weights={"bus": 3.0, "foot": 2.0}, weights="count"), tables)
    often = {"car": 1, "bus": 3, "foot": 2}
    columns = {site: frame.assign(count=frame["count"] * frame["travel"].map(often)) for site, frame in tables.items()}
    by_column = fit_study(replace(STUDY, weights="count"), columns)
    assert weighted.coefficients.tobytes() == by_column.coefficients.tobytes()
    assert weighted.standard_errors("HC0").tobytes() == by_column.standard_errors("HC0").tobytes()
    study = Study("ill ~ age", "binomial", event=("case",), non_event=("control",), class_weights={"case": 2.0})
    assert Study.from_json(study.to_json()) == study
    ill = {site: frame.assign(ill=np.where(frame["sex"] == "m", "case", "control")) for site, frame in tables.items()}
    rows = pd.concat(ill.values())
    rival = sm.GLM((rows["ill"] == "case") * 1.0, sm.add_constant(rows["age"] - 45), sm.families.Binomial(),
                   freq_weights=np.where(rows["ill"] == "case", 2, 1)).fit(tol=1e-14)  # fmt: skip
    assert fit_study(study, ill)["age"] == pytest.approx(rival.params["age"], abs=1e-8)


@pytest.mark.parametrize(
    ("study", "word"),
    [
        ({"formula": "y ~ x", "family": "gaussian"}, "belong to families"),
        ({"formula": "y ~ x", "family": "binomial", "event": ("a",), "non_event": ("b",)}, "outcome of class_weights"),
    ],
)
def test_weights_of_classes_that_there_are_not(study, word):
    with pytest.raises(ConfigError, match=word):
        Study(**study, class_weights={"c": 2.0})
    with pytest.raises(ConfigError, match="above 0"):
        replace(STUDY, class_weights={"bus": 0.0})
