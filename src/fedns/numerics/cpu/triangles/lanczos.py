"""The eigenpair largest in absolute value of a symmetric matrix that is held as its upper triangle, row by row."""

import numpy as np

from fedns.numerics.cpu import simd
from fedns.numerics.jit import exact_jit

# A residual of r |value| leaves an error of r^2 in the value, far below rounding.
_RESIDUAL = 1e-10
_LONGEST = 128
# When to look how far it is: a look costs as much as a step, and so does every step too many.
_FIRST_LOOK, _LONGEST_WAIT = 8, 4


@exact_jit
def times(triangle, size, x, out):
    """out = the matrix of this triangle, of two rows or more, times x. Vectors have at least eight numbers more, zeros in x.

    Four rows at a time, each of which is read once for its own product and for those of the rows below, in vectors that
    begin at the diagonal. What they have to the left of it belongs to the row before; entry (a, b) is at r0 + b.
    """
    out[:] = 0.0
    r0 = 0
    for a in range(0, size, 4):
        r1 = r0 + size - a - 1
        r2 = r1 + size - a - 2
        r3 = r2 + size - a - 3
        x0, x1, x2, x3 = simd.splat(x[a]), simd.splat(x[a + 1]), simd.splat(x[a + 2]), simd.splat(x[a + 3])
        s0 = s1 = s2 = s3 = simd.splat(0.0)
        for b in range(a, size, 8):
            left = size - b
            p0, p1 = simd.load_first(triangle, r0 + b, left), simd.load_first(triangle, r1 + b, left)
            p2, p3 = simd.load_first(triangle, r2 + b, left), simd.load_first(triangle, r3 + b, left)
            below0, below1, below2, below3 = p0, p1, p2, p3
            if b == a:
                p1 = simd.with_lane(p1, 0, 0.0)
                p2 = simd.with_lane(simd.with_lane(p2, 0, 0.0), 1, 0.0)
                p3 = simd.with_lane(simd.with_lane(simd.with_lane(p3, 0, 0.0), 1, 0.0), 2, 0.0)
                below0, below1 = simd.with_lane(p0, 0, 0.0), simd.with_lane(p1, 1, 0.0)
                below2, below3 = simd.with_lane(p2, 2, 0.0), simd.with_lane(p3, 3, 0.0)
            own = simd.load(x, b)
            s0, s1 = simd.exact_fma(p0, own, s0), simd.exact_fma(p1, own, s1)
            s2, s3 = simd.exact_fma(p2, own, s2), simd.exact_fma(p3, own, s3)
            sums = simd.exact_fma(x1, below1, simd.exact_fma(x0, below0, simd.load(out, b)))
            simd.store(out, b, simd.exact_fma(x3, below3, simd.exact_fma(x2, below2, sums)))
        out[a] += simd.total(s0)
        out[a + 1] += simd.total(s1)
        out[a + 2] += simd.total(s2)
        out[a + 3] += simd.total(s3)
        r0 = r3 + size - a - 4


@exact_jit
def _dot(x, y):
    sums = simd.splat(0.0)
    for c in range(0, x.size, 8):
        sums = simd.exact_fma(simd.load(x, c), simd.load(y, c), sums)
    return simd.total(sums)


@exact_jit
def _take_out(basis, count, x):
    """Subtract from x its parts along the first rows of the basis, four at a time; zeros fill up the last four."""
    one, two, three = x.size, 2 * x.size, 3 * x.size
    for first in range(0, count * x.size, 4 * x.size):
        s0 = s1 = s2 = s3 = simd.splat(0.0)
        for c in range(0, x.size, 8):
            own, row = simd.load(x, c), first + c
            s0, s1 = simd.exact_fma(simd.load(basis, row), own, s0), simd.exact_fma(simd.load(basis, row + one), own, s1)
            s2, s3 = (
                simd.exact_fma(simd.load(basis, row + two), own, s2),
                simd.exact_fma(simd.load(basis, row + three), own, s3),
            )
        s0, s1 = simd.splat(-simd.total(s0)), simd.splat(-simd.total(s1))
        s2, s3 = simd.splat(-simd.total(s2)), simd.splat(-simd.total(s3))
        for c in range(0, x.size, 8):
            row = first + c
            own = simd.exact_fma(s0, simd.load(basis, row), simd.load(x, c))
            own = simd.exact_fma(s1, simd.load(basis, row + one), own)
            own = simd.exact_fma(s2, simd.load(basis, row + two), own)
            simd.store(x, c, simd.exact_fma(s3, simd.load(basis, row + three), own))


@exact_jit
def largest_eigenpair(triangle, features):
    """The eigenpair by Lanczos' method: value, vector, and whether it was found within so many steps.

    Every new direction is made orthogonal to all before, twice, so that rounding does not bring found ones back.
    """
    longest = min(features, _LONGEST)
    width = (features + 15) // 8 * 8  # whole vectors, and what `times` needs
    basis, product = np.empty((longest + 4, width)), np.empty(width)
    basis[:4] = 0.0
    alpha, beta = np.zeros(longest), np.zeros(longest)
    state = np.uint64(1)
    for c in range(features):  # any dense vector will do, as long as it is always the same
        state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
        basis[0, c] = np.float64(state >> np.uint64(40)) - 8388607.5
    basis[0] /= np.sqrt(_dot(basis[0], basis[0]))
    scale, check, checked, before = 0.0, _FIRST_LOOK, 0, 1.0
    for k in range(longest):
        size = k + 1
        times(triangle, features, basis[k], product)
        alpha[k] = _dot(product, basis[k])
        _take_out(basis, size, product)
        _take_out(basis, size, product)
        beta[k] = np.sqrt(_dot(product, product))
        scale = max(scale, abs(alpha[k]), beta[k])
        if scale == 0.0:  # the matrix is zero
            return 0.0, basis[0, :features].copy(), True
        exhausted = beta[k] <= 1e-15 * scale or size == features
        if exhausted or size in (check, longest):
            value, weights = _largest_of_tridiagonal(alpha[:size], beta[:size])
            residual = beta[k] * abs(weights[size - 1])
            if exhausted or residual <= _RESIDUAL * abs(value):
                vector = weights @ basis[:size]
                return value, vector[:features] / np.sqrt(_dot(vector, vector)), True
            # The residual falls by about the same factor a step: look again when it should be small enough.
            relative = residual / abs(value)
            rate = max(np.log(before / relative) / (size - checked), 1e-3)
            wait = min(int(np.log(relative / _RESIDUAL) / rate) + 1, _LONGEST_WAIT)
            check, checked, before = size + wait, size, relative
        if size % 4 == 0:
            basis[size : size + 4] = 0.0
        for c in range(features):
            basis[size, c] = product[c] / beta[k]
    return 0.0, basis[0, :features].copy(), False


@exact_jit
def _largest_of_tridiagonal(alpha, beta):
    """The eigenpair largest in absolute value of the T with this diagonal and, beside it, all but the last of beta."""
    reach = np.abs(alpha).max() + 2.0 * np.abs(beta).max()
    highest = _least_bound(alpha, beta, 1.0, reach)
    sign, bound = 1.0, highest
    if not _bounded(alpha, beta, -1.0, highest):
        sign, bound = -1.0, _least_bound(alpha, beta, -1.0, reach)
    return sign * bound, _eigenvector(alpha, beta, sign, bound, reach)


@exact_jit
def _bounded(alpha, beta, sign, x):
    """Whether all eigenvalues of sign T are below x: whether all pivots of x - sign T are positive."""
    pivot = x - sign * alpha[0]
    for i in range(1, alpha.size):
        if pivot <= 0.0:
            return False
        pivot = x - sign * alpha[i] - beta[i - 1] * beta[i - 1] / pivot
    return pivot > 0.0


@exact_jit
def _least_bound(alpha, beta, sign, reach):
    """The least number that is above all eigenvalues of sign T, which are between -reach and reach: by halving."""
    low, high = -reach, reach
    while True:
        middle = 0.5 * (low + high)
        if not low < middle < high:
            return high
        if _bounded(alpha, beta, sign, middle):
            high = middle
        else:
            low = middle


@exact_jit
def _eigenvector(alpha, beta, sign, bound, reach):
    """That of the largest eigenvalue of sign T, by inverse iteration: bound - sign T is positive definite."""
    size = alpha.size
    pivots, vector = np.empty(size), np.ones(size)
    for i in range(size):
        before = beta[i - 1] * beta[i - 1] / pivots[i - 1] if i > 0 else 0.0
        pivots[i] = max(bound - sign * alpha[i] - before, 1e-17 * reach)
    for _ in range(3):
        for i in range(1, size):
            vector[i] += sign * beta[i - 1] / pivots[i - 1] * vector[i - 1]
        for i in range(size - 1, -1, -1):
            beside = sign * beta[i] * vector[i + 1] if i + 1 < size else 0.0
            vector[i] = (vector[i] + beside) / pivots[i]
        vector /= np.sqrt((vector * vector).sum())
    return vector
