"""Columns that say the same as others, by name and on the original scale: what a study reports of a fit's rank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from fedns.core.types import FloatArray
from fedns.studies.design.aliases import Alias
from fedns.studies.design.columns import Design, DesignColumn, FactorColumn
from fedns.studies.handshake.table_summary import TableSummary

_NEGLIGIBLE = 1e-6
_SAME = 1e-12  # of a mean: a deviation below is rounding


def aliases(found: Iterable[tuple[int, FloatArray]], design: Design, sites: Sequence[TableSummary] = ()) -> list[Alias]:
    """Columns, in the order of the formula, that depend on those before them, as R finds them.

    found: what a rank has found in the fitted coefficients. sites: what they have told of their tables, for words.
    """
    named: list[Alias] = []
    for column, direction in found:
        place = design.places[column]
        why = "" if design.study.distribution.loss.takes_intercept else _untold(design, place, sites)
        named.append(_alias(design, design.to_original @ direction, place, named, why))
    return named


def whole_information(hessian: FloatArray, design: Design, sites: Sequence[TableSummary]) -> FloatArray:
    """Estimate what a column's diagonal of the Hessian would be if all its variance told, 0 where that is not known.

    It is a row's curvature times the mean square of the column as it is fitted, which the agreed centres tell: centred, it
    is 1. A row's curvature is that of the intercept, or in Cox regression the share of rows with an event.
    """
    timed = not design.study.distribution.loss.takes_intercept
    if design.feature_map is not None or not (timed or design.intercept):  # nothing is centred: sums cancel nowhere
        return np.zeros(len(hessian))
    squares = [_mean_square(column) if timed or column.centred else 0.0 for column in design.columns]
    if timed:
        return np.array(squares) * sum(max(1, site.events) for site in sites) / sum(max(1, site.used) for site in sites)
    own = len(squares) + 1
    return np.concatenate([np.array([*squares, 1.0]) * hessian[last, last] for last in range(own - 1, len(hessian), own)])


def _mean_square(column: DesignColumn) -> float:
    """At most so much, and 0 where nobody has told, as of a spline. A column by itself counts by its variance."""
    found = 1.0
    for part in column.parts:
        if not part.factor.transform.standardised:
            return 0.0
        if part.level is None and not part.gap and not (column.centred or len(column.parts) == 1):
            found *= 1.0 + (part.centre / part.scale) ** 2
    return found


def _untold(design: Design, place: int, sites: Sequence[TableSummary]) -> str:
    """Why Cox regression cannot tell a column's coefficient; place: among the reported names."""
    parts = design.columns[place].parts if design.feature_map is None else ()
    if parts and sites and all(_is_constant(part, site) for part in parts for site in sites):
        return "is constant within every site, and sites are strata"
    return "tells no two rows of a risk set apart, and risk sets are within sites"


def _is_constant(part: FactorColumn, site: TableSummary) -> bool:
    """Whether a site has told that all its rows are the same there."""
    name = part.factor.column
    if part.gap:
        return site.columns[name].missing == 0
    if part.level is not None:
        return len(site.columns[name].levels) <= 1 and not site.columns[name].rare
    told = site.moments.get(part.factor.expression)
    return told is not None and told.count > 0 and told.deviation <= _SAME * abs(told.mean)


def _alias(design: Design, null: FloatArray, place: int, before: Sequence[Alias], why: str) -> Alias:
    """place: of the column among the reported names."""
    for other in before:
        null = null - null[design.names.index(other.name)] * other.null
    null = null / null[place]
    combination = {
        name: -float(value)
        for name, value in zip(design.names, null, strict=True)
        if name != design.names[place] and abs(value) > _NEGLIGIBLE
    }
    return Alias(design.names[place], combination, null, why)
