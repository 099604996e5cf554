"""The speed at which a gap falls: by a factor a round, faster than any factor, or not to zero at all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from fedns.core.termination import Ending
from fedns.lab.paper.cases import FLOOR, MethodRuns

Kind = Literal["quadratic", "super-linear", "linear", "sub-linear", "plateau", "diverges", "too few rounds"]
QUADRATIC_ORDER, SUPERLINEAR_ORDER, SUBLINEAR_ORDER = 1.6, 1.25, 0.8
TAIL_BELOW = 1e-3  # the rate is read off below this part of the first gap, where the first rounds are forgotten
SLOW = 0.97  # a gap that falls by less than this factor a round at the end, far from zero, has stopped


@dataclass(frozen=True)
class Rate:
    """The fall of the gap at the end of a run."""

    kind: Kind
    order: float  # p of e_next ~ e^p over the tail; nan where there are too few gaps
    factor: float  # e_next / e, the geometric mean over the tail; nan where there are too few

    def __str__(self) -> str:
        if self.kind in ("linear", "sub-linear") and math.isfinite(self.factor):
            return f"{self.kind}, factor {self.factor:.2g}"
        return f"{self.kind}, order {self.order:.1f}" if math.isfinite(self.order) else self.kind


def rate(found: MethodRuns) -> Rate:
    """The rate over all trials: medians of order and factor, and the kind that they amount to."""
    tails = [tail(MethodRuns.gaps(run)) for run in found.runs]
    orders = [p for gaps in tails for p in _orders(gaps)]
    factors = [_factor(gaps) for gaps in tails if len(gaps) > 1]
    order = median(orders) if orders else math.nan
    factor = median(factors) if factors else math.nan
    return Rate(_kind(found, order, factor), order, factor)


def tail(gaps: Sequence[float]) -> list[float]:
    """The gaps of the last phase, to the first at the floor; of a run that never came so far, its second half.

    Super-linear convergence leaves few gaps below any bound, so that there the last four count wherever they are.
    """
    end = next((i for i, gap in enumerate(gaps) if gap <= 10 * FLOOR), len(gaps))
    above = list(gaps[: max(end, 1)])
    late = [gap for gap in above if gap < TAIL_BELOW * above[0]]
    return late if len(late) >= 4 else above[-max(4, len(above) // 2) :]


def _orders(gaps: Sequence[float]) -> list[float]:
    """log(e2 / e1) / log(e1 / e0): 2 for Newton's method, 1 for a fixed factor."""
    threes = zip(gaps, gaps[1:], gaps[2:], strict=False)
    return [math.log(after / now) / math.log(now / before) for before, now, after in threes if after < now < before]


def _factor(gaps: Sequence[float]) -> float:
    return math.exp(math.log(gaps[-1] / gaps[0]) / (len(gaps) - 1))


def _kind(found: MethodRuns, order: float, factor: float) -> Kind:
    endings = {run.ending for run in found.runs}
    if endings & {Ending.DIVERGED, Ending.UNSETTLED}:
        return "diverges"
    if found.final_gap > 1e-10 and (Ending.PLATEAU in endings or factor > SLOW):
        return "plateau" if Ending.PLATEAU in endings or factor > 1 - 1e-3 else "sub-linear"
    if not math.isfinite(order):
        return "too few rounds"
    if order >= QUADRATIC_ORDER and found.final_gap <= 1e-10:
        return "quadratic"
    if order >= SUPERLINEAR_ORDER and found.final_gap <= 1e-10:
        return "super-linear"
    return "linear"
