"""Columns that say the same, and outcomes that columns separate."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fedns.core.errors import DataError
from fedns.studies.column_rule import ColumnRule
from fedns.studies.fit import fit_study
from fedns.studies.model.estimate import SeparationError
from fedns.studies.study import Study

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
