"""Fitting a study over real sites: the handshake is one run, the fit another, through the same transport."""

from __future__ import annotations

import io
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedns.core.cohort import Session
from fedns.core.errors import ConfigError
from fedns.core.files import write_whole
from fedns.core.messages.ledger import Meter
from fedns.federation.coordinator.cohort import NetworkedCohort
from fedns.federation.coordinator.coordinate import Watcher
from fedns.federation.coordinator.link import Link
from fedns.federation.coordinator.recorder import LEDGER_FILE, RECORDS, Recorder
from fedns.federation.coordinator.state import CHECKPOINT_FILE, EPOCH_FILE, RunState, checkpoint_in, needing_disk
from fedns.federation.protocol.absence import FederationError, SitesLost
from fedns.federation.protocol.transport import Transport
from fedns.models.losses import Squared
from fedns.models.problem import Problem
from fedns.numerics.linalg import single_threaded_blas
from fedns.runs.policy import Policy
from fedns.runs.results import Results
from fedns.runs.settings import filled
from fedns.runs.spec import Spec
from fedns.studies.fitting.estimate import SeparationError, algorithm_of, estimate, method_text, problem_of
from fedns.studies.fitting.start import Look, first_look
from fedns.studies.handshake.handshake import Agreed, shake_hands
from fedns.studies.inference.fitted import StudyFit
from fedns.studies.site_lines import read_lines
from fedns.studies.study import Study
from fedns.studies.tables.design import Design

START_FILE = "start.npy"
RESULTS = "fit over sites"
_FILES = (*RECORDS, CHECKPOINT_FILE, EPOCH_FILE, START_FILE)


def fit_federation(
    study: Study,
    experiment: Spec,
    transport: Transport,
    folder: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    watchers: Sequence[Watcher] = (),
) -> StudyFit:
    """Shake hands with the sites of an experiment, then fit over them; both are in the ledger of the folder.

    resume: go on with the fit that was interrupted in this folder. Hands are shaken again, so that a table which has
    changed meanwhile is noticed. overwrite: give up the fit that was interrupted.
    """
    if resume:
        checkpoint_in(folder)
    else:
        if (folder / CHECKPOINT_FILE).exists() and not overwrite:
            raise ConfigError(
                f"{folder} holds a fit that was interrupted: go on with --resume, or give another --out, or --overwrite it"
            )
        Results(folder, RESULTS).begin(_FILES)
    with needing_disk(folder):
        recorder = Recorder(folder, [], "study", resumed=resume)
        try:
            with single_threaded_blas():
                fit = _fit(study, _handshake(study, experiment), transport, folder, recorder, resume, watchers)
            recorder.event("ended", reason=fit.reason, converged=fit.converged)
        except BaseException as error:
            with suppress(OSError):  # of a disk that is full, perhaps: then that is what is said
                recorder.event("stopped", reason=f"{type(error).__name__}: {error}")
            if isinstance(error, SeparationError):  # the rounds are over, and there is nothing to go on with
                _forget(folder)
            raise
    _forget(folder)
    return replace(fit, site_lines=read_lines(folder / LEDGER_FILE))


def _fit(
    study: Study,
    spec: Spec,
    transport: Transport,
    folder: Path,
    recorder: Recorder,
    resume: bool,
    watchers: Sequence[Watcher],
) -> StudyFit:
    def cohort_of(state: RunState) -> NetworkedCohort:
        return NetworkedCohort(Link(transport, state, log_event=recorder.event, ledger=recorder.message))

    first = _begun(spec, Problem(Squared()), folder, Meter())
    agreed = shake_hands(study, cohort_of(first), spec.sites)
    recorder.event("agreed", study=study.digest, schema=agreed.design.agreement.digest)
    spec, problem = _training(spec, study, agreed), problem_of(study, agreed.design)
    state = _begun(spec, problem, folder, first.session.meter)
    if resume:
        state = RunState.open(spec, folder, resume=True)
        state.session.problem = problem
        state.session.meter.add(first.session.meter)
        for record in state.records:
            recorder.on_round(record, None)
    cohort = cohort_of(state)
    for watcher in watchers:
        watcher.on_start(cohort.link.statuses)
    try:
        fit = estimate(
            agreed,
            problem,
            algorithm_of(study, cohort.num_features, cohort.num_clients),
            cohort,
            lambda problem, w: cohort.evaluate(w),
            observers=[state, recorder, *watchers],
            look=_look(problem, agreed.design, cohort, folder, resume),
            resume=state.progress,
        )
    except SitesLost as lost:  # within a round it is waited for, or the round is repeated
        raise FederationError(f"the Hessian lacks a site: {lost}") from None
    return replace(fit, caveats=tuple(status.note for status in cohort.link.statuses if status.note))


def _look(problem: Problem, design: Design, cohort: NetworkedCohort, folder: Path, resume: bool) -> Look:
    """Ask what sites tell before the first round: asked for once, and kept for a fit that goes on."""
    if resume:
        kept = np.load(folder / START_FILE, allow_pickle=False)
        return Look(kept[0], kept[1], kept[2:])
    look = first_look(problem, design, cohort)
    content = io.BytesIO()
    np.save(content, np.vstack(look))
    write_whole(folder / START_FILE, content.getvalue())
    return look


def _forget(folder: Path) -> None:
    """What is only there to go on with."""
    for name in (CHECKPOINT_FILE, START_FILE):
        (folder / name).unlink(missing_ok=True)


def _handshake(study: Study, experiment: Spec) -> Spec:
    policy = filled(Policy, "[policy] of the study", dict(study.policy)) if study.policy else experiment.policy
    return replace(
        experiment,
        study=study.to_json(),
        agreement="",
        methods=("fednewton",),
        loss=study.distribution.loss.name,
        rounds=1,
        policy=policy,
    )


def _training(spec: Spec, study: Study, agreed: Agreed) -> Spec:
    method = method_text(study, len(agreed.design.names), len(spec.sites))
    agreement = agreed.design.agreement.to_json()
    return replace(spec, agreement=agreement, methods=(method,), rounds=study.rounds, gradient_tol=None)


def _begun(spec: Spec, problem: Problem, folder: Path, meter: Meter) -> RunState:
    """Where a run stands that nobody has heard of yet."""
    session = Session(problem, spec.seed, spec.wire, meter=meter)
    return RunState(spec, folder, secrets.token_bytes(16), session, committed_rounds=[0] * len(spec.sites))
