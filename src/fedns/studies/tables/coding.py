"""From a table to rows of numbers, the same way at every site."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import scipy  # whose splines are loaded when a study has some
from numpy.typing import NDArray

from fedns.core.errors import DataError
from fedns.studies.handshake.agreement import MISSING_LEVEL
from fedns.studies.handshake.site_table import SiteTable, evaluate
from fedns.studies.tables.design import Design, Part
from fedns.studies.tables.formula import Factor

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class CodedRows:
    """A site's rows as a method trains on them."""

    features: FloatArray  # (rows, columns), without the intercept
    targets: FloatArray  # (rows,)
    weights: FloatArray | None  # (rows,)
    offsets: FloatArray | None  # (rows,), added to every margin


def code(design: Design, table: SiteTable) -> CodedRows:
    """The used rows of a table; a table that no longer fits what was agreed is refused."""
    features, offset = columns_of(design, table), design.study.parsed.offset
    if design.is_null:
        features = np.ones((len(features), 1))
    if design.feature_map is not None:
        features = design.feature_map.transform(features)
    return CodedRows(
        features, _targets(design, table), _weights(table), None if offset is None else _numbers(design, table, offset)
    )


def columns_of(design: Design, table: SiteTable) -> FloatArray:
    """The columns of the formula, before any feature map: (used rows, columns)."""
    study = design.study
    if design.agreement.study != study.digest or table.study.digest != study.digest:
        raise DataError("the agreement was made for another study: shake hands again")
    absent = [name for name in study.needed if name not in table.columns]
    if absent:
        raise DataError(f"the table no longer has the column '{absent[0]}': shake hands again")
    if not table.used.any():
        raise DataError("no row is complete")
    parts = {part for column in design.columns for part in column.parts}
    levels = {
        name: _levels(design, table, name) for name in {part.factor.column for part in parts if part.level is not None}
    }
    made = {part: _values(design, table, part, levels) for part in parts}
    features = np.ones((int(table.used.sum()), len(design.columns)))
    for place, column in enumerate(design.columns):
        for part in column.parts:
            centre = part.centre if column.centred else 0.0
            features[:, place] *= (made[part] - centre) / part.scale
    return features


def _values(design: Design, table: SiteTable, part: Part, levels: Mapping[str, IntArray]) -> FloatArray:
    """A part before it is centred and scaled: (used rows,)."""
    name = part.factor.column
    if part.gap:
        return table.columns[name].missing[table.used].astype(np.float64)
    if part.level is not None:
        return np.asarray(levels[name] == design.agreement.levels[name].index(part.level), dtype=np.float64)
    values = _numbers(design, table, part.factor)
    if part.factor.function == "bs":
        return spline(values, design.agreement.knots[part.factor.text], part.factor.degree)[:, part.index - 1]
    if part.factor.function == "poly":
        centre, scale = design.agreement.centres[name]
        coefficients = np.array(design.agreement.polynomials[part.factor.text][part.index - 1])
        if coefficients.size != part.index + 1:  # a power of 200 is almost nothing but the largest value
            raise DataError(f"{part.factor.text} was agreed on with other powers than it has: shake hands again")
        return np.asarray(np.polynomial.polynomial.polyval((values - centre) / scale, coefficients))
    return values


def _levels(design: Design, table: SiteTable, name: str) -> IntArray:
    """Which of the agreed levels a row has, all of which must have been agreed on: (used rows,)."""
    levels = {level: number for number, level in enumerate(design.agreement.levels[name])}
    labels = table.columns[name].labels()[table.used]
    if study_fills := MISSING_LEVEL in levels:
        labels = np.array([MISSING_LEVEL if label is None else label for label in labels], dtype=object)
    strange = {label for label in labels if label not in levels}
    if strange:
        raise DataError(
            f"column '{name}' has rows in {len(strange)} level{'' if len(strange) == 1 else 's'} that were not agreed on: "
            "list its levels in the study" + ("" if study_fills else ", or correct those rows")
        )
    return np.array([levels[label] for label in labels], dtype=np.int64)


def _numbers(design: Design, table: SiteTable, factor: Factor) -> FloatArray:
    """A column or a function of it, missing values filled in where the study says so."""
    name = factor.column
    column = table.columns[name]
    if not column.numeric:
        raise DataError(f"column '{name}' does not hold numbers any more: shake hands again")
    values = np.asarray(column.values, dtype=np.float64)[table.used]
    if name in design.agreement.fills:
        values = np.where(np.isnan(values), design.agreement.fills[name], values)
    rule = table.study.rule(name)
    if rule.range and ((values < rule.range[0]) | (values > rule.range[1])).any():
        raise DataError(f"column '{name}' has values outside the study's range")
    with np.errstate(all="ignore"):
        found = evaluate(factor, values)
    if not np.isfinite(found).all():
        raise DataError(f"column '{name}' has missing values, or values for which {factor.text} is not defined")
    return found


def spline(values: FloatArray, knots: tuple[float, ...], degree: int) -> FloatArray:
    """B-splines without the first, as R's bs: (rows, knots - 2 + degree)."""
    padded = np.concatenate([np.full(degree, knots[0]), knots, np.full(degree, knots[-1])])
    basis = scipy.interpolate.BSpline.design_matrix(values, padded, degree).toarray()
    return np.asarray(basis[:, 1:], dtype=np.float64)


def _targets(design: Design, table: SiteTable) -> FloatArray:
    study = table.study
    if design.classes:
        return _levels(design, table, study.parsed.outcome).astype(np.float64)
    column, signs = table.columns[study.parsed.outcome], np.ones(1)
    if study.has_events:
        labels = table.columns[study.event_column].labels()[table.used]
        if any(label not in study.event and label not in study.non_event for label in labels):
            raise DataError(f"the outcome '{study.event_column}' has values that are neither event nor non-event")
        signs = np.where([label in study.event for label in labels], 1.0, -1.0)
    if study.event_column == study.parsed.outcome:
        return signs
    if not column.numeric:
        raise DataError(f"the outcome '{study.parsed.outcome}' does not hold numbers")
    values = np.asarray(column.values, dtype=np.float64)[table.used]
    if study.has_events and not (values > 0).all():
        raise DataError(f"the times '{study.parsed.outcome}' must be above 0: correct those rows, or leave them out")
    return signs * values


def _weights(table: SiteTable) -> FloatArray | None:
    study, name = table.study, table.study.weights
    own = None
    if study.class_weights:
        labels = table.columns[study.parsed.outcome].labels()[table.used]
        own = np.array([study.class_weights.get(label, 1.0) for label in labels])
    if not name:
        return own
    weights = np.asarray(table.columns[name].values, dtype=np.float64)[table.used]
    if not ((weights >= 0).all() and weights.sum() > 0):
        raise DataError(f"the weights '{name}' must be numbers of at least 0, some of them above")
    return weights if own is None else weights * own
