"""From a running federation, whose sites keep their rows, to the same coefficients as from the rows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from fedns.core.errors import ConfigError
from fedns.federation.coordinator.cohort import NetworkedCohort
from fedns.models.losses import LOSSES
from fedns.numerics.linalg import single_threaded_blas
from fedns.studies.estimators.fitting import Fitted, Settings, fit_cohort
from fedns.studies.federation import Federation


def fit_federation(settled: Callable[[float], Settings], federation: Federation) -> Fitted:
    """Fit over the rows that the sites' files name; settled: the settings, by the number of rows of all sites."""
    settings = settled(1.0)
    if settings.family.loss.name not in LOSSES or settings.family.loss != LOSSES[settings.family.loss.name]():
        raise ConfigError(f"family {settings.family.name} over sites needs a study: use federation.fit(study)")
    with single_threaded_blas():
        if settled(2.0) != settings:
            with _opened(settings, federation) as counted:
                settings = settled(float(counted.total_weights.sum()))
        with _opened(settings, federation) as cohort:
            return fit_cohort(settings, cohort, cohort.evaluate)


def _opened(settings: Settings, federation: Federation) -> AbstractContextManager[NetworkedCohort]:
    return federation.cohort(
        method=settings.method,
        loss=settings.family.loss.name,
        strength=settings.strength,
        intercept=settings.intercept,
        rounds=settings.rounds,
        gradient_tol=None,
    )
