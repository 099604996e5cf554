"""From a running federation, whose sites keep their rows, to the same coefficients as from the rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import numpy as np

from fedns.algorithms.curvature import Model
from fedns.algorithms.newton import FedNewton
from fedns.core.errors import ConfigError
from fedns.core.messages import joined
from fedns.core.run import run
from fedns.core.termination import Stop
from fedns.estimators.fitting import Fitted, FloatArray, Settings
from fedns.federation.coordinator.cohort import NetworkedCohort
from fedns.numerics.linalg import single_threaded_blas
from fedns.problems.losses import LOSSES
from fedns.runs.methods import parse_method
from fedns.studies.federation import Federation
from fedns.studies.inference.estimates import Inference
from fedns.studies.inference.exchange import Curvature, Questions

_NO_SUMS = "sites are asked for them in studies alone: use federation.fit(study)"


def fit_federation(settled: Callable[[float], Settings], federation: Federation) -> Fitted:
    """Fit over the rows that the sites' files name; settled: the settings, by the number of rows of all sites."""
    settings = settled(1.0)
    if settings.family.loss.name not in LOSSES or settings.family.loss != LOSSES[settings.family.loss.name]():
        raise ConfigError(f"family {settings.family.name} over sites needs a study: use federation.fit(study)")
    algorithm = parse_method(settings.method).algorithm
    with single_threaded_blas():
        with _opened(settings, federation) as counted:
            settings = settled(float(counted.total_weights.sum()))
        with _opened(settings, federation) as cohort:
            problem = cohort.session.problem
            stop = Stop(settings.rounds, newton_decrement=settings.tolerance)
            history = run(algorithm, problem, cohort, stop=stop, evaluate=cohort.evaluate)
            w = history.coefficients
            inference = _inference(settings, algorithm, cohort, w) if isinstance(algorithm, FedNewton) else None
    columns, intercept = (w[:-1], float(w[-1])) if settings.intercept else (w, 0.0)
    return Fitted(columns.copy(), intercept, history, inference)


def _opened(settings: Settings, federation: Federation) -> AbstractContextManager[NetworkedCohort]:
    return federation.cohort(
        method=settings.method,
        loss=settings.family.loss.name,
        strength=settings.strength,
        intercept=settings.intercept,
        rounds=settings.rounds,
        gradient_tol=None,
    )


def _inference(settings: Settings, method: FedNewton, cohort: NetworkedCohort, w: FloatArray) -> Inference | None:
    """From one more Hessian, which the method's sites give anyway; nothing where standard errors need another one."""
    if not Questions(settings.family).is_canonical:
        return None
    told = joined([batch for _, batch in cohort.ask(method.curvature, Model(w))])
    names = [f"x{place}" for place in range(w.size - int(settings.intercept))]
    return Inference(
        (*names, *(["Intercept"] if settings.intercept else [])),
        w,
        settings.family,
        np.eye(w.size),
        Curvature(cohort.total_weights, told.gradient, told.packed_hessian),
        w,
        cohort.session.problem.penalty_diagonal(w.size),
        missing=_NO_SUMS,
    )
