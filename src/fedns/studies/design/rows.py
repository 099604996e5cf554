"""From tables to design rows: numbers that a method trains on, made the same way at every site."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedns.core.errors import DataError
from fedns.core.shards import Shards
from fedns.core.types import FloatArray, IntArray
from fedns.studies.design.agreement import MISSING_LEVEL, Agreement
from fedns.studies.design.columns import Design
from fedns.studies.design.site_table import SiteTable
from fedns.studies.tables.formula import INTERCEPT, Factor


@dataclass(frozen=True, eq=False)
class DesignRows:
    """A site's rows as a method trains on them."""

    features: FloatArray  # (rows, columns), without the intercept
    targets: FloatArray  # (rows,)
    weights: FloatArray | None  # (rows,)
    offsets: FloatArray | None  # (rows,), added to every margin

    @property
    def stored(self) -> FloatArray:
        """The features, and an offset beside them as the last column."""
        return self.features if self.offsets is None else np.column_stack([self.features, self.offsets])


def design_shards(design: Design, sites: Mapping[str, SiteTable]) -> Shards:
    """The design rows of all sites, back to back."""
    rows = [_named(design, site, table) for site, table in sites.items()]
    weights = [one.weights for one in rows if one.weights is not None]
    offset = ["(offset)"] if design.study.parsed.offset is not None else []
    return Shards.from_arrays(
        np.concatenate([one.stored for one in rows]),
        np.concatenate([one.targets for one in rows]),
        [len(one.targets) for one in rows],
        sample_weights=np.concatenate(weights) if weights else None,
        names=tuple(sites),
        columns=[*(design.features or (INTERCEPT,)), *offset],
    )


def _named(design: Design, site: str, table: SiteTable) -> DesignRows:
    try:
        return design_rows(design, table)
    except DataError as error:
        raise DataError(f"site '{site}': {error}") from None


def design_rows(design: Design, table: SiteTable) -> DesignRows:
    """The used rows of a table; a table that no longer fits what was agreed is refused."""
    features, offset = columns_of(design, table), design.study.parsed.offset
    if design.is_null:
        features = np.ones((len(features), 1))
    if design.feature_map is not None:
        features = design.feature_map.transform(features)
    offsets = None if offset is None else _transformed(design.agreement, table, offset)[:, 0]
    return DesignRows(features, _targets(design, table), _weights(table), offsets)


def columns_of(design: Design, table: SiteTable) -> FloatArray:
    """The columns of the formula, before any feature map: (used rows, columns)."""
    study = design.study
    if design.agreement.study != study.digest or table.study.digest != study.digest:
        raise DataError("the agreement was made for another study: repeat the handshake")
    absent = [name for name in study.needed if name not in table.columns]
    if absent:
        raise DataError(f"the table no longer has the column '{absent[0]}': repeat the handshake")
    if not table.used.any():
        raise DataError("no row is complete")
    parts = dict.fromkeys(part for column in design.columns for part in column.parts)
    levels = {part.factor.column for part in parts if part.level is not None}
    places = {name: _levels(design, table, name) for name in sorted(levels)}
    numbers = dict.fromkeys(part.factor for part in parts if part.level is None and not part.gap)
    made = {factor: _transformed(design.agreement, table, factor) for factor in numbers}
    features = np.ones((int(table.used.sum()), len(design.columns)))
    for place, column in enumerate(design.columns):
        for part in column.parts:
            name = part.factor.column
            if part.gap:
                values = table.columns[name].missing[table.used].astype(np.float64)
            elif part.level is not None:
                values = np.asarray(places[name] == design.agreement.levels[name].index(part.level), dtype=np.float64)
            else:
                values = made[part.factor][:, max(0, part.index - 1)]
            features[:, place] *= (values - (part.centre if column.centred else 0.0)) / part.scale
    return features


def _levels(design: Design, table: SiteTable, name: str) -> IntArray:
    """Number the level of each row, all of which must have been agreed on: (used rows,)."""
    levels = {level: number for number, level in enumerate(design.agreement.levels[name])}
    labels = table.columns[name].labels()[table.used]
    if fills_in := MISSING_LEVEL in levels:
        labels = np.array([MISSING_LEVEL if label is None else label for label in labels], dtype=object)
    strange = {label for label in labels if label not in levels}
    if strange:
        raise DataError(
            f"column '{name}' has rows in {len(strange)} level{'' if len(strange) == 1 else 's'} that were not agreed on: "
            "list its levels in the study" + ("" if fills_in else ", or correct those rows")
        )
    return np.array([levels[label] for label in labels], dtype=np.int64)


def filled_numbers(agreement: Agreement, table: SiteTable, name: str) -> FloatArray:
    """A column of numbers, missing values filled in where that was agreed on: (used rows,)."""
    column = table.columns[name]
    if not column.numeric:
        raise DataError(f"column '{name}' does not hold numbers any more: repeat the handshake")
    values = column.numbers[table.used]
    return np.where(np.isnan(values), agreement.fills[name], values) if name in agreement.fills else values


def _transformed(agreement: Agreement, table: SiteTable, factor: Factor) -> FloatArray:
    """Columns that a factor makes of its column of numbers: (used rows, size of its transform)."""
    name = factor.column
    values = filled_numbers(agreement, table, name)
    rule = table.study.rule(name)
    if rule.range and ((values < rule.range[0]) | (values > rule.range[1])).any():
        raise DataError(f"column '{name}' has values outside the study's range")
    if np.isfinite(values).all():
        with np.errstate(all="ignore"):
            made = factor.transform.columns(name, values, agreement.known(factor))
        if np.isfinite(made).all():
            return made
    raise DataError(f"column '{name}' has missing values, or values for which {factor.text} is not defined")


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
    values = column.numbers[table.used]
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
    weights = table.columns[name].numbers[table.used]
    if not ((weights >= 0).all() and weights.sum() > 0):
        raise DataError(f"the weights '{name}' must be numbers of at least 0, some of them above")
    return weights if own is None else weights * own
