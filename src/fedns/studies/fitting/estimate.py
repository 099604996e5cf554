"""From agreed coding to coefficients with names, over any cohort: the simulator's or real sites'."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedns.core.algorithm import Algorithm
from fedns.core.cohort import Cohort
from fedns.core.errors import ConfigError, DataError, FednsError
from fedns.core.history import History, Observer
from fedns.core.messages.ledger import Meter
from fedns.core.problem import Evaluation
from fedns.core.run import Progress, run
from fedns.core.termination import Verdict
from fedns.methods.auto.thresholds import FEW_COLUMNS
from fedns.models.family import Outcomes
from fedns.models.losses import Squared
from fedns.models.penalties import Ridge
from fedns.models.problem import Problem
from fedns.numerics.linalg import triangle_size
from fedns.runs.methods import parse_method
from fedns.studies.design.aliases import Alias, kept_places, without
from fedns.studies.design.columns import Design
from fedns.studies.design.site_table import SMALLEST_COUNT
from fedns.studies.fitting.ending import judged, no_maximum, stop_of
from fedns.studies.fitting.rank import aliases, separating, whole_information
from fedns.studies.fitting.start import Look, first_look, start_after
from fedns.studies.handshake.handshake import Agreed
from fedns.studies.inference.asking import infer
from fedns.studies.inference.fitted import StudyFit
from fedns.studies.inference.without import ask_without
from fedns.studies.questions.baseline import Baseline, ask_baseline
from fedns.studies.questions.diagnose import Asking, diagnose
from fedns.studies.questions.diagnostic import Predicted
from fedns.studies.questions.information import ask_curvature
from fedns.studies.study import Study

FloatArray = NDArray[np.float64]
SMALLEST_SKETCH = 256  # rows of a sketch that leaves little to chance


class SeparationError(DataError):
    """The likelihood has no maximum: some coefficients would be infinite."""


def problem_of(study: Study, design: Design) -> Problem:
    """The objective of a study: mean loss, and the study's penalty as it is on the fitted scale."""
    penalised, offset = any(design.strengths), study.parsed.offset is not None
    ridge = Ridge(1.0, design.strengths) if penalised else Ridge(0.0)
    return Problem(study.distribution.loss_of(len(design.classes)), ridge, design.appended_intercept, offset=offset)


def method_text(study: Study, num_features: int, num_sites: int) -> str:
    """The study's method; by default the one that sends least among those that take few rounds.

    Exact Newton steps where one is enough or coefficients are few; then `auto`, which sends the Hessian's changes in few
    bits, or its cheapest curvature where even that is more than a sketch.
    """
    if study.method != "default":
        return study.method
    if isinstance(study.distribution.loss, Squared):
        return "fednewton"
    if num_features <= FEW_COLUMNS["balanced"] or not study.distribution.loss.has_root:
        return "fednewton:line_search=aggregate"
    sketch_size = max(SMALLEST_SKETCH, math.ceil(4 * num_features / num_sites))
    return "auto:prefer=rounds" if triangle_size(num_features) <= sketch_size * num_features else "auto"


def estimate(
    agreed: Agreed,
    problem: Problem,
    algorithm: Algorithm,
    cohort: Cohort,
    evaluate: Callable[[Problem, FloatArray], Evaluation],
    *,
    observers: Sequence[Observer] = (),
    look: Look | None = None,
    resume: Progress | None = None,
    smallest_count: int = SMALLEST_COUNT,
) -> StudyFit:
    """Fit over this cohort, and refuse what is no maximum of the likelihood.

    look: what sites have told before the first round, where it is known already. resume: go on from there. smallest_count:
    rows of a group that simulated sites let be counted; real ones have limits of their own.
    """
    design = agreed.design
    study = design.study
    rows = float((cohort.total_weights if study.weights_are == "counts" else cohort.rows).sum())
    agreed = agreed._replace(notes=(*agreed.notes, *_asked_about(study, rows, float(cohort.rows.sum()))))
    look = look or first_look(problem, design, cohort)
    start, cohort.session.start = look.hessian, start_after(look, problem, design)
    whole = whole_information(start, design, agreed.summaries)
    found = aliases(start, design, whole, agreed.summaries)
    if found and study.aliased == "refuse":
        raise DataError(f"columns depend on each other: {'; '.join(map(str, found))}; take one out of the formula")
    if len(found) == len(design.names):
        raise DataError(f"nothing is left to fit: {'; '.join(map(str, found))}; add a term that differs from row to row")
    if found:
        problem = cohort.session.problem = _pinned(problem, design, found, np.maximum(np.diag(start), whole))
    # A standard error is that of a mean over so many rows, in the spread of the outcome where it has one.
    outcomes = study.distribution.outcomes
    unit = design.agreement.centres[study.parsed.outcome][1] if outcomes is Outcomes.NUMBER else 1.0
    stop = stop_of(algorithm, study.rounds, study.tolerance * unit / math.sqrt(rows))
    history = run(
        algorithm, problem, cohort, stop=stop, evaluate=lambda w: evaluate(problem, w), observers=observers, resume=resume
    )
    w = history.coefficients
    try:
        curvature = ask_curvature(cohort, w)
    except FednsError as refusal:  # the coefficients are not lost for that, but nobody knows whether they are the maximum
        return _named(agreed, found, history, math.nan, algorithm.name, cohort.session.meter, str(refusal))
    uphill = history.records[-1].objective > history.records[0].objective  # where steps overshoot the Hessian fades, too
    if outcomes.can_be_separated and not uphill:
        hessian = curvature.hessian + np.diag(problem.penalty_curvature(w))
        _refuse_separation(start, hessian, rows, design, found)
    left = problem.newton_step(w, curvature.gradient, curvature.hessian).newton_decrement * math.sqrt(rows) / unit
    fit = _named(agreed, found, history, left, algorithm.name, cohort.session.meter)
    inference = infer(design, found, fit.coefficients, w, curvature, cohort)
    sites = [site.site for site in agreed.summaries]
    kept = kept_places(design, found)
    diagnosed, without_one = diagnose(
        Predicted.of(design, smallest_count),
        Asking(cohort, sites, w, kept),
        lambda: ask_without(cohort, w, kept, inference, sites) if fit.converged else None,
    )
    baseline, notes = ask_baseline(Baseline(study.baseline, smallest_count), cohort, sites, w)
    notes += without_one.notes if without_one else ()
    return replace(
        fit, worked_out=inference, without=without_one, diagnosed=diagnosed, baseline=baseline, notes=(*fit.notes, *notes)
    )


def _named(
    agreed: Agreed, found: Sequence[Alias], history: History, left: float, method: str, meter: Meter, refusal: str = ""
) -> StudyFit:
    """The result on the original scale; left: the Newton decrement at the end, in standard errors."""
    design = agreed.design
    coefficients = without(design.to_original @ history.coefficients, found, design.names)
    coefficients[[design.names.index(alias.name) for alias in found]] = np.nan
    dropped = [f"column {alias.name} was left out: {alias}" for alias in found]
    ended = judged(Verdict(history.ending, history.stop_reason), left, design.study.tolerance, refusal)
    return StudyFit(
        design.study,
        design.names,
        coefficients,
        tuple(found),
        (*agreed.notes, *dropped),
        ended.ending,
        ended.reason,
        left,
        history,
        agreed,
        method,
        sum(max(0, site.used) for site in agreed.summaries),
        meter,
    )


def algorithm_of(study: Study, num_features: int, num_sites: int) -> Algorithm:
    """The method of a study, which sites that keep their rows can run."""
    algorithm = parse_method(method_text(study, num_features, num_sites)).algorithm
    if algorithm.pooled:
        raise ConfigError(f"method '{algorithm.name}' runs on pooled data: a study needs one over sites")
    return algorithm


def _asked_about(study: Study, weight: float, rows: float) -> list[str]:
    """Weights that sum to less than the rows count none: refused where a column has them, else a note."""
    if weight >= rows * (1.0 - 1e-9):
        return []
    sums = f"sum to {weight:.4g} over {rows:.10g} rows: if they are no counts of rows, say what they are with"
    kinds = 'weights_are = "precision" or "sampling" in the study'
    if study.weights:
        raise DataError(f"the weights '{study.weights}' {sums} {kinds}, since standard errors would be those of so few rows")
    return [f"the weights of classes {sums} {kinds}"]


def _pinned(problem: Problem, design: Design, found: Sequence[Alias], curvature: FloatArray) -> Problem:
    """The problem with a penalty on aliased columns, whose coefficients then end at 0: what they say, others can say."""
    own = np.array(problem.penalty.factors or np.zeros(len(design.columns))) * problem.penalty.strength
    strengths = own.copy()
    for alias in found:
        place = design.own_names.index(design.parts_of(alias.name)[1]) - int(design.intercept)
        strengths[place] = own[place] + (curvature[place] or 1.0)
    return replace(problem, penalty=Ridge(1.0, tuple(strengths.tolist())))


def _refuse_separation(start: FloatArray, end: FloatArray, rows: float, design: Design, found: Sequence[Alias]) -> None:
    names = separating(start, end, rows, design, found)
    if names:
        raise SeparationError(no_maximum(names, design.study.distribution.outcomes))
