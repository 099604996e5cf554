"""Predictions from a model's file: with intervals, and with a reason for every row that the model cannot speak of."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from fedns.core.errors import ConfigError, DataError, unknown
from fedns.core.files import csv_text
from fedns.core.types import FloatArray
from fedns.studies.design.agreement import MISSING_LEVEL, Agreement
from fedns.studies.design.columns import Design
from fedns.studies.design.rows import design_rows
from fedns.studies.design.site_table import SiteTable
from fedns.studies.inference.distributions import Student
from fedns.studies.questions.baseline import SiteHazard
from fedns.studies.study import Study
from fedns.studies.tables.files.frames import Column, Frame, read_frame
from fedns.studies.tables.formula import Factor


@dataclass(frozen=True, eq=False)
class Predictions:
    """One entry for each row of the table; NaN where it is refused. With classes there is one for each row and class."""

    means: FloatArray  # (rows,) expected outcomes; of an event or a class, its probability
    standard_errors: FloatArray  # (rows,) of the means, by the delta method
    low: FloatArray  # (rows,)
    high: FloatArray  # (rows,)
    refusals: tuple[str, ...]  # (rows,) a sentence, or nothing
    classes: tuple[str, ...] = ()  # of the outcome, if it has some

    @property
    def refused(self) -> int:
        return sum(map(bool, self.refusals))

    def to_csv(self) -> str:
        """Lines in the order of the table."""
        names = [f"[{one}]" for one in self.classes] or [""]
        headings = [f"{what}{name}" for name in names for what in ("prediction", "std_error", "low", "high")]
        numbers = np.stack([self.means, self.standard_errors, self.low, self.high], axis=-1).reshape(len(self.refusals), -1)
        return _lines(headings, numbers, self.refusals)


@dataclass(frozen=True, eq=False)
class Survival:
    """One line for each row of the table; NaN where it is refused."""

    times: tuple[float, ...]
    probabilities: FloatArray  # (rows, times) to be without an event until then
    refusals: tuple[str, ...]  # (rows,) a sentence, or nothing

    def to_csv(self) -> str:
        """Lines in the order of the table."""
        return _lines([f"survival[{time:g}]" for time in self.times], self.probabilities, self.refusals)


def _lines(headings: Sequence[str], numbers: FloatArray, refusals: Sequence[str]) -> str:
    """A line for each row: its number, what was predicted, and why nothing was."""
    lines = ([row, *values, why] for row, (values, why) in enumerate(zip(numbers.tolist(), refusals, strict=True), start=1))
    return csv_text([["row", *headings, "refused"], *lines])


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted model as its file has it.

    - design: the study and the agreed coding.
    - coefficients: on the original scale, 0 for a column that was left out.
    - covariances: by kind of standard errors.
    - residual_df: of the t distribution; None where it is the normal one.
    - baseline: of family cox, the cumulative hazards of sites.
    - not_converged: why the fit has not converged; empty where it has.
    """

    design: Design
    coefficients: FloatArray  # (names,)
    covariances: dict[str, FloatArray]  # (names, names) each
    residual_df: float | None = None
    baseline: Mapping[str, SiteHazard] = field(default_factory=dict)
    not_converged: str = ""

    @classmethod
    def load(cls, path: str | Path) -> Model:
        """Read `model.json`."""
        try:
            values: Any = json.loads(Path(path).read_text(encoding="utf-8"))
            study, agreement = Study.from_dict(values["study"]), Agreement.from_json(json.dumps(values["schema"]))
            told, inference = values["coefficients"], values["inference"] or {"covariance": {}, "names": []}
            design = Design(study, agreement)
            coefficients = np.array([float(told[name] or 0.0) for name in design.names])
            places = [design.names.index(name) for name in inference["names"]]
            covariances = {str(kind): _spread(v, places, len(design.names)) for kind, v in inference["covariance"].items()}
            df = float(inference["residual_df"]) if inference.get("statistic") == "t" else None
            baseline = {str(site): SiteHazard.from_dict(told) for site, told in values.get("baseline", {}).items()}
        except (ValueError, TypeError, KeyError, RecursionError, IndexError, AttributeError) as error:
            raise DataError(
                f"{path} is no model of fedns: it is the model.json that `fedns fit` writes ({error!r})"
            ) from None
        if agreement.study != study.digest:
            raise DataError(f"{path}: its coding was agreed on for another study")
        return cls(design, coefficients, covariances, df, baseline, str(values.get("not_converged", "")))

    def predict(self, table: Any, *, level: float = 0.95, kind: str = "model") -> Predictions:
        """Expected outcomes of these rows, with intervals.

        - table: a path, a pandas or polars frame, an Arrow table; a column of the outcome is not needed.
        - level: of the intervals.
        - kind: of standard errors: model, HC0, HC1 or site.
        """
        if not 0 < level < 1:
            raise ConfigError(f"the level of an interval must be above 0 and below 1, got {level}")
        if self.covariances and kind not in self.covariances:
            raise ConfigError(unknown("kind of standard errors", kind, tuple(self.covariances)))
        frame, refusals, keep = self._usable(table)
        classes = self.design.classes
        found = np.full((4, frame.num_rows, *([len(classes)] if classes else [])), np.nan)
        if keep.any():
            found[:, keep] = self._predicted(frame.rows(keep, frame.source), level, kind)
        return Predictions(found[0], found[1], found[2], found[3], tuple(refusals), classes)

    def survival(self, table: Any, site: str) -> Survival:
        """The probability of these rows to be without an event at the times that this site told the hazard of.

        - table: as in `predict`.
        - site: whose baseline hazard is taken.
        """
        if site not in self.baseline:
            known = tuple(self.baseline)
            raise ConfigError(
                unknown("site with a baseline hazard", site, known)
                if known
                else "the model has no baseline hazards: the study asks for them with [outcome] baseline = [times]"
            )
        frame, refusals, keep = self._usable(table)
        told = self.baseline[site]
        found = np.full((frame.num_rows, len(told.times)), np.nan)
        if keep.any():
            rows = design_rows(self.design, SiteTable(self.design.study, frame.rows(keep, frame.source)))
            margins = rows.features @ self._fitted @ self.coefficients
            found[keep] = told.survival(margins + (0.0 if rows.offsets is None else rows.offsets))
        return Survival(told.times, found, tuple(refusals))

    def _usable(self, table: Any) -> tuple[Frame, list[str], NDArray[np.bool_]]:
        """What the model needs of a table, why each row cannot be predicted, and which can."""
        frame = self._frame(read_frame(table))
        refusals = self._refusals(frame)
        return frame, refusals, np.array([not reason for reason in refusals], dtype=np.bool_)

    @cached_property
    def _fitted(self) -> FloatArray:
        """From the original scale to that of the coded rows, the intercept last, of one margin: (fitted, own names)."""
        size = len(self.design.own_names)
        return np.asarray(np.linalg.inv(self.design.to_original[:size, :size]), dtype=np.float64)

    def _predicted(self, frame: Frame, level: float, kind: str) -> FloatArray:
        rows = design_rows(self.design, SiteTable(self.design.study, frame))
        family = self.design.study.distribution
        constant = [np.ones((frame.num_rows, 1))] if self.design.appended_intercept else []
        x = np.hstack([rows.features, *constant]) @ self._fitted  # (rows, own names): columns on the original scale
        if self.design.classes:
            return self._class_probabilities(x, level, kind)
        margins = x @ self.coefficients + (0.0 if rows.offsets is None else rows.offsets)
        means = family.mean(margins)
        if not self.covariances:
            return np.stack([means, *np.full((3, len(means)), np.nan)])
        errors = np.sqrt(np.maximum(np.einsum("rn,nm,rm->r", x, self.covariances[kind], x), 0.0))
        df = math.inf if kind != "model" or self.residual_df is None else self.residual_df
        half = errors * Student(df).ppf(0.5 + level / 2)
        ends = np.sort(np.stack([family.mean(margins - half), family.mean(margins + half)]), axis=0)
        step = 1e-5 * np.maximum(1.0, np.abs(margins))
        slopes = (family.mean(margins + step) - family.mean(margins - step)) / (2.0 * step)
        return np.stack([means, np.abs(slopes) * errors, *ends])

    def _class_probabilities(self, x: FloatArray, level: float, kind: str) -> FloatArray:
        """Of every class, with intervals that are symmetric in its log-odds: (4, rows, classes)."""
        p = self.design.study.distribution.mean(x @ self.coefficients.reshape(self.design.outputs, -1).T)
        if not self.covariances:
            return np.stack([p, *np.full((3, *p.shape), np.nan)])
        slopes = p[:, :, None] * (np.eye(p.shape[1])[1:].T - p[:, None, 1:])  # (rows, classes, outputs)
        changes = (slopes[..., None] * x[:, None, None, :]).reshape(*p.shape, -1)  # (rows, classes, names)
        variances = np.einsum("rcn,nm,rcm->rc", changes, self.covariances[kind], changes)
        errors = np.sqrt(np.maximum(variances, 0.0))
        half = errors / (p * (1.0 - p)) * Student().ppf(0.5 + level / 2)
        return np.stack([p, errors, expit(logit(p) - half), expit(logit(p) + half)])

    def _frame(self, frame: Frame) -> Frame:
        """The table with what the study needs and predicting does not: outcome and weights, which nobody looks at."""
        study = self.design.study
        names = dict.fromkeys([*study.parsed.columns, *([study.parsed.offset.column] if study.parsed.offset else [])])
        absent = [name for name in names if name not in frame.columns]
        if absent:
            raise DataError(f"{frame.source} has no column '{absent[0]}', which the model needs")
        columns = {name: frame.columns[name] for name in names}
        ones = Column("number", np.ones(frame.num_rows))
        label = study.event[0] if study.event else self.design.classes[0] if self.design.classes else ""
        some = Column("text", np.full(frame.num_rows, label, dtype=object))
        columns[study.parsed.outcome] = some if label and not study.status else ones
        if study.status:
            columns[study.status] = some
        if study.weights:
            columns[study.weights] = ones
        return replace(frame, columns=columns)

    def _refusals(self, frame: Frame) -> list[str]:
        study, agreement = self.design.study, self.design.agreement
        table = SiteTable(study, frame)
        found = [""] * frame.num_rows
        offset = [study.parsed.offset] if study.parsed.offset else []
        for factor in dict.fromkeys([*study.parsed.factors, *offset]):
            column = table.columns[factor.column]
            levels = agreement.levels.get(factor.column)
            reasons = _wrong_levels(factor, column, levels) if levels else self._wrong_numbers(factor, column)
            found = [old or new for old, new in zip(found, reasons, strict=True)]
        return found

    def _wrong_numbers(self, factor: Factor, column: Column) -> Iterable[str]:
        """Why each value cannot be used, or nothing."""
        name = factor.column
        if column.kind not in ("number", "bool", "empty"):
            return [f"'{name}' is not a number"] * len(column.values)
        values = column.numbers
        filled = np.where(np.isnan(values), self.design.agreement.fills.get(name, np.nan), values)
        with np.errstate(all="ignore"):
            made = factor.transform.of(filled)
        low, high = self.design.study.rule(name).range or (-np.inf, np.inf)
        reasons = []
        for value, result in zip(filled.tolist(), made.tolist(), strict=True):
            if np.isnan(value):
                reasons.append(f"'{name}' is missing")
            elif not low <= value <= high:
                reasons.append(f"'{name}' is {value:g}, outside the study's range of {low:g} to {high:g}")
            else:
                reasons.append("" if np.isfinite(result) else f"{factor.text} is not defined at {value:g}")
        return reasons


def _wrong_levels(factor: Factor, column: Column, levels: tuple[str, ...]) -> Iterable[str]:
    for label in column.labels():
        if label is None:
            yield "" if MISSING_LEVEL in levels else f"'{factor.column}' is missing"
        else:
            yield "" if label in levels else f"'{factor.column}' has the level '{label}', which no site had in the fit"


def _spread(values: Any, places: list[int], size: int) -> FloatArray:
    """A covariance with zeros for columns that were left out."""
    found = np.zeros((size, size))
    found[np.ix_(places, places)] = np.asarray(values, dtype=np.float64)
    return found
