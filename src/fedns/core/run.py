"""The only round loop, and when it stops."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedns.core.algorithm import Algorithm, Outcome, State
from fedns.core.checked import Checked, CountOrZero, NotNegative
from fedns.core.cohort import Cohort
from fedns.core.errors import ConfigError, NonFiniteError
from fedns.core.history import History, Observer, Record
from fedns.core.problem import Evaluation, Objective
from fedns.core.refusals import refuse_penalty, refuse_too_large, refuse_too_many
from fedns.core.termination import Ending, Verdict
from fedns.core.types import FloatArray

DIVERGED_GAP = 1e8


@dataclass(frozen=True)
class Progress:
    """Where an interrupted run stood: its state and the records up to then."""

    state: State
    records: Sequence[Record]


@dataclass(frozen=True)
class Stop(Checked):
    """When to stop: after so many rounds, or once a tolerance is met."""

    is_settings: ClassVar[bool] = True
    rounds: CountOrZero
    suboptimality: NotNegative | None = None
    gradient_norm: NotNegative | None = None
    newton_decrement: NotNegative | None = None  # where the last step began: free of the units of the columns

    def verdict(self, records: Sequence[Record]) -> Verdict | None:
        """Whether a run with these records is over."""
        last = records[-1]
        looked_at = (
            (Ending.GAP, "suboptimality", last.suboptimality, self.suboptimality),
            (Ending.GRADIENT, "gradient norm", last.gradient_norm, self.gradient_norm),
            (Ending.DECREMENT, "Newton decrement", last.diagnostics.get("newton_decrement"), self.newton_decrement),
        )
        for ending, name, value, tolerance in looked_at:
            if value is not None and tolerance is not None and value <= tolerance:
                return Verdict(ending, f"{name} {value:.1e} reached the tolerance {tolerance:.2g} in round {last.round}")
        if last.objective > records[0].objective + DIVERGED_GAP:
            return diverged(last.round, f"the objective rose to {last.objective:.3g}")
        if last.round >= self.rounds and _is_above(last.objective, records[0].objective):
            rise = f"the objective rose from {records[0].objective:.3g} to {last.objective:.3g}"
            return Verdict(Ending.DIVERGED, f"used all {self.rounds} rounds and diverged: {rise}")
        if last.round >= self.rounds:
            ending, trend = _trend(records)
            return Verdict(ending, f"used all {self.rounds} rounds{trend}")
        return None


def _is_above(objective: float, start: float) -> bool:
    """By more than rounding, where a run began at the optimum."""
    return objective > start + 1e-9 * max(1.0, abs(start))


def diverged(number: int, why: str) -> Verdict:
    """The verdict on a run that round `number` drove beyond all bounds."""
    return Verdict(Ending.DIVERGED, f"diverged in round {number}: {why}")


def _trend(records: Sequence[Record]) -> tuple[Ending, str]:
    """What the last third of a run that ran out of rounds looks like."""
    gaps = [r.suboptimality for r in records if r.suboptimality is not None]
    third = len(gaps) // 3
    if len(gaps) < len(records) or third < 4:
        return Ending.OUT_OF_ROUNDS, ""
    before, lowest, highest = min(gaps[: len(gaps) - third]), min(gaps[-third:]), max(gaps[-third:])
    if highest <= 1e-14 * max(1.0, abs(records[-1].objective)):
        return Ending.AT_OPTIMUM, ", at the optimum as far as the objective can tell"
    if lowest < 0.9 * before:
        return Ending.IMPROVING, f", still improving at gap {lowest:.1e}"
    if highest <= 2 * lowest:
        return Ending.PLATEAU, f", on a plateau: the gap has stayed at {lowest:.1e} for {third} rounds"
    swing = f"in the last {third} rounds the gap moved between {lowest:.1e} and {highest:.1e}"
    return Ending.UNSETTLED, f", not settling: {swing}"


def run(
    algorithm: Algorithm,
    problem: Objective,
    cohort: Cohort,
    *,
    stop: Stop,
    evaluate: Callable[[FloatArray], Evaluation],
    optimal_value: float | None = None,
    participation: float = 1.0,
    observers: Sequence[Observer] = (),
    resume: Progress | None = None,
) -> History:
    """Run rounds until a tolerance, the method or an observer ends it. Evaluation is outside the clock.

    resume: go on from here instead of starting; the cohort's session must stand where it stood then.
    """
    refuse_too_large(algorithm, cohort.bytes_needed, cohort.num_features)
    refuse_too_many(algorithm, stop.rounds, int(cohort.ids[-1]) + 1)
    refuse_penalty(algorithm, problem.penalty)
    session = cohort.session
    records: list[Record] = [] if resume is None else list(resume.records)
    seconds = records[-1].seconds if records else 0.0
    state: State
    stopped: Verdict | None = None  # by an observer

    def record(diagnostics: dict[str, float], note: str = "") -> Record | None:
        """The record of the current state, or None where its objective is not a usable number."""
        with np.errstate(over="ignore", invalid="ignore"):
            evaluation = evaluate(state.coefficients)
        if not np.isfinite([evaluation.objective, evaluation.gradient_norm]).all():
            return None
        gap = None if optimal_value is None else evaluation.objective - optimal_value
        meter = session.meter
        return Record(
            session.round,
            meter.exchanges,
            seconds,
            meter.uplink_bytes,
            meter.downlink_bytes,
            evaluation.objective,
            gap,
            evaluation.gradient_norm,
            diagnostics,
            meter.evaluation_bytes,
            note,
        )

    def keep(entry: Record) -> Verdict | None:
        records.append(entry)
        wishes = [observer.on_round(entry, state) for observer in observers]
        reason = next((wish for wish in wishes if wish), None)
        return None if reason is None else Verdict(Ending.STOPPED, f"stopped in round {entry.round}: {reason}")

    if resume is None:
        started = time.perf_counter()
        state = cohort.with_retries(lambda everyone: algorithm.init(problem, everyone))
        seconds += time.perf_counter() - started
        start = record({})
        if start is None:
            raise ConfigError(f"the objective is not finite at the start of {algorithm.name}: scale the columns")
        stopped = keep(start)
    else:
        state = resume.state
    ended = stop.verdict(records) or stopped
    while ended is None:
        session.round += 1
        previous = state
        started = time.perf_counter()
        try:
            taking_part = cohort if participation == 1.0 else cohort.sample(participation)
            outcome: Outcome = taking_part.with_retries(lambda part: algorithm.round(problem, previous, part))  # noqa: B023
            if not np.isfinite(outcome.state.coefficients).all():
                raise NonFiniteError("the coefficients are no longer finite")
        except (NonFiniteError, FloatingPointError, np.linalg.LinAlgError) as error:
            ended = diverged(session.round, str(error))
            break
        finally:
            seconds += time.perf_counter() - started
        state = outcome.state
        entry = record({name: float(value) for name, value in outcome.diagnostics.items()}, outcome.note)
        if entry is None:
            state, ended = previous, diverged(session.round, "the objective is no longer finite")
            break
        stopped = keep(entry)
        ended = stop.verdict(records)
        if outcome.finished and not (ended and ended.ending.converged):
            ended = Verdict(Ending.METHOD, outcome.finished)
        if outcome.stuck and ended is None and participation == 1.0:  # other clients may know a way
            ended = Verdict(Ending.STUCK, f"stuck in round {session.round}: {outcome.stuck}")
        ended = ended or stopped
    if ended.ending is Ending.DIVERGED and algorithm.way_out:
        ended = Verdict(ended.ending, f"{ended.reason}; try {algorithm.way_out}")
    coefficients, ledger = np.array(state.coefficients), list(session.meter.ledger)
    history = History(algorithm.name, records, coefficients, ended.ending, ended.reason, ledger)
    for observer in observers:
        observer.on_end(history)
    return history
