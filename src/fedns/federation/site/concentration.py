"""How many rows an answer is really about: at chosen coefficients the curvature may sit in a few of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from fedns.core.shards import Shards
from fedns.numerics.rows import DenseRows

FloatArray = NDArray[np.float64]
_BLOCK = 65536


class Concentration(NamedTuple):
    """With d_i the curvature of row i at some coefficients; the first two are nan where all d_i are 0."""

    effective_rows: float  # (sum d)^2 / sum d^2
    largest_share: float  # of one row in the trace of the Hessian, max d_i |x_i|^2 / sum d_i |x_i|^2
    mean_curvature: float

    @classmethod
    def of(cls, sums: FloatArray) -> Concentration:
        """From sum d, sum d^2, sum d |x|^2 and the largest d |x|^2, of means over the rows' weights."""
        total, squares, trace, largest = sums
        with np.errstate(invalid="ignore", divide="ignore"):
            return cls(float(total**2 / squares), float(largest / trace), float(total))


def squared_norms(shards: Shards) -> FloatArray:
    """|x_i|^2 of every row that is stored: (rows,)."""
    rows = shards.rows
    if isinstance(rows, DenseRows):
        values = rows.values
        parts = [values[a : a + _BLOCK].astype(np.float64) for a in range(0, len(values), _BLOCK)]
        return np.concatenate([np.einsum("ij,ij->i", part, part) for part in parts])
    matrix = scipy.sparse.csr_matrix((rows.data.astype(np.float64), rows.indices, rows.indptr), shape=rows.shape)
    return np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel()
