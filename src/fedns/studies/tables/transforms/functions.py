"""Functions of single values, and columns as they are."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fedns.core.types import FloatArray
from fedns.studies.tables.transforms.transform import Transform


class Itself(Transform):
    """The column as it is: numbers, or levels where tables hold texts."""

    name: ClassVar[str] = ""
    needs_numbers: ClassVar[bool] = False

    def text(self, column: str) -> str:
        return column


class Category(Transform):
    """Every value of the column as a level, numbers too."""

    name: ClassVar[str] = "C"
    needs_numbers: ClassVar[bool] = False
    makes_levels: ClassVar[bool] = True


class Log(Transform):
    name: ClassVar[str] = "log"
    defined: ClassVar[str] = "above 0"

    def of(self, values: FloatArray) -> FloatArray:
        return np.log(values)


class Log2(Transform):
    name: ClassVar[str] = "log2"
    defined: ClassVar[str] = "above 0"

    def of(self, values: FloatArray) -> FloatArray:
        return np.log2(values)


class Log10(Transform):
    name: ClassVar[str] = "log10"
    defined: ClassVar[str] = "above 0"

    def of(self, values: FloatArray) -> FloatArray:
        return np.log10(values)


class Log1p(Transform):
    name: ClassVar[str] = "log1p"
    defined: ClassVar[str] = "above -1"

    def of(self, values: FloatArray) -> FloatArray:
        return np.log1p(values)


class SquareRoot(Transform):
    name: ClassVar[str] = "sqrt"
    defined: ClassVar[str] = "at least 0"

    def of(self, values: FloatArray) -> FloatArray:
        return np.sqrt(values)


class Square(Transform):
    name: ClassVar[str] = "square"

    def of(self, values: FloatArray) -> FloatArray:
        return np.square(values)
