"""Situations that once ended in a wrong model: now the pooled answer, or a sentence that names the reason and the site."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from statsmodels.genmod.families import Binomial, Poisson
from tests.studies.situations import NAMES, SITUATIONS

import fedns
from fedns.core.errors import ConfigError, DataError
from fedns.studies.fit import fit_study
from fedns.studies.study import Study
from fedns.studies.tables.files.frames import read_frame

STATSMODELS = ["Intercept", "age", "dose", "C(arm)[T.low]", "C(arm)[T.placebo]", "C(sex)[T.m]"]


def pooled_answer(paths):
    """What statsmodels makes of the rows, read as the study reads them."""
    frames = [read_frame(path) for path in paths.values()]
    rows = pd.concat(pd.DataFrame({n: f.columns[n].values for n in ("age", "dose", "arm", "sex", "ill")}) for f in frames)
    rows = rows.astype({"age": float, "dose": float}).assign(y=(rows["ill"] == "case").astype(float))
    return smf.glm("y ~ age + dose + C(arm) + C(sex)", rows, family=Binomial()).fit(tol=1e-14).params[STATSMODELS]


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.name)
def test_no_silent_wrong_answer(situation, three_sites, tmp_path):
    paths = situation.write(three_sites, tmp_path)
    if situation.refusal:
        with pytest.raises(DataError) as refused:
            fit_study(situation.study, paths)
        assert all(words in str(refused.value) for words in situation.refusal), str(refused.value)
        return
    fit = fit_study(situation.study, paths)
    expected = pooled_answer(paths)
    assert fit.converged and fit.names == (*NAMES, *situation.absent)
    assert np.isnan(fit.coefficients[len(NAMES) :]).all()
    assert np.abs(fit.coefficients[: len(NAMES)] - expected).max() <= 1e-8 * (1 + np.abs(expected).max())
    assert situation.note in " ".join(fit.notes)


def test_what_differs_may_be_meant(three_sites):
    tables = three_sites | {"south": three_sites["south"].assign(dose=three_sites["south"]["dose"] / 1000)}
    rules = {"dose": fedns.ColumnRule(differs_at=("south",))}
    assert fit_study(Study("score ~ dose", "gaussian", columns=rules), tables).converged


def test_codes_for_missing_values_can_be_named(three_sites):
    south = three_sites["south"].copy()
    south.loc[:5, "dose"] = -999
    study = Study(
        "score ~ dose", "gaussian", missing="complete", columns={"dose": fedns.ColumnRule(missing_codes=(-999.0,))}
    )
    fit = fit_study(study, three_sites | {"south": south})
    rows = pd.concat([*three_sites.values()]).drop(index=[])
    rows = pd.concat([three_sites["north"], south[6:], three_sites["west"]])
    assert np.allclose(fit.coefficients, np.polyfit(rows["dose"], rows["score"], 1)[::-1], rtol=1e-9)
    assert "site 'south': 6 of 80 rows miss a value of 'dose' (6) and are left out" in fit.notes


def test_few_rows_that_are_left_out_are_said_but_not_counted(three_sites):
    south = three_sites["south"].copy()
    south.loc[:1, "dose"] = np.nan
    fit = fit_study(Study("score ~ age + dose", "gaussian", missing="complete"), three_sites | {"south": south})
    (note,) = (note for note in fit.notes if "'south'" in note and "left out" in note)
    assert "a few rows" in note and "'dose' (few)" in note and "78 rows" in note and "2" not in note


def test_a_count_is_not_fitted_by_least_squares_without_a_word(three_sites):
    fit = fit_study(Study("falls ~ age", "gaussian"), three_sites)
    assert any('family = "poisson"' in note for note in fit.notes)


def test_counts(three_sites):
    fit = fit_study(Study("falls ~ age + arm", "poisson"), three_sites)
    rows = pd.concat(three_sites.values())
    expected = smf.glm("falls ~ age + C(arm)", rows, family=Poisson()).fit(tol=1e-14).params
    names = ["Intercept", "age", "C(arm)[T.low]", "C(arm)[T.placebo]"]
    assert np.abs(fit.coefficients - expected[names]).max() <= 1e-8


@pytest.mark.parametrize("column", ["score", "ill"])
def test_what_is_no_count_is_not_fitted_as_one(three_sites, column):
    with pytest.raises(DataError, match=f"the outcome '{column}' of family poisson must be a (count|number)"):
        fit_study(Study(f"{column} ~ age", "poisson"), three_sites)


def test_all_reasons_are_given_at_once(three_sites):
    tables = three_sites | {"south": three_sites["south"].assign(age="old", arm="Placebo")}
    with pytest.raises(fedns.StudyConflict) as refused:
        fit_study(Study("score ~ age + arm", "gaussian"), tables)
    assert len(refused.value.reasons) == 2


def test_rare_levels_are_coded_where_another_site_or_the_study_names_them(three_sites):
    west = three_sites["west"].copy()
    west.loc[:1, "arm"] = "secret"
    tables = three_sites | {"west": west}
    with pytest.raises(DataError, match="site 'west': column 'arm' has rows in 1 level that were not agreed on") as refused:
        fit_study(Study("score ~ arm", "gaussian"), tables)
    assert "secret" not in str(refused.value)
    levels = fedns.ColumnRule(levels=("placebo", "low", "high", "secret"))
    fit = fit_study(Study("score ~ arm", "gaussian", columns={"arm": levels}), tables)
    means = pd.concat(tables.values()).groupby("arm")["score"].mean()
    assert np.allclose(fit["arm[secret]"], means["secret"] - means["placebo"])


def test_a_study_that_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="which values of 'y' are the event"):
        Study("y ~ x", "binomial")
    with pytest.raises(ConfigError, match="a column that it does not use: unknown column 'z'"):
        Study("y ~ x", "gaussian", columns={"z": fedns.ColumnRule()})
    with pytest.raises(ConfigError, match="unknown family 'gauss': did you mean gaussian"):
        Study("y ~ x", "gauss")
