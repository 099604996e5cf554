"""Random problems of every family, split over sites: the coefficients are those of statsmodels, scikit-learn or numpy."""

import warnings

import numpy as np
import pytest
import statsmodels.api as sm
from sklearn.svm import LinearSVC

import fedns

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


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_forty_problems(part):
    for seed in range(11 * part, 11 * part + 11):
        check(seed)


@pytest.mark.nightly
def test_five_hundred_problems():
    for seed in range(44, 544):
        check(seed)
