"""From agreed coding to coefficients with names, over any cohort: the simulator's or real sites'."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from fedns.core.algorithm import Algorithm
from fedns.core.cohort import Cohort
from fedns.core.errors import ConfigError, DataError
from fedns.core.history import Observer
from fedns.core.run import Progress
from fedns.federation.coordinator.cohort import NetworkedCohort
from fedns.federation.protocol.absence import SitesLost
from fedns.models.family import Outcomes
from fedns.models.penalties import Ridge
from fedns.models.problem import Problem
from fedns.runs.methods import default_method, parse_method
from fedns.simulation.simulator import SimulatedCohort
from fedns.studies.design.aliases import Alias, kept_places, without
from fedns.studies.design.columns import Design
from fedns.studies.design.site_table import SMALLEST_COUNT
from fedns.studies.fitting.aliases import aliases, whole_information
from fedns.studies.fitting.fit import Goal, fit, uncounted
from fedns.studies.fitting.rank import Rank, dependent
from fedns.studies.fitting.start import Look, first_look, start_after
from fedns.studies.handshake.handshake import Agreed
from fedns.studies.inference.estimates import infer
from fedns.studies.inference.fitted import StudyFit
from fedns.studies.inference.without import ask_without
from fedns.studies.questions.baseline import Baseline, ask_baseline
from fedns.studies.questions.diagnose import Asking, diagnose
from fedns.studies.questions.diagnostic import Predicted
from fedns.studies.questions.fit_sums import FitSums
from fedns.studies.study import Study

S = TypeVar("S", bound=Cohort)
S_co = TypeVar("S_co", bound=Cohort, covariant=True)


class SeparationError(DataError):
    """The likelihood has no maximum: some coefficients would be infinite."""


def study_problem(study: Study, design: Design) -> Problem:
    """The objective of a study: mean loss, and the study's penalty as it is on the fitted scale."""
    penalised, offset = any(design.strengths), study.parsed.offset is not None
    ridge = Ridge(1.0, design.strengths) if penalised else Ridge(0.0)
    return Problem(study.distribution.loss_of(len(design.classes)), ridge, design.appended_intercept, offset=offset)


def method_text(study: Study, num_features: int, num_sites: int) -> str:
    """The study's method, or the one that suits its loss and its number of coefficients."""
    own = study.method
    return default_method(study.distribution.loss, num_features, num_sites) if own == "default" else own


class Begun(NamedTuple, Generic[S_co]):
    """A study's fit before its first round."""

    agreed: Agreed  # with notes
    cohort: S_co  # under the objective that is fitted, with the start
    rank: Rank
    aliased: tuple[Alias, ...]
    rows: float  # as they count in standard errors


def begin(agreed: Agreed, cohort: S, look: Look | None = None) -> Begun[S]:
    """Ask what sites tell before the first round, and refuse what cannot be fitted.

    look: what they have told, where it is known already.
    """
    design, problem = agreed.design, cohort.session.problem
    study = design.study
    agreed = agreed._replace(notes=(*agreed.notes, *_asked_about(study, cohort)))
    look = look or first_look(problem, design, cohort)
    whole = whole_information(look.hessian, design, agreed.summaries)
    names, order = [design.names[place] for place in design.places], np.argsort(design.places).tolist()
    dependents = tuple(dependent(look.hessian, order, whole))
    told = np.maximum(np.diag(look.hessian), whole)
    rank = Rank(names, look.hessian, dependents, told, design.intercept, design.outputs)
    found = aliases(rank.found, design, agreed.summaries)
    if found and study.aliased == "refuse":
        raise DataError(f"columns depend on each other: {'; '.join(map(str, found))}; take one out of the formula")
    if len(found) == len(design.names):
        raise DataError(f"nothing is left to fit: {'; '.join(map(str, found))}; add a term that differs from row to row")
    fitted = cohort.with_problem(rank.pinned(problem), start_after(look, problem, design))
    rows = float((cohort.total_weights if study.weights_are == "counts" else cohort.rows).sum())
    return Begun(agreed, fitted, rank, tuple(found), rows)


def estimate(
    begun: Begun[SimulatedCohort] | Begun[NetworkedCohort],
    algorithm: Algorithm,
    *,
    observers: Sequence[Observer] = (),
    resume: Progress | None = None,
    smallest_count: int = SMALLEST_COUNT,
) -> StudyFit:
    """Fit what was begun, and refuse what is no maximum of the likelihood.

    resume: go on from there. smallest_count: rows of a group that simulated sites let be counted; real ones have limits of
    their own.
    """
    agreed, cohort, found = begun.agreed, begun.cohort, begun.aliased
    design, study = agreed.design, agreed.design.study
    # A standard error is that of a mean over so many rows, in the spread of the outcome where it has one.
    outcomes = study.distribution.outcomes
    spread = design.agreement.centres[study.parsed.outcome][1] if outcomes is Outcomes.NUMBER else 1.0
    goal = Goal(study.tolerance * spread / math.sqrt(begun.rows), study.rounds, outcomes, begun.rows, spread)
    reached = fit(cohort, algorithm, goal, begun.rank, observers=observers, resume=resume)
    if reached.separated:
        raise SeparationError(reached.ended.reason)
    w = reached.history.coefficients
    coefficients = without(design.to_original @ w, found, design.names)
    coefficients[[design.names.index(alias.name) for alias in found]] = np.nan
    named = StudyFit(
        study,
        design.names,
        coefficients,
        found,
        (*agreed.notes, *(f"column {alias.name} was left out: {alias}" for alias in found)),
        reached.ended.ending,
        reached.ended.reason,
        reached.left,
        reached.history,
        agreed,
        algorithm.name,
        sum(max(0, site.used) for site in agreed.summaries),
        cohort.session.meter,
    )
    if isinstance(reached.curvature, SitesLost):  # they may come back, and the fit go on
        raise reached.curvature
    if isinstance(reached.curvature, Exception):
        return named
    kept, sites = kept_places(design, found), [site.site for site in agreed.summaries]
    inference = infer(
        cohort,
        FitSums(study.distribution, study.weights_are),
        reached.curvature,
        w,
        design.names,
        coefficients,
        transform=np.stack([without(column, found, design.names) for column in design.to_original.T[kept]], axis=1),
        kept=kept,
        intercept=design.intercept,
    )
    diagnosed, without_one = diagnose(
        Predicted.of(design, smallest_count),
        Asking(cohort, sites, w, kept),
        lambda: ask_without(cohort, w, kept, inference, sites) if named.converged else None,
    )
    baseline, notes = ask_baseline(Baseline(study.baseline, smallest_count), cohort, sites, w)
    notes += without_one.notes if without_one else ()
    return replace(
        named,
        worked_out=inference,
        without=without_one,
        diagnosed=diagnosed,
        baseline=baseline,
        notes=(*named.notes, *notes),
    )


def study_algorithm(study: Study, num_features: int, num_sites: int) -> Algorithm:
    """The method of a study, which sites that keep their rows can run."""
    algorithm = parse_method(method_text(study, num_features, num_sites)).algorithm
    if algorithm.pooled:
        raise ConfigError(f"method '{algorithm.name}' runs on pooled data: a study needs one over sites")
    return algorithm


def _asked_about(study: Study, cohort: Cohort) -> list[str]:
    """Weights that sum to less than the rows count none: refused where a column has them, else a note."""
    if study.weights_are != "counts" or not (sums := uncounted(cohort)):
        return []
    kinds = 'weights_are = "precision" or "sampling" in the study'
    said = f"{sums}: if they are no counts of rows, say what they are with {kinds}"
    if study.weights:
        raise DataError(f"the weights '{study.weights}' {said}, since standard errors would be those of so few rows")
    return [f"the weights of classes {said}"]
