"""Symmetric matrices by their eigenpairs and by their packed upper triangles, row by row."""

# mypy: disallow-untyped-decorators=False, disallow-untyped-defs=False, disallow-untyped-calls=False

import numpy as np
from numpy.typing import NDArray

from fedns.numerics.jit import jit
from fedns.numerics.linalg import unpack_symmetric

FloatArray = NDArray[np.float64]


@jit
def add_low_rank(packed, values, vectors, scale):
    """packed += scale sum_r values[r] vectors[r] vectors[r]'."""
    features = vectors.shape[1]
    for r in range(values.size):
        weight, vector = scale * values[r], vectors[r]
        entry = 0
        for a in range(features):
            left = weight * vector[a]
            for b in range(a, features):
                packed[entry + b - a] += left * vector[b]
            entry += features - a


@jit
def symmetric_times(packed, x):
    """The packed matrix times x."""
    features = x.size
    out = np.zeros(features)
    entry = 0
    for a in range(features):
        total = packed[entry] * x[a]
        for b in range(a + 1, features):
            value = packed[entry + b - a]
            total += value * x[b]
            out[b] += value * x[a]
        out[a] += total
        entry += features - a
    return out


def largest_eigenpairs(packed: FloatArray, features: int, count: int) -> tuple[FloatArray, FloatArray]:
    """The eigenvalues largest in absolute value, and their eigenvectors as rows: (count,), (count, features)."""
    values, vectors = np.linalg.eigh(unpack_symmetric(packed, features))
    chosen = np.argsort(-np.abs(values), kind="stable")[:count]
    return values[chosen], vectors[:, chosen].T


def spectral_norm(packed: FloatArray, features: int) -> float:
    """The largest absolute eigenvalue."""
    return float(np.abs(np.linalg.eigvalsh(unpack_symmetric(packed, features))).max())


def positive_part(matrix: FloatArray) -> FloatArray:
    """The nearest positive semi-definite matrix: eigenvalues below 0 become 0."""
    values, vectors = np.linalg.eigh(matrix)
    below = vectors[:, values < 0] * np.sqrt(-values[values < 0])
    clipped: FloatArray = matrix + below @ below.T  # what is not cut away keeps its digits
    return clipped
