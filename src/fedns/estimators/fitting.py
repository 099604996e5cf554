"""From rows, targets and the site of each row to coefficients, with what they are worth."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from fedns.core.cohort import Cohort, Session
from fedns.core.errors import DataError
from fedns.core.history import History
from fedns.core.meter import Meter
from fedns.core.run import run
from fedns.core.shards import Shards
from fedns.core.termination import Stop
from fedns.numerics.linalg import single_threaded_blas
from fedns.problems.family import Family
from fedns.problems.loss import Loss
from fedns.problems.penalties import Ridge
from fedns.problems.problem import Problem
from fedns.runs.methods import parse_method
from fedns.simulation.simulator import SimulatedCohort
from fedns.studies.inference.asking import REFUSALS
from fedns.studies.inference.estimates import Inference
from fedns.studies.inference.exchange import Questions, ask_curvature, ask_sums
from fedns.studies.model.start import ask_start

FloatArray = NDArray[np.float64]


class Fitted(NamedTuple):
    """What a fit gives."""

    coefficients: FloatArray  # (columns,), of several margins (outputs, columns)
    intercept: Any  # a number, of several margins (outputs,)
    history: History
    inference: Inference | None
    meter: Meter  # of everything: rounds, and what was asked for inference


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
    problem.loss.check_targets(shards)
    algorithm = parse_method(settings.method).algorithm
    with single_threaded_blas():
        cohort = SimulatedCohort(shards, Session(problem, 0))
        cohort.session.start = ask_start(cohort, Questions(settings.family))
        stop = Stop(settings.rounds, newton_decrement=settings.tolerance)
        history = run(algorithm, problem, cohort, stop=stop, evaluate=lambda w: problem.evaluate(w, shards))
        inference = inferred(settings, cohort, history.coefficients)
    return put_together(settings, problem, history, inference, cohort.session.meter)


def put_together(
    settings: Settings, problem: Problem, history: History, inference: Inference | None, meter: Meter
) -> Fitted:
    """The coefficients as estimators have them, with the intercept apart."""
    w = history.coefficients
    if problem.loss.outputs > 1:
        table = w.reshape(problem.loss.outputs, -1)
        parts = (table[:, :-1], table[:, -1]) if settings.intercept else (table, np.zeros(len(table)))
        return Fitted(parts[0].copy(), parts[1].copy(), history, inference, meter)
    columns, intercept = (w[:-1], float(w[-1])) if settings.intercept else (w, 0.0)
    return Fitted(columns.copy(), intercept, history, inference, meter)


def shards_of(features: Any, targets: FloatArray, weights: FloatArray | None, sites: Any) -> Shards:
    """Rows in the order of their sites; those of no weight say nothing and are left out."""
    rows = len(targets)
    labels = np.zeros(rows, dtype=np.int64) if sites is None else np.asarray(sites)
    if labels.shape != (rows,):
        raise DataError(f"sites must name the site of each of {rows} rows, got an array of shape {labels.shape}")
    names, which = _numbered(labels)
    kept = np.arange(rows) if weights is None else np.flatnonzero(weights > 0)
    order: Any = kept[np.argsort(which[kept], kind="stable")]
    sizes = np.bincount(which[order], minlength=names.size)
    if (np.diff(order, prepend=-1) == 1).all() and order.size == rows:  # as they are: a copy would take long
        order = slice(None)
    chosen = None if weights is None else weights[order]
    there = [str(name) for name, size in zip(names, sizes, strict=True) if size]
    return Shards.from_arrays(features[order], targets[order], sizes[sizes > 0], sample_weights=chosen, names=there)


def _numbered(labels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The sites in order, and the place of each row's among them; nothing is sorted where rows stand site by site."""
    if not (labels[:-1] <= labels[1:]).all():
        return np.unique(labels, return_inverse=True)
    changes = np.concatenate([[True], labels[:-1] != labels[1:]])
    return labels[changes], np.cumsum(changes) - 1


def inferred(settings: Settings, cohort: Cohort, w: FloatArray) -> Inference | None:
    """What the coefficients are worth, from a few more exchanges; nothing where rows do not determine them."""
    problem: Problem = cohort.session.problem
    outputs = problem.loss.outputs
    names = [*(f"x{place}" for place in range(w.size // outputs - int(settings.intercept)))]
    names += ["Intercept"] if settings.intercept else []
    questions = Questions(settings.family)
    try:
        curvature = ask_curvature(cohort, w)
        expected = None if questions.is_canonical else ask_curvature(cohort, w, questions.expected_information).packed
    except (*REFUSALS, ArithmeticError, ValueError):
        return None
    sums, missing = None, ""
    try:
        sums = ask_sums(cohort, questions, w, intercept=settings.intercept)
    except (*REFUSALS, ArithmeticError, ValueError) as refusal:
        missing = str(refusal)
    return Inference(
        tuple(f"{one}: {name}" for one in settings.classes for name in names) or tuple(names),
        w,
        settings.family,
        np.eye(w.size),
        curvature,
        w,
        problem.penalty_diagonal(w.size),
        packed_expected=expected,
        sums=sums,
        missing=missing,
    )
