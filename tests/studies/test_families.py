"""Studies of every family with one margin against statsmodels: coefficients, with offsets and weights."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from tests.models.test_cox import scores_by_loops
from tests.studies.situations import save
from tests.studies.test_federated import OPEN, Federation

import fedns
from fedns.federation.permissions import Permissions
from fedns.models.family import Outcomes
from fedns.studies.fit import fit_study
from fedns.studies.study import Study

LINKS = sm.families.links
CASES = {
    "probit": ("binomial", {"link": "probit"}, sm.families.Binomial(LINKS.Probit())),
    "cloglog": ("binomial", {"link": "cloglog"}, sm.families.Binomial(LINKS.CLogLog())),
    "negative_binomial": (
        "negative_binomial",
        {"parameters": {"dispersion": 0.7}},
        sm.families.NegativeBinomial(alpha=0.7),
    ),
    "gamma": ("gamma", {}, sm.families.Gamma(LINKS.Log())),
}


def table(study, seed):
    """Rows whose outcome follows the study's family."""
    random = np.random.default_rng(seed)
    rows = 260
    found = pd.DataFrame({"age": random.normal(55, 12, rows), "arm": random.choice(["a", "b", "c"], rows)})
    found["days"], found["weight"] = random.uniform(0.5, 3.0, rows).round(2), random.integers(1, 4, rows)
    z = 0.03 * (found["age"] - 55) + found["arm"].map({"a": 0.0, "b": 0.4, "c": -0.5}) + np.log(found["days"])
    mean = np.asarray(study.distribution.mean(z.to_numpy()))
    if study.distribution.outcomes is Outcomes.EVENT:
        found["y"] = np.where(random.uniform(size=rows) < mean, "yes", "no")
    elif study.distribution.outcomes is Outcomes.COUNT:
        found["y"] = random.poisson(mean * random.gamma(1 / 0.7, 0.7, rows))
    else:
        found["y"] = random.gamma(2.0, mean / 2.0)
    return found


@pytest.mark.parametrize("case", CASES)
def test_coefficients_are_those_of_statsmodels(case):
    family, options, rival = CASES[case]
    if family == "binomial":
        options = {**options, "event": ("yes",), "non_event": ("no",)}
    study = Study("y ~ age + arm + offset(log(days))", family, weights="weight", **options)
    tables = {name: table(study, seed) for seed, name in enumerate(("north", "south", "west"))}
    fit = fit_study(study, tables)
    rows = pd.concat(tables.values())
    y = (rows["y"] == "yes").astype(float) if family == "binomial" else rows["y"]
    centred = (rows["age"] - 55) / 12  # statsmodels stops early on columns far from 0
    x = np.column_stack([np.ones(len(rows)), centred, rows["arm"] == "b", rows["arm"] == "c"]).astype(float)
    found = sm.GLM(y, x, rival, offset=np.log(rows["days"]), freq_weights=rows["weight"]).fit(tol=1e-14, maxiter=500)
    expected = np.asarray(found.params)
    expected = np.array([expected[0] - 55 / 12 * expected[1], expected[1] / 12, *expected[2:]])
    assert fit.converged
    assert fit.names == ("Intercept", "age", "arm[b]", "arm[c]")
    np.testing.assert_allclose(fit.coefficients, expected, rtol=0, atol=1e-8 * (1 + np.abs(expected)).min())


def test_a_study_file_names_link_and_parameters_beside_the_family():
    values = {"formula": "y ~ x", "family": "negative_binomial", "dispersion": 0.7}
    study = Study.from_dict(values)
    assert study.distribution.loss == fedns.NegativeBinomial(0.7)
    assert Study.from_json(study.to_json()) == study
    outcome = {"event": ["1"], "non_event": ["0"]}
    assert Study.from_dict({"formula": "y ~ x", "family": "binomial", "link": "probit", "outcome": outcome}).link == "probit"


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"family": "poisson", "dispersion": 0.7}, "dispersion"),
        ({"family": "poisson", "link": "probit"}, "probit"),
        ({"family": "negative_binomial", "dispersion": -1.0}, "> 0"),
        ({"family": "negative_binomial"}, "needs its dispersion"),
        ({"family": "huber"}, "huber"),
        ({"family": "weibull"}, "weibull"),
    ],
)
def test_what_a_family_does_not_have_is_refused_with_a_sentence(values, word):
    with pytest.raises(fedns.ConfigError, match=word) as refusal:
        Study.from_dict({"formula": "y ~ x", **values})
    assert "\n" not in str(refusal.value)


def survival(seed, rows=180):
    random = np.random.default_rng(seed)
    found = pd.DataFrame({"age": random.normal(60, 10, rows), "arm": random.choice(["a", "b", "c"], rows)})
    z = 0.04 * (found["age"] - 60) + found["arm"].map({"a": 0.0, "b": 0.5, "c": -0.5})
    found["months"] = np.ceil(random.exponential(12 * np.exp(-z)))  # many ties
    found["died"] = np.where(random.uniform(size=rows) < 0.7, "yes", "no")
    return found


def test_cox_regression_is_that_of_statsmodels_with_sites_as_strata():
    study = Study("months ~ age + arm", "cox", status="died", event=("yes",), non_event=("no",))
    assert Study.from_json(study.to_json()) == study
    tables = {name: survival(seed) for seed, name in enumerate(("north", "south", "west"))}
    fit = fit_study(study, tables)
    rows = pd.concat(tables.values())
    x = np.column_stack([(rows["age"] - 60) / 10, rows["arm"] == "b", rows["arm"] == "c"]).astype(float)
    status, strata = (rows["died"] == "yes").astype(int).to_numpy(), np.repeat([0, 1, 2], 180)
    rival = sm.PHReg(rows["months"].to_numpy(), x, status=status, strata=strata, ties="efron")
    rival = rival.fit(method="newton", disp=0, tol=1e-14, maxiter=100)
    scale = np.array([10.0, 1.0, 1.0])
    assert fit.converged and fit.names == ("age", "arm[b]", "arm[c]")
    np.testing.assert_allclose(fit.coefficients, rival.params / scale, atol=1e-8)
    assert fit.inference.family.ratio == "hazard ratio"
    np.testing.assert_allclose(fit.inference.standard_errors(), rival.bse / scale, rtol=1e-6)
    assert (fit.goodness.log_likelihood, fit.goodness.model_df) == pytest.approx((rival.llf, 3), rel=1e-10)
    null = sm.PHReg(rows["months"].to_numpy(), x, status=status, strata=strata, ties="efron").loglike(np.zeros(3))
    assert (fit.goodness.null_log_likelihood, fit.goodness.aic) == pytest.approx((null, 6 - 2 * rival.llf), rel=1e-10)
    y = np.where(status == 1, 1.0, -1.0) * rows["months"].to_numpy()
    scores = [scores_by_loops(x[strata == one], y[strata == one], np.ones(180), rival.params) for one in range(3)]
    bread = rival.cov_params()
    for kind, parts, factor in (
        ("HC0", np.concatenate(scores), 1.0),
        ("HC1", np.concatenate(scores), 540 / 537),
        ("site", np.stack([part.sum(axis=0) for part in scores]), 3 / 2 * 539 / 537),
    ):
        expected = np.sqrt(factor * np.diag(bread @ parts.T @ parts @ bread)) / scale
        np.testing.assert_allclose(fit.standard_errors(kind), expected, rtol=1e-6, err_msg=kind)
    assert "hazard ratio" in fit.summary("HC0") and "nan" not in fit.summary("HC0")


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"status": ""}, "status"),
        ({"status": "age"}, "one role"),
        ({"family": "poisson"}, "status"),
        ({"event": ()}, "died"),
    ],
)
def test_a_cox_study_says_what_is_missing(changed, word):
    values = {"formula": "months ~ age", "family": "cox", "status": "died", "event": ("yes",), "non_event": ("no",)}
    with pytest.raises(fedns.ConfigError, match=word):
        Study(**(values | changed))


def test_real_sites_give_the_simulators_bits_of_cox_regression_under_their_own_rules(tmp_path):
    """The guard's default limits on rows and concentration are on: honest runs are not refused."""
    study = Study("months ~ age + arm", "cox", status="died", event=("yes",), non_event=("no",))
    paths = save({name: survival(seed, rows=400) for seed, name in enumerate(("north", "south", "west"))}, tmp_path)
    limits = {name: getattr(Permissions(), name) for name in OPEN if "effective" in name or "largest_record" in name}
    there = Federation(paths, tmp_path, **limits).fit(study)
    assert there.coefficients.tobytes() == fit_study(study, paths).coefficients.tobytes()
