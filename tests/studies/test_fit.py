"""A study over the tables of several sites gives what statsmodels gives on the pooled, correctly coded rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from sklearn.linear_model import LogisticRegression
from tests.studies.conftest import made_up

from fedns.core.termination import Ending
from fedns.studies.fit import fit_study
from fedns.studies.study import Study
from fedns.studies.tables.column_rule import ColumnRule

CASE = {"event": ("case",), "non_event": ("control",)}


def close(fit, expected, names=None):
    """Whether coefficients agree to 1e-8 (1 + |coefficient|); names: statsmodels' order in ours."""
    expected = np.asarray(expected if names is None else [expected[name] for name in names])
    return np.abs(fit.coefficients - expected).max() <= 1e-8 * (1 + np.abs(expected).max())


def pooled(tables):
    """All rows, with the outcome as 0 and 1 in y."""
    rows = pd.concat(tables.values(), ignore_index=True)
    return rows.assign(y=(rows["ill"] == "case" if "ill" in rows else rows["disease"] == "yes").astype(float))


def test_four_hospitals_from_files_of_four_formats(heart, heart_study, tmp_path):
    names = list(heart)
    suffixes = ("csv", "csv.gz", "parquet", "feather")
    paths = {name: tmp_path / f"{name}.{suffix}" for name, suffix in zip(names, suffixes, strict=True)}
    for name in names[:2]:
        heart[name].to_csv(paths[name], index=False)
    heart[names[2]].to_parquet(paths[names[2]])
    heart[names[3]].to_feather(paths[names[3]])
    fit = fit_study(heart_study, paths)
    rows = pooled(heart).drop(columns="chol").dropna()
    oracle = smf.glm("y ~ age + C(sex) + C(cp) + trestbps + thalach + exang", rows, family=sm.families.Binomial()).fit(
        tol=1e-14
    )
    assert fit.names == (
        "Intercept", "age", "sex[male]", "cp[atypical]", "cp[nonanginal]", "cp[typical]", "trestbps", "thalach", "exang",
    )  # fmt: skip
    order = ["Intercept", "age", "C(sex)[T.male]", *(f"C(cp)[T.{p}]" for p in ("atypical", "nonanginal", "typical"))]
    assert close(fit, oracle.params, [*order, "trestbps", "thalach", "exang"])
    assert fit.ending is Ending.DECREMENT and fit.newton_decrement < 1e-10
    assert fit.num_rows == len(rows)


@pytest.mark.parametrize("family", ["binomial", "gaussian"])
def test_interactions_functions_and_polynomials(three_sites, family):
    outcome = {"binomial": "ill", "gaussian": "score"}[family]
    study = Study(
        f"{outcome} ~ age * arm + log(dose) + poly(dose, 2) + sqrt(time):sex", family,
        **(CASE if family == "binomial" else {}),
        columns={"arm": ColumnRule(levels=("placebo", "low", "high"))},
    )  # fmt: skip
    fit = fit_study(study, three_sites)
    rows = pooled(three_sites)
    design = _by_hand(rows)
    assert tuple(design.columns) == fit.names
    oracle = sm.GLM(
        rows["y" if family == "binomial" else "score"], design, family=getattr(sm.families, family.title())()
    ).fit(tol=1e-14)
    assert close(fit, oracle.params)


def _by_hand(rows):
    arm = {level: (rows["arm"] == level).astype(float) for level in ("low", "high")}
    powers = np.vander(rows["dose"] - rows["dose"].mean(), 3, increasing=True)
    q, r = np.linalg.qr(powers)
    poly = q * np.sign(np.diag(r))  # orthonormal, increasing in the leading power, as R's
    columns = {"Intercept": np.ones(len(rows)), "age": rows["age"]}
    columns |= {f"arm[{level}]": arm[level] for level in arm}
    columns |= {"log(dose)": np.log(rows["dose"])}
    columns |= {f"poly(dose, 2)[{degree}]": poly[:, degree] for degree in (1, 2)}
    columns |= {f"age:arm[{level}]": rows["age"] * arm[level] for level in arm}
    columns |= {f"sqrt(time):sex[{sex}]": np.sqrt(rows["time"]) * (rows["sex"] == sex) for sex in ("f", "m")}
    return pd.DataFrame(columns)


def test_a_spline_has_knots_that_every_site_shares(three_sites):
    from patsy import dmatrix

    study = Study("score ~ bs(age, df=5) + sex", "gaussian", columns={"age": ColumnRule(range=(20.0, 110.0))})
    fit = fit_study(study, three_sites)
    rows = pooled(three_sites)
    knots = fit.agreed.design.agreement.knots["bs(age, df=5)"]
    assert knots[0] == 20 and knots[-1] == 110
    assert np.abs(np.array(knots[1:-1]) - rows["age"].quantile([1 / 3, 2 / 3])).max() < 2  # near the pooled quantiles
    design = np.asarray(
        dmatrix("bs(x, knots=k, lower_bound=20, upper_bound=110, degree=3)", {"x": rows["age"], "k": knots[1:-1]})
    )
    oracle = sm.OLS(rows["score"], np.column_stack([design, rows["sex"] == "m"]).astype(float)).fit()
    assert close(fit, oracle.params)


def test_weights_are_repeated_rows(three_sites):
    study = Study("ill ~ age + arm", "binomial", weights="weight", **CASE)
    fit = fit_study(study, three_sites)
    rows = pooled(three_sites)
    repeated = rows.loc[rows.index.repeat(rows["weight"])]
    order = ["Intercept", "age", "C(arm)[T.low]", "C(arm)[T.placebo]"]
    oracle = smf.glm("y ~ age + C(arm)", repeated, family=sm.families.Binomial()).fit(tol=1e-14)
    assert close(fit, oracle.params, order)


def test_the_penalty_is_on_the_original_scale_and_its_strength_is_one_over_n_times_sklearns_c(three_sites):
    study = Study("ill ~ age * sex + dose", "binomial", strength=2e-3, **CASE)
    fit = fit_study(study, three_sites)
    rows = pooled(three_sites)
    male = (rows["sex"] == "m").astype(float)
    design = np.column_stack([rows["age"], male, rows["dose"], rows["age"] * male])
    oracle = LogisticRegression(C=1 / (len(rows) * 2e-3), solver="newton-cholesky", tol=1e-12, max_iter=1000)
    oracle.fit(design, rows["ill"] == "case")
    assert close(fit, np.concatenate([oracle.intercept_, oracle.coef_[0]]))


def test_a_strength_for_one_term_alone(three_sites):
    study = Study("score ~ age + dose", "gaussian", strengths={"dose": 50.0})
    fit = fit_study(study, three_sites)
    rows = pooled(three_sites)
    design = np.column_stack([np.ones(len(rows)), rows["age"], rows["dose"]])
    ridge = np.diag([0.0, 0.0, 50.0 * len(rows)])
    assert close(fit, np.linalg.solve(design.T @ design + ridge, design.T @ rows["score"]))


@pytest.mark.parametrize("absent", [["low"], ["placebo"], ["low", "placebo"]])
def test_levels_that_a_site_does_not_have(three_sites, absent):
    south = three_sites["south"]
    tables = three_sites | {"south": south[~south["arm"].isin(absent)].reset_index(drop=True)}
    study = Study("ill ~ age + arm", "binomial", columns={"arm": ColumnRule(reference="placebo")}, **CASE)
    fit = fit_study(study, tables)
    oracle = smf.glm("y ~ age + C(arm, Treatment('placebo'))", pooled(tables), family=sm.families.Binomial()).fit(tol=1e-14)
    names = ["Intercept", "age", *(f"C(arm, Treatment('placebo'))[T.{level}]" for level in ("high", "low"))]
    assert close(fit, oracle.params, names)


@pytest.mark.parametrize(
    "absent", [[], ["low"], ["placebo"], ["low", "placebo"]], ids=["none", "middle", "reference", "but one"]
)
@pytest.mark.parametrize("family", ["binomial", "gaussian", "poisson"])
def test_four_unequal_sites_give_the_pooled_estimate_to_ten_digits(absent, family):
    """199, 172, 30 and 85 rows; the smallest may lack a level in the middle, the reference, or all but one."""
    rows = pd.concat(made_up(486, seed=5).values(), ignore_index=True)
    ends = np.cumsum([199, 172, 30, 85])
    tables = {
        f"site{i}": rows.iloc[end - size : end] for i, (end, size) in enumerate(zip(ends, (199, 172, 30, 85), strict=True))
    }
    small = tables["site2"]
    tables["site2"] = small.assign(arm=small["arm"].where(~small["arm"].isin(absent), "high"))
    outcome = {"binomial": "ill", "gaussian": "score", "poisson": "falls"}[family]
    levels = {"arm": ColumnRule(levels=("placebo", "low", "high"))}
    fit = fit_study(
        Study(f"{outcome} ~ age + dose + arm", family, columns=levels, **(CASE if family == "binomial" else {})), tables
    )
    rows = pooled(tables)
    z = [(rows[name] - rows[name].mean()) / rows[name].std() for name in ("age", "dose")]
    design = np.column_stack([np.ones(len(rows)), *z, rows["arm"] == "low", rows["arm"] == "high"]).astype(float)
    target = rows["y" if family == "binomial" else outcome]
    b = sm.GLM(target, design, family=getattr(sm.families, family.title())()).fit(tol=1e-16, maxiter=100).params.to_numpy()
    slopes = b[1:3] / rows[["age", "dose"]].std().to_numpy()
    expected = [b[0] - slopes @ rows[["age", "dose"]].mean().to_numpy(), *slopes, *b[3:]]
    assert np.abs(fit.coefficients - expected).max() <= 1e-10 * (1 + np.abs(expected).max())


def test_missing_numbers_get_the_mean_of_all_sites_and_an_indicator(three_sites):
    tables = {name: frame.copy() for name, frame in three_sites.items()}
    tables["north"].loc[:7, "age"] = np.nan
    tables["west"].loc[:9, "arm"] = None
    fit = fit_study(Study("score ~ age + arm", "gaussian", missing="mean"), tables)
    rows = pooled(tables)
    gap = rows["age"].isna()
    arm = rows["arm"].fillna("missing")
    design = np.column_stack(
        [np.ones(len(rows)), rows["age"].fillna(rows["age"].mean()), arm == "low", arm == "placebo", arm == "missing", gap]
    ).astype(float)
    assert fit.names[1:] == ("age", "arm[low]", "arm[placebo]", "arm[missing]", "age[missing]")
    assert close(fit, np.linalg.lstsq(design, rows["score"].to_numpy(), rcond=None)[0])


def test_columns_far_from_zero_do_not_cost_digits(three_sites):
    tables = {
        name: frame.assign(year=2020 + frame["time"], small=1e-9 * frame["dose"]) for name, frame in three_sites.items()
    }
    fit = fit_study(Study("score ~ year * sex + small", "gaussian"), tables)
    rows = pooled(tables)
    male = (rows["sex"] == "m").astype(float)
    near = np.column_stack([np.ones(len(rows)), rows["time"], male, rows["dose"], rows["time"] * male])
    b = np.linalg.lstsq(near, rows["score"].to_numpy(), rcond=None)[0]
    expected = [b[0] - 2020 * b[1], b[1], b[2] - 2020 * b[4], b[3] * 1e9, b[4]]
    assert np.allclose(fit.coefficients, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("family", ["binomial", "gaussian", "poisson"])
def test_an_offset_is_added_to_every_margin(three_sites, family):
    outcome = {"binomial": "ill", "gaussian": "score", "poisson": "falls"}[family]
    fit = fit_study(
        Study(f"{outcome} ~ age + arm + offset(log(time))", family, **(CASE if family == "binomial" else {})), three_sites
    )
    rows = pooled(three_sites)
    design = np.column_stack([np.ones(len(rows)), rows["age"], rows["arm"] == "low", rows["arm"] == "placebo"]).astype(float)
    target = rows["y" if family == "binomial" else outcome]
    model = sm.GLM(target, design, family=getattr(sm.families, family.title())(), offset=np.log(rows["time"]))
    assert close(fit, model.fit(tol=1e-15).params)
    assert fit.names == ("Intercept", "age", "arm[low]", "arm[placebo]")


@pytest.mark.parametrize("method", ["fedns:sketch_size=60", "fedndes:sketch_size=60", "gd:step_size=1.0"])
def test_other_methods_give_the_same_or_say_that_they_have_not_converged(three_sites, method):
    plain = Study("ill ~ age + dose", "binomial", **CASE)
    exact = fit_study(plain, three_sites)
    fit = fit_study(replace(plain, method=method, tolerance=1e-6, rounds=40), three_sites)
    assert not fit.converged or np.allclose(fit.coefficients, exact.coefficients, rtol=1e-4)
    assert fit.method == method.partition(":")[0]
