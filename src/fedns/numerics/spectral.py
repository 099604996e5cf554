"""Symmetric matrices by their eigenpairs and by their upper triangles, row by row."""

import numpy as np
import scipy.linalg
from scipy.linalg import lapack

from fedns.numerics import parallel
from fedns.numerics.compiled import COMPILED, jit
from fedns.numerics.linalg import FloatArray, symmetric_of

if COMPILED:
    from fedns.numerics.cpu.triangles.lanczos import largest_eigenpair

_SAMPLE = 1024
_ROW_PARTS = 8


# Entry (a, b) of a triangle is at above + b. Indices have no sign: those that might count from the end take four times
# as long.
@jit
def add_low_rank(triangle, values, vectors, scale):
    """triangle += scale sum_r values[r] vectors[r] vectors[r]'."""
    features = np.uint64(vectors.shape[1])
    for r in range(values.size):
        weight, above = scale * values[r], np.uint64(0)
        for a in range(features):
            left = weight * vectors[r, a]
            for b in range(a, features):
                triangle[above + b] += left * vectors[r, b]
            above += features - a - np.uint64(1)


@jit
def _add_to_rows(triangle, first, last, scales, values, vectors):
    """triangle += scales[j] times the matrix of each j in turn, in some of its rows."""
    features = vectors.shape[2]
    for a in range(first, last):
        entry = a * features - a * (a - 1) // 2
        row = triangle[entry : entry + features - a]
        for j in range(values.shape[0]):
            for r in range(values.shape[1]):
                factor, own = scales[j] * values[j, r] * vectors[j, r, a], vectors[j, r, a:]
                for c in range(row.size):
                    row[c] += factor * own[c]


def add_low_ranks(triangle: FloatArray, scales: FloatArray, values: FloatArray, vectors: FloatArray) -> None:
    """triangle += scales[j] sum_r values[j, r] vectors[j, r] vectors[j, r]', one j after the other."""
    features = vectors.shape[2]
    # Parts of about the same number of entries: those from row a on are to those of all as (1 - a / features)^2.
    cuts = np.rint(features * (1.0 - np.sqrt(1.0 - np.arange(_ROW_PARTS + 1) / _ROW_PARTS))).astype(np.int64)

    def add_part(part: int) -> None:
        _add_to_rows(triangle, cuts[part], cuts[part + 1], scales, values, vectors)

    parallel.map_clients(add_part, _ROW_PARTS)


@jit
def symmetric_times(triangle, x):
    """The matrix of this triangle times x."""
    features, above, out = np.uint64(x.size), np.uint64(0), np.zeros(x.size)
    for a in range(features):  # two loops over a row: fused, they are four times slower
        total, left = 0.0, x[a]
        for b in range(a, features):
            total += triangle[above + b] * x[b]
        out[a] += total
        for b in range(a + np.uint64(1), features):
            out[b] += left * triangle[above + b]
        above += features - a - np.uint64(1)
    return out


def largest_eigenpairs(triangle: FloatArray, features: int, count: int) -> tuple[FloatArray, FloatArray]:
    """The eigenvalues largest in absolute value, and their eigenvectors as rows: (count,), (count, features).

    A few of a large matrix by Lanczos' method, one after the other: each is taken out before the next is sought.
    """
    if COMPILED and _FEATURES_PER_PAIR * count <= features:
        left, values, vectors = triangle, np.empty(count), np.empty((count, features))
        for found in range(count):
            if found > 0:
                left = triangle.copy() if found == 1 else left
                add_low_rank(left, values[found - 1 : found], vectors[found - 1 : found], -1.0)
            values[found], vectors[found], done = largest_eigenpair(left, features)
            if not done:
                break
        else:
            return values, vectors
    values, vectors = np.linalg.eigh(symmetric_of(triangle, features))
    chosen = np.argsort(-np.abs(values), kind="stable")[:count]
    return values[chosen], vectors[:, chosen].T


_FEATURES_PER_PAIR = 64  # below, LAPACK takes less time


@jit
def largest_entries(triangle, weights, count):
    """Where |triangle| weights is largest, in increasing order; among equals the first.

    Only entries as large as a few of a sample can be among them, where there are enough of those.
    """
    ranked = np.empty(triangle.size)
    for entry in range(triangle.size):
        ranked[entry] = abs(triangle[entry]) * weights[entry]
    candidates = np.flatnonzero(ranked >= _likely_below(ranked, count))
    if candidates.size < count:
        candidates = np.arange(ranked.size)
    among = ranked[candidates]
    smallest = np.partition(among, among.size - count)[among.size - count]
    equals = count - (among > smallest).sum()
    chosen, found = np.zeros(count, np.int64), 0
    for i in range(candidates.size):
        if among[i] > smallest or (among[i] == smallest and equals > 0):
            equals -= among[i] == smallest
            chosen[found] = candidates[i]
            found += 1
    return chosen


@jit
def _likely_below(ranked, count):
    """A number that, most likely, more than `count` entries are above, and not many times as many."""
    sample = ranked[:: max(1, ranked.size // _SAMPLE)].copy()
    expected = count * sample.size / ranked.size
    place = sample.size - 1 - int(expected + 4.0 * np.sqrt(expected) + 4.0)
    return np.partition(sample, place)[place] if place > 0 else 0.0


@jit
def frobenius_norm(triangle, weights):
    """The norm of a symmetric matrix from its triangle."""
    total = 0.0
    for entry in range(triangle.size):
        value = triangle[entry] * weights[entry]
        total += value * value
    return np.sqrt(total)


def spectral_norm(triangle: FloatArray, features: int) -> float:
    """The largest absolute eigenvalue."""
    return float(abs(largest_eigenpairs(triangle, features, 1)[0][0]))


def leading_eigenpairs(matrix: FloatArray, count: int) -> tuple[FloatArray, FloatArray]:
    """The `count` largest eigenvalues, or all, in falling order, and their eigenvectors as rows: (count,), (count, size)."""
    size = len(matrix)
    if 4 * count > size:
        values, vectors = np.linalg.eigh(matrix)
    elif np.isfinite(matrix).all():
        values, vectors = scipy.linalg.eigh(matrix, subset_by_index=[size - count, size - 1], check_finite=False)
    else:
        raise np.linalg.LinAlgError("a Hessian is no longer finite")
    return values[::-1][:count], vectors[:, ::-1].T[:count]


def positive_part(matrix: FloatArray) -> FloatArray:
    """The nearest positive semi-definite matrix: eigenvalues below 0 become 0."""
    if lapack.dpotrf(matrix, clean=0)[1] == 0:  # there is none, which takes a tenth of the time to find out
        return matrix
    values, vectors = np.linalg.eigh(matrix)
    below = vectors[:, values < 0] * np.sqrt(-values[values < 0])
    return np.asarray(matrix + below @ below.T)
