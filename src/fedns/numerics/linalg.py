"""Small dense linear algebra of the server."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.linalg import lapack
from threadpoolctl import ThreadpoolController

from fedns.numerics.compiled import COMPILED, plain_jit

if COMPILED:
    from fedns.numerics.cpu import folding

FloatArray = NDArray[np.float64]


def add_weighted_rows(total: FloatArray, rows: FloatArray, weights: FloatArray) -> None:
    """total += sum_j weights[j] rows[j], one row after the other."""
    if COMPILED:
        folding.add_weighted_rows(total, rows, weights)
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            total += weights @ rows


def weighted_gram(rows: FloatArray, weights: FloatArray) -> FloatArray:
    """sum_i weights[i] rows[i] rows[i]', the same on any number of threads."""
    if COMPILED:
        return np.asarray(folding.weighted_gram(rows, weights))
    scaled = rows * np.sqrt(weights)[:, None]
    return np.asarray(scaled.T @ scaled)


def symmetric_of(triangle: FloatArray, size: int) -> FloatArray:
    """The symmetric matrix whose upper triangle, row by row, this is; leading axes are kept."""
    full = np.empty((*triangle.shape[:-1], size, size))
    if COMPILED:
        _unpack(triangle.reshape(-1, triangle.shape[-1]), full.reshape(-1, size, size))
        return full
    rows, columns = _triangle(size)
    full[..., rows, columns] = triangle
    full[..., columns, rows] = triangle
    return full


@plain_jit
def _unpack(triangle, full):
    for k in range(len(full)):
        entry = 0
        for a in range(full.shape[1]):
            for b in range(a, full.shape[1]):
                full[k, a, b] = full[k, b, a] = triangle[k, entry]
                entry += 1


def triangle_of(full: FloatArray) -> FloatArray:
    """The upper triangle, row by row; leading axes are kept."""
    rows, columns = _triangle(full.shape[-1])
    return np.ascontiguousarray(full[..., rows, columns])


@cache
def _triangle(size: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    return np.triu_indices(size)


def solve_positive(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """x with matrix x = right for a symmetric positive semi-definite matrix.

    Rows and columns are scaled to a unit diagonal first, so that columns in different units do not matter. A matrix that is
    singular to working precision gets the solution of least norm in that scaling.
    """
    scale, scaled = _unit_diagonal(matrix)
    factor = _cholesky(scaled)
    if factor is not None:
        solution, _ = lapack.dpotrs(factor, scale * right)
        return np.asarray(scale * solution)
    values, vectors = scipy.linalg.eigh(scaled, check_finite=False)
    keep = values > values[-1] * values.size * np.finfo(np.float64).eps
    return np.asarray(scale * (vectors[:, keep] @ ((vectors[:, keep].T @ (scale * right)) / values[keep])))


def solve_from_triangle(triangle: FloatArray, diagonal: FloatArray, right: FloatArray) -> FloatArray:
    """x with (H + diag(diagonal)) x = right, as `solve_shifted` has it, for the H whose upper triangle is `triangle`."""
    solution = _solve_scaled(_scale_triangle, triangle, diagonal, right) if COMPILED else None
    return solve_shifted(symmetric_of(triangle, right.size), diagonal, right) if solution is None else solution


def _solve_scaled(scale_into: Any, matrix: FloatArray, diagonal: FloatArray, right: FloatArray) -> FloatArray | None:
    """The same where the matrix is not singular, in a tenth of the calls; None where it is."""
    scaled, scale = np.empty((right.size, right.size), order="F"), np.empty(right.size)
    scale_into(matrix, diagonal, scaled, scale)
    factor = _cholesky(scaled, overwrite=True)
    if factor is None:
        return None
    solution, _ = lapack.dpotrs(factor, scale * right)
    return np.asarray(scale * solution)


@plain_jit
def _scale_whole(matrix, diagonal, scaled, scale):
    """The upper triangle of the matrix of `_unit_diagonal`, column by column as LAPACK has it, and its scale."""
    for a in range(scale.size):
        own = matrix[a, a] + diagonal[a]
        scale[a] = 1.0 / np.sqrt(own) if own > 0.0 else 0.0
        scaled[a, a] = 1.0 if scale[a] > 0.0 else 0.0
        for b in range(a):
            scaled[b, a] = matrix[b, a] * scale[b] * scale[a]


@plain_jit
def _scale_triangle(triangle, diagonal, scaled, scale):
    """Do what `_scale_whole` does, of the triangle."""
    size = scale.size
    entry = 0
    for a in range(size):
        own = triangle[entry] + diagonal[a]
        scale[a] = 1.0 / np.sqrt(own) if own > 0.0 else 0.0
        entry += size - a
    entry = 0
    for a in range(size):
        scaled[a, a] = 1.0 if scale[a] > 0.0 else 0.0
        for b in range(a + 1, size):
            scaled[a, b] = triangle[entry + b - a] * scale[a] * scale[b]
        entry += size - a


@dataclass(frozen=True, eq=False)
class LowRank:
    """rows' rows + shift I with fewer rows than columns: a symmetric matrix that need not be formed."""

    rows: FloatArray  # (rank, size)
    shift: float = 0.0

    def dense(self) -> FloatArray:
        matrix: FloatArray = self.rows.T @ self.rows
        matrix[np.diag_indices(len(matrix))] += self.shift
        return matrix


def gram(rows: FloatArray) -> FloatArray | LowRank:
    """rows' rows, multiplied out only where there are as many rows as columns."""
    return LowRank(rows) if len(rows) < rows.shape[1] else rows.T @ rows


def solve_shifted(matrix: FloatArray | LowRank, diagonal: FloatArray, right: FloatArray) -> FloatArray:
    """x with (matrix + diag(diagonal)) x = right, for a positive semi-definite matrix and a diagonal without negatives."""
    if isinstance(matrix, LowRank):
        solution = _solve_low_rank(matrix.rows, diagonal + matrix.shift, right)
        if solution is not None:
            return solution
        matrix = matrix.dense()
    elif COMPILED:
        solution = _solve_scaled(_scale_whole, np.ascontiguousarray(matrix), diagonal, right)
        if solution is not None:
            return solution
    shifted = matrix.copy()
    shifted[np.diag_indices(len(matrix))] += diagonal
    return solve_positive(shifted, right)


def _solve_low_rank(rows: FloatArray, diagonal: FloatArray, right: FloatArray) -> FloatArray | None:
    """x with (B'B + D) x = right for the rows B, or None where the small systems are singular to working precision.

    With t = B x the columns with D > 0 have x = D^-1 (right - B't). Let z be x on the other columns, Z those columns of B
    (an intercept is not penalised) and W = I + B D^-1 B' without them. What is left is of the size of the rows:
    W t = B D^-1 right + Z z and Z't = right_z, so that (Z' W^-1 Z) z = right_z - Z' W^-1 B D^-1 right.
    """
    free = np.flatnonzero(diagonal == 0)
    if free.size > len(rows):
        return None
    inverse = np.divide(1.0, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0)
    scaled_rows = rows * np.sqrt(inverse)
    inner = scaled_rows @ scaled_rows.T
    inner[np.diag_indices(len(rows))] += 1.0
    scale, scaled = _unit_diagonal(inner)
    factor = _cholesky(scaled)
    if factor is None:
        return None

    def within(vector: FloatArray) -> FloatArray:
        return np.asarray(scale * lapack.dpotrs(factor, scale * vector)[0])

    border = rows[:, free]
    across = np.stack([within(column) for column in border.T], axis=1) if free.size else border

    def solve(vector: FloatArray) -> FloatArray:
        t = within(rows @ (inverse * vector))
        z = solve_positive(border.T @ across, vector[free] - border.T @ t) if free.size else vector[free]
        x: FloatArray = inverse * (vector - rows.T @ (t + across @ z))
        x[free] = z
        return x

    x = solve(right)
    # right - B't cancels where B'B is much larger than D: the residual brings the lost digits back.
    return x + solve(right - (rows.T @ (rows @ x) + diagonal * x))


def _unit_diagonal(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """What to multiply rows and columns with for a unit diagonal, and the matrix so scaled; empty columns get 0."""
    diagonal = np.diag(matrix)
    scale = np.where(diagonal > 0, 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0)), 0.0)
    scaled = matrix * scale[:, None] * scale
    np.fill_diagonal(scaled, np.where(diagonal > 0, 1.0, 0.0))
    return scale, scaled


def _cholesky(scaled: FloatArray, overwrite: bool = False) -> FloatArray | None:
    """The upper factor of a matrix with a unit diagonal, or None where it is singular to working precision.

    Only the upper triangles of both matter.
    """
    if not scaled.diagonal().all():
        return None
    factor, failed = lapack.dpotrf(scaled, clean=0, overwrite_a=overwrite)
    return factor if failed == 0 and factor.diagonal().min() > _SMALLEST_PIVOT else None


# A pivot of the scaled matrix below this is rounding noise of a dependent column.
_SMALLEST_PIVOT = 1e-7


@cache
def _controller() -> Any:
    return ThreadpoolController()


def single_threaded_blas() -> Any:
    """A context in which BLAS uses one thread: results do not depend on the cores, and small products are faster."""
    return _controller().limit(limits=1, user_api="blas")
