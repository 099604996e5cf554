"""Sampling rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedns.core.types import FloatArray, Keys
from fedns.numerics import backend
from fedns.numerics.backend import SketchPlan
from fedns.numerics.rng import sample_without_replacement
from fedns.sketches.sketch import Sketch


@dataclass(frozen=True)
class RowSampling(Sketch):
    """`size` distinct rows, uniformly, scaled by sqrt(n/size); all of them where there are no more than that.

    It sends rows of the data, scaled: not for data that must not leave a site.

    - size: rows of the sketch, at least 1.
    """

    name: ClassVar[str] = "rows"

    def plan(self, row_counts: NDArray[np.int64]) -> SketchPlan:
        return SketchPlan(backend.ROW_SAMPLING, np.minimum(self.size, row_counts))

    def matrix(self, rows: int, key: Keys) -> FloatArray:
        size = min(self.size, rows)
        chosen = sample_without_replacement(key[0], ~key[1], rows, size)
        matrix = np.zeros((size, rows))
        matrix[np.arange(size), chosen] = np.sqrt(rows / size)
        return matrix
