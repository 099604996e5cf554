"""From rows, targets and the site of each row to coefficients, with what they are worth."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from fedns.core.cohort import Cohort, Session
from fedns.core.errors import DataError
from fedns.core.history import History
from fedns.core.messages.ledger import Meter
from fedns.core.problem import Evaluation
from fedns.core.run import run
from fedns.core.shards import Shards
from fedns.core.termination import Ending, Verdict
from fedns.models.family import Family, Outcomes
from fedns.models.loss import Loss
from fedns.models.penalties import Ridge
from fedns.models.problem import Problem
from fedns.numerics.linalg import single_threaded_blas
from fedns.runs.methods import parse_method
from fedns.simulation.simulator import SimulatedCohort
from fedns.studies.estimators.rank import Rank
from fedns.studies.fitting.ending import judged, no_maximum, stop_of
from fedns.studies.fitting.start import ask_start
from fedns.studies.inference.estimates import Inference
from fedns.studies.questions.asking import REFUSALS
from fedns.studies.questions.fit_sums import FitSums, ask_sums
from fedns.studies.questions.information import SiteCurvature, ask_curvature, expected_information

FloatArray = NDArray[np.float64]


class Fitted(NamedTuple):
    """What a fit gives."""

    coefficients: FloatArray  # (columns,), of several margins (outputs, columns)
    intercept: Any  # a number, of several margins (outputs,)
    history: History
    ended: Verdict  # by where the coefficients are, whatever the method made of it
    inference: Inference | str  # or why there is none
    warning: str  # what a user must know before using the coefficients
    meter: Meter  # of everything: looks at the Hessian, rounds, and what was asked for inference


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
        cohort = SimulatedCohort(shards, Session(problem, 0))
        return fit_cohort(settings, cohort, lambda w: cohort.session.problem.evaluate(w, shards))


def fit_cohort(settings: Settings, cohort: Cohort, evaluate: Callable[[FloatArray], Evaluation]) -> Fitted:
    """Fit over sites of any kind, and say what the coefficients are worth: nothing where they are not the optimum."""
    own: Problem = cohort.session.problem
    names = names_of(settings, cohort.num_features // own.loss.outputs)
    with suppress(*REFUSALS):  # sites that tell nothing of the null model may still answer the method, from 0
        cohort.session.start = ask_start(cohort, settings.family)
    rank = Rank.of(cohort, names) if settings.strength == 0.0 else None
    if rank is not None:
        cohort.session.problem = rank.pinned(own)
    algorithm, rows = parse_method(settings.method).algorithm, float(cohort.total_weights.sum())
    stop = stop_of(algorithm, settings.rounds, settings.tolerance)
    history = run(algorithm, cohort.session.problem, cohort, stop=stop, evaluate=evaluate)
    first, last = history.records[0].objective, history.records[-1].objective
    # A standard error is that of a mean over so many rows, in the spread of the outcome where it has one.
    spread = math.sqrt(2.0 * first) if settings.family.outcomes is Outcomes.NUMBER and first > 0 else 1.0
    w, ended = history.coefficients, Verdict(history.ending, history.stop_reason)
    try:
        curvature = ask_curvature(cohort, w)
    except (*REFUSALS, ArithmeticError, ValueError) as refusal:
        ended = judged(ended, math.nan, 0.0, str(refusal))
        return put_together(settings, own, history, ended, ended.reason, "", cohort.session.meter)
    left = cohort.session.problem.newton_step(w, curvature.gradient, curvature.hessian).newton_decrement
    unit = math.sqrt(rows) / spread
    ended = judged(ended, left * unit, settings.tolerance * unit)
    if rank is not None and settings.family.outcomes.can_be_separated and last <= first:
        separating = rank.separating(curvature.hessian, rows)
        ended = Verdict(Ending.STOPPED, no_maximum(separating, settings.family.outcomes)) if separating else ended
    if settings.strength > 0.0:
        rank = Rank.beside(settings.strength, cohort, names, curvature.hessian)
    undetermined = "" if rank is None else rank.sentence
    if rank is not None:
        history.coefficients = rank.smallest(w)
    told = undetermined or uncounted(cohort) or inferred(settings, names, cohort, w, curvature)
    return put_together(settings, own, history, ended, told, undetermined, cohort.session.meter)


def uncounted(cohort: Cohort) -> str:
    """Why weights say nothing of standard errors, where they sum to less than the rows; "" where they may count some."""
    weight, rows = float(cohort.total_weights.sum()), float(cohort.rows.sum())
    if weight >= rows * (1.0 - 1e-9):
        return ""
    return (
        f"a weight of 2 is taken for two rows, and the weights sum to {weight:.4g} over {rows:.10g} rows: scale them to "
        'what they count, or fit a fedns.Study with weights_are = "precision" or "sampling"'
    )


def put_together(
    settings: Settings, problem: Problem, history: History, ended: Verdict, told: Inference | str, warning: str, meter: Meter
) -> Fitted:
    """The coefficients as estimators have them, with the intercept apart."""
    w = history.coefficients
    if not ended.ending.converged:
        warning = f"not converged: {ended.reason}"
    if problem.loss.outputs > 1:
        table = w.reshape(problem.loss.outputs, -1)
        parts = (table[:, :-1], table[:, -1]) if settings.intercept else (table, np.zeros(len(table)))
        return Fitted(parts[0].copy(), parts[1].copy(), history, ended, told, warning, meter)
    columns, intercept = (w[:-1], float(w[-1])) if settings.intercept else (w, 0.0)
    return Fitted(columns.copy(), intercept, history, ended, told, warning, meter)


def names_of(settings: Settings, coefficients: int) -> tuple[str, ...]:
    """The names of the coefficients of one margin, the intercept's last."""
    columns = settings.columns or tuple(f"x{place}" for place in range(coefficients - int(settings.intercept)))
    return (*columns, *(["Intercept"] if settings.intercept else []))


def shards_of(features: Any, targets: FloatArray, weights: FloatArray | None, sites: Any) -> Shards:
    """Rows in the order of their sites; those of no weight say nothing and are left out."""
    rows = len(targets)
    names, which = _numbered(np.zeros(rows, dtype=np.int64) if sites is None else _labels_of(sites, rows))
    kept = np.arange(rows) if weights is None else np.flatnonzero(weights > 0)
    order: Any = kept[np.argsort(which[kept], kind="stable")]
    sizes = np.bincount(which[order], minlength=names.size)
    if (np.diff(order, prepend=-1) == 1).all() and order.size == rows:  # as they are: a copy would take long
        order = slice(None)
    chosen = None if weights is None else weights[order]
    there = [str(name) for name, size in zip(names, sizes, strict=True) if size]
    return Shards.from_arrays(features[order], targets[order], sizes[sizes > 0], sample_weights=chosen, names=there)


def _labels_of(sites: Any, rows: int) -> NDArray[Any]:
    """The site of each row; refused where a row has none, which would otherwise be a site by the name of nan."""
    labels = np.asarray(sites)
    if labels.shape != (rows,):
        raise DataError(f"sites must name the site of each of {rows} rows, got an array of shape {labels.shape}")
    mixed = labels.dtype.kind == "O"
    absent = np.array([_is_absent(label) for label in labels]) if mixed else labels != labels
    if absent.any():
        raise DataError(f"sites must name the site of each row: row {int(absent.argmax())} has none")
    return labels.astype(str) if mixed and len(set(map(type, labels))) > 1 else labels


def _is_absent(label: Any) -> bool:
    """None, not a number, or pandas' NA, which does not even say whether it is itself."""
    try:
        return label is None or bool(label != label)
    except TypeError:
        return True


def _numbered(labels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The sites in order, and the place of each row's among them; nothing is sorted where rows stand site by site."""
    if not (labels[:-1] <= labels[1:]).all():
        return np.unique(labels, return_inverse=True)
    changes = np.concatenate([[True], labels[:-1] != labels[1:]])
    return labels[changes], np.cumsum(changes) - 1


def inferred(
    settings: Settings, names: tuple[str, ...], cohort: Cohort, w: FloatArray, curvature: SiteCurvature
) -> Inference | str:
    """Ask what the coefficients are worth, from a few more exchanges; or why that is not known."""
    problem: Problem = cohort.session.problem
    expected, sums, missing = None, None, ""
    try:
        if settings.family.loss.expected != settings.family.loss:
            expected = ask_curvature(cohort, w, expected_information).triangle
    except (*REFUSALS, ArithmeticError, ValueError) as refusal:
        return str(refusal)
    try:
        sums = ask_sums(cohort, FitSums(settings.family), w, intercept=settings.intercept)
    except (*REFUSALS, ArithmeticError, ValueError) as refusal:
        missing = str(refusal)
    return Inference(
        tuple(f"{one}: {name}" for one in settings.classes for name in names) or names,
        w,
        settings.family,
        np.eye(w.size),
        curvature,
        w,
        problem.penalty_curvature(w),
        expected_triangle=expected,
        sums=sums,
        missing=missing,
    )
