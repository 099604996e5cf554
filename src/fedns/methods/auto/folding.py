"""Reducers for replies in a few bits: integers times a unit, sketches in units of their rows, exponents of scales."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedns.core.messages import Ragged
from fedns.core.messages.reducers import GramSum
from fedns.core.types import FloatArray
from fedns.methods.auto.rounding import eighths
from fedns.methods.auto.rules import WIDE
from fedns.numerics.linalg import LowRank, add_weighted_rows, triangle_of


class mean_of_coded:
    """sum_j p_j unit_j value_j."""

    def __init__(self, field: str, unit: str) -> None:
        self._field, self._unit = field, unit
        self._total: FloatArray | None = None

    def add(self, batch: Any, weights: FloatArray) -> None:
        values = np.ascontiguousarray(getattr(batch, self._field))
        if self._total is None:
            self._total = np.zeros(values.shape[1])
        add_weighted_rows(self._total, values, weights * getattr(batch, self._unit))

    def result(self) -> FloatArray:
        assert self._total is not None
        return self._total


class rounding_noise:
    """sum_j (p_j unit_j)^2: four times the largest variance of an entry of the mean of rounded values."""

    def __init__(self, unit: str) -> None:
        self._unit, self._total = unit, np.zeros(1)

    def add(self, batch: Any, weights: FloatArray) -> None:
        add_weighted_rows(self._total, (getattr(batch, self._unit) ** 2)[:, None], weights**2)

    def result(self) -> float:
        return float(self._total[0])


class answers:
    """How many clients have answered themselves, and their weight."""

    def __init__(self) -> None:
        self._total = np.zeros(2)

    def add(self, batch: Any, weights: FloatArray) -> None:
        self._total[0] += batch.answered.sum()
        add_weighted_rows(self._total[1:], batch.answered.astype(np.float64)[:, None], weights)

    def result(self) -> tuple[int, float]:
        return int(self._total[0]), float(self._total[1])


class mean_of_squares:
    """sum_j p_j 4^exponent_j: the mean square of each column from the exponents of the clients' roots."""

    def __init__(self, field: str) -> None:
        self._field = field
        self._total: FloatArray | None = None

    def add(self, batch: Any, weights: FloatArray) -> None:
        squares = np.ldexp(1.0, 2 * getattr(batch, self._field).astype(np.int64))
        if self._total is None:
            self._total = np.zeros(squares.shape[1])
        add_weighted_rows(self._total, squares, weights)

    def result(self) -> FloatArray:
        assert self._total is not None
        return self._total


class sketched_gram:
    """sum_j p_j Y_j' Y_j of sketches that travel as integers in units of their rows and of the columns.

    Packed, or its root where there are too many columns for a matrix and fewer rows.
    """

    def __init__(self, scales: FloatArray) -> None:
        self._scales, self._gram = scales, GramSum("ChangeAndSketch", "sketched_root")

    def add(self, batch: Any, weights: FloatArray) -> None:
        rows = batch.sketched_root.values * eighths(batch.row_units.values)[:, None] * self._scales
        self._gram.add(Ragged(rows, batch.sketched_root.offsets), weights)

    def result(self) -> FloatArray | LowRank:
        gram = self._gram.result()
        if isinstance(gram, LowRank):
            return gram if self._scales.size > WIDE else triangle_of(gram.dense())
        return triangle_of(gram)
