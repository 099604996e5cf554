"""Columns that say the same, and outcomes that columns separate: both found by the server, from Hessians."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from fedns.studies.model.design import Design

FloatArray = NDArray[np.float64]
DEPENDENT = 1e-10  # what is left of a column of unit length, squared, after the columns before it are taken out
NO_INFORMATION = 1e-5  # rows' worth of curvature left in a direction where the outcome is separated
_NEGLIGIBLE = 1e-6
_MOST_NAMED = 6


@dataclass(frozen=True)
class Alias:
    """A column that is a combination of columns before it."""

    name: str
    combination: dict[str, float]  # of the columns on the original scale
    null: FloatArray  # a direction, in the reported coefficients, that changes nothing; 1 at this column

    def __str__(self) -> str:
        terms = [_term(name, factor) for name, factor in self.combination.items()]
        return f"{self.name} = {' + '.join(terms).replace('+ -', '- ') or '0'}"


def aliases(hessian: FloatArray, design: Design) -> list[Alias]:
    """Columns, in the order of the formula, that depend on those before them, as R finds them.

    hessian: of the objective, in the fitted coefficients with the intercept last.
    """
    size = len(design.names)
    order = np.argsort(design.places).tolist()
    diagonal = np.diag(hessian)
    scale = np.where(diagonal > 0, 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0)), 0.0)
    gram = hessian * scale[:, None] * scale
    kept: list[int] = []
    found: list[Alias] = []
    for column in order:
        weights = np.zeros(size)
        left = 1.0 if diagonal[column] > 0 else 0.0
        if kept and left:
            weights[kept] = np.linalg.solve(gram[np.ix_(kept, kept)], gram[kept, column])
            left -= float(gram[column, kept] @ weights[kept])
        if left > DEPENDENT:
            kept.append(column)
            continue
        direction = -weights * scale
        direction[column] = scale[column] if diagonal[column] > 0 else 1.0
        found.append(_alias(design, design.to_original @ direction, order.index(column), found))
    return found


def _alias(design: Design, null: FloatArray, place: int, before: Sequence[Alias]) -> Alias:
    """place: of the column among the reported names."""
    for other in before:
        null = null - null[design.names.index(other.name)] * other.null
    null = null / null[place]
    combination = {
        name: -float(value)
        for name, value in zip(design.names, null, strict=True)
        if name != design.names[place] and abs(value) > _NEGLIGIBLE
    }
    return Alias(design.names[place], combination, null)


def without(coefficients: FloatArray, found: Sequence[Alias], names: Sequence[str]) -> FloatArray:
    """The same model with aliased columns left out: their coefficients are 0, the others take over what they said."""
    for alias in found:
        coefficients = coefficients - coefficients[names.index(alias.name)] * alias.null
    return coefficients


def separating(start: FloatArray, end: FloatArray, rows: float, design: Design, found: Sequence[Alias]) -> tuple[str, ...]:
    """Names of the columns along which the outcome is separated; nothing where the optimum is finite.

    start, end: Hessians of the objective at 0 and where the run ended. Along a separating direction every row's curvature
    fades as the coefficients grow, while that of a finite optimum is worth at least about one row.
    """
    gone = {design.names.index(alias.name) for alias in found}
    kept = [fitted for fitted, place in enumerate(design.places) if place not in gone]
    curvature = start[-1, -1] if design.intercept else 1.0
    gram = start[np.ix_(kept, kept)] / curvature
    values, vectors = scipy.linalg.eigh(end[np.ix_(kept, kept)], gram)
    if rows * values[0] >= NO_INFORMATION:
        return ()
    share = np.abs(vectors[:, 0]) * np.sqrt(np.diag(gram))
    ranked = [kept[place] for place in np.argsort(-share) if share[place] > 0.1 * share.max()]
    names = [design.names[design.places[fitted]] for fitted in ranked]
    return tuple(name for name in names if not design.is_intercept(name))[:_MOST_NAMED] or tuple(names)


def _term(name: str, factor: float) -> str:
    shown = f"{factor:.4g}"
    return f"{'-' if shown == '-1' else ''}{name}" if shown in ("1", "-1") else f"{shown} {name}"
