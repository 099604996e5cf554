"""How many rows an answer is really about: at chosen coefficients the curvature may sit in a few of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from fedns.core.shards import Shards
from fedns.numerics.rows import DenseRows
from fedns.problems.problem import Problem

FloatArray = NDArray[np.float64]
_BLOCK = 65536


class Concentration(NamedTuple):
    """With d_i the weighted curvature of row i at some coefficients; every number is nan where all d_i are 0."""

    effective_rows: float  # (sum d)^2 / sum d^2
    largest_share: float  # of one row in the trace of the Hessian, max d_i |x_i|^2 / sum d_i |x_i|^2
    mean_curvature: float  # sum d / sum of the rows' weights


def squared_norms(shards: Shards) -> FloatArray:
    """|x_i|^2 of every row that is stored: (rows,)."""
    rows = shards.rows
    if isinstance(rows, DenseRows):
        values = rows.values
        parts = [values[a : a + _BLOCK].astype(np.float64) for a in range(0, len(values), _BLOCK)]
        return np.concatenate([np.einsum("ij,ij->i", part, part) for part in parts])
    matrix = scipy.sparse.csr_matrix((rows.data.astype(np.float64), rows.indices, rows.indptr), shape=rows.shape)
    return np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel()


def concentration(problem: Problem, w: FloatArray, shards: Shards, norms: FloatArray) -> Concentration:
    """Of the rows of one client, at one vector of coefficients."""
    first, last = int(shards.starts[0]), int(shards.stops[0])
    columns = shards.num_columns
    w = problem.stored(w, columns)
    intercept = float(w[columns]) if problem.intercept else 0.0
    total = squares = trace = largest = weight = 0.0
    for start in range(first, last, _BLOCK):
        here = slice(start, min(start + _BLOCK, last))
        curvature = problem.loss.curvature(shards.targets[here], _margins(shards, here, w[:columns]) + intercept)
        if shards.sample_weights is not None:
            curvature *= shards.sample_weights[here]
        own = curvature * (norms[here] + float(problem.intercept))
        total, squares = total + float(curvature.sum()), squares + float(curvature @ curvature)
        trace, largest = trace + float(own.sum()), max(largest, float(own.max()))
        weight += float(here.stop - start if shards.sample_weights is None else shards.sample_weights[here].sum())
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.array([total**2, largest, total]) / np.array([squares, trace, weight])
    return Concentration(*found.tolist())


def _margins(shards: Shards, here: slice, w: FloatArray) -> FloatArray:
    rows = shards.rows
    if isinstance(rows, DenseRows):
        return np.asarray(rows.values[here] @ w, dtype=np.float64)
    low, high = rows.indptr[here.start], rows.indptr[here.stop]
    part = (rows.data[low:high], rows.indices[low:high], rows.indptr[here.start : here.stop + 1] - low)
    return np.asarray(scipy.sparse.csr_matrix(part, shape=(here.stop - here.start, rows.num_columns)) @ w, dtype=np.float64)
