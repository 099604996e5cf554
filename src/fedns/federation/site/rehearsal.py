"""Compiling what a run will call before its first request has to be answered in time: two rounds, played alone."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedns.core.algorithm import Algorithm
from fedns.core.clients import ClientMemory, Clients, Handler, Ids, messages_of
from fedns.core.cohort import Cohort, Session
from fedns.core.messages import Message
from fedns.core.messages.encoding import decode
from fedns.core.refusals import refuse_too_large
from fedns.core.run import Stop, run
from fedns.core.shards import Shards
from fedns.federation.rules.refusal import Refusal
from fedns.federation.site.guard import Guard
from fedns.federation.site_command import COMPILING
from fedns.models.evaluation import evaluate
from fedns.models.problem import Problem
from fedns.numerics.backend import Batch, Keys, Points, SketchPlan, Vectors
from fedns.numerics.backends.around import Pass
from fedns.numerics.backends.guarded import GuardedBackend
from fedns.numerics.formulas import Formulas
from fedns.numerics.linalg import single_threaded_blas
from fedns.runs.builder import algorithm_of
from fedns.runs.over_sites import MethodRun, SiteRun

FEW_ROWS, ROUNDS = 256, 2
WORD_SECONDS = 1.0  # a rehearsal that takes longer is said to be under way
log = logging.getLogger("fedns.site")


@dataclass(frozen=True)
class _Bounded(GuardedBackend):
    """The passes of a rehearsal: a sketch that the run would not get is not taken here either."""

    guard: Guard

    def around(self, one: Pass) -> Any:
        return one.made_by(self.inside)

    def gradient_and_sketch(
        self, loss: Formulas, batch: Batch, w: Points, plan: SketchPlan, keys: Keys
    ) -> tuple[Vectors, Vectors]:
        self.guard.check_sketch(plan, w.shape[-1])
        self.guard.permissions.check_bytes(8 * w.shape[-1] * int(plan.sizes.max()))
        return self.inside.gradient_and_sketch(loss, batch, w, plan, keys)


class _Alone(Cohort):
    """The site as the only client of its own run; nothing leaves, and what the guard refuses is not computed."""

    def __init__(self, session: Session, shards: Shards, guard: Guard, spec: SiteRun) -> None:
        super().__init__(session, np.zeros(1, dtype=np.int64))
        self._shards, self._memory = shards, ClientMemory(self.ids)
        self._guard, self._spec = guard, spec
        self._requests_left = (ROUNDS + 1) * guard.permissions.requests_per_round
        self.register_clients()

    def _deliver(self, handler: Handler, frame: bytes, ids: Ids) -> Iterator[tuple[Ids, Message]]:
        request, envelope = decode(messages_of(handler)[0], frame)
        self._requests_left -= 1
        if self._requests_left < 0:
            raise Refusal("R6", "its rounds take more requests than are answered")
        self._guard.admit_request(
            handler, request, run=b"", round=envelope.round, spec=self._spec, problem=self.session.problem
        )
        clients = Clients(self._shards, ids, self.session.seed, envelope.round, self._memory)
        yield ids, handler(self.session.problem, clients, request)


def rehearse(spec: MethodRun, problem: Problem, guard: Guard) -> None:
    """Play a run on a few rows, which compiles all it calls; in a thread of its own, so that signals are honoured."""
    algorithm = algorithm_of(spec)
    features = problem.num_features(guard.shards.num_columns)
    sites, rows = len(spec.sites), guard.shards.num_samples

    def here(method: Algorithm) -> float:
        """Bytes that a site takes, beside its rows."""
        needs = method.needs(features, sites, rows)
        return 8.0 * (needs.client + needs.kept)

    refuse_too_large(algorithm, here, features)
    started = time.monotonic()
    work = threading.Thread(target=_play, args=(algorithm, problem, guard, spec), name=COMPILING, daemon=True)
    work.start()
    work.join(WORD_SECONDS)
    if work.is_alive():
        log.info("compiling what %s calls for this run; the first time takes up to a minute", algorithm.name)
        work.join()
        log.info("compiled in %.0f s", time.monotonic() - started)


def _play(algorithm: Algorithm, problem: Problem, guard: Guard, spec: SiteRun) -> None:
    shards = guard.shards
    few = replace(shards, stops=np.minimum(shards.stops, shards.starts + FEW_ROWS))
    bounded = replace(problem, backend=_Bounded(problem.backend, guard))
    try:
        guard.admit_settings(algorithm)  # its half at the coordinator, too, is played here
        with single_threaded_blas(), np.errstate(all="ignore"):
            cohort = _Alone(Session(bounded, 0, spec.wire), few, guard, spec)
            run(algorithm, problem, cohort, stop=Stop(ROUNDS), evaluate=lambda w: evaluate(problem, cohort, w))
            _measure(problem, few, cohort.num_features)
    except Exception as error:  # few rows may be too few for a method; the run itself will tell
        log.debug("the rehearsal ended early: %s", error)


def _measure(problem: Problem, few: Shards, features: int) -> None:
    """What the guard looks at before and while a request is answered."""
    none, norms = np.zeros(features), np.zeros(few.rows.shape[0])
    problem.passes.value_gradient_and_curvatures(problem.loss, few, none, norms)
    problem.passes.curvatures_along(problem.loss, few, none, none, np.zeros(2), norms)
    problem.losses_along(none, none, np.zeros(2), few)
