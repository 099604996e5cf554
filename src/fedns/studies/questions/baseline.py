"""The cumulative baseline hazard of Cox regression, site by site, at times that the study names and the owner permits.

For a row with margin z the probability to be without an event at time t is exp(-H(t) exp(z - m)), where H is what a site
tells for rows with its mean margin m. Events between two times are never fewer than the site's smallest count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedns.core.clients import Clients, Handler, on_client
from fedns.core.cohort import Cohort
from fedns.core.messages import Message, Payload, split_batch, wire
from fedns.core.types import FloatArray
from fedns.models.problem import DesignBlock, Problem
from fedns.numerics.backends.cox import cumulative_hazard
from fedns.studies.questions.asking import REFUSALS, Point, ask_one, each_client


class BaselineHazard(Message):
    """A client's cumulative hazard, for rows with its mean margin, at those of the study's times that it may tell of."""

    margin: Payload = wire(dtype="float64", discloses="moments")
    places: Payload = wire("times", dtype="int64", ragged=True, discloses="hazard")
    hazards: Payload = wire("times", dtype="float64", ragged=True, discloses="hazard")


@dataclass(frozen=True)
class SiteHazard:
    """The cumulative hazard of one site."""

    margin: float
    times: tuple[float, ...]
    hazards: tuple[float, ...]

    def survival(self, margins: FloatArray) -> FloatArray:
        """The probability to be without an event at each time: (rows, times)."""
        return np.asarray(np.exp(-np.exp(margins - self.margin)[:, None] * np.array(self.hazards)))

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> SiteHazard:
        """As `as_dict` has it."""
        return cls(float(values["margin"]), tuple(map(float, values["times"])), tuple(map(float, values["hazards"])))


@dataclass(frozen=True)
class Baseline:
    """The times of a study, and how few events between two of them are not told."""

    times: tuple[float, ...]
    smallest: int = 5

    def handlers(self) -> tuple[Handler, ...]:
        return (self.look_at_baseline,) if self.times else ()

    @on_client(Point, BaselineHazard)
    def look_at_baseline(self, problem: Problem, clients: Clients, request: Point) -> BaselineHazard:
        """Tell how fast events come at a site, whatever the columns say."""
        w = request.coefficients
        return each_client(clients, lambda shards: self._hazard(*problem.design_blocks(w, shards)))

    def _hazard(self, block: DesignBlock) -> BaselineHazard:
        margin = float(block.weights @ block.margins / block.weights.sum())
        times, places, before = np.array(self.times), [], 0
        for place, time in enumerate(times):
            events = int(((block.targets > 0) & (block.targets <= time)).sum())
            if events - before >= max(1, self.smallest):
                places.append(place)
                before = events
        hazards = cumulative_hazard(block.margins - margin, block.targets, block.weights, times[places])
        return BaselineHazard(np.float64(margin), np.array(places, dtype=np.int64), hazards)


def ask_baseline(
    baseline: Baseline, cohort: Cohort, sites: Sequence[str], w: FloatArray
) -> tuple[dict[str, SiteHazard], list[str]]:
    """Ask every site by itself; a sentence for each that tells nothing."""
    found, notes = {}, []
    for place, site in enumerate(sites if baseline.times else ()):
        try:
            told: Any = split_batch(ask_one(cohort, place, baseline.look_at_baseline, Point(coefficients=w)), 0)
        except REFUSALS as refusal:
            notes.append(f"no baseline hazard of site '{site}': {refusal}")
            continue
        times = tuple(baseline.times[one] for one in told.places)
        found[site] = SiteHazard(float(told.margin), times, tuple(told.hazards.tolist()))
    return found, notes
