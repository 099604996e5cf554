"""A plugin of pytest that puts our estimators in the place of scikit-learn's while its own test files run.

Loaded by `-p`, before those files are imported. Parameters with a counterpart are passed on (C, alpha, fit_intercept, tol,
max_iter, class_weight, link); those that say how scikit-learn goes about it (solver, random_state, n_jobs, ...) mean nothing
here. What is left of a setting without counterpart is refused by `NoCounterpart`, and so are tests that need it.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import sklearn
import sklearn.linear_model
from sklearn.linear_model import _glm

from fedns.models.families import FAMILIES
from fedns.studies.estimators import FederatedGLM, FederatedLogisticRegression, FederatedRidge

FITS = 0  # of ours, so far
FOLDER = Path(sklearn.__file__).parent


class NoCounterpart(NotImplementedError):
    """A setting of scikit-learn's that our estimators do not have."""


def refuse(**settings):
    given = [name for name, value in settings.items() if value]
    if given:
        raise NoCounterpart(f"no counterpart: {', '.join(given)}")


class Counted:
    """Counts its fits, has the settings that scikit-learn's class has beside ours, and deals rows to three sites."""

    def fit(self, X, y, sample_weight=None):
        global FITS
        FITS += 1
        self.check_settings(y)
        rows = np.shape(X)[0] if np.ndim(X) == 2 or scipy.sparse.issparse(X) else 0
        return super().fit(X, y, sample_weight=sample_weight, sites=np.arange(rows) % 3 if rows > 2 else None)

    def check_settings(self, y):
        pass


def only_one_target(y):
    refuse(several_targets=y is not None and np.ndim(y) == 2 and np.shape(y)[1] > 1)


class LogisticRegression(Counted, FederatedLogisticRegression):
    method = FederatedLogisticRegression().method

    def __init__(
        self,
        penalty="deprecated",
        *,
        C=1.0,
        l1_ratio=0.0,
        dual=False,
        tol=1e-4,
        fit_intercept=True,
        intercept_scaling=1,
        class_weight=None,
        random_state=None,
        solver="lbfgs",
        max_iter=100,
        verbose=0,
        warm_start=False,
        n_jobs=None,
    ):
        self.penalty, self.C, self.l1_ratio, self.dual, self.tol = penalty, C, l1_ratio, dual, tol
        self.fit_intercept, self.intercept_scaling, self.class_weight = fit_intercept, intercept_scaling, class_weight
        self.random_state, self.solver, self.max_iter, self.verbose = random_state, solver, max_iter, verbose
        self.warm_start, self.n_jobs = warm_start, n_jobs

    def check_settings(self, y):
        others = self.penalty not in ("deprecated", "l2", None)
        refuse(l1_ratio=self.l1_ratio, penalty=others, dual=self.dual, intercept_scaling=self.intercept_scaling != 1)

    def _settled(self, rows):
        settings = super()._settled(rows)
        return settings._replace(strength=0.0) if self.penalty is None else settings


class Ridge(Counted, FederatedRidge):
    method = FederatedRidge().method

    def __init__(
        self,
        alpha=1.0,
        *,
        fit_intercept=True,
        copy_X=True,
        max_iter=None,
        tol=1e-4,
        solver="auto",
        positive=False,
        random_state=None,
    ):
        self.alpha, self.fit_intercept, self.copy_X, self.max_iter = alpha, fit_intercept, copy_X, max_iter
        self.tol, self.solver, self.positive, self.random_state = tol, solver, positive, random_state

    def check_settings(self, y):
        refuse(positive=self.positive, several_alphas=np.ndim(self.alpha) > 0)
        only_one_target(y)

    def _settled(self, rows):
        return super()._settled(rows)._replace(rounds=self.max_iter or FederatedRidge().max_iter)


class LinearRegression(Counted, FederatedRidge):
    alpha, method, max_iter = 0.0, FederatedRidge().method, FederatedRidge().max_iter

    def __init__(self, *, fit_intercept=True, copy_X=True, tol=1e-6, n_jobs=None, positive=False):
        self.fit_intercept, self.copy_X, self.tol, self.n_jobs, self.positive = fit_intercept, copy_X, tol, n_jobs, positive

    def check_settings(self, y):
        refuse(positive=self.positive)
        only_one_target(y)


class GLM(Counted, FederatedGLM):
    link, dispersion, method = "", None, FederatedGLM().method

    def __init__(
        self, *, alpha=1.0, fit_intercept=True, solver="lbfgs", max_iter=100, tol=1e-4, warm_start=False, verbose=0
    ):
        self.alpha, self.fit_intercept, self.solver, self.max_iter = alpha, fit_intercept, solver, max_iter
        self.tol, self.warm_start, self.verbose = tol, warm_start, verbose

    def check_settings(self, y):
        refuse(warm_start=self.warm_start)

    def _get_loss(self):
        """Scikit-learn's, by which its tests find the optimum."""
        return getattr(_glm, type(self).__name__)(**self.get_params())._get_loss()


class PoissonRegressor(GLM):
    family = "poisson"


class GammaRegressor(GLM):
    family = "gamma"


class TweedieRegressor(GLM):
    def __init__(
        self,
        *,
        power=0.0,
        alpha=1.0,
        fit_intercept=True,
        link="auto",
        solver="lbfgs",
        max_iter=100,
        tol=1e-4,
        warm_start=False,
        verbose=0,
    ):
        self.power, self.link = power, link
        self.alpha, self.fit_intercept, self.solver, self.max_iter = alpha, fit_intercept, solver, max_iter
        self.tol, self.warm_start, self.verbose = tol, warm_start, verbose

    @property
    def family(self):
        families = {0: "gaussian", 1: "poisson", 2: "gamma"}
        refuse(power=self.power not in families)
        return families[self.power]

    def check_settings(self, y):
        super().check_settings(y)
        refuse(link=self.link not in ("auto", FAMILIES[self.family]().link))

    def _distribution(self):
        return FAMILIES[self.family]()

    def _settled(self, rows):
        settings = FederatedGLM(self.family, alpha=self.alpha, tol=self.tol, max_iter=self.max_iter)._settled(rows)
        return settings._replace(intercept=self.fit_intercept)

    def predict(self, X):
        return self._distribution().mean(self.margins_of(X))


OURS = (LogisticRegression, Ridge, LinearRegression, PoissonRegressor, GammaRegressor, TweedieRegressor)
for one in OURS:
    setattr(sklearn.linear_model, one.__name__, one)


def pytest_addoption(parser):
    parser.addoption("--told", help="file for what became of every test that fits one of ours")


class Told:
    """What became of every test: passed, failed, or another word of pytest's; of a failure the reason."""

    def __init__(self, path):
        self.path, self.found, self.fits = path, {}, 0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        self.fits = FITS
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        if self.fits < FITS and (report.when == "call" or report.failed):
            name = f"{item.path.relative_to(FOLDER).as_posix()}::{item.name}"
            self.found[name] = (report.outcome, getattr(getattr(report.longrepr, "reprcrash", None), "message", "")[:300])
        return report

    def pytest_sessionfinish(self):
        Path(self.path).write_text(json.dumps(self.found, indent=1), encoding="utf-8")


def pytest_configure(config):
    if config.getoption("--told"):
        config.pluginmanager.register(Told(config.getoption("--told")))
