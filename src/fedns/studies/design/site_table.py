"""A table at its site, seen through a study: its columns, the rows that are used, and the counts that may be told."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedns.core.types import FloatArray
from fedns.federation.permissions import Permissions
from fedns.studies.study import Study
from fedns.studies.tables.files.frames import Column, Frame
from fedns.studies.tables.formula import Factor

SMALLEST_COUNT = 5  # rows from which a group of them may be named or counted, unless the owner says otherwise
HIDDEN = -1  # in place of a count that is too small to be told


@dataclass(frozen=True, eq=False)
class SiteTable:
    """The rows of a site as a study needs them."""

    study: Study
    frame: Frame
    smallest_count: int = SMALLEST_COUNT
    hides_rare: bool = False  # the owner lets rows of rare levels look like the others

    @classmethod
    def of(cls, study: Study, frame: Frame, permit: Permissions) -> Self:
        """The table as its owner lets a study see it."""
        # Of a feature map's columns nobody can tell any more which rows have a rare level.
        hides = permit.rare_levels == "blank" or (study.feature_map is not None and permit.rare_levels == "refuse")
        return cls(study, frame, max(1, permit.smallest_level), hides)

    @cached_property
    def columns(self) -> dict[str, Column]:
        """The columns that the study needs and the table has, codes for missing values taken out."""
        found = {name: self.frame.columns[name] for name in self.study.needed if name in self.frame.columns}
        return {name: column.without(self.study.rule(name).missing_codes) for name, column in found.items()}

    @cached_property
    def used(self) -> NDArray[np.bool_]:
        """Rows that the fit is on: all but those that miss what cannot be filled in, or have a weight of 0."""
        keep = np.ones(self.frame.num_rows, dtype=np.bool_)
        for name, column in self.columns.items():
            if must_be_known(self.study, name):
                keep &= ~column.missing
        weights = self.columns.get(self.study.weights)
        if weights is not None and weights.numeric:
            keep &= weights.numbers != 0.0  # such a row is none, and rows are counted
        return keep

    def is_category(self, name: str) -> bool:
        """Whether the values of this column here are levels."""
        study = self.study
        if name in (study.parsed.outcome, study.status):
            return name == study.event_column or study.has_classes
        if study.rule(name).kind != "auto" or study.rule(name).levels:
            return study.rule(name).kind != "number"
        asked = any(factor.column == name and factor.transform.makes_levels for factor in study.parsed.factors)
        return asked or self.columns[name].kind == "text"

    @cached_property
    def outcome_counts(self) -> Mapping[str, int]:
        """Rows that are used, by each label that the study names as an event or as none."""
        column, named = self.columns.get(self.study.event_column), {*self.study.event, *self.study.non_event}
        found = column.rows(self.used).counts() if column is not None else {}
        return {label: count for label, count in found.items() if label in named}

    @property
    def has_small_outcome(self) -> bool:
        """Whether too few rows have one of these labels: two lists that differ by it would show them."""
        return HIDDEN in map(self.or_hidden, self.outcome_counts.values())

    def or_hidden(self, count: int) -> int:
        """The count, or HIDDEN where it is too small to be told."""
        return count if count == 0 or count >= self.smallest_count else HIDDEN

    @property
    def numbers(self) -> FloatArray:
        """All that the study could take as a number, 0 where it is missing: (rows of the table, expressions + 1)."""
        expressions = numeric_expressions(self.study)
        found = np.zeros((self.frame.num_rows, 1 + len(expressions)))
        for place, factor in enumerate(expressions, start=1):
            column = self.columns.get(factor.column)
            if column is not None and column.numeric:
                with np.errstate(all="ignore"):
                    found[:, place] = factor.transform.of(column.numbers)
        return np.where(np.isfinite(found), found, 0.0)

    @property
    def row_marks(self) -> FloatArray:
        """A number for each row that changes with what the study sees of it."""
        labels = zip(*(column.labels() for column in self.columns.values()), strict=True) if self.columns else ()
        marks = [float(zlib.crc32(repr(row).encode())) for row in labels]
        return np.array(marks) if marks else np.zeros(self.frame.num_rows)


def must_be_known(study: Study, name: str) -> bool:
    """Whether rows that miss a value of this column are left out, and nothing is filled in."""
    offset = [study.parsed.offset.column] if study.parsed.offset else []
    return study.missing != "mean" or name in (study.parsed.outcome, study.status, study.weights, *offset)


def numeric_expressions(study: Study) -> tuple[Factor, ...]:
    """Everything that may be a number in this study: columns as they are, functions of them, and the outcome."""
    made = [factor for factor in study.parsed.factors if not factor.transform.makes_levels]
    expressions = [factor.expression for factor in sorted(made, key=lambda factor: factor.transform.numbered)]
    labelled = study.has_classes or study.parsed.outcome == study.event_column
    outcome = [] if labelled else [Factor(study.parsed.outcome)]
    return tuple(dict.fromkeys([*expressions, *outcome]))
