"""Functions of single values, and columns as they are."""

from __future__ import annotations

from collections.abc import Callable
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


def _function(name: str, of: Callable[[FloatArray], FloatArray], defined: str = "") -> type[Transform]:
    """A function of single values, written like this in formulas; defined: for which values, in words."""
    return type(name, (Transform,), {"name": name, "of": staticmethod(of), "defined": defined})


FUNCTIONS = (
    _function("log", np.log, "above 0"),
    _function("log2", np.log2, "above 0"),
    _function("log10", np.log10, "above 0"),
    _function("log1p", np.log1p, "above -1"),
    _function("sqrt", np.sqrt, "at least 0"),
    _function("square", np.square),
)
