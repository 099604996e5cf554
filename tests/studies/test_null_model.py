"""The model without a term: an intercept, and perhaps an offset, of which everything else is known too."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from tests.studies.situations import save
from tests.studies.test_federated import Federation

from fedns.cli import main
from fedns.core.errors import ConfigError
from fedns.studies.fit import fit_study
from fedns.studies.outputs import write_fit
from fedns.studies.prediction import Model
from fedns.studies.study import Study
from fedns.studies.tables.feature_map import MapRule

CASE = {"event": ("case",), "non_event": ("control",)}
FAMILIES = {
    "gaussian": ("score ~ 1", {}, sm.families.Gaussian()),
    "binomial": ("ill ~ 1", CASE, sm.families.Binomial()),
    "poisson": ("falls ~ offset(log(time))", {}, sm.families.Poisson()),
    "gamma": ("dose ~ 1", {}, sm.families.Gamma(sm.families.links.Log())),
    "negative_binomial": ("falls ~ 1", {"parameters": {"dispersion": 1.0}}, sm.families.NegativeBinomial(alpha=1.0)),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("weights", ["", "weight"])
def test_as_statsmodels_has_it(family, weights, three_sites):
    formula, options, theirs = FAMILIES[family]
    fit = fit_study(Study(formula, family, weights=weights, **options), three_sites)
    rows = pd.concat(three_sites.values())
    y = (rows["ill"] == "case").astype(float) if family == "binomial" else rows[formula.split()[0]].astype(float)
    offset = np.log(rows["time"]) if "offset" in formula else None
    model = sm.GLM(y, np.ones(len(y)), theirs, offset=offset, freq_weights=rows["weight"] if weights else None).fit()
    assert fit.names == ("Intercept",) and fit.converged
    assert np.isclose(fit["Intercept"], model.params.iloc[0], rtol=1e-9, atol=1e-12)
    assert np.isclose(fit.standard_errors()[0], model.bse.iloc[0], rtol=1e-8)
    assert np.isclose(fit.goodness.deviance, model.deviance) and np.isclose(fit.goodness.null_deviance, model.deviance)
    assert fit.goodness.model_df == 0 and np.isnan(fit.goodness.test_statistic) and fit.goodness.r_squared == 0.0
    assert " test on " not in fit.summary() and fit.term_tests() == ()


def test_classes_have_the_shares_for_probabilities(three_sites):
    fit = fit_study(Study("arm ~ 1", "multinomial"), three_sites)
    counts = pd.concat(three_sites.values())["arm"].value_counts()
    assert np.allclose(fit.coefficients, np.log(counts[["low", "placebo"]] / counts["high"]), rtol=1e-8)
    assert fit.converged and fit.diagnostics.classes["low"].total.roc is None


def test_a_larger_model_is_compared_with_it(three_sites):
    null, larger = (fit_study(Study(f"ill ~ {terms}", "binomial", **CASE), three_sites) for terms in ("1", "age + arm"))
    found = larger.compared_with(null)
    assert np.isclose(found.statistic, larger.goodness.test_statistic) and found.df == 3


def test_one_prediction_orders_nothing(three_sites):
    """Sums over rows with one and the same prediction differ by rounding from site to site."""
    fit = fit_study(Study("ill ~ 1", "binomial", **CASE), three_sites)
    assert fit.diagnostics.total.roc is None and "AUC, all sites" not in fit.summary()


def test_it_is_written_read_and_predicts(three_sites, tmp_path):
    study = Study("ill ~ 1", "binomial", **CASE)
    page = write_fit(fit_study(study, three_sites), tmp_path).read_text(encoding="utf-8")
    assert "Wald tests" not in page and ">Intercept<" in page
    told = Model.load(tmp_path / "model.json").predict(pd.DataFrame({"anything": [1, 2]}))
    rate = (pd.concat(three_sites.values())["ill"] == "case").mean()
    assert np.allclose(told.means, rate, rtol=1e-9) and np.allclose(told.standard_errors, np.sqrt(rate * (1 - rate) / 240))


def test_the_command_fits_it(three_sites, tmp_path, capsys):
    save(three_sites, tmp_path)
    (tmp_path / "study.toml").write_text('formula = "score ~ 1"\nfamily = "gaussian"\n', encoding="utf-8")
    tables = [str(path) for path in sorted(tmp_path.glob("*.csv"))]
    with pytest.raises(SystemExit) as ended:
        main(["fit", str(tmp_path / "study.toml"), *tables, "--out", str(tmp_path / "fit")])
    assert not ended.value.code
    assert "Intercept" in capsys.readouterr().out
    written = json.loads((tmp_path / "fit" / "model.json").read_text(encoding="utf-8"))
    assert np.isclose(written["coefficients"]["Intercept"], pd.concat(three_sites.values())["score"].mean())


def test_sites_that_keep_their_rows_give_the_same_bits(three_sites, tmp_path):
    study, paths = Study("falls ~ offset(log(time))", "poisson"), save(three_sites, tmp_path)
    here, there = fit_study(study, paths), Federation(paths, tmp_path).fit(study)
    assert there.coefficients.tobytes() == here.coefficients.tobytes() and there.converged


def test_an_outcome_that_is_always_the_same(three_sites):
    tables = {name: table.assign(score=3.0) for name, table in three_sites.items()}
    fit = fit_study(Study("score ~ 1", "gaussian"), tables)
    assert fit["Intercept"] == 3.0 and "Intercept" in fit.summary()
    assert "Intercept" in fit_study(Study("score ~ age", "gaussian"), tables).summary()


def test_without_columns_there_is_nothing_for_times_or_kernels():
    with pytest.raises(
        ConfigError, match="Cox regression compares the columns of rows, and the formula 'time ~ 1' has none"
    ):
        Study("time ~ 1", "cox", status="ill", **CASE)
    with pytest.raises(ConfigError, match="a feature map makes features of columns, and the formula 'score ~ 1' has none"):
        Study("score ~ 1", "gaussian", strength=1e-3, feature_map=MapRule("fourier", 10))
