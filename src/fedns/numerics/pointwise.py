"""Convex functions of a margin z and a target y, with two derivatives, over runs of rows.

The exponential and logarithm are written out as polynomials so that the compiler turns whole runs into vector
instructions; the library calls would be made one number at a time. Both are accurate to about one unit in the last place.
"""

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

LOGISTIC = 0  # log(1 + exp(-y z)), y in {-1, +1}
SQUARED = 1  # (z - y)^2 / 2

_LOG2_E = 1.4426950408889634
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
_LN2 = 0.6931471805599453
_SQRT2_MINUS_1 = 0.41421356237309503
# Adding 1.5 * 2^52 rounds to the nearest integer and leaves that integer in the low bits.
_ROUNDER = 6755399441055744.0

# No reordering here: the exponential's rounding trick depends on the order of its sums. It has to be said, since numba
# compiles a function with the options of whichever kernel calls it first.
_kernel = njit(cache=True, nogil=True, error_model="numpy", fastmath=False)


@intrinsic
def _bits_of(typing_context, x):
    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.IntType(64))

    return types.int64(types.float64), generate


@intrinsic
def _float_of(typing_context, bits):
    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.DoubleType())

    return types.float64(types.int64), generate


@njit(inline="always", fastmath=False)
def exp_of_nonpositive(x):
    """exp(x) for x <= 0, flushed to about 1e-304 below -700: x = n ln 2 + r, Taylor to r^13, exponent added in place."""
    x = max(x, -700.0)
    shifted = x * _LOG2_E + _ROUNDER
    n = shifted - _ROUNDER
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    p = 1.0 / 6227020800.0
    p = p * r + 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    return _float_of(_bits_of(p) + (_bits_of(shifted) << 52))


@njit(inline="always", fastmath=False)
def log1p_of_unit(e):
    """log(1 + e) for 0 <= e <= 1, as 2 atanh(s); above sqrt(2) - 1 the argument is halved first."""
    large = e > _SQRT2_MINUS_1
    f = 0.5 * (e - 1.0) if large else e
    s = f / (2.0 + f)
    t = s * s
    p = 1.0 / 23.0
    p = p * t + 1.0 / 21.0
    p = p * t + 1.0 / 19.0
    p = p * t + 1.0 / 17.0
    p = p * t + 1.0 / 15.0
    p = p * t + 1.0 / 13.0
    p = p * t + 1.0 / 11.0
    p = p * t + 1.0 / 9.0
    p = p * t + 1.0 / 7.0
    p = p * t + 1.0 / 5.0
    p = p * t + 1.0 / 3.0
    p = p * t + 1.0
    return 2.0 * s * p + (_LN2 if large else 0.0)


@_kernel
def values(family, y, first, count, z, out):
    """out[i] = loss(y[first + i], z[i]). Offsets rather than slices: a slice costs more than a short run of losses."""
    if family == LOGISTIC:
        for i in range(count):
            margin = y[first + i] * z[i]
            out[i] = log1p_of_unit(exp_of_nonpositive(-abs(margin))) + max(-margin, 0.0)
    else:
        for i in range(count):
            r = z[i] - y[first + i]
            out[i] = 0.5 * r * r


@_kernel
def derivatives(family, y, first, count, z, slope, curvature):
    """First and second derivatives in z."""
    if family == LOGISTIC:
        for i in range(count):
            target = y[first + i]
            margin = target * z[i]
            e = exp_of_nonpositive(-abs(margin))
            p = 1.0 / (1.0 + e)  # the larger of the two class probabilities
            q = e * p
            slope[i] = -target * (q if margin > 0.0 else p)
            curvature[i] = p * q
    else:
        for i in range(count):
            slope[i] = z[i] - y[first + i]
            curvature[i] = 1.0
