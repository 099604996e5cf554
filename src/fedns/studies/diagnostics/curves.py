"""Curves from groups of rows: ROC and the area under it, calibration, quantiles of residuals.

A group lies somewhere between its ends. The area is told with the smallest and the largest value that it can have for
that reason, wherever the rows are within their groups; sums are exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtri

from fedns.core.types import FloatArray, IntArray

_ROUNDING = 1e-12
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True, eq=False)
class Groups:
    """Groups of rows with neighbouring predictions, of one site or of several, in the order of their mean prediction."""

    starts: IntArray  # (groups,) the first cell of each
    stops: IntArray  # (groups,) the cell after the last
    weights: FloatArray  # (groups,) rows, as they are weighted
    outcomes: FloatArray  # (groups,) sums; of events, how many
    predictions: FloatArray  # (groups,) sums

    @property
    def means(self) -> FloatArray:
        """The mean prediction of each: (groups,)."""
        return self.predictions / self.weights

    @property
    def weight(self) -> float:
        return float(self.weights.sum())

    @property
    def observed(self) -> float:
        """The mean outcome."""
        return float(self.outcomes.sum() / self.weight) if self.weight else math.nan

    @property
    def expected(self) -> float:
        """The mean prediction."""
        return float(self.predictions.sum() / self.weight) if self.weight else math.nan


def groups_of(stops: IntArray, weights: FloatArray, outcomes: FloatArray, predictions: FloatArray) -> Groups:
    """The groups of one site, without those that have no weight."""
    starts, there = np.concatenate([[0], stops[:-1]]), weights > 0
    return Groups(starts[there], stops[there], weights[there], outcomes[there], predictions[there])


def together(parts: list[Groups]) -> Groups:
    """The groups of all sites, in order."""
    columns = [np.concatenate([getattr(part, name) for part in parts]) for name in Groups.__dataclass_fields__]
    order = np.argsort(columns[4] / columns[2], kind="stable")
    return Groups(*(column[order] for column in columns))


@dataclass(frozen=True, eq=False)
class Roc:
    """The receiver operating characteristic: how well events are told from the rest."""

    groups: Groups

    @cached_property
    def _kinds(self) -> tuple[FloatArray, FloatArray]:
        """Events and non-events, those of one mean prediction as one group."""
        place = _distinct(self.groups.means)
        events, weights = np.zeros((2, place.max() + 1))
        np.add.at(events, place, self.groups.outcomes)
        np.add.at(weights, place, self.groups.weights)
        return events, weights - events

    @property
    def curve(self) -> tuple[FloatArray, FloatArray]:
        """False and true positive rates, from none called an event to all: (points,) each."""
        events, others = self._kinds
        rates = [np.concatenate([[0.0], np.cumsum(kind[::-1]) / kind.sum()]) for kind in (others, events)]
        return rates[0], rates[1]

    @cached_property
    def area(self) -> float:
        """The chance that an event has a higher prediction than a non-event; within a group it is a half."""
        return float(self._placements[0] @ self._kinds[0] / self._kinds[0].sum())

    @cached_property
    def _placements(self) -> tuple[FloatArray, FloatArray]:
        """For an event and a non-event in each group, the part of the other kind that is on the right side of it."""
        events, others = self._kinds
        below = (np.cumsum(others) - 0.5 * others) / others.sum()
        above = 1.0 - (np.cumsum(events) - 0.5 * events) / events.sum()
        return below, above

    @property
    def standard_error(self) -> float:
        """DeLong's; within a group, as where predictions are equal."""
        variance = 0.0
        for kind, placement in zip(self._kinds, self._placements, strict=True):
            total = kind.sum()
            if total <= 1:
                return math.nan
            variance += float(kind @ (placement - self.area) ** 2) / (total - 1) / total
        return math.sqrt(variance)

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """The smallest and the largest area that rows within these groups can have."""
        found, events = self.groups, self.groups.outcomes
        others = found.weights - events
        pairs = events.sum() * others.sum()
        surely = events @ _sum_up_to(found.stops, others, found.starts)  # non-events whose group ends before
        surely_not = others @ _sum_up_to(found.stops, events, found.starts)
        return float(surely / pairs), float(1.0 - surely_not / pairs)


def _distinct(means: FloatArray) -> IntArray:
    """The rank of each mean; sums of the same predictions at different sites differ by rounding alone."""
    order = np.argsort(means, kind="stable")
    ranks = np.empty(means.size, dtype=np.int64)
    ranks[order] = np.cumsum(np.diff(means[order], prepend=means[order[:1]]) > _ROUNDING * np.abs(means[order]))
    return ranks


def _sum_up_to(places: IntArray, values: FloatArray, limits: IntArray) -> FloatArray:
    """The sum of the values whose place is at most each limit."""
    order = np.argsort(places, kind="stable")
    sums = np.concatenate([[0.0], np.cumsum(values[order])])
    return np.asarray(sums[np.searchsorted(places[order], limits, side="right")])


def roc(groups: Groups) -> Roc | None:
    """Nothing where all rows have one outcome, or one prediction, or are in one group, whose area could be anything."""
    events = groups.outcomes.sum()
    return Roc(groups) if groups.weights.size and _distinct(groups.means).max() and 0.0 < events < groups.weight else None


@dataclass(frozen=True)
class Tenth:
    """About a tenth of the rows, by their predictions."""

    weight: float
    predicted: float  # mean
    observed: float  # mean outcome; of events, their share
    low: float  # of the share, a 95 % interval (Wilson's); NaN unless events, of rows that are counted
    high: float


def calibration(groups: Groups, *, events: bool, counted: bool = True, parts: int = 10) -> tuple[Tenth, ...]:
    """Predicted against observed, in groups that are put together to parts of about equal weight; the sums are exact."""
    middle = np.cumsum(groups.weights) - 0.5 * groups.weights
    which = np.minimum((parts * middle / groups.weight).astype(np.int64), parts - 1) if groups.weight else middle
    found = []
    for part in np.unique(which):
        inside = which == part
        weight, total, expected = (float(x[inside].sum()) for x in (groups.weights, groups.outcomes, groups.predictions))
        low, high = _wilson(total / weight, weight) if events and counted else (math.nan, math.nan)
        found.append(Tenth(weight, expected / weight, total / weight, low, high))
    return tuple(found)


def _wilson(share: float, count: float) -> tuple[float, float]:
    z = float(ndtri(0.975))
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(max(0.0, share * (1 - share) / count) + z * z / (4 * count * count))
    return middle - half, middle + half


def quantiles(values: FloatArray, weights: FloatArray) -> tuple[float, ...]:
    """The values that 5, 25, 50, 75 and 95 % of the weight are at or below; groups are at their mean."""
    if not weights.size:
        return (math.nan,) * len(QUANTILES)
    order = np.argsort(values, kind="stable")
    share = np.cumsum(weights[order]) / weights.sum()
    return tuple(float(values[order][np.searchsorted(share, level - 1e-12)]) for level in QUANTILES)
