"""The sparse Johnson-Lindenstrauss transform."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedns.core.errors import ConfigError
from fedns.core.types import FloatArray, Keys
from fedns.numerics import backend
from fedns.numerics.backend import SketchPlan
from fedns.numerics.rng import random_bits
from fedns.sketches.sketch import Sketch, same_size


@dataclass(frozen=True)
class SJLT(Sketch):
    """Each column has `nonzeros` entries +-sqrt(1/nonzeros) in distinct rows; 1 is CountSketch. O(nonzeros n M).

    - size: rows of the sketch, at least 1.
    - nonzeros: nonzero entries of a column, 1 to size.
    """

    nonzeros: int = 1
    name: ClassVar[str] = "sjlt"

    def __post_init__(self) -> None:
        if not 1 <= self.nonzeros <= self.size:
            raise ConfigError(f"SJLT needs 1 <= nonzeros <= size, got nonzeros {self.nonzeros}, size {self.size}")

    def plan(self, row_counts: NDArray[np.int64]) -> SketchPlan:
        return SketchPlan(backend.SJLT, same_size(self.size, row_counts), nonzeros=self.nonzeros)

    def matrix(self, rows: int, key: Keys) -> FloatArray:
        matrix = np.zeros((self.size, rows))
        for i in range(rows):
            for q in range(self.nonzeros):
                bits = int(random_bits(key[0], key[1], i * self.nonzeros + q))
                bound = self.size - self.nonzeros + q + 1
                bucket = ((bits >> 32) * bound) >> 32
                if matrix[bucket, i] != 0:
                    bucket = bound - 1
                matrix[bucket, i] = (1 - 2 * (bits & 1)) / np.sqrt(self.nonzeros)
        return matrix
