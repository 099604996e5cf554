"""A whole fit with inference at ten sites against pooled fits of other packages: statsmodels, glum, scikit-learn.

    python benchmarks/fit_race.py [--rows 100000] [--columns 50] [--rounds 5]

Every package takes its turn in every round, to about the same accuracy; what is compared are the fastest turns. Ours is
the path of the estimators, without a handshake: rows in, coefficients, Hessian, robust sums and likelihood out. Theirs are
given the pooled rows as numpy arrays. glum and statsmodels are not needed to use this package: those that are not installed
are left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
import warnings
from collections.abc import Callable

import numpy as np
from scipy.special import expit

import fedns

SITES = 10


def problem(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x = random.normal(size=(rows, columns))
    w = random.normal(size=columns) / np.sqrt(columns)
    y = (random.random(rows) < expit(x @ w - 0.3)).astype(np.float64)
    return x, y, np.repeat(np.arange(SITES), -(-rows // SITES))[:rows]


def ours(x: np.ndarray, y: np.ndarray, sites: np.ndarray) -> np.ndarray:
    model = fedns.FederatedLogisticRegression(C=np.inf, tol=1e-8).fit(x, y, sites=sites)
    model.inference_.standard_errors("HC1")
    return np.append(model.coef_, model.intercept_)


def statsmodels(x: np.ndarray, y: np.ndarray, sites: np.ndarray) -> np.ndarray:
    import statsmodels.api as sm

    fit = sm.GLM(y, np.column_stack([x, np.ones(len(y))]), sm.families.Binomial()).fit()
    assert fit.bse.all() and np.isfinite(fit.llf)
    return np.asarray(fit.params)


def glum(x: np.ndarray, y: np.ndarray, sites: np.ndarray) -> np.ndarray:
    from glum import GeneralizedLinearRegressor

    fit = GeneralizedLinearRegressor(family="binomial", alpha=0.0, gradient_tol=1e-9).fit(x, y)
    fit.std_errors(x, y)
    return np.append(fit.coef_, fit.intercept_)


def scikit_learn(x: np.ndarray, y: np.ndarray, sites: np.ndarray) -> np.ndarray:
    from sklearn.linear_model import LogisticRegression

    fit = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-8).fit(x, y)  # it has no standard errors
    return np.append(fit.coef_, fit.intercept_)


RACERS: dict[str, Callable[..., np.ndarray]] = {
    "fedns": ours, "statsmodels": statsmodels, "glum": glum, "scikit-learn newton-cholesky": scikit_learn,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    x, y, sites = problem(arguments.rows, arguments.columns)
    modules = {"glum": "glum", "statsmodels": "statsmodels"}
    racers = {name: run for name, run in RACERS.items() if importlib.util.find_spec(modules.get(name, "sklearn"))}
    walls: dict[str, list[float]] = {name: [] for name in racers}
    processor: dict[str, list[float]] = {name: [] for name in racers}
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of deprecated arguments in other packages
        for run in racers.values():
            run(x[:2000], y[:2000], sites[:2000])  # compiled, imported
        for _ in range(arguments.rounds):
            for name, run in racers.items():
                wall, spent = time.perf_counter(), time.process_time()
                found[name] = run(x, y, sites)
                walls[name].append(time.perf_counter() - wall)
                processor[name].append(time.process_time() - spent)
    print(f"{arguments.rows} x {arguments.columns} at {SITES} sites, best of {arguments.rounds} turns")
    print(f"{'':30}{'seconds':>10}{'processor':>12}{'of fedns':>10}{'coefficients differ by':>25}")
    for name in racers:
        apart = float(np.abs(found[name] - found["fedns"]).max())
        ratio = min(walls[name]) / min(walls["fedns"])
        print(f"{name:30}{min(walls[name]):10.3f}{min(processor[name]):12.3f}{ratio:10.2f}{apart:25.1e}")


if __name__ == "__main__":
    main()
