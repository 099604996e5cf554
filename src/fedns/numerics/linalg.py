"""Small dense linear algebra of the server."""

from functools import cache
from typing import Any

import numpy as np
import scipy.linalg
from numba import njit, prange
from numpy.typing import NDArray
from scipy.linalg import lapack
from threadpoolctl import ThreadpoolController

from fedns.numerics.cpu.jit import jit, on_threads, parallel_jit

FloatArray = NDArray[np.float64]
_GRAM_ROWS = 256  # enough for an efficient product, few enough that several threads find work


@njit(cache=True, nogil=True)
def add_weighted_rows(total, rows, weights):
    """total += sum_j weights[j] rows[j], one row after the other."""
    for j in range(rows.shape[0]):
        for c in range(rows.shape[1]):
            total[c] += weights[j] * rows[j, c]


@jit
def _weighted_gram_of(rows, weights, first, last, out):
    scaled = np.empty((last - first, rows.shape[1]))
    for i in range(first, last):
        root = np.sqrt(weights[i])
        for c in range(rows.shape[1]):
            scaled[i - first, c] = root * rows[i, c]
    out[:] = np.dot(scaled.T, scaled)


@parallel_jit
def _weighted_grams(rows, weights, out):
    for block in prange(out.shape[0]):
        first = block * _GRAM_ROWS
        _weighted_gram_of(rows, weights, first, min(first + _GRAM_ROWS, rows.shape[0]), out[block])


def weighted_gram(rows: FloatArray, weights: FloatArray) -> FloatArray:
    """sum_i weights[i] rows[i] rows[i]', in blocks whose sums do not depend on the threads."""
    blocks = np.empty((-(-len(rows) // _GRAM_ROWS), rows.shape[1], rows.shape[1]))
    on_threads(_weighted_grams, rows, weights, blocks)
    total: FloatArray = blocks[0]
    for block in blocks[1:]:
        total += block
    return total


def unpack_symmetric(packed: FloatArray, size: int) -> FloatArray:
    """The symmetric matrix whose upper triangle, row by row, is `packed`; leading axes are kept."""
    rows, columns = _triangle(size)
    full = np.empty((*packed.shape[:-1], size, size))
    full[..., rows, columns] = packed
    full[..., columns, rows] = packed
    return full


def pack_symmetric(full: FloatArray) -> FloatArray:
    """The upper triangle, row by row; leading axes are kept."""
    rows, columns = _triangle(full.shape[-1])
    return np.ascontiguousarray(full[..., rows, columns])


def packed_size(size: int) -> int:
    return size * (size + 1) // 2


@cache
def _triangle(size: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    return np.triu_indices(size)


def solve_positive(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """x with matrix x = right for a symmetric positive semi-definite matrix.

    Rows and columns are scaled to a unit diagonal first, so that columns in different units do not matter. A matrix that is
    singular to working precision gets the solution of least norm in that scaling.
    """
    diagonal = np.diag(matrix)
    scale = np.where(diagonal > 0, 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0)), 0.0)
    scaled = matrix * scale[:, None] * scale
    np.fill_diagonal(scaled, np.where(diagonal > 0, 1.0, 0.0))
    if (diagonal > 0).all():
        factor, failed = lapack.dpotrf(scaled)
        if failed == 0 and np.diag(factor).min() > _SMALLEST_PIVOT:
            solution, _ = lapack.dpotrs(factor, scale * right)
            return np.asarray(scale * solution)
    values, vectors = scipy.linalg.eigh(scaled, check_finite=False)
    keep = values > values[-1] * values.size * np.finfo(np.float64).eps
    least_norm: FloatArray = scale * (vectors[:, keep] @ ((vectors[:, keep].T @ (scale * right)) / values[keep]))
    return least_norm


# A pivot of the scaled matrix below this is rounding noise of a dependent column.
_SMALLEST_PIVOT = 1e-7


@cache
def _controller() -> Any:
    return ThreadpoolController()


def single_threaded_blas() -> Any:
    """A context in which BLAS uses one thread: results do not depend on the cores, and small products are faster."""
    return _controller().limit(limits=1, user_api="blas")
