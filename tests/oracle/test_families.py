"""Random problems of every family, split over sites: coefficients, and what they are worth, as statsmodels,
scikit-learn or numpy have them."""

import warnings

import numpy as np
import pytest
import statsmodels.api as sm
from sklearn.svm import LinearSVC

import fedns
from fedns.models.families import FAMILIES as NAMED
from fedns.studies.estimators.fitting import Settings, fit_rows
from fedns.studies.inference.goodness import goodness

LINKS = sm.families.links
GLMS = {
    "squared": (fedns.Squared(), sm.families.Gaussian()),
    "logistic": (fedns.Logistic(), sm.families.Binomial()),
    "probit": (fedns.Probit(), sm.families.Binomial(LINKS.Probit())),
    "cloglog": (fedns.ComplementaryLogLog(), sm.families.Binomial(LINKS.CLogLog())),
    "poisson": (fedns.Poisson(), sm.families.Poisson()),
    "negative_binomial": (fedns.NegativeBinomial(0.6), sm.families.NegativeBinomial(alpha=0.6)),
    "gamma": (fedns.Gamma(), sm.families.Gamma(LINKS.Log())),
}
NAMES = {  # by which studies and estimators know them, with their settings
    "squared": ("gaussian", {}),
    "logistic": ("binomial", {}),
    "probit": ("binomial", {"link": "probit"}),
    "cloglog": ("binomial", {"link": "cloglog"}),
    "poisson": ("poisson", {}),
    "negative_binomial": ("negative_binomial", {"dispersion": 0.6}),
    "gamma": ("gamma", {}),
}
FAMILIES = (*GLMS, "huber", "squared_hinge", "softmax", "cox")


def drawn(family, random):
    """Rows with a constant last, margins, and outcomes as statsmodels has them."""
    rows, columns = int(random.integers(150, 400)), int(random.integers(1, 6))
    x = np.column_stack([random.normal(size=(rows, columns)) * random.uniform(0.5, 2.0, columns), np.ones(rows)])
    z = x @ random.normal(0, 0.4, columns + 1)
    if family in GLMS:
        mean = GLMS[family][1].link.inverse(z)
    uniform = random.uniform(size=rows)
    if family in ("logistic", "probit", "cloglog", "squared_hinge"):
        return x, (uniform < (mean if family in GLMS else 1 / (1 + np.exp(-z)))).astype(float)
    if family == "softmax":
        return x, (np.outer(z, [0.0, 1.0, -1.0]) + random.gumbel(size=(rows, 3))).argmax(axis=1).astype(float)
    if family == "cox":
        times = np.ceil(random.exponential(5 * np.exp(-z)))
        return x, np.where(uniform < 0.7, times, -times)
    kinds = {
        "poisson": random.poisson,
        "negative_binomial": random.poisson,
        "gamma": lambda mean: random.gamma(2.0, mean / 2),
    }
    return x, kinds[family](mean).astype(float) if family in kinds else z + random.standard_t(3, rows)


def fitted(loss, x, y, sizes, weights, strength=0.0):
    """Coefficients by exact Newton steps over the sites."""
    shards = fedns.Shards.from_arrays(x, y, sizes, sample_weights=weights)
    method = fedns.FedNewton(line_search=fedns.ArmijoSearch())
    problem = fedns.Problem(loss, fedns.Ridge(strength))
    return fedns.simulate(method, problem, shards, rounds=60, gradient_tol=1e-13).coefficients


def huber_by_numpy(x, y, threshold):
    """Iteratively reweighted least squares."""
    w = np.linalg.lstsq(x, y, rcond=None)[0]
    for _ in range(2000):
        share = np.minimum(1.0, threshold / np.maximum(np.abs(y - x @ w), 1e-300))
        w = np.linalg.solve((x.T * share) @ x, (x.T * share) @ y)
    return w


def squared_hinge_by_numpy(x, y, strength):
    """Newton steps on the rows that are within the margin, each halved until the objective falls."""

    def objective(w):
        return 0.5 * (np.maximum(0.0, 1 - y * (x @ w)) ** 2).mean() + 0.5 * strength * w @ w

    w = np.zeros(x.shape[1])
    for _ in range(100):
        short = np.maximum(0.0, 1 - y * (x @ w))
        inside = x[short > 0]
        step = np.linalg.solve(
            inside.T @ inside / len(y) + strength * np.eye(w.size), x.T @ (y * short) / len(y) - strength * w
        )
        length = 1.0
        while length > 1e-10 and objective(w + length * step) > objective(w):
            length /= 2
        w = w + length * step
    return w


def check(seed):
    """One problem."""
    random = np.random.default_rng(seed)
    family = FAMILIES[seed % len(FAMILIES)]
    x, y = drawn(family, random)
    sizes = random.multinomial(len(y) - 90, [0.5, 0.3, 0.2]) + 30
    weights = random.integers(1, 4, len(y)).astype(float) if family in GLMS and random.random() < 0.3 else None
    signed = 2 * y - 1
    if family in GLMS:
        loss, rival = GLMS[family]
        events = isinstance(rival, sm.families.Binomial)
        found = fitted(loss, x, signed if events else y, sizes, weights)
        expected = sm.GLM(y, x, rival, freq_weights=weights).fit(tol=1e-15, maxiter=500).params
    elif family == "huber":
        found, expected = fitted(fedns.Huber(1.0), x, y, sizes, weights), huber_by_numpy(x, y, 1.0)
    elif family == "softmax":
        found = fitted(fedns.Softmax(3, reference=True), x, y, sizes, weights)
        expected = sm.MNLogit(y, x).fit(method="newton", disp=0, tol=1e-14, maxiter=200).params.T.ravel()
    elif family == "cox":
        found = fitted(fedns.Cox(), x[:, :-1], y, sizes, weights)
        strata = np.repeat([0, 1, 2], sizes)
        rival = sm.PHReg(np.abs(y), x[:, :-1], status=(y > 0).astype(int), strata=strata, ties="efron")
        expected = rival.fit(method="newton", disp=0, tol=1e-14, maxiter=100).params
    else:
        strength = 0.02
        rival = LinearSVC(C=1 / (2 * strength * len(y)), dual=False, fit_intercept=False, tol=1e-12, max_iter=100_000)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rough = rival.fit(x, signed).coef_[0]
        found, expected = (
            fitted(fedns.SquaredHinge(), x, signed, sizes, weights, strength),
            squared_hinge_by_numpy(x, signed, strength),
        )
        assert np.abs(found - rough).max() <= 1e-6  # where liblinear stops
    worst = np.abs(found - expected) / (1 + np.abs(expected))
    assert worst.max() <= 1e-8, (family, seed, worst.max())


def check_inference(seed):
    """Standard errors of every kind, p values, likelihood and AIC of one problem of a family that statsmodels has."""
    random = np.random.default_rng(seed)
    name = list(GLMS)[seed % len(GLMS)]
    x, y = drawn(name, random)
    sites = random.integers(0, 3, len(y))
    (family, parameters), rival = NAMES[name], GLMS[name][1]
    targets = 2 * y - 1 if isinstance(rival, sm.families.Binomial) else y
    settings = Settings(NAMED[family](**parameters), 0.0, True, "fednewton:line_search=aggregate", 1e-13, 100)
    found = fit_rows(settings, x[:, :-1], targets, None, sites).inference
    model = sm.GLM(y, x, rival)
    fits = {
        "model": model.fit(tol=1e-15, maxiter=500),
        "HC0": model.fit(tol=1e-15, maxiter=500, cov_type="HC0"),
        "site": model.fit(tol=1e-15, maxiter=500, cov_type="cluster", cov_kwds={"groups": sites}),
    }
    bread = np.linalg.inv(model.hessian(fits["model"].params, scale=1.0, observed=True))
    scores = model.score_obs(fits["model"].params, scale=1.0)
    totals = np.stack([scores[sites == site].sum(axis=0) for site in range(3)])
    factor = 1.5 * (len(y) - 1) / (len(y) - x.shape[1])
    # The bread of a robust covariance is the observed information; where a link is canonical it is statsmodels' too.
    robust = {"HC0": bread @ scores.T @ scores @ bread, "site": factor * bread @ totals.T @ totals @ bread}
    for kind, theirs in fits.items():
        canonical = name in ("squared", "logistic", "poisson")
        own = theirs.bse if kind == "model" or canonical else np.sqrt(np.diag(robust[kind]))
        np.testing.assert_allclose(found.standard_errors(kind), own, rtol=1e-6, err_msg=f"{name} {kind} {seed}")
    if name not in ("squared", "gamma"):  # there we have t, as R does, and statsmodels z
        np.testing.assert_allclose(found.p_values(), fits["model"].pvalues, rtol=1e-5, atol=1e-12)
        np.testing.assert_allclose(found.intervals(), fits["model"].conf_int(), rtol=1e-5, atol=1e-8)
    fit = goodness(found, intercepts=1)
    assert fit.log_likelihood == pytest.approx(fits["model"].llf, rel=1e-8), name
    assert fit.aic == pytest.approx(fits["model"].aic, rel=1e-8), name


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_forty_problems(part):
    for seed in range(11 * part, 11 * part + 11):
        check(seed)


@pytest.mark.slow
def test_inference_of_fourteen_problems():
    for seed in range(14):
        check_inference(seed)


@pytest.mark.nightly
def test_five_hundred_problems():
    for seed in range(44, 544):
        check(seed)


@pytest.mark.nightly
def test_inference_of_five_hundred_problems():
    for seed in range(14, 514):
        check_inference(seed)
