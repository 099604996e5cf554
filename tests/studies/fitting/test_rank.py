"""Columns that say the same, and outcomes that columns separate."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fedns.core.errors import DataError
from fedns.studies.fit import fit_study
from fedns.studies.fitting.estimate import SeparationError
from fedns.studies.study import Study
from fedns.studies.tables.column_rule import ColumnRule

CASE = {"event": ("case",), "non_event": ("control",)}


def sites(frame: pd.DataFrame, number: int = 3) -> dict[str, pd.DataFrame]:
    parts = np.array_split(np.arange(len(frame)), number)
    return {f"site{place}": frame.iloc[part].reset_index(drop=True) for place, part in enumerate(parts)}


@pytest.fixture
def rows():
    random = np.random.default_rng(3)
    frame = pd.DataFrame({"a": random.normal(5, 2, 150), "b": random.normal(size=150), "g": random.choice(list("uvw"), 150)})
    frame["ill"] = np.where(random.random(150) < 1 / (1 + np.exp(-frame["b"])), "case", "control")
    frame["score"] = frame["a"] + random.normal(size=150)
    return frame


def test_the_combination_is_named_on_the_original_scale(rows):
    tables = sites(rows.assign(c=2 * rows["a"] - 3 * rows["b"] + 7))
    fit = fit_study(Study("score ~ a + b + c + g", "gaussian"), tables)
    (alias,) = fit.aliased
    assert str(alias) == "c = 7 Intercept + 2 a - 3 b"
    assert np.isnan(fit["c"])
    design = np.column_stack([np.ones(150), rows["a"], rows["b"], rows["g"] == "v", rows["g"] == "w"]).astype(float)
    expected = np.linalg.lstsq(design, rows["score"].to_numpy(), rcond=None)[0]
    assert np.allclose(np.delete(fit.coefficients, 3), expected, rtol=1e-9)


def test_the_later_column_is_left_out_as_in_r(rows):
    tables = sites(rows.assign(c=2 * rows["a"]))
    assert [alias.name for alias in fit_study(Study("score ~ c + a", "gaussian"), tables).aliased] == ["a"]


def test_several_aliased_columns(rows):
    tables = sites(rows.assign(c=rows["a"] + rows["b"], d=rows["a"] - rows["b"], e=4.0))
    fit = fit_study(Study("score ~ a + b + c + d + e", "gaussian"), tables)
    assert [str(alias) for alias in fit.aliased] == ["c = a + b", "d = a - b", "e = 4 Intercept"]
    assert fit.converged


def test_a_level_that_no_row_has(rows):
    study = Study("score ~ a + g", "gaussian", columns={"g": ColumnRule(levels=("u", "v", "w", "x"))})
    fit = fit_study(study, sites(rows))
    assert str(fit.aliased[0]) == "g[x] = 0"


def test_a_penalty_makes_aliased_columns_identifiable(rows):
    fit = fit_study(Study("score ~ a + c", "gaussian", strength=1e-2), sites(rows.assign(c=2 * rows["a"])))
    assert not fit.aliased and np.isclose(fit["c"], 2 * fit["a"])


def test_nearly_the_same_is_not_the_same(rows):
    noise = np.random.default_rng(0).normal(size=150)
    fit = fit_study(Study("score ~ a + c", "gaussian"), sites(rows.assign(c=rows["a"] + 1e-3 * noise)))
    assert not fit.aliased
    design = np.column_stack([np.ones(150), rows["a"], 1e-3 * noise])
    b = np.linalg.lstsq(design, rows["score"].to_numpy(), rcond=None)[0]
    assert np.allclose([fit["c"], fit["a"]], [b[2], b[1] - b[2]], rtol=1e-7)


def test_complete_separation_is_named(rows):
    tables = sites(rows.assign(ill=np.where(rows["a"] > 5, "case", "control")))
    with pytest.raises(SeparationError, match=r"^a separates the events from the rest"):
        fit_study(Study("ill ~ a + b", "binomial", **CASE), tables)


def test_quasi_separation_names_the_level(rows):
    tables = sites(rows.assign(ill=rows["ill"].where(rows["g"] != "v", "case")))
    with pytest.raises(SeparationError, match=r"g\[v\] separates"):
        fit_study(Study("ill ~ a + b + g", "binomial", **CASE), tables)


def test_separation_at_one_site_alone_is_none(rows):
    tables = sites(rows.sort_values("g").assign(ill=rows["ill"]))
    tables["site0"] = tables["site0"].assign(ill=np.where(tables["site0"]["b"] > 0, "case", "control"))
    assert fit_study(Study("ill ~ b", "binomial", **CASE), tables).converged


def test_a_level_without_any_count(rows):
    counts = np.random.default_rng(1).poisson(2.0, 150)
    tables = sites(rows.assign(falls=np.where(rows["g"] == "w", 0, counts)))
    with pytest.raises(SeparationError, match=r"g\[w\] separates"):
        fit_study(Study("falls ~ a + g", "poisson"), tables)


def test_one_event_is_enough(rows):
    """Steep, and still with a maximum: one row on the wrong side."""
    ill = np.where(rows["a"] > 5, "case", "control")
    ill[int(np.argmax(rows["a"]))] = "control"
    assert fit_study(Study("ill ~ a", "binomial", **CASE), sites(rows.assign(ill=ill))).converged


def test_a_penalty_makes_separated_outcomes_fit(rows):
    tables = sites(rows.assign(ill=np.where(rows["a"] > 5, "case", "control")))
    assert fit_study(Study("ill ~ a", "binomial", strength=1e-4, **CASE), tables).converged


def test_refused_where_the_study_says_so(rows):
    with pytest.raises(DataError, match="columns depend on each other: c = 2 a; take one out"):
        fit_study(Study("score ~ a + c", "gaussian", aliased="refuse"), sites(rows.assign(c=2 * rows["a"])))


def cox_sites(seed: int = 4) -> dict[str, pd.DataFrame]:
    random = np.random.default_rng(seed)
    tables = {}
    for place, beds in enumerate((120, 480, 700)):
        table = pd.DataFrame(
            {"age": random.normal(60, 9, 70).round(1), "beds": beds, "kind": "country" if place else "city"}
        )
        table["months"] = random.exponential(10, 70).round(1) + 0.3
        table["died"] = np.where(random.random(70) < 0.7, "yes", "no")
        tables[f"s{place}"] = table
    return tables


def cox(formula: str, *differing: str, **options) -> Study:
    rules = {name: ColumnRule(differs_at=("s0", "s1", "s2")) for name in differing}
    return Study(formula, "cox", status="died", event=("yes",), non_event=("no",), columns=rules, **options)


def test_what_is_constant_within_every_site_is_left_out_of_cox_and_says_so():
    tables = cox_sites()
    fit = fit_study(cox("months ~ beds + age + C(kind)", "beds"), tables)
    expected = fit_study(cox("months ~ age"), tables)
    sentence = "is constant within every site, and sites are strata"
    assert [str(alias) for alias in fit.aliased] == [f"beds {sentence}", f"kind[country] {sentence}"]
    assert f"note: column beds was left out: beds {sentence}" in fit.summary()
    assert np.isclose(fit["age"], expected["age"], rtol=1e-10) and fit.converged
    assert np.allclose(fit.standard_errors("HC0")[1], expected.standard_errors("HC0")[0], rtol=1e-10)
    with pytest.raises(DataError, match=f"beds {sentence}; take one out"):
        fit_study(cox("months ~ beds + age", "beds", aliased="refuse"), tables)


def test_the_same_column_is_estimated_where_sites_are_no_strata():
    tables = {name: table.assign(score=table["age"] + 0.01 * table["beds"]) for name, table in cox_sites().items()}
    rules = {"beds": ColumnRule(differs_at=("s0", "s1", "s2"))}
    fit = fit_study(Study("score ~ beds + age", "gaussian", columns=rules), tables)
    assert not fit.aliased and np.allclose([fit["beds"], fit["age"]], [0.01, 1.0], rtol=1e-8)
    for family, outcome in (("poisson", "age"), ("gamma", "months")):
        counts = {name: table.assign(age=table["age"].round()) for name, table in tables.items()}
        assert not fit_study(Study(f"{outcome} ~ beds", family, columns=rules), counts).aliased


def test_a_column_that_varies_at_one_site_alone_is_told_by_that_site():
    tables = cox_sites()
    tables["s1"]["beds"] += np.arange(70) % 7
    fit = fit_study(cox("months ~ beds + age", "beds"), tables)
    assert not fit.aliased and np.isfinite(fit.standard_errors()).all()
    others = fit.site_estimates.without
    assert np.isnan(others[1]).all() and np.isfinite(others[0]).all() and np.isfinite(others[2]).all()


@pytest.mark.parametrize("noise", [1e-15, 1e-13, 1e-9, 1e-7])
def test_noise_on_what_is_constant_within_sites_is_no_information(noise):
    """R's coxph leaves out what has less than 1.8e-12 of the column's variance within strata."""
    tables, random = cox_sites(), np.random.default_rng(0)
    expected = fit_study(cox("months ~ age"), tables)["age"]
    for table in tables.values():
        table["beds"] = table["beds"] * (1.0 + noise * random.normal(size=70))
    fit = fit_study(cox("months ~ beds + age", "beds"), tables)
    assert [alias.name for alias in fit.aliased] == ["beds"] and np.isclose(fit["age"], expected, rtol=1e-9)


def test_little_variation_within_sites_is_information():
    tables, random = cox_sites(), np.random.default_rng(0)
    for table in tables.values():
        table["beds"] = table["beds"] * (1.0 + 1e-4 * random.normal(size=70))
    assert not fit_study(cox("months ~ beds + age", "beds"), tables).aliased


def test_rows_that_no_risk_set_holds_tell_nothing():
    tables = cox_sites()
    for table in tables.values():
        table.loc[:9, ["months", "died"]] = [0.1, "no"]
        table["left"] = (table["months"] == 0.1).astype(int)
    fit = fit_study(cox("months ~ left + age"), tables)
    assert [str(alias) for alias in fit.aliased] == [
        "left tells no two rows of a risk set apart, and risk sets are within sites"
    ]
    assert np.isclose(fit["age"], fit_study(cox("months ~ age"), tables)["age"], rtol=1e-10)


@pytest.mark.parametrize("family", ["gaussian", "binomial", "poisson", "gamma", "multinomial"])
@pytest.mark.parametrize("noise", [0.0, 1e-16, 1e-13])
def test_what_is_constant_but_for_rounding_is_the_intercept(rows, family, noise):
    random = np.random.default_rng(5)
    frame = rows.assign(
        c=5.0 * (1.0 + noise * random.normal(size=150)), n=random.poisson(3.0, 150), p=random.gamma(2.0, size=150)
    )
    outcome = {"gaussian": "score", "binomial": "ill", "poisson": "n", "gamma": "p", "multinomial": "g"}[family]
    options = CASE if family == "binomial" else {}
    fit = fit_study(Study(f"{outcome} ~ c + b", family, **options), sites(frame))
    assert {alias.name.rpartition(": ")[2] for alias in fit.aliased} == {"c"}
    assert all(str(alias).endswith("c = 5 " + alias.name.replace("c", "Intercept")) for alias in fit.aliased)
    expected = fit_study(Study(f"{outcome} ~ b", family, **options), sites(frame))
    kept = [name for name in fit.names if name in expected.names]
    assert fit.converged and np.allclose([fit[name] for name in kept], [expected[name] for name in kept], rtol=1e-8)


def test_where_no_column_tells_anything_there_is_nothing_to_fit(rows):
    with pytest.raises(
        DataError, match="nothing is left to fit: beds is constant within every site, and sites are strata; add"
    ):
        fit_study(cox("months ~ beds", "beds"), cox_sites())
    with pytest.raises(DataError, match="nothing is left to fit: z = 0; add a term"):
        fit_study(Study("score ~ 0 + z", "gaussian"), sites(rows.assign(z=0)))
