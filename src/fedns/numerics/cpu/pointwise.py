"""Losses of runs of rows, and the functions that formulas may use, for one number or for eight.

The exponential and logarithm are written out as polynomials so that the compiler turns whole runs into vector
instructions; the library calls would be made one number at a time. Both are accurate to about one unit in the last place.
"""

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core.errors import TypingError
from numba.extending import intrinsic, overload

from fedns.numerics import formulas
from fedns.numerics.cpu import simd
from fedns.numerics.cpu.emit import LANES, fused, repeated, vector
from fedns.numerics.cpu.formulas import FormulasType, address_of, address_of_parameters, call, type_of
from fedns.numerics.jit import exact_jit, jit

_LOG2_E = 1.4426950408889634
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
_LN2 = 0.6931471805599453
_SQRT2_MINUS_1 = 0.41421356237309503
_LARGEST = 709.78  # exp of more is infinite
# Adding 1.5 * 2^52 rounds to the nearest integer and leaves that integer in the low bits.
_ROUNDER = 6755399441055744.0

# No reordering: the exponential's rounding trick depends on the order of its sums.
_EXACT: Any = {"fastmath": False, "error_model": "numpy"}


class LossCode(NamedTuple):
    """A loss as kernels get it: addresses of its parameters and of what was compiled for its class."""

    parameters: int
    values: int
    derivatives: int
    groups: int = 0  # the loop over groups of eight narrow rows, where one is wanted
    onehot_groups: int = 0  # the same over one-hot rows
    blocks: int = 0  # the loop over blocks of narrow rows that SRHT transforms, where one is wanted
    onehot_srht: int = 0  # the same over one-hot rows


@cache
def loss_code(loss: Any) -> LossCode:
    """Compile the loops over runs of rows for this class of losses, or read them from disk."""
    kind, run, number = type_of(loss), types.float64[::1], types.int64
    values = address_of(_values, kind, run, number, number, run, run)
    derivatives = address_of(_derivatives, kind, run, number, number, run, run, run)
    return LossCode(address_of_parameters(loss), values, derivatives)


@jit
def values(loss, y, first, count, z, out):
    """out[i] = loss(y[first + i], z[i]). Offsets rather than slices: a slice costs more than a short run of losses."""
    call(loss.values, (loss.parameters, y, first, count, z, out))


@jit
def derivatives(loss, y, first, count, z, slope, curvature):
    """First and second derivatives in z."""
    call(loss.derivatives, (loss.parameters, y, first, count, z, slope, curvature))


# Indices without a sign: targets that might be counted from the end would be gathered one by one.
@exact_jit
def _values(loss, y, first, count, z, out):
    for i in range(np.uint64(count)):
        out[i] = _value_at(loss, y[np.uint64(first) + i], z[i])


@exact_jit
def _derivatives(loss, y, first, count, z, slope, curvature):
    for i in range(np.uint64(count)):
        slope[i], curvature[i] = _derivatives_at(loss, y[np.uint64(first) + i], z[i])


def _value_at(loss, y, z):
    raise NotImplementedError("compiled code only")


def _derivatives_at(loss, y, z):
    raise NotImplementedError("compiled code only")


@overload(_value_at, strict=False, inline="always", jit_options=_EXACT)
def _formula_of_value(loss, y, z):
    return loss.method("value") if isinstance(loss, FormulasType) else None


@overload(_derivatives_at, strict=False, inline="always", jit_options=_EXACT)
def _formula_of_derivatives(loss, y, z):
    return loss.method("derivatives") if isinstance(loss, FormulasType) else None


def derivatives_of_eight(loss, y, z):
    """First and second derivatives for eight rows in one register; lane by lane where the formula is for single numbers."""
    raise NotImplementedError("compiled code only")


@overload(derivatives_of_eight, jit_options=_EXACT)
def _derivatives_of_eight(loss, y, z):
    formula = njit(error_model="numpy", fastmath=False)(loss.method("derivatives"))
    try:
        formula.get_call_template((loss, y, z), {})
    except TypingError:

        def by_lane(loss, y, z):
            slopes = curvatures = simd.splat(0.0)
            for i in range(LANES):
                slope, curvature = formula(loss, simd.lane(y, i), simd.lane(z, i))
                slopes, curvatures = simd.with_lane(slopes, i, slope), simd.with_lane(curvatures, i, curvature)
            return slopes, curvatures

        return by_lane
    return lambda loss, y, z: formula(loss, y, z)


def _alike(builder: Any, arguments: Any) -> list[Any]:
    """The operands, single numbers repeated where others are vectors."""
    wide = [a for a in arguments if isinstance(a.type, ir.VectorType)]
    return [a if not wide or a in wide else repeated(builder, a) for a in arguments]


def _signature(*operands: Any) -> Any:
    """Operands of one number or of eight; eight results as soon as one operand is eight."""
    numbers = [vector if operand == vector else types.float64 for operand in operands]
    return (vector if vector in numbers else types.float64)(*numbers)


@intrinsic
def _fused(typing_context, a, b, c):
    """a b + c, in one operation wherever the processor has it."""

    def generate(context, builder, signature, arguments):
        return fused(builder, *_alike(builder, arguments))

    return _signature(a, b, c), generate


@intrinsic
def _where_positive(typing_context, condition, a, b):
    def generate(context, builder, signature, arguments):
        condition, a, b = _alike(builder, arguments)
        return builder.select(builder.fcmp_ordered(">", condition, ir.Constant(condition.type, None)), a, b)

    return _signature(condition, a, b), generate


@intrinsic
def _times_power_of_two(typing_context, p, shifted):
    """p 2^n, n being the low bits of `shifted`: it is added to the exponent in place."""

    def generate(context, builder, signature, arguments):
        float_type = arguments[0].type
        wide = isinstance(float_type, ir.VectorType)
        bits = ir.VectorType(ir.IntType(64), LANES) if wide else ir.IntType(64)
        power = builder.shl(builder.bitcast(arguments[1], bits), ir.Constant(bits, [52] * LANES if wide else 52))
        return builder.bitcast(builder.add(builder.bitcast(arguments[0], bits), power), float_type)

    return p(p, shifted), generate


def _compiled(function: Any) -> Any:
    """The compiled body of a function that formulas may use."""
    return overload(function, inline="always", jit_options=_EXACT)


@_compiled(formulas.where_positive)
def _body_of_where_positive(condition, a, b):
    return lambda condition, a, b: _where_positive(condition, a, b)


@_compiled(formulas.exp)
def _body_of_exp(x):
    # A comparison with NaN is false: this way round NaN stays NaN.
    return lambda x: _where_positive(x - _LARGEST, _INFINITE, _exp(_where_positive(-700.0 - x, -700.0, x)))


@_compiled(formulas.exp_of_nonpositive)
def _body_of_exp_of_nonpositive(x):
    return lambda x: _exp(_where_positive(x + 700.0, x, -700.0))


_INFINITE = float("inf")


@njit(inline="always", fastmath=False)
def _exp(x):
    """exp(x) for -700 <= x <= 709.78: x = n ln 2 + r, Taylor to r^13, exponent added in place."""
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


@_compiled(formulas.log1p_of_unit)
def _body_of_log1p_of_unit(x):
    return lambda x: _log1p(x)


@njit(inline="always", fastmath=False)
def _log1p(e):
    """log(1 + e) for 0 <= e <= 1, as 2 atanh(s); above sqrt(2) - 1 the argument is halved first."""
    large = e - _SQRT2_MINUS_1
    f = _where_positive(large, 0.5 * (e - 1.0), e)
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
    return 2.0 * s * p + _where_positive(large, _LN2, 0.0)


# For one number at a time: logarithm, and the normal distribution's.
_SQRT_HALF = 0.7071067811865476
_LOG_SQRT_2PI = 0.9189385332046727
_TAIL = -4.0  # below, Phi is phi divided by a continued fraction, of which this many terms give all digits
_TERMS = 26


@exact_jit
def _tail_ratio(x):
    """phi(x) / Phi(x) = t + 1 / (t + 2 / (t + 3 / ...)) for t = -x > 0."""
    t = -x
    fraction = t
    for k in range(_TERMS, 0, -1):
        fraction = t + k / fraction
    return fraction


@exact_jit
def _normal_ratio(x):
    if x < _TAIL:
        return _tail_ratio(x)
    return math.exp(-0.5 * x * x - _LOG_SQRT_2PI) / (0.5 * math.erfc(-x * _SQRT_HALF))


@exact_jit
def _normal_log_cdf(x):
    if x < _TAIL:
        return -0.5 * x * x - _LOG_SQRT_2PI - math.log(_tail_ratio(x))
    if x > 0.0:
        return math.log1p(-0.5 * math.erfc(x * _SQRT_HALF))
    return math.log(0.5 * math.erfc(-x * _SQRT_HALF))


def _for_one_number(function: Any, body: Any) -> None:
    """Without a body for eight numbers, formulas that use the function are compiled lane by lane."""

    @overload(function, inline="never", jit_options={"fastmath": False, "error_model": "numpy"})
    def choose(x):
        return body if isinstance(x, types.Float) else None


_for_one_number(formulas.log, lambda x: math.log(x))
_for_one_number(formulas.expm1, lambda x: math.expm1(x))
_for_one_number(formulas.normal_log_cdf, lambda x: _normal_log_cdf(x))
_for_one_number(formulas.normal_ratio, lambda x: _normal_ratio(x))
