"""Studies of every family with one margin against statsmodels: coefficients, with offsets and weights."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import fedns
from fedns.problems.family import Outcomes
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
        ({"family": "negative_binomial", "dispersion": -1.0}, "above 0"),
        ({"family": "huber"}, "huber"),
        ({"family": "weibull"}, "weibull"),
    ],
)
def test_what_a_family_does_not_have_is_refused_with_a_sentence(values, word):
    with pytest.raises(fedns.ConfigError, match=word) as refusal:
        Study.from_dict({"formula": "y ~ x", **values})
    assert "\n" not in str(refusal.value)
