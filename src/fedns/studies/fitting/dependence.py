"""Which coefficients rows do not determine, as arrays: columns that depend on others, and directions without a maximum."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
DEPENDENT = 1e-10  # what is left of a column of unit length, squared, after the columns before it are taken out
NOTHING = 1e-12  # of the information that a column could have: R's coxph has 1.8e-12
NO_INFORMATION = 1e-5  # rows' worth of curvature left in a direction where the outcome is separated


def dependent(
    hessian: FloatArray, order: Sequence[int], whole: FloatArray, rounding: FloatArray | None = None
) -> list[tuple[int, FloatArray]]:
    """Columns that depend on those before them, each with a direction that changes nothing and has a number above 0 there.

    - hessian: (coefficients, coefficients).
    - order: in which columns are looked at.
    - whole: (coefficients,) what the diagonal would be about if all of a column's variance told; 0 where that is not known.
    - rounding: (coefficients,) the part of the diagonal that may be rounding; nothing to speak of unless given.
    """
    rounding = np.zeros(len(hessian)) if rounding is None else rounding
    diagonal = np.diag(hessian)
    says = diagonal > NOTHING * whole  # by itself: what is below is rounding
    scale = np.where(says, 1.0 / np.sqrt(np.where(says, diagonal, 1.0)), 0.0)
    gram = hessian * scale[:, None] * scale
    kept: list[int] = []
    found = []
    for column in order:
        weights = np.zeros(len(diagonal))
        left = 1.0 if says[column] else 0.0
        if kept and left:
            weights[kept] = np.linalg.solve(gram[np.ix_(kept, kept)], gram[kept, column])
            left -= float(gram[column, kept] @ weights[kept])
        if left > max(DEPENDENT, float(rounding[column] + weights**2 @ rounding)):
            kept.append(column)
            continue
        direction = -weights * scale
        direction[column] = scale[column] if says[column] else 1.0
        found.append((column, direction))
    return found


def faded(start: FloatArray, end: FloatArray, rows: float, curvature: float) -> FloatArray | None:
    """Measure what each coefficient has to do with a direction along which no row tells anything any more; None without one.

    Along a direction that separates outcomes every row's curvature fades as the coefficients grow, while that of a finite
    optimum is worth at least about one row.

    - start, end: Hessians of the objective where the run began, and where it ended.
    - curvature: of a row where the run began.
    """
    if not len(start):
        return None
    gram = start / curvature
    values, vectors = scipy.linalg.eigh(end, gram)
    if rows * values[0] >= NO_INFORMATION:
        return None
    return np.asarray(np.abs(vectors[:, 0]) * np.sqrt(np.diag(gram)))
