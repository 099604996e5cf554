"""How well a fitted model predicts, at every site and in all, and at each site by the model of the others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedns.core.cohort import Cohort
from fedns.core.errors import FednsError
from fedns.federation.protocol.absence import SitesLost
from fedns.studies.diagnostics.curves import Groups, Roc, Tenth, calibration, groups_of, quantiles, roc, together
from fedns.studies.diagnostics.exchange import ScoreTable, Scoring
from fedns.studies.inference.estimates import Inference
from fedns.studies.inference.exchange import Point
from fedns.studies.inference.sites import fitted_without

FloatArray = NDArray[np.float64]
MOST_HELD_OUT = 20  # sites: each is asked by itself


@dataclass(frozen=True, eq=False)
class Prediction:
    """How a model predicts some rows."""

    groups: Groups
    residuals: FloatArray  # (residual groups,) means
    residual_weights: FloatArray  # (residual groups,)
    events: bool

    @cached_property
    def roc(self) -> Roc | None:
        """How events are told from the rest; None where the outcome is no event, or groups cannot tell."""
        return roc(self.groups) if self.events else None

    @cached_property
    def calibration(self) -> tuple[Tenth, ...]:
        return calibration(self.groups, events=self.events)

    @property
    def quantiles(self) -> tuple[float, ...]:
        """Of Pearson's residuals, at 5, 25, 50, 75 and 95 %."""
        return quantiles(self.residuals, self.residual_weights)

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        found: dict[str, Any] = {
            "rows": self.groups.weight, "observed": self.groups.observed, "expected": self.groups.expected,
            "residual_quantiles": list(self.quantiles), "calibration": [asdict(tenth) for tenth in self.calibration],
        }  # fmt: skip
        if self.roc is not None:
            low, high = self.roc.bounds
            found["auc"] = {
                "area": self.roc.area, "std_error": self.roc.standard_error, "at_least": low, "at_most": high
            }  # fmt: skip
        return found


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """How the model predicts; all figures are of the rows it was fitted on, except those of held-out sites."""

    sites: Mapping[str, Prediction]  # by name; not those whose rows were too few to tell
    held_out: Mapping[str, Prediction] = field(default_factory=dict)  # by the model of all other sites
    notes: tuple[str, ...] = ()

    @cached_property
    def total(self) -> Prediction:
        """Of all sites together."""
        parts = list(self.sites.values())
        residuals, weights = (np.concatenate([getattr(p, n) for p in parts]) for n in ("residuals", "residual_weights"))
        return Prediction(together([part.groups for part in parts]), residuals, weights, parts[0].events)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as model.json has them."""
        return {
            "total": self.total.as_dict(),
            "sites": {name: one.as_dict() for name, one in self.sites.items()},
            "held_out": {name: one.as_dict() for name, one in self.held_out.items()},
            "notes": list(self.notes),
        }


def diagnose(
    scoring: Scoring, cohort: Cohort, sites: Sequence[str], w: FloatArray, kept: Sequence[int], inference: Inference
) -> Diagnostics | str:
    """Ask all sites about w, and each about the model of the others; or a sentence that says why it cannot be told.

    kept: which of w the inference is about.
    """
    if not scoring.is_possible:
        return f"family {scoring.family.name} has no single prediction for a row"
    try:
        tables = _asked(scoring, cohort, w)
    except (FednsError, SitesLost) as refusal:
        return str(refusal)
    found = {site: told for site, table in zip(sites, tables, strict=True) if (told := _told(scoring, table)) is not None}
    notes = [
        f"site '{site}' has too few rows of some kind to say how the model predicts there"
        for site in sites
        if site not in found
    ]
    if not found:
        return "; ".join(notes)
    held_out = {}
    if 1 < len(sites) <= MOST_HELD_OUT:
        for place, site in enumerate(sites):
            fitted = fitted_without(inference, place)
            if site not in found or fitted is None:
                continue
            others = w.copy()
            others[list(kept)] = fitted
            try:
                (table,) = _asked(scoring, cohort.part(np.array([place])), others)
                told = _told(scoring, table)
            except (FednsError, SitesLost) as refusal:
                notes.append(f"the model of the other sites is not tried at '{site}': {refusal}")
                continue
            if told is not None:
                held_out[site] = told
    return Diagnostics(found, held_out, tuple(notes))


def _asked(scoring: Scoring, cohort: Cohort, w: FloatArray) -> list[ScoreTable]:
    return [
        _one(batch, client)
        for where, batch in cohort.ask(scoring.look_at_scores, Point(coefficients=w))
        for client in range(where.stop - where.start)
    ]


def _one(batch: ScoreTable, client: int) -> ScoreTable:
    return ScoreTable(**{name: getattr(batch, name).part(client) for name in batch.specs()})


def _told(scoring: Scoring, table: ScoreTable) -> Prediction | None:
    groups = groups_of(table.stops, table.weights, table.outcomes, table.predictions)
    if not groups.weight:
        return None
    if not scoring.has_events:
        there = table.residual_weights > 0
        means = table.residuals[there] / table.residual_weights[there]
        return Prediction(groups, means * scoring.residual_unit, table.residual_weights[there], events=False)
    mean = np.clip(groups.means, 1e-12, 1.0 - 1e-12)
    odds = np.sqrt(mean / (1.0 - mean))
    residuals = np.concatenate([-odds, 1.0 / odds])  # of non-events and events with this prediction
    weights = np.concatenate([groups.weights - groups.outcomes, groups.outcomes])
    return Prediction(groups, residuals[weights > 0], weights[weights > 0], events=True)


def prediction_table(found: Diagnostics) -> list[list[str]]:
    """The figures as texts, with headings: all sites, each of them, and each by the model of the others."""
    events = found.total.events
    own = ["AUC", "std err", "it is within"] if events else ["residuals 5 %", "25 %", "50 %", "75 %", "95 %"]
    lines = [("all sites", found.total), *found.sites.items()]
    lines += [(f"{site}, by the others", one) for site, one in found.held_out.items()]
    return [["predictions", "rows", "observed", "expected", *own], *(_line(name, one) for name, one in lines)]


def _line(name: str, one: Prediction) -> list[str]:
    cells = [name, f"{one.groups.weight:.10g}", f"{one.groups.observed:.4g}", f"{one.groups.expected:.4g}"]
    if not one.events:
        return [*cells, *(f"{value:.3g}" for value in one.quantiles)]
    if one.roc is None:
        return [*cells, "-", "-", "too few"]
    error, (low, high) = one.roc.standard_error, one.roc.bounds
    return [*cells, f"{one.roc.area:.4f}", "" if math.isnan(error) else f"{error:.4f}", f"{low:.4f} to {high:.4f}"]
