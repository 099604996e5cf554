"""Reducers for replies in a few bits: integers times a unit, sketches in units of their rows, exponents of scales."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedns.core.messages import Ragged
from fedns.core.messages.reducers import GramSum, mean
from fedns.core.types import FloatArray
from fedns.methods.auto import thresholds
from fedns.methods.auto.rounding import Integers, eighths
from fedns.numerics.linalg import LowRank, triangle_of


class mean_of_small_ints(mean):
    """sum_j p_j unit_j value_j."""

    def __init__(self, field: str, unit: str = "unit") -> None:
        super().__init__(field)
        self._unit = unit

    def add(self, batch: Any, weights: FloatArray) -> None:
        super().add(batch, weights * getattr(batch, self._unit))


class rounding_noise(mean):
    """sum_j (p_j unit_j)^2: four times the largest variance of an entry of the mean of rounded values."""

    def values(self, batch: Any) -> FloatArray:
        return np.asarray(getattr(batch, self.field) ** 2)

    def add(self, batch: Any, weights: FloatArray) -> None:
        super().add(batch, weights**2)


class mean_of_squares(mean):
    """sum_j p_j 4^exponent_j: the mean square of each column from the exponents of the clients' roots."""

    def values(self, batch: Any) -> FloatArray:
        exponents: Integers = getattr(batch, self.field)
        return np.ldexp(1.0, 2 * exponents.astype(np.int64))


class answers(mean):
    """How many clients have answered themselves, and their weight."""

    def __init__(self) -> None:
        super().__init__("answered")
        self._count = 0

    def add(self, batch: Any, weights: FloatArray) -> None:
        super().add(batch, weights)
        self._count += int(batch.answered.sum())

    def result(self) -> Any:
        return self._count, float(super().result())


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
            return gram if self._scales.size > thresholds.WIDE else triangle_of(gram.dense())
        return triangle_of(gram)
