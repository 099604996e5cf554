"""A fit begins at the margin of the mean outcome, whoever makes it, and looks at rank and separation there."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy.stats import norm
from tests.studies.situations import save
from tests.studies.test_federated import OPEN, Federation

from fedns.core.history import Observer
from fedns.federation.permissions import Permissions
from fedns.studies.estimators import FederatedGLM, FederatedLogisticRegression
from fedns.studies.fit import fit_study
from fedns.studies.study import Study

RANDOM = np.random.default_rng(5)
ROWS = 240
TABLE = pd.DataFrame(
    {
        "x": RANDOM.normal(3.0, 2.0, ROWS),
        "time": RANDOM.uniform(0.5, 400.0, ROWS).round(2),
        "weight": RANDOM.integers(1, 5, ROWS),
        "count": RANDOM.poisson(7.0, ROWS),
        "cost": RANDOM.gamma(2.0, 3e-4, ROWS),
        "score": RANDOM.normal(1e4, 1.0, ROWS),
        "ill": np.where(RANDOM.random(ROWS) < 0.15, "yes", "no"),
        "grade": RANDOM.choice(["A", "B", "C"], ROWS, p=[0.1, 0.2, 0.7]),
    }
)
SITES = {"east": TABLE[:100], "west": TABLE[100:]}
WEIGHT = TABLE["weight"]
ILL = float(np.average(TABLE["ill"] == "yes", weights=WEIGHT))
SHARES = [float(np.average(TABLE["grade"] == one, weights=WEIGHT)) for one in "ABC"]
EVENT = {"event": ("yes",), "non_event": ("no",)}


class FirstPoint(Observer):
    """Keeps the coefficients before the first round."""

    point: np.ndarray | None = None

    def on_round(self, record, state):
        self.point = state.coefficients.copy() if self.point is None else self.point


def mean(name: str) -> float:
    return float(np.average(TABLE[name], weights=WEIGHT))


@pytest.mark.parametrize(
    ("formula", "family", "options", "margins"),
    [
        ("count ~ x", "poisson", {}, [math.log(mean("count"))]),
        ("count ~ x", "negative_binomial", {"parameters": {"dispersion": 0.7}}, [math.log(mean("count"))]),
        ("cost ~ x", "gamma", {}, [math.log(mean("cost"))]),
        ("score ~ x", "gaussian", {}, [mean("score")]),
        ("ill ~ x", "binomial", EVENT, [math.log(ILL / (1 - ILL))]),
        ("ill ~ x", "binomial", {**EVENT, "link": "probit"}, [norm.ppf(ILL)]),
        ("ill ~ x", "binomial", {**EVENT, "link": "cloglog"}, [math.log(-math.log(1 - ILL))]),
        ("grade ~ x", "multinomial", {}, [math.log(SHARES[1] / SHARES[0]), math.log(SHARES[2] / SHARES[0])]),
        (
            "count ~ x + offset(log(time))",
            "poisson",
            {},
            [math.log(mean("count") / float(np.average(TABLE["time"], weights=WEIGHT)))],
        ),
        (
            "cost ~ x + offset(log(time))",
            "gamma",
            {},
            [math.log(float(np.average(TABLE["cost"] / TABLE["time"], weights=WEIGHT)))],
        ),
        ("score ~ x + offset(time)", "gaussian", {}, [mean("score") - mean("time")]),
        ("count ~ 1", "poisson", {}, [math.log(mean("count"))]),
        ("count ~ 0 + x", "poisson", {}, None),
        ("ill ~ x + offset(x)", "binomial", EVENT, None),  # by no sum that is told; a search goes from 0
    ],
)  # fmt: skip
def test_the_start_is_the_margin_of_the_mean_outcome(formula, family, options, margins):
    first = FirstPoint()
    study = Study(formula, family, weights="weight", **options)
    assert fit_study(study, SITES, observers=[first]).converged
    expected = np.zeros((len(margins or [0]), first.point.size // len(margins or [0])))
    if margins:
        expected[:, -1] = margins
    assert first.point == pytest.approx(expected.ravel(), rel=1e-6, abs=1e-12)


def test_offsets_of_a_negative_binomial_lead_near_its_null_model():
    """No sum that is told has it exactly: every row weighs its own curvature."""
    first, days = FirstPoint(), 2.0 + TABLE["time"] / 100.0
    study = Study("count ~ x + offset(log(days))", "negative_binomial", parameters={"dispersion": 0.7})
    fit_study(study, {name: table.assign(days=days) for name, table in SITES.items()}, observers=[first])
    rival = sm.GLM(TABLE["count"], np.ones(ROWS), sm.families.NegativeBinomial(alpha=0.7), offset=np.log(days))
    assert first.point[-1] == pytest.approx(float(rival.fit(tol=1e-12).params.iloc[0]), abs=0.2)


def wide(family: str, mean: float, columns: int = 26, rows: int = 400) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Rows with so many columns that the default method is `auto`, and what statsmodels wants of them."""
    random = np.random.default_rng(columns)
    x = random.normal(size=(rows, columns))
    expected = mean * np.exp(x @ random.normal(0, 0.05, columns))
    y = random.poisson(expected).astype(float) if family == "poisson" else random.gamma(2.0, expected / 2.0)
    frame = pd.DataFrame(x, columns=[f"x{place}" for place in range(columns)])
    return frame.assign(y=y), sm.add_constant(x), y


@pytest.mark.parametrize(
    ("family", "mean"), [("poisson", 30.0), ("poisson", 500.0), ("poisson", 1e9), ("gamma", 1e-4), ("gamma", 1e9)]
)
def test_means_far_from_1_are_those_of_statsmodels(family, mean):
    frame, x, y = wide(family, mean)
    rival = {"poisson": sm.families.Poisson(), "gamma": sm.families.Gamma(sm.families.links.Log())}[family]
    theirs = sm.GLM(y, x, rival).fit(tol=1e-14, maxiter=200)
    study = Study("y ~ " + " + ".join(frame.columns[:-1]), family)
    fit = fit_study(study, {"east": frame[:180], "west": frame[180:]})
    assert fit.method == "auto" and fit.converged
    allowed = 1e-8 * np.maximum(theirs.bse, np.abs(theirs.params))
    assert (np.abs(fit.coefficients - theirs.params) < allowed).all()
    ours = FederatedGLM(family).fit(frame.iloc[:, :-1].to_numpy(), y)
    assert (np.abs([ours.intercept_, *ours.coef_] - theirs.params) < allowed).all()


@pytest.mark.parametrize("method", ["default", "auto:prefer=bytes", "fednewton:line_search=aggregate"])
def test_real_sites_answer_about_small_outcomes_under_their_own_rules(method, tmp_path):
    """Where margins are 0 outcomes of 1e-4 have less curvature than a site's rules let it answer about."""
    frame = wide("gamma", 1e-4, rows=900)[0]
    study = Study("y ~ " + " + ".join(frame.columns[:-1]), "gamma", method=method)
    paths = save({"east": frame[:400], "west": frame[400:]}, tmp_path)
    rules = {name: getattr(Permissions(), name) for name in OPEN if "effective" in name or "curvature" in name}
    there, here = Federation(paths, tmp_path, **rules).fit(study), fit_study(study, paths)
    assert there.converged and there.coefficients.tobytes() == here.coefficients.tobytes()


@pytest.mark.parametrize("weighted", [False, True])
def test_estimators_start_there_too(weighted):
    weights = TABLE["weight"].to_numpy(dtype=float) if weighted else np.ones(ROWS)
    x, sites = TABLE[["x"]].to_numpy(), np.repeat(["east", "west"], ROWS // 2)
    count, ill = TABLE["count"].to_numpy(dtype=float), TABLE["ill"].to_numpy() == "yes"
    glm = FederatedGLM("poisson").fit(x, count, sample_weight=weights, sites=sites)
    known = np.average(count, weights=weights)
    assert glm.history_.records[0].objective == pytest.approx(known - known * math.log(known), rel=1e-12)
    logistic = FederatedLogisticRegression().fit(x, ill, sample_weight=weights, sites=sites)
    share = np.average(ill, weights=weights)
    entropy = -share * math.log(share) - (1 - share) * math.log(1 - share)
    assert logistic.history_.records[0].objective == pytest.approx(entropy, rel=1e-12)
    for penalty in (1.0, math.inf):
        classes = FederatedLogisticRegression(C=penalty).fit(x, TABLE["grade"], sample_weight=weights, sites=sites)
        shares = np.array([np.average(TABLE["grade"] == one, weights=weights) for one in "ABC"])
        assert classes.history_.records[0].objective == pytest.approx(-float(shares @ np.log(shares)), rel=1e-12)
