"""From rows, targets and the site of each row, or from a running federation, to coefficients with what they are worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from fedns.core.cohort import Session
from fedns.core.errors import ConfigError
from fedns.core.history import Observer
from fedns.core.types import FloatArray
from fedns.models.family import Family
from fedns.models.loss import Loss
from fedns.models.losses import LOSSES
from fedns.models.penalties import Ridge
from fedns.models.problem import Problem
from fedns.numerics.linalg import single_threaded_blas
from fedns.runs.methods import parse_method
from fedns.simulation.simulator import SimulatedCohort
from fedns.studies.estimators.rows import shards_of
from fedns.studies.federation import Federation
from fedns.studies.fitting.fit import Goal, Reached, Sites, fit, uncounted
from fedns.studies.fitting.rank import Rank, may_be_lost
from fedns.studies.fitting.start import ask_start
from fedns.studies.inference.estimates import Inference, infer
from fedns.studies.questions.asking import REFUSALS, UNANSWERED
from fedns.studies.questions.fit_sums import FitSums
from fedns.studies.questions.information import ask_curvature


class Fitted(NamedTuple):
    """What a fit gives."""

    cohort: Sites  # under the objective that was fitted
    reached: Reached
    inference: Inference | str  # or why there is none
    undetermined: str = ""  # which columns the rows do not tell apart

    @property
    def warning(self) -> str:
        """What a user must know before using the coefficients."""
        ended = self.reached.ended
        return self.undetermined if ended.ending.converged else f"not converged: {ended.reason}"

    @property
    def table(self) -> tuple[FloatArray, FloatArray]:
        """Coefficients (outputs, columns) and intercepts (outputs,)."""
        problem: Problem = self.cohort.session.problem
        table = self.reached.history.coefficients.reshape(problem.loss.outputs, -1)
        return (table[:, :-1].copy(), table[:, -1].copy()) if problem.intercept else (table.copy(), np.zeros(len(table)))


class Settings(NamedTuple):
    """What is fitted, and how."""

    family: Family
    strength: float  # of the penalty, relative to the mean loss
    intercept: bool
    method: str
    tolerance: float
    rounds: int
    loss: Loss | None = None  # in place of the family's
    classes: tuple[str, ...] = ()  # of several: those that have coefficients of their own
    columns: tuple[str, ...] = ()  # their names; x0, x1, ... unless given


def fit_rows(
    settings: Settings,
    features: Any,
    targets: FloatArray,
    weights: FloatArray | None,
    sites: Any,
    offset: FloatArray | None = None,
) -> Fitted:
    """Fit over rows that belong to sites; all of them to one where none are named. offset: added to the margins."""
    if offset is not None and scipy.sparse.issparse(features):
        features = scipy.sparse.hstack([features, offset[:, None]], format="csr")
    elif offset is not None:
        features = np.column_stack([features, offset])
    shards = shards_of(features, targets, weights, sites)
    loss, ridge = settings.loss or settings.family.loss, Ridge(settings.strength)
    problem = Problem(loss, ridge, settings.intercept, offset=offset is not None)
    problem.loss.check(shards)
    with single_threaded_blas():
        return _fitted(settings, SimulatedCohort(shards, Session(problem, 0)))


def fit_sites(settled: Callable[[float], Settings], federation: Federation) -> Fitted:
    """Fit over the rows that the sites' files name; settled: the settings, by the number of rows of all sites."""
    settings = settled(1.0)
    if settings.family.loss.name not in LOSSES or settings.family.loss != LOSSES[settings.family.loss.name]():
        raise ConfigError(f"family {settings.family.name} over sites needs a study: use federation.fit(study)")
    if settled(2.0) != settings:
        with federation.cohort(**_run(settings)) as counted:
            settings = settled(float(counted.total_weights.sum()))
    with federation.session(**_run(settings)) as (session, cohort):
        session.caution(parse_method(settings.method).algorithm, cohort)
        found = _fitted(settings, cohort, [session])
        fitted, ended = cohort.with_problem(found.cohort.session.problem), found.reached.ended
        session.ended(fitted, found.reached.history.coefficients, ended.reason, converged=ended.ending.converged)
        return found


def _run(settings: Settings) -> dict[str, Any]:
    """The run of these settings, as the file of an experiment has it."""
    return {
        "method": settings.method,
        "loss": settings.family.loss.name,
        "strength": settings.strength,
        "intercept": settings.intercept,
        "rounds": settings.rounds,
        "gradient_tol": None,
    }


def _fitted(settings: Settings, cohort: Sites, observers: Sequence[Observer] = ()) -> Fitted:
    """Fit over sites of any kind, and say what the coefficients are worth: nothing where they are not the optimum."""
    own: Problem = cohort.session.problem
    columns = cohort.num_features // own.loss.outputs - int(settings.intercept)
    names = (*(settings.columns or (f"x{place}" for place in range(columns))), *["Intercept"] * settings.intercept)
    start = None
    with suppress(*REFUSALS):  # sites that tell nothing of the null model may still answer the method, from 0
        start = ask_start(cohort, settings.family)
    cohort = cohort.with_problem(own, start)
    rank = _rank(cohort, names) if settings.strength == 0.0 else None
    if rank is not None:
        cohort = cohort.with_problem(rank.pinned(own), start)
    goal = Goal(settings.tolerance, settings.rounds, settings.family.outcomes, float(cohort.total_weights.sum()))
    reached = fit(cohort, parse_method(settings.method).algorithm, goal, rank, observers=observers)
    curvature = reached.curvature
    if isinstance(curvature, Exception):
        return Fitted(cohort, reached, reached.ended.reason)
    if settings.strength > 0.0:
        rank = _rank(cohort, names) if may_be_lost(settings.strength, curvature.hessian) else None
        rank = rank if rank is not None and rank.is_lost(settings.strength) else None
    undetermined = "" if rank is None else rank.undetermined
    w = reached.history.coefficients
    if rank is not None:
        reached.history.coefficients = rank.smallest(w)
    told: Inference | str = undetermined
    if not told and (sums := uncounted(cohort)):
        told = (
            f"a weight of 2 is taken for two rows, and the weights {sums}: scale them to what they count, or fit a "
            'fedns.Study with weights_are = "precision" or "sampling"'
        )
    if not told:
        of_all = [f"{one}: {name}" for one in settings.classes for name in names] or names
        told = infer(cohort, FitSums(settings.family), curvature, w, of_all, w, intercept=settings.intercept)
    return Fitted(cohort, reached, told, undetermined)


def _rank(cohort: Sites, names: tuple[str, ...]) -> Rank | None:
    """The rank of columns as they were given, after one exchange; nothing where sites refuse it."""
    problem: Problem = cohort.session.problem
    try:
        hessian = ask_curvature(cohort, cohort.start).hessian
    except UNANSWERED:
        return None
    outputs = problem.loss.outputs
    return Rank.of_raw(hessian, names * outputs, problem.intercept, outputs)
