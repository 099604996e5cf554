"""Splines and polynomials: what sites tell so that every site has the same knots and the same orthogonal columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedns.core.errors import ConfigError, DataError
from fedns.studies.handshake.agreement import Agreement
from fedns.studies.handshake.site_table import SiteTable
from fedns.studies.study import Study
from fedns.studies.tables.formula import Factor

FloatArray = NDArray[np.float64]
PROBABILITIES = np.linspace(0.05, 0.95, 19)


class SiteTerms(NamedTuple):
    """One site's facts."""

    rows: int
    quantiles: FloatArray  # (splines, probabilities), each a mean over some rows around the quantile
    powers: FloatArray  # (polynomials, orders): means of the powers of the centred and scaled column


def needs_more(study: Study) -> bool:
    return bool(_splines(study) or _polynomials(study))


def site_terms(study: Study, agreement: Agreement, table: SiteTable) -> SiteTerms:
    """What a site tells about its columns; refused where it has too few rows for that."""
    rows = int(table.used.sum())
    if rows < table.smallest_count:
        raise DataError(f"{rows} rows are too few to tell quantiles or powers of")
    quantiles = [_smoothed(_column(agreement, table, factor), table.smallest_count) for factor in _splines(study)]
    powers = []
    for factor in _polynomials(study):
        centre, scale = agreement.centres[factor.column]
        values = (_column(agreement, table, factor) - centre) / scale
        powers.append([float(np.mean(values**order)) for order in range(_orders(study))])
    return SiteTerms(
        rows,
        np.array(quantiles).reshape(len(quantiles), PROBABILITIES.size),
        np.array(powers).reshape(len(powers), _orders(study)),
    )


def knots_of(study: Study, facts: Sequence[SiteTerms]) -> dict[str, tuple[float, ...]]:
    """Knots of every spline: the study's range outside, quantiles over all sites, to three digits, inside."""
    found = {}
    asked = _splines(study)
    for factor in study.parsed.factors:
        if factor.function == "bs":
            lowest, highest = study.rule(factor.column).range
            inner = factor.knots
            if factor in asked:
                own = [(told.rows, told.quantiles[asked.index(factor)]) for told in facts]
                inner = _joint_quantiles(own, factor.size - factor.degree)
            if any(not lowest < knot < highest for knot in inner) or len(set(inner)) < len(inner):
                raise ConfigError(f"the knots of {factor.text} must differ and lie within the range of '{factor.column}'")
            found[factor.text] = (lowest, *inner, highest)
    return found


def polynomial_of(study: Study, facts: Sequence[SiteTerms]) -> dict[str, tuple[tuple[float, ...], ...]]:
    """Coefficients, by power, of polynomials that are orthonormal over the rows of all sites, as R's poly."""
    total = sum(told.rows for told in facts)
    found = {}
    for place, factor in enumerate(_polynomials(study)):
        moments = sum(told.rows * told.powers[place] for told in facts)
        size = factor.size + 1
        gram = np.array([[moments[row + column] for column in range(size)] for row in range(size)])
        try:
            root = np.linalg.cholesky(gram / total)
        except np.linalg.LinAlgError:
            raise DataError(f"{factor.text}: '{factor.column}' has too few different values for that degree") from None
        rows = np.linalg.inv(root) / math.sqrt(total)
        found[factor.text] = tuple(tuple(float(value) for value in rows[row, : row + 1]) for row in range(1, size))
    return found


def _splines(study: Study) -> list[Factor]:
    """Splines whose knots the sites are asked for."""
    return [f for f in study.parsed.factors if f.function == "bs" and not f.knots and f.size > f.degree]


def _polynomials(study: Study) -> list[Factor]:
    return [factor for factor in study.parsed.factors if factor.function == "poly"]


def _orders(study: Study) -> int:
    """Powers, from 0 on, that make a polynomial orthogonal to those of lower degree."""
    return 1 + 2 * max((factor.size for factor in _polynomials(study)), default=0)


def _column(agreement: Agreement, table: SiteTable, factor: Factor) -> FloatArray:
    values = np.asarray(table.columns[factor.column].values, dtype=np.float64)[table.used]
    return np.where(np.isnan(values), agreement.fills.get(factor.column, np.nan), values)


def _smoothed(values: FloatArray, count: int) -> FloatArray:
    """Quantiles, each as the mean of `count` neighbouring rows: none is a value of one row."""
    ordered = np.sort(values)
    means = np.convolve(ordered, np.full(count, 1.0 / count), mode="valid")
    return np.asarray(np.quantile(means, PROBABILITIES))


def _joint_quantiles(sites: Sequence[tuple[int, FloatArray]], number: int) -> tuple[float, ...]:
    """Equally spaced quantiles of all rows together, from each site's own, to three digits."""
    grid = np.unique(np.concatenate([quantiles for _, quantiles in sites]))
    total = sum(rows for rows, _ in sites)
    below = sum(rows * np.interp(grid, quantiles, PROBABILITIES, left=0.0, right=1.0) for rows, quantiles in sites) / total
    wanted = np.arange(1, number + 1) / (number + 1)
    return tuple(float(f"{knot:.3g}") for knot in np.interp(wanted, below, grid))
