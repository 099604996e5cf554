"""When a run stops, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, ClassVar

from fedns.core.checked import Checked, CountOrZero, NotNegative
from fedns.core.errors import DataError

if TYPE_CHECKING:
    from fedns.core.history import Record

DIVERGED_GAP = 1e8


class Ending(Enum):
    """How a run ended: a word or two for a table, and a sentence."""

    GAP = ("converged", "the gap to the optimum reached its tolerance")
    GRADIENT = ("converged", "the norm of the gradient reached its tolerance")
    DECREMENT = ("converged", "the Newton decrement reached its tolerance")
    METHOD = ("converged", "the method itself found that it was done")
    OUT_OF_ROUNDS = ("out of rounds", "all rounds were used")
    AT_OPTIMUM = ("at the optimum", "all rounds were used, and no objective tells the end from the optimum")
    IMPROVING = ("still improving", "all rounds were used, and the gap was still falling")
    PLATEAU = ("plateau", "all rounds were used, and the gap had stopped falling")
    UNSETTLED = ("not settling", "all rounds were used, and the gap went up and down")
    STUCK = ("stuck", "the method found no step that decreases the objective")
    DIVERGED = ("diverged", "the objective ended above where it began, or it or the coefficients grew beyond all bounds")
    STOPPED = ("stopped", "an observer asked for the end")
    REFUSED = ("refused", "a site refuses, or sends what cannot be used")
    SITES_LOST = ("sites lost", "too few sites answered for too long")
    ENGINE_LOST = ("engine lost", "what carries the messages ended again and again")
    INTERRUPTED = ("interrupted", "the process ended before the run did")

    def __init__(self, label: str, sentence: str) -> None:
        self.label = label
        self.sentence = sentence

    @property
    def converged(self) -> bool:
        return self in (Ending.GAP, Ending.GRADIENT, Ending.DECREMENT, Ending.METHOD)

    @property
    def used_all_rounds(self) -> bool:
        """Whether nothing but the number of rounds ended it."""
        return self in (Ending.OUT_OF_ROUNDS, Ending.AT_OPTIMUM, Ending.IMPROVING, Ending.PLATEAU, Ending.UNSETTLED)

    @property
    def key(self) -> str:
        """The name under which it is written to files."""
        return self.name.lower()

    @classmethod
    def of(cls, key: str) -> Ending:
        """The ending that was written as `key`."""
        if key not in {ending.key for ending in cls}:
            raise DataError(f"no run ends with {key!r}: known endings are {', '.join(ending.key for ending in cls)}")
        return cls[key.upper()]


@dataclass(frozen=True)
class Verdict:
    """That a run is over: how it ended, and why in one sentence with its numbers."""

    ending: Ending
    reason: str


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
