"""Predictions of a fitted model against outcomes, at every site and in all, and at each site by the model of the others."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fedns.core.types import FloatArray
from fedns.studies.diagnostics.by_site import BySite
from fedns.studies.diagnostics.curves import Groups, Roc, Tenth, calibration, quantiles, roc, together


@dataclass(frozen=True, eq=False)
class Prediction:
    """Predictions and outcomes of some rows."""

    groups: Groups
    residuals: FloatArray  # (residual groups,) means
    residual_weights: FloatArray  # (residual groups,)
    events: bool
    counted: bool = True  # weights are numbers of rows; else nothing says how sure the figures are

    @cached_property
    def roc(self) -> Roc | None:
        """The ROC; None where the outcome is no event, or groups cannot tell."""
        return roc(self.groups) if self.events else None

    @cached_property
    def calibration(self) -> tuple[Tenth, ...]:
        return calibration(self.groups, events=self.events, counted=self.counted)

    @property
    def area_error(self) -> float:
        """The standard error of the area under the ROC."""
        return self.roc.standard_error if self.roc is not None and self.counted else math.nan

    @property
    def quantiles(self) -> tuple[float, ...]:
        """Quantiles of Pearson's residuals, at 5, 25, 50, 75 and 95 %."""
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
                "area": self.roc.area, "std_error": self.area_error, "at_least": low, "at_most": high
            }  # fmt: skip
        return found


class Diagnostics(BySite[Prediction]):
    """Predictions of an outcome, or of one class of it."""

    @cached_property
    def total(self) -> Prediction:
        parts = list(self.sites.values())
        residuals, weights = (np.concatenate([getattr(p, n) for p in parts]) for n in ("residuals", "residual_weights"))
        return Prediction(together([part.groups for part in parts]), residuals, weights, parts[0].events, parts[0].counted)

    def table(self) -> list[list[str]]:
        events = self.total.events
        own = ["AUC", "std err", "it is within"] if events else ["residuals 5 %", "25 %", "50 %", "75 %", "95 %"]
        return [["predictions", "rows", "observed", "expected", *own], *(_line(name, one) for name, one in self.lines())]


def _line(name: str, one: Prediction) -> list[str]:
    cells = [name, f"{one.groups.weight:.10g}", f"{one.groups.observed:.4g}", f"{one.groups.expected:.4g}"]
    if not one.events:
        return [*cells, *(f"{value:.3g}" for value in one.quantiles)]
    if one.roc is None:
        return [*cells, "-", "-", "too few"]
    error, (low, high) = one.area_error, one.roc.bounds
    return [*cells, f"{one.roc.area:.4f}", "" if math.isnan(error) else f"{error:.4f}", f"{low:.4f} to {high:.4f}"]
