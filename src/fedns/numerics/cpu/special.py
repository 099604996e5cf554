"""Functions that formulas may use and that are made for one number at a time: logarithm, and the normal distribution's."""

import math
from typing import Any

from numba import types
from numba.extending import overload

from fedns.numerics import formulas
from fedns.numerics.jit import exact_jit

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
