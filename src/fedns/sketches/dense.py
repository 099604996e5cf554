"""Sketches with independent entries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedns.core.types import FloatArray, Keys
from fedns.numerics.rng import normal_row, sign_row
from fedns.sketches.sketch import Sketch


class Independent(Sketch):
    """A sketch whose columns do not depend on each other, written out column by column."""

    def matrix(self, rows: int, key: Keys) -> FloatArray:
        columns = np.empty((rows, self.size))
        for i in range(rows):
            self.column(key[0], key[1], i, columns[i])
        return columns.T


@dataclass(frozen=True)
class Gaussian(Independent):
    """Independent normal entries of variance 1/size; O(n M size).

    - size: rows of the sketch, at least 1.
    """

    name: ClassVar[str] = "gaussian"

    def column(self, key0: Any, key1: Any, position: Any, entries: Any) -> None:
        normal_row(key0, key1, position, entries)


@dataclass(frozen=True)
class Rademacher(Independent):
    """Independent entries +-sqrt(1/size); O(n M size).

    - size: rows of the sketch, at least 1.
    """

    name: ClassVar[str] = "rademacher"

    def column(self, key0: Any, key1: Any, position: Any, entries: Any) -> None:
        sign_row(key0, key1, position, entries)
