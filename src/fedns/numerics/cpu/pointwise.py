"""Convex functions of a margin z and a target y, with two derivatives, over runs of rows.

The exponential and logarithm are written out as polynomials so that the compiler turns whole runs into vector
instructions; the library calls would be made one number at a time. Both are accurate to about one unit in the last place.
"""

from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from fedns.numerics.cpu import simd

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


def _number(*numbers: Any) -> Any:
    """The type of a result: eight numbers as soon as one operand is eight."""
    return simd.vector if simd.vector in numbers else types.float64


def _alike(builder: Any, arguments: Any) -> list[Any]:
    """The operands, single numbers repeated where others are vectors."""
    wide = [a for a in arguments if isinstance(a.type, ir.VectorType)]
    return [a if not wide or a in wide else simd.repeated(builder, a) for a in arguments]


@intrinsic
def _fused(typing_context, a, b, c):
    """a b + c, in one operation wherever the processor has it."""

    def generate(context, builder, signature, arguments):
        return simd.fused(builder, *_alike(builder, arguments))

    return _number(a, b, c)(a, b, c), generate


@intrinsic
def _where_positive(typing_context, condition, a, b):
    """a where the condition is above 0, b elsewhere."""

    def generate(context, builder, signature, arguments):
        condition, a, b = _alike(builder, arguments)
        return builder.select(builder.fcmp_ordered(">", condition, ir.Constant(condition.type, None)), a, b)

    return _number(condition, a, b)(condition, a, b), generate


@intrinsic
def _times_power_of_two(typing_context, p, shifted):
    """p 2^n, n being the low bits of `shifted`: it is added to the exponent in place."""

    def generate(context, builder, signature, arguments):
        float_type = arguments[0].type
        wide = isinstance(float_type, ir.VectorType)
        bits = ir.VectorType(ir.IntType(64), simd.LANES) if wide else ir.IntType(64)
        power = builder.shl(builder.bitcast(arguments[1], bits), ir.Constant(bits, [52] * simd.LANES if wide else 52))
        return builder.bitcast(builder.add(builder.bitcast(arguments[0], bits), power), float_type)

    return p(p, shifted), generate


@njit(inline="always", fastmath=False)
def exp_of_nonpositive(x):
    """exp(x) for x <= 0, flushed to about 1e-304 below -700: x = n ln 2 + r, Taylor to r^13, exponent added in place."""
    x = _where_positive(x + 700.0, x, -700.0)
    shifted = _fused(x, _LOG2_E, _ROUNDER)
    n = shifted - _ROUNDER
    r = _fused(n, -_LN2_LOW, _fused(n, -_LN2_HIGH, x))
    # Even and odd powers apart: half the length of the chain of operations that wait for one another.
    t = r * r
    even = _fused(t, 1.0 / 479001600.0, 1.0 / 3628800.0)
    even = _fused(t, even, 1.0 / 40320.0)
    even = _fused(t, even, 1.0 / 720.0)
    even = _fused(t, even, 1.0 / 24.0)
    even = _fused(t, even, 0.5)
    even = _fused(t, even, 1.0)
    odd = _fused(t, 1.0 / 6227020800.0, 1.0 / 39916800.0)
    odd = _fused(t, odd, 1.0 / 362880.0)
    odd = _fused(t, odd, 1.0 / 5040.0)
    odd = _fused(t, odd, 1.0 / 120.0)
    odd = _fused(t, odd, 1.0 / 6.0)
    odd = _fused(t, odd, 1.0)
    return _times_power_of_two(_fused(r, odd, even), shifted)


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


@njit(inline="always", fastmath=False)
def logistic_derivatives(target, z):
    """First and second derivatives in z of the logistic loss, of one number or of eight."""
    margin = target * z
    e = exp_of_nonpositive(_where_positive(margin, margin * -1.0, margin))
    p = 1.0 / (e + 1.0)  # the larger of the two class probabilities
    q = e * p
    return _where_positive(margin, q, p) * (target * -1.0), p * q


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
            slope[i], curvature[i] = logistic_derivatives(y[first + i], z[i])
    else:
        for i in range(count):
            slope[i] = z[i] - y[first + i]
            curvature[i] = 1.0
