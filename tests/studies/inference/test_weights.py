"""Weights are counts of rows, precisions of rows, or how many others a row stands for: standard errors go by that."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from tests.studies.conftest import made_up
from tests.studies.situations import save
from tests.studies.test_federated import Federation

from fedns.core.errors import ConfigError, DataError
from fedns.studies.fit import fit_study
from fedns.studies.outputs import write_fit
from fedns.studies.prediction import Model
from fedns.studies.study import Study

CASE = {"event": ("case",), "non_event": ("control",)}
FAMILIES = {
    "gaussian": ("score", sm.families.Gaussian()),
    "binomial": ("ill", sm.families.Binomial()),
    "poisson": ("falls", sm.families.Poisson()),
    "gamma": ("dose", sm.families.Gamma(sm.families.links.Log())),
}


@pytest.fixture(scope="module")
def tables():
    """With weights between 0.2 and 3, one in ten of them 0."""
    random, found = np.random.default_rng(7), made_up()
    for table in found.values():
        table["w"] = np.where(random.random(len(table)) < 0.1, 0.0, random.uniform(0.2, 3.0, len(table))).round(3)
    return found


def fitted(tables, family, weights_are, weights="w", **options):
    own = {**CASE, **({"status": "ill"} if family == "cox" else {})} if family in ("binomial", "cox") else {}
    formula = f"{FAMILIES[family][0]} ~ age + sex" if family in FAMILIES else "time ~ age + dose"
    return fit_study(Study(formula, family, weights=weights, weights_are=weights_are, **own, **options), tables)


def rows_of(tables, family, weights="w"):
    rows = pd.concat(tables.values())
    rows = rows[rows[weights] > 0]
    y = (rows["ill"] == "case").astype(float) if family == "binomial" else rows[FAMILIES[family][0]].astype(float)
    x = np.column_stack([np.ones(len(rows)), rows["age"], rows["sex"] == "m"]).astype(float)
    return y.to_numpy(), x, rows[weights].to_numpy(dtype=float)


@pytest.mark.parametrize("family", FAMILIES)
def test_counts_as_statsmodels_freq_weights(family, tables):
    fit = fitted(tables, family, "counts", "weight")
    y, x, w = rows_of(tables, family, "weight")
    theirs = sm.GLM(y, x, FAMILIES[family][1], freq_weights=w).fit(tol=1e-13)
    assert np.allclose(fit.standard_errors(), theirs.bse, rtol=1e-7)
    repeated = np.repeat(np.arange(len(y)), w.astype(int))
    robust = sm.GLM(y[repeated], x[repeated], FAMILIES[family][1]).fit(cov_type="HC0", tol=1e-13)
    assert np.allclose(fit.standard_errors("HC0"), robust.bse, rtol=1e-7)
    assert fit.goodness.observations == w.sum() and fit.goodness.residual_df == w.sum() - 3


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("scale", [1.0, 1e-4])
def test_precisions_as_statsmodels_var_weights(family, scale, tables):
    tables = {name: table.assign(w=scale * table["w"]) for name, table in tables.items()}
    fit = fitted(tables, family, "precision")
    y, x, w = rows_of(tables, family)
    model = sm.GLM(y, x, FAMILIES[family][1], var_weights=w)
    theirs, robust = model.fit(tol=1e-13 * scale), model.fit(cov_type="HC0", tol=1e-13 * scale)
    found = fit.goodness
    assert np.allclose(fit.coefficients, theirs.params, rtol=1e-7)
    assert np.allclose(fit.standard_errors(), theirs.bse, rtol=1e-7)
    assert np.allclose(fit.standard_errors("HC0"), robust.bse, rtol=1e-7)
    assert found.observations == len(y) and found.residual_df == len(y) - 3
    assert np.isclose(found.deviance, theirs.deviance, rtol=1e-8) and np.isclose(found.pearson, theirs.pearson_chi2)
    assert np.isclose(found.dispersion, theirs.scale, rtol=1e-8)
    if family == "gaussian":
        wls = sm.WLS(y, x, w).fit()
        assert np.isclose(found.log_likelihood, wls.llf) and np.isclose(found.test_statistic, wls.fvalue)
        assert np.allclose([row.p_value for row in fit.rows()], wls.pvalues, rtol=1e-6)
    elif family == "gamma":
        assert np.isnan(found.aic)
    else:
        assert np.isclose(found.log_likelihood, theirs.llf, rtol=1e-8)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e3])
def test_samples_by_the_sandwich_of_weighted_scores(family, scale, tables):
    """R's svyglm with every row its own unit: n / (n - 1) (X'WX)^-1 sum (w s)(w s)' (X'WX)^-1, t on n - p."""
    tables = {name: table.assign(w=scale * table["w"]) for name, table in tables.items()}
    fit = fitted(tables, family, "sampling")
    y, x, w = rows_of(tables, family)
    robust = sm.GLM(y, x, FAMILIES[family][1], var_weights=w).fit(cov_type="HC0", tol=1e-13 * scale)
    n, p = x.shape
    assert np.allclose(fit.coefficients, robust.params, rtol=1e-7)
    assert np.allclose(fit.standard_errors(), robust.bse * np.sqrt(n / (n - 1)), rtol=1e-7)
    assert np.allclose(fit.standard_errors("HC1"), robust.bse * np.sqrt(n / (n - p)), rtol=1e-7)
    assert fit.inference.statistic_name() == "t" and fit.inference.distribution().df == n - p
    site = np.concatenate([np.full((table["w"] > 0).sum(), place) for place, table in enumerate(tables.values())])
    off = (y - robust.fittedvalues) / (robust.fittedvalues if family == "gamma" else 1.0)
    totals = np.stack([(x[site == one] * (w * off)[site == one, None]).sum(axis=0) for one in range(3)])
    mean = robust.fittedvalues
    curvature = {"gaussian": np.ones(n), "binomial": mean * (1 - mean), "poisson": mean, "gamma": y / mean}[family]
    bread = np.linalg.inv((x * (w * curvature)[:, None]).T @ x)
    clustered = 3 / 2 * (n - 1) / (n - p) * bread @ totals.T @ totals @ bread
    assert np.allclose(fit.standard_errors("site"), np.sqrt(np.diag(clustered)), rtol=1e-6)
    assert np.isnan(fit.goodness.aic) and np.isnan(fit.goodness.test_p_value) and "\nAIC" not in fit.summary()


def test_what_does_not_depend_on_the_unit_of_a_samples_weights(tables):
    one, other = (
        fitted({name: table.assign(w=scale * table["w"]) for name, table in tables.items()}, "gaussian", "sampling")
        for scale in (1.0, 250.0)
    )
    assert np.isclose(one.goodness.dispersion, other.goodness.dispersion)
    for here, there in zip(one.heterogeneity, other.heterogeneity, strict=True):
        assert np.isclose(here.q, there.q, rtol=1e-6)
    assert np.allclose(one.site_estimates.standard_errors, other.site_estimates.standard_errors, rtol=1e-6)


@pytest.mark.parametrize("weights_are", ["precision", "sampling"])
def test_what_a_site_says_alone_is_what_it_would_say_alone(weights_are, tables):
    fit = fitted(tables, "gaussian", weights_are)
    alone = fitted({"north": tables["north"]}, "gaussian", weights_are)
    assert np.allclose(fit.site_estimates.coefficients[0], alone.coefficients, rtol=1e-8)
    found = fit.site_estimates.standard_errors[0] / alone.standard_errors()
    assert np.allclose(found, 1.0, rtol=1e-8 if weights_are == "precision" else 0.05)


def test_weights_of_one_say_the_same_in_every_kind():
    tables = {name: table.assign(w=1.0) for name, table in made_up().items()}
    fits = {kind: fitted(tables, "poisson", kind) for kind in ("counts", "precision", "sampling")}
    for kind in ("HC0", "HC1", "site"):
        assert np.allclose(fits["counts"].standard_errors(kind), fits["sampling"].standard_errors(kind), rtol=1e-10)
        assert np.allclose(fits["counts"].standard_errors(kind), fits["precision"].standard_errors(kind), rtol=1e-10)
    assert np.isclose(fits["counts"].goodness.aic, fits["precision"].goodness.aic)


def lin_wei(tables, b, w_of_meat):
    """Sum over rows of their scores' products, in plain loops (Lin and Wei 1989), no ties; and the information."""
    meat, information = np.zeros((b.size,) * 2), np.zeros((b.size,) * 2)
    for table in tables.values():
        x, t = table[["age", "dose"]].to_numpy(dtype=float), table["time"].to_numpy()
        died, w = (table["ill"] == "case").to_numpy(), table["w"].to_numpy()
        r = w * np.exp(x @ b)
        events = [(k, r @ (t >= t[k]), (r * (t >= t[k])) @ x / (r @ (t >= t[k]))) for k in np.flatnonzero(died & (w > 0))]
        for k, total, mean in events:
            at = (t >= t[k]) & (w > 0)
            information += w[k] * ((x[at] - mean).T * r[at]) @ (x[at] - mean) / total
        for row in np.flatnonzero(w > 0):
            score = died[row] * (x[row] - next((m for k, _, m in events if k == row), x[row]))
            for k, total, mean in events:
                score = score - (t[row] >= t[k]) * w[k] * np.exp(x[row] @ b) / total * (x[row] - mean)
            meat += w_of_meat(w[row]) * np.outer(score, score)
    return meat, information


def test_times_have_both_conventions(tables):
    """R's coxph(weights=, robust=TRUE) takes (w s)^2, as a sample needs; of counts a row of weight 2 is two rows: w s^2."""
    random = np.random.default_rng(0)
    tables = {name: table.assign(time=1.0 + random.permutation(len(table))) for name, table in tables.items()}
    sample = fitted(tables, "cox", "sampling")
    meat, information = lin_wei(tables, sample.coefficients, lambda w: w**2)
    bread, n = np.linalg.inv(information), sum((table["w"] > 0).sum() for table in tables.values())
    assert np.allclose(sample.covariance("HC0"), bread @ meat @ bread, rtol=1e-6)
    assert np.allclose(sample.covariance(), n / (n - 1) * bread @ meat @ bread, rtol=1e-6)
    counted = {name: table.assign(w=np.maximum(1.0, table["w"].round())) for name, table in tables.items()}
    counts = fitted(counted, "cox", "counts")
    meat, information = lin_wei(counted, counts.coefficients, lambda w: w)
    bread = np.linalg.inv(information)
    assert np.allclose(counts.covariance("HC0"), bread @ meat @ bread, rtol=1e-6)
    assert np.allclose(counts.covariance(), bread, rtol=1e-6)


@pytest.mark.parametrize("family", ["gaussian", "binomial", "gamma", "cox"])
def test_weights_that_are_no_counts_are_asked_about(family, tables):
    normalised = {
        name: table.assign(w=table["w"] / sum(t["w"].sum() for t in tables.values())) for name, table in tables.items()
    }
    with pytest.raises(DataError, match=r"weights 'w' sum to 1 over \d+ rows.*weights_are = \"precision\" or \"sampling\""):
        fitted(normalised, family, "counts")
    ones = {name: table.assign(w=(table["w"] > 0).astype(float)) for name, table in tables.items()}
    assert fitted(ones, family, "counts").converged  # rows of weight 0 are none, and the rest count once


def test_a_site_asks_too(tables, tmp_path):
    small = {name: table.assign(w=0.1 * table["w"]) for name, table in tables.items()}
    paths = save(small, tmp_path)
    with pytest.raises(DataError, match="weights_are"):
        Federation(paths, tmp_path / "a").fit(Study("score ~ age", "gaussian", weights="w"))
    study = Study("score ~ age", "gaussian", weights="w", weights_are="sampling")
    here, there = fit_study(study, paths), Federation(paths, tmp_path / "b").fit(study)
    assert here.standard_errors().tobytes() == there.standard_errors().tobytes()


def test_class_weights_below_one_are_remarked_on():
    fit = fitted(made_up(), "binomial", "counts", "", class_weights={"control": 0.1})
    assert any("weights of classes sum to" in note and "weights_are" in note for note in fit.notes)
    assert not any("weights_are" in note for note in fitted(made_up(), "binomial", "counts", "").notes)


def test_it_is_declared_checked_and_part_of_the_digest(tmp_path):
    plain = Study("score ~ age", "gaussian", weights="w")
    other = Study("score ~ age", "gaussian", weights="w", weights_are="precision")
    assert plain.digest != other.digest and "weights_are" not in plain.as_dict()
    assert Study.from_json(other.to_json()) == other
    (tmp_path / "study.toml").write_text(
        'formula = "score ~ age"\nfamily = "gaussian"\nweights = "w"\nweights_are = "precision"\n', encoding="utf-8"
    )
    assert Study.read(tmp_path / "study.toml").digest == other.digest
    with pytest.raises(ConfigError, match="weights_are 'pweights'"):
        Study("score ~ age", "gaussian", weights="w", weights_are="pweights")
    with pytest.raises(ConfigError, match="says what weights are, and the study has none"):
        Study("score ~ age", "gaussian", weights_are="sampling")
    with pytest.raises(ConfigError, match="times have no variance"):
        Study("time ~ age", "cox", status="ill", weights="w", weights_are="precision", **CASE)


def test_it_is_said_written_and_predicted_with(tables, tmp_path):
    fit = fitted(tables, "binomial", "sampling")
    assert "12 of 120 rows have a weight of 0 and are left out" in fit.summary()
    assert "svyglm" in fit.summary() and "no AIC" in fit.summary()
    assert "svyglm" in write_fit(fit, tmp_path).read_text(encoding="utf-8")
    assert np.isnan(fit.diagnostics.total.area_error) and np.isnan(fit.diagnostics.total.calibration[0].low)
    assert json.loads((tmp_path / "model.json").read_text(encoding="utf-8"))["study"]["weights_are"] == "sampling"
    assert np.isfinite(Model.load(tmp_path / "model.json").predict(tables["north"]).low).all()
    with pytest.raises(ConfigError, match="no likelihood to compare models by"):
        fit.compared_with(fit_study(Study("ill ~ age", "binomial", weights="w", weights_are="sampling", **CASE), tables))


def test_as_many_coefficients_as_rows():
    """There is nothing left to tell a variance from."""
    table = pd.DataFrame({"y": [1.0, 2.5, 2.0, 4.0, 5.5, 1.5], "g": list("aabbcc"), "x": [0.3, 1.2, 0.1, 2.2, 0.7, 1.9]})
    table = pd.concat([table] * 5, ignore_index=True).assign(w=0.2)
    fit = fit_study(Study("y ~ g * x", "gaussian", weights="w", weights_are="precision"), {"all": table})
    assert np.isfinite(fit.standard_errors()).all() and fit.goodness.residual_df == 24
