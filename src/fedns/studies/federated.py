"""Fitting a study over real sites: the handshake is one run, the fit another, through the same transport."""

from __future__ import annotations

import io
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedns.core.checked import filled
from fedns.core.errors import ConfigError
from fedns.core.files import write_whole
from fedns.federation.coordinator.cohort import NetworkedCohort
from fedns.federation.coordinator.session import FILES, LEDGER_FILE, RunOverSites, opened
from fedns.federation.coordinator.state import CHECKPOINT_FILE, RunState, checkpoint_in
from fedns.federation.coordinator.watching import Watcher
from fedns.federation.protocol.absence import FederationError, SitesLost
from fedns.federation.protocol.transport import Transport
from fedns.models.losses import Squared
from fedns.models.problem import Problem
from fedns.runs.over_sites import ColumnRun, Handshake, Policy, StudyRun
from fedns.runs.results import Results
from fedns.studies.design.columns import Design
from fedns.studies.fitting.estimate import SeparationError, begin, estimate, method_text, study_algorithm, study_problem
from fedns.studies.fitting.start import Look, first_look
from fedns.studies.handshake.handshake import Agreed, run_handshake
from fedns.studies.inference.fitted import StudyFit
from fedns.studies.site_lines import read_lines
from fedns.studies.study import Study

START_FILE = "start.npy"
RESULTS = "fit over sites"
log = logging.getLogger("fedns.coordinator")


def fit_federation(
    study: Study,
    experiment: ColumnRun,
    transport: Transport,
    folder: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    keep: bool = False,
    watchers: Sequence[Watcher] = (),
) -> StudyFit:
    """Make the handshake with the sites of an experiment, then fit over them; both are in the ledger of the folder.

    resume: go on with the fit that was interrupted in this folder. The handshake is repeated first, so that a table which
    has changed meanwhile is noticed. overwrite: give up the fit that was interrupted.
    keep: leave what a fit goes on from to whoever writes its outputs, and calls `forget_fit` then.
    """
    if resume:
        checkpoint_in(folder)
    elif (folder / CHECKPOINT_FILE).exists() and not overwrite:
        raise ConfigError(
            f"{folder} holds a fit that was interrupted: go on with --resume, or give another --out, or --overwrite it"
        )
    else:
        Results(folder, RESULTS).begin((*FILES, START_FILE))
    try:
        with opened(folder, experiment.sites, "study", transport, resume=resume, watchers=watchers) as session:
            fit, cohort = _fit(study, _handshake(study, experiment), session, folder, resume, watchers)
            for site in session.ended(cohort, fit.history.coefficients, fit.reason, converged=fit.converged):
                if site.named:
                    log.warning("%s: it decides this model", site)
    except SeparationError:  # the rounds are over, and there is nothing to go on with
        forget_fit(folder)
        raise
    if not keep:
        forget_fit(folder)
    caveats = tuple(status.note for status in session.statuses if status.note)
    return replace(fit, caveats=caveats, site_lines=read_lines(folder / LEDGER_FILE))


def forget_fit(folder: Path) -> None:
    """Remove what is only there to go on with."""
    for name in (CHECKPOINT_FILE, START_FILE):
        (folder / name).unlink(missing_ok=True)


def _fit(
    study: Study, spec: Handshake, session: RunOverSites, folder: Path, resume: bool, watchers: Sequence[Watcher]
) -> tuple[StudyFit, NetworkedCohort]:
    first = session.cohort(RunState.fresh(spec, folder, Problem(Squared())))
    agreed = run_handshake(study, first, spec.sites)
    session.event("agreed", study=study.digest, schema=agreed.design.agreement.digest)
    problem = study_problem(study, agreed.design)
    state = RunState.open(_training(spec, study, agreed), folder, problem, resume=resume)
    state.session.meter.add(first.session.meter)
    cohort = session.cohort(state)
    algorithm = study_algorithm(study, cohort.num_features, cohort.num_clients)
    session.caution(algorithm, cohort)
    try:
        begun = begin(agreed, cohort, _look(problem, agreed.design, cohort, folder, resume))
        fit = estimate(begun, algorithm, observers=[state, session, *watchers], resume=state.progress)
    except SitesLost as lost:  # within a round it is waited for, or the round is repeated
        raise FederationError(f"the Hessian lacks a site: {lost}") from None
    return fit, begun.cohort


def _look(problem: Problem, design: Design, cohort: NetworkedCohort, folder: Path, resume: bool) -> Look:
    """Ask what sites tell before the first round: asked for once, and saved for a fit that goes on."""
    if resume:
        saved = np.load(folder / START_FILE, allow_pickle=False)
        return Look(saved[0], saved[1], saved[2:])
    look = first_look(problem, design, cohort)
    content = io.BytesIO()
    np.save(content, np.vstack(look))
    write_whole(folder / START_FILE, content.getvalue())
    return look


def _handshake(study: Study, experiment: ColumnRun) -> Handshake:
    policy = filled(Policy, "[policy] of the study", dict(study.policy)) if study.policy else experiment.policy
    return Handshake.like(experiment, study=study.to_json(), loss=study.distribution.loss.name, policy=policy)


def _training(spec: Handshake, study: Study, agreed: Agreed) -> StudyRun:
    method = method_text(study, len(agreed.design.names), len(spec.sites))
    agreement = agreed.design.agreement.to_json()
    return StudyRun.like(spec, study=spec.study, agreement=agreement, method=method, rounds=study.rounds)
