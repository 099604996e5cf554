"""Solvers that need all rows in one place, each as its documentation says, on the same objective."""

from __future__ import annotations

from typing import Any

import numpy as np
from benchmarks.race.contender import Attempt, Contender, Fit, Task

MOST_STEPS = 100_000  # never what ends an attempt: the time limit is


def scikit_learn(solver: str) -> Contender:
    def prepare(task: Task, features: Any) -> Attempt:
        from sklearn.linear_model import LogisticRegression

        def fit(tolerance: float) -> Fit:
            model = LogisticRegression(
                C=task.cost, fit_intercept=False, solver=solver, tol=tolerance, max_iter=MOST_STEPS, random_state=0
            )
            return Fit(model.fit(features, task.shards.targets).coef_[0])

        return fit

    return Contender(f"scikit-learn {solver}", "scikit-learn", "sklearn", prepare)


def _statsmodels(task: Task, features: Any) -> Attempt:
    import statsmodels.api as sm

    model = sm.GLM((task.shards.targets + 1.0) / 2.0, features, family=sm.families.Binomial())

    def fit(tolerance: float) -> Fit:
        # The only way with a ridge penalty that it has for a GLM: coordinate descent.
        return Fit(model.fit_regularized(alpha=task.strength, L1_wt=0.0, cnvrg_tol=tolerance, maxiter=MOST_STEPS).params)

    return fit


def glum(solver: str) -> Contender:
    def prepare(task: Task, features: Any) -> Attempt:
        from glum import GeneralizedLinearRegressor

        targets = (task.shards.targets + 1.0) / 2.0
        columns = features if isinstance(features, np.ndarray) else features.tocsc()  # what it would convert to

        def fit(tolerance: float) -> Fit:
            model = GeneralizedLinearRegressor(
                family="binomial", alpha=task.strength, l1_ratio=0.0, fit_intercept=False, solver=solver,
                gradient_tol=tolerance, max_iter=MOST_STEPS,
            )  # fmt: skip
            return Fit(model.fit(columns, targets).coef_)

        return fit

    return Contender(f"glum {solver}", "glum", "glum", prepare)


def _skglm(task: Task, features: Any) -> Attempt:
    from skglm.datafits import Logistic
    from skglm.penalties import L2
    from skglm.solvers import LBFGS

    columns = features if isinstance(features, np.ndarray) else features.tocsc()

    def fit(tolerance: float) -> Fit:
        solver = LBFGS(max_iter=MOST_STEPS, tol=tolerance)
        return Fit(solver.solve(columns, task.shards.targets, Logistic(), L2(task.strength))[0])

    return fit


def _snapml(task: Task, features: Any) -> Attempt:
    import snapml

    def fit(tolerance: float) -> Fit:
        model = snapml.LogisticRegression(
            regularizer=1.0 / task.cost, fit_intercept=False, tol=tolerance, max_iter=10_000, n_jobs=2, random_state=0
        )
        return Fit(model.fit(features, task.shards.targets).coef_)

    return fit


def liblinear(solver: int, name: str) -> Contender:
    def prepare(task: Task, features: Any) -> Attempt:
        from liblinear import liblinearutil

        rows = liblinearutil.problem(task.shards.targets, features)  # its own copy, made outside the clock

        def fit(tolerance: float) -> Fit:
            options = liblinearutil.parameter(f"-s {solver} -c {task.cost!r} -e {tolerance!r} -q")
            model = liblinearutil.train(rows, options)
            coefficients = np.array(model.w[: task.shards.num_columns])
            return Fit(coefficients if model.get_labels()[0] == 1 else -coefficients)  # its sign is that of the first row

        return fit

    return Contender(f"LIBLINEAR {name}", "liblinear-official", "liblinear", prepare, layouts=("compressed",))


POOLED = (
    scikit_learn("lbfgs"),
    scikit_learn("newton-cholesky"),
    scikit_learn("liblinear"),
    liblinear(0, "primal"),
    liblinear(7, "dual"),
    glum("irls-ls"),
    glum("lbfgs"),
    Contender("skglm L-BFGS", "skglm", "skglm", _skglm),
    Contender("snapml dual", "snapml", "snapml", _snapml),
    Contender("statsmodels GLM", "statsmodels", "statsmodels", _statsmodels, layouts=("dense",)),
)
