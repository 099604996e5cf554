"""The only round loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedns.core.algorithm import Algorithm, Outcome
from fedns.core.cohort import Cohort
from fedns.core.errors import ConfigError, NonFiniteError
from fedns.core.history import History, Record
from fedns.core.observers import Observer

FloatArray = NDArray[np.float64]
DIVERGED_GAP = 1e8


@dataclass(frozen=True)
class Evaluation:
    """The objective and the norm of its gradient at some coefficients."""

    objective: float
    gradient_norm: float


@dataclass(frozen=True)
class Stop:
    """When to stop: after so many rounds, or once a tolerance is met."""

    rounds: int
    suboptimality: float | None = None
    gradient_norm: float | None = None

    def __post_init__(self) -> None:
        if self.rounds < 0:
            raise ConfigError(f"rounds must be >= 0, got {self.rounds}")
        for name in ("suboptimality", "gradient_norm"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ConfigError(f"the tolerance on {name} must be >= 0, got {value}")


@dataclass(frozen=True)
class Progress:
    """Where an interrupted run stood: its state and the records up to then."""

    state: Any
    records: Sequence[Record]


def run(
    algorithm: Algorithm,
    problem: Any,
    cohort: Cohort,
    *,
    stop: Stop,
    evaluate: Callable[[FloatArray], Evaluation],
    optimal_value: float | None = None,
    participation: float = 1.0,
    observers: Sequence[Observer] = (),
    resume: Progress | None = None,
) -> History:
    """Run rounds until something says stop. Evaluation and observers are outside the clock and the meter.

    resume: go on from here instead of starting; the cohort's session must stand where it stood then.
    """
    session = cohort.session
    records: list[Record] = [] if resume is None else list(resume.records)
    seconds = records[-1].seconds if records else 0.0
    state: Any = None if resume is None else resume.state
    reason, converged = "", False

    def record(diagnostics: dict[str, float]) -> Record | None:
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
        )

    def keep(entry: Record) -> None:
        records.append(entry)
        for observer in observers:
            observer.on_round(entry, state)

    if resume is None:
        started = time.perf_counter()
        state = cohort.with_retries(lambda everyone: algorithm.init(problem, everyone))
        seconds += time.perf_counter() - started
        start = record({})
        if start is None:
            raise ConfigError(f"the objective is not finite at the start of {algorithm.name}: scale the columns")
        keep(start)
    reason, converged = _verdict(records, stop)
    while not reason:
        session.round += 1
        previous = state
        started = time.perf_counter()
        try:
            taking_part = cohort if participation == 1.0 else cohort.sample(participation)
            outcome = _finite(taking_part.with_retries(lambda part: algorithm.round(problem, previous, part)))  # noqa: B023
        except (NonFiniteError, FloatingPointError, np.linalg.LinAlgError) as error:
            reason = f"diverged in round {session.round}: {error}"
            break
        finally:
            seconds += time.perf_counter() - started
        state = outcome.state
        entry = record({name: float(value) for name, value in outcome.diagnostics.items()})
        if entry is None:
            state, reason = previous, f"diverged in round {session.round}: the objective is no longer finite"
            break
        keep(entry)
        reason, converged = _verdict(records, stop)
        if outcome.finished and not converged:
            reason, converged = outcome.finished, True
    history = History(algorithm.name, records, np.array(state.coefficients), reason, converged, list(session.meter.ledger))
    for observer in observers:
        observer.on_end(history)
    return history


def _finite(outcome: Outcome) -> Outcome:
    if not np.isfinite(outcome.state.coefficients).all():
        raise NonFiniteError("the coefficients are no longer finite")
    return outcome


def _verdict(records: list[Record], stop: Stop) -> tuple[str, bool]:
    """(why to stop, whether that is success), or an empty reason to go on."""
    last = records[-1]
    gap = last.suboptimality
    if stop.suboptimality is not None and gap is not None and gap <= stop.suboptimality:
        return f"suboptimality {gap:.1e} reached the tolerance {stop.suboptimality:g} in round {last.round}", True
    if stop.gradient_norm is not None and last.gradient_norm <= stop.gradient_norm:
        return (
            f"gradient norm {last.gradient_norm:.1e} reached the tolerance {stop.gradient_norm:g} in round {last.round}",
            True,
        )
    if last.objective > records[0].objective + DIVERGED_GAP:
        return f"diverged in round {last.round}: the objective rose to {last.objective:.3g}", False
    if last.round >= stop.rounds:
        return f"used all {stop.rounds} rounds{_trend(records)}", False
    return "", False


def _trend(records: list[Record]) -> str:
    """What the last third of a run that ran out of rounds looks like, in words."""
    gaps = [r.suboptimality for r in records if r.suboptimality is not None]
    third = len(gaps) // 3
    if len(gaps) < len(records) or third < 4:
        return ""
    before, lowest, highest = min(gaps[: len(gaps) - third]), min(gaps[-third:]), max(gaps[-third:])
    if highest <= 1e-14 * max(1.0, abs(records[-1].objective)):
        return ", at the optimum as far as the objective can tell"
    if lowest < 0.9 * before:
        return f", still improving at gap {lowest:.1e}"
    if highest <= 2 * lowest:
        return f", on a plateau: the gap has stayed at {lowest:.1e} for {third} rounds"
    return f", not settling: in the last {third} rounds the gap moved between {lowest:.1e} and {highest:.1e}"
