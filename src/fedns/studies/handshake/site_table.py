"""A table at its site, seen through a study: which rows are used, and what may be said of it."""

from __future__ import annotations

import difflib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedns.studies.handshake.recognition import looks_like, sentinel_in
from fedns.studies.study import Study
from fedns.studies.tables.files.frames import Column, Frame
from fedns.studies.tables.formula import FUNCTIONS, Factor

FloatArray = NDArray[np.float64]
SMALLEST_COUNT = 5  # rows from which a group of them may be named or counted, unless the owner says otherwise
HIDDEN = -1  # in place of a count that is too small to be told


@dataclass(frozen=True)
class Description:
    """What a site says of its table. Counts below the owner's limit are HIDDEN, and so are their names."""

    schema: Mapping[str, Any]  # plain values: kinds, units, names of levels, what columns look like
    counts: NDArray[np.int64]
    moments: FloatArray  # (expressions, 3): values, their mean and their standard deviation


@dataclass(frozen=True, eq=False)
class SiteTable:
    """The rows of a site as a study needs them."""

    study: Study
    frame: Frame
    smallest_count: int = SMALLEST_COUNT
    hides_rare: bool = False  # the owner lets rows of rare levels look like the others

    @cached_property
    def columns(self) -> dict[str, Column]:
        """The columns that the study needs and the table has, codes for missing values taken out."""
        found = {}
        for name in self.study.needed:
            if name in self.frame.columns:
                column = self.frame.columns[name]
                codes = self.study.rule(name).missing_codes
                if codes and column.kind == "number":
                    values = np.where(np.isin(column.values, codes), np.nan, column.values)
                    column = Column("empty" if np.isnan(values).all() else "number", values, column.unit)
                found[name] = column
        return found

    @cached_property
    def used(self) -> NDArray[np.bool_]:
        """Rows that the fit is on: all but those that miss what cannot be filled in, or have a weight of 0."""
        keep = np.ones(self.frame.num_rows, dtype=np.bool_)
        for name, column in self.columns.items():
            if must_be_known(self.study, name):
                keep &= ~column.missing
        weights = self.columns.get(self.study.weights)
        if weights is not None and weights.numeric:
            keep &= np.asarray(weights.values, dtype=np.float64) != 0.0  # such a row is none, and rows are counted
        return keep

    @cached_property
    def _outcome_counts(self) -> Mapping[str, int]:
        """Rows that are used, by each label that the study names as an event or as none."""
        column, named = self.columns.get(self.study.event_column), {*self.study.event, *self.study.non_event}
        found = column.rows(self.used).counts() if column is not None else {}
        return {label: count for label, count in found.items() if label in named}

    @property
    def has_small_outcome(self) -> bool:
        """Whether too few rows have one of these labels: two lists that differ by it would show them."""
        return HIDDEN in map(self._told, self._outcome_counts.values())

    @property
    def numbers(self) -> FloatArray:
        """All that the study could take as a number, 0 where it is missing: (rows of the table, expressions + 1)."""
        found = np.zeros((self.frame.num_rows, 1 + len(numeric_expressions(self.study))))
        for place, factor in enumerate(numeric_expressions(self.study), start=1):
            column = self.columns.get(factor.column)
            if column is not None and column.numeric:
                with np.errstate(all="ignore"):
                    found[:, place] = evaluate(factor, np.asarray(column.values, dtype=np.float64))
        return np.where(np.isfinite(found), found, 0.0)

    @property
    def row_marks(self) -> FloatArray:
        """A number for each row that changes with what the study sees of it."""
        labels = zip(*(column.labels() for column in self.columns.values()), strict=True) if self.columns else ()
        marks = [float(zlib.crc32(repr(row).encode())) for row in labels]
        return np.array(marks) if marks else np.zeros(self.frame.num_rows)

    def as_category(self, name: str) -> bool:
        """Whether the values of this column here are levels."""
        study = self.study
        if name in (study.parsed.outcome, study.status):
            return name == study.event_column or study.has_classes
        if study.rule(name).kind != "auto" or study.rule(name).levels:
            return study.rule(name).kind != "number"
        asked = any(factor == Factor(name, "C") for factor in study.parsed.factors)
        return asked or self.columns[name].kind == "text"

    def describe(self) -> Description:
        """What leaves in the handshake."""
        absent = [name for name in self.study.needed if name not in self.columns]
        columns: dict[str, Any] = {}
        counts = [*self._told_rows(), *self._told_events()]
        for name in self.study.needed:
            if name in absent:
                counts += [0, 0, 0]
                continue
            columns[name], numbers = self._describe_column(name)
            counts += numbers
        schema = {
            "study": self.study.digest,
            "columns": columns,
            "absent": {name: self._close_names(name) for name in absent},
            "ignored": len(self.frame.columns) - len(columns),
            "notes": list(self.frame.notes),
        }
        return Description(schema, np.array(counts, dtype=np.int64), self._moments())

    def _describe_column(self, name: str) -> tuple[dict[str, Any], list[int]]:
        column, rule = self.columns[name], self.study.rule(name)
        facts: dict[str, Any] = {"kind": column.kind, "unit": column.unit, "levels": [], "rare": False, "category": False}
        facts["hidden"] = self.hides_rare and self._has_rare(name)
        category = self.as_category(name)
        looks = looks_like(column, category) if name not in (self.study.parsed.outcome, self.study.status) else ""
        if category and not looks:
            named, rare = self._levels(name)
            facts |= {"levels": named, "rare": rare, "category": True}
        sentinel = sentinel_in(self.frame.columns[name].rows(~column.missing)) if not rule.range and not category else None
        facts |= {"looks_like": looks, "sentinel": sentinel[0] if sentinel else None}
        facts["pair"] = self._pair(column) if column.numeric and not category else []
        facts["whole"] = column.numeric and _are_counts(column)
        outside = 0
        if column.numeric and rule.range:
            values = np.asarray(column.values, dtype=np.float64)
            outside = int(((values < rule.range[0]) | (values > rule.range[1])).sum())
        missing = int(column.missing.sum())
        return facts, [self._told(missing), self._told(outside), self._told(self._undefined(name))]

    def _levels(self, name: str) -> tuple[list[str], bool]:
        """Levels that may be named, and whether there are others that the study does not list. How often is not told."""
        found = self.columns[name].counts()
        is_outcome = name == self.study.event_column
        listed = (*self.study.event, *self.study.non_event) if is_outcome else self.study.rule(name).levels
        named = sorted(label for label, count in found.items() if count >= self.smallest_count)
        rare = any(count < self.smallest_count and label not in listed for label, count in found.items())
        return named, rare

    def _has_rare(self, name: str) -> bool:
        if not self.as_category(name) or name == self.study.event_column:
            return False
        return any(count < self.smallest_count for count in self.columns[name].rows(self.used).counts().values())

    def _pair(self, column: Column) -> list[float]:
        """The values of a column that has no more than two, each with enough rows to be told."""
        values, counts = np.unique(np.asarray(column.values, dtype=np.float64)[~column.missing], return_counts=True)
        return values.tolist() if 1 <= values.size <= 2 and counts.min() >= self.smallest_count else []

    def _told_events(self) -> list[int]:
        outcome = self.study.event_column
        if outcome not in self.columns:
            return [HIDDEN, HIDDEN]
        counts = self._outcome_counts
        events = [sum(counts.get(label, 0) for label in which) for which in (self.study.event, self.study.non_event)]
        # One of them and the number of rows would tell the other, and two lists that differ by a label how many have it.
        return [HIDDEN, HIDDEN] if self.has_small_outcome or HIDDEN in map(self._told, events) else events

    def _told_rows(self) -> list[int]:
        """Rows of the table and rows that are used; the same number where the difference is too small to be told."""
        rows, used = self.frame.num_rows, int(self.used.sum())
        return [self._told(used) if self._told(rows - used) == HIDDEN else rows, self._told(used)]

    def _told(self, count: int) -> int:
        return count if count == 0 or count >= self.smallest_count else HIDDEN

    def _undefined(self, name: str) -> int:
        """Values for which a function of the formula has no result."""
        column = self.columns[name]
        if not column.numeric:
            return 0
        values = np.asarray(column.values, dtype=np.float64)[~column.missing]
        bad = np.zeros(values.size, dtype=np.bool_)
        for factor in self.study.parsed.factors:
            if factor.column == name and factor.function in FUNCTIONS:
                with np.errstate(all="ignore"):
                    bad |= ~np.isfinite(FUNCTIONS[factor.function][0](values))
        return int(bad.sum())

    def _moments(self) -> FloatArray:
        found = np.zeros((len(numeric_expressions(self.study)), 3))
        for place, factor in enumerate(numeric_expressions(self.study)):
            column = self.columns.get(factor.column)
            if column is None or not column.numeric or self.as_category(factor.column):
                continue
            with np.errstate(all="ignore"):
                values = evaluate(factor, np.asarray(column.values, dtype=np.float64)[self.used])
            values = values[np.isfinite(values)]
            if values.size >= self.smallest_count:
                found[place] = values.size, values.mean(), values.std()
        return found

    def _close_names(self, name: str) -> list[str]:
        """Columns of the table whose names are like a missing one's."""
        lower = {other.lower(): other for other in self.frame.columns if other not in self.columns}
        close = difflib.get_close_matches(name.lower(), lower, n=2, cutoff=0.7)
        return [lower[other] for other in close]


def must_be_known(study: Study, name: str) -> bool:
    """Whether rows that miss a value of this column are left out, and nothing is filled in."""
    offset = [study.parsed.offset.column] if study.parsed.offset else []
    return study.missing != "mean" or name in (study.parsed.outcome, study.status, study.weights, *offset)


def numeric_expressions(study: Study) -> tuple[Factor, ...]:
    """What may be a number in this study: columns as they are, functions of them, and the outcome."""
    plain = [factor for factor in study.parsed.factors if factor.function in ("", *FUNCTIONS)]
    bases = [Factor(factor.column) for factor in study.parsed.factors if factor.function in ("poly", "bs")]
    labelled = study.has_classes or study.parsed.outcome == study.event_column
    outcome = [] if labelled else [Factor(study.parsed.outcome)]
    return tuple(dict.fromkeys([*plain, *bases, *outcome]))


def evaluate(factor: Factor, values: FloatArray) -> FloatArray:
    """A function of a column."""
    return FUNCTIONS[factor.function][0](values) if factor.function in FUNCTIONS else values


def _are_counts(column: Column) -> bool:
    values = np.asarray(column.values, dtype=np.float64)[~column.missing]
    return bool((values >= 0).all() and (values == np.floor(values)).all())
