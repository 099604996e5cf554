"""Sketches with independent entries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedns.numerics.cpu import sketching
from fedns.sketches.sketch import FloatArray, Keys, Sketch, same_size


@dataclass(frozen=True)
class Gaussian(Sketch):
    """Independent normal entries of variance 1/size; O(n M size)."""

    name: ClassVar[str] = "gaussian"

    def plan(self, row_counts: NDArray[np.int64]) -> sketching.SketchPlan:
        return sketching.SketchPlan(sketching.GAUSSIAN, same_size(self.size, row_counts))

    def matrix(self, rows: int, key: Keys) -> FloatArray:
        columns = np.empty((rows, self.size))
        for i in range(rows):
            sketching.normal_row(key[0], key[1], i, columns[i])
        return columns.T


@dataclass(frozen=True)
class Rademacher(Sketch):
    """Independent entries +-sqrt(1/size); O(n M size)."""

    name: ClassVar[str] = "rademacher"

    def plan(self, row_counts: NDArray[np.int64]) -> sketching.SketchPlan:
        return sketching.SketchPlan(sketching.RADEMACHER, same_size(self.size, row_counts))

    def matrix(self, rows: int, key: Keys) -> FloatArray:
        columns = np.empty((rows, self.size))
        for i in range(rows):
            sketching.sign_row(key[0], key[1], i, columns[i])
        return columns.T
