"""Compiling what a run will call before its first request has to be answered in time: two rounds, played alone."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fedns.core.algorithm import Algorithm
from fedns.core.clients import ClientMemory, Clients, Handler, Ids, messages_of
from fedns.core.cohort import Cohort, Session
from fedns.core.encoding import decode
from fedns.core.messages import Message
from fedns.core.run import run
from fedns.core.shards import Shards
from fedns.core.termination import Stop
from fedns.numerics.linalg import single_threaded_blas
from fedns.problems.evaluation import evaluate
from fedns.problems.problem import Problem

FEW_ROWS, ROUNDS = 256, 2
WORD_SECONDS = 1.0  # a rehearsal that takes longer is said to be under way
THREAD = "fedns-rehearsal"
log = logging.getLogger("fedns.site")


class _Alone(Cohort):
    """The site as the only client of its own run; nothing leaves."""

    def __init__(self, session: Session, shards: Shards) -> None:
        super().__init__(session, np.zeros(1, dtype=np.int64))
        self._shards, self._memory = shards, ClientMemory(self.ids)
        self.register_clients()

    def _deliver(self, handler: Handler, frame: bytes, ids: Ids) -> Iterator[tuple[Ids, Message]]:
        request, envelope = decode(messages_of(handler)[0], frame)
        clients = Clients(self._shards, ids, self.session.seed, envelope.round, self._memory)
        yield ids, handler(self.session.problem, clients, request)


def rehearse(algorithm: Algorithm, problem: Problem, shards: Shards, wire: str) -> None:
    """Play a run on a few rows, which compiles all it calls; in a thread of its own, so that signals are honoured."""
    started = time.monotonic()
    work = threading.Thread(target=_play, args=(algorithm, problem, shards, wire), name=THREAD, daemon=True)
    work.start()
    work.join(WORD_SECONDS)
    if work.is_alive():
        log.info("compiling what %s calls for this run; the first time takes up to a minute", algorithm.name)
        work.join()
        log.info("compiled in %.0f s", time.monotonic() - started)


def leave_if_under_way(status: int) -> None:
    """End the process where a thread still compiles: the compiler does not survive the ordinary way out."""
    if any(thread.name == THREAD for thread in threading.enumerate()):
        logging.shutdown()
        os._exit(status)


def _play(algorithm: Algorithm, problem: Problem, shards: Shards, wire: str) -> None:
    few = replace(shards, stops=np.minimum(shards.stops, shards.starts + FEW_ROWS))
    try:
        with single_threaded_blas(), np.errstate(all="ignore"):
            cohort = _Alone(Session(problem, 0, wire), few)
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
