"""Fitting a study over real sites: the handshake is one run, the fit another, through the same transport."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedns.core.cohort import Session
from fedns.core.meter import Meter
from fedns.federation.coordinator.cohort import NetworkedCohort
from fedns.federation.coordinator.coordinate import Watcher
from fedns.federation.coordinator.link import Link
from fedns.federation.coordinator.recorder import LEDGER_FILE, Recorder
from fedns.federation.coordinator.state import RunState
from fedns.federation.protocol.transport import Transport
from fedns.numerics.linalg import single_threaded_blas
from fedns.problems.losses import Squared
from fedns.problems.problem import Problem
from fedns.runs.policy import Policy
from fedns.runs.settings import filled
from fedns.runs.spec import Spec
from fedns.studies.inference.fitted import StudyFit
from fedns.studies.model.estimate import algorithm_of, estimate, method_text, problem_of
from fedns.studies.schema.handshake import Agreed, shake_hands
from fedns.studies.site_lines import read_lines
from fedns.studies.study import Study


def fit_federation(
    study: Study, experiment: Spec, transport: Transport, folder: Path, *, watchers: Sequence[Watcher] = ()
) -> StudyFit:
    """Shake hands with the sites of an experiment, then fit over them; both are in the ledger of the folder."""
    spec = _handshake(study, experiment)
    meter = Meter()
    recorder = Recorder(folder, [], "study")
    try:
        with single_threaded_blas():
            first = _cohort(spec, Problem(Squared()), meter, transport, folder, recorder)
            agreed = shake_hands(study, first, spec.sites)
            recorder.event("agreed", study=study.digest, schema=agreed.design.agreement.digest)
            spec, problem = _training(spec, study, agreed), problem_of(study, agreed.design)
            cohort = _cohort(spec, problem, meter, transport, folder, recorder)
            for watcher in watchers:
                watcher.on_start(cohort.link.statuses)
            algorithm = algorithm_of(study, cohort.num_features, cohort.num_clients)
            fit = estimate(
                agreed,
                problem,
                algorithm,
                cohort,
                lambda problem, w: cohort.evaluate(w),
                observers=[recorder, *watchers],
            )
        recorder.event("ended", reason=fit.reason, converged=fit.converged)
        notes = (*fit.notes, *(status.note for status in cohort.link.statuses if status.note))
        return replace(fit, notes=notes, site_lines=read_lines(folder / LEDGER_FILE))
    except BaseException as error:
        recorder.event("stopped", reason=f"{type(error).__name__}: {error}")
        raise
    finally:
        recorder.close()


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


def _cohort(
    spec: Spec, problem: Problem, meter: Meter, transport: Transport, folder: Path, recorder: Recorder
) -> NetworkedCohort:
    session = Session(problem, spec.seed, spec.wire, meter=meter)
    state = RunState(spec, folder, secrets.token_bytes(16), session, committed_rounds=[0] * len(spec.sites))
    return NetworkedCohort(Link(transport, state, log_event=recorder.event, ledger=recorder.message))
