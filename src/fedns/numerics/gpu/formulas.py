"""Losses as CUDA source: a formula is called with symbols in place of numbers, and what it does is written down."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from fedns.numerics.errors import BackendError
from fedns.numerics.formulas import Formulas

_OPERATIONS = {
    "add": "{} + {}",
    "subtract": "{} - {}",
    "multiply": "{} * {}",
    "divide": "{} / {}",
    "greater": "{} > {} ? 1.0 : 0.0",
    "less": "{} < {} ? 1.0 : 0.0",
    "maximum": "fmax({}, {})",
    "minimum": "fmin({}, {})",
    "power": "pow({}, {})",
    "negative": "-{}",
    "absolute": "fabs({})",
    "square": "{0} * {0}",
    # Of the normal distribution; erfcx keeps the digits of small probabilities.
    "log_ndtr": "{0} > 0.0 ? log1p(-0.5 * erfc({0} * 0.7071067811865476)) "
    ": log(0.5 * erfcx({0} * -0.7071067811865476)) - 0.5 * {0} * {0}",
} | {name: f"{name}({{}})" for name in ("exp", "expm1", "log", "log1p", "sqrt", "tanh")}


class Symbol(np.lib.mixins.NDArrayOperatorsMixin):
    """A number that is not known yet; operations on it append a line of source each."""

    def __init__(self, text: str, lines: list[str]) -> None:
        self.text, self._lines = text, lines

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Symbol:
        pattern = _OPERATIONS.get(ufunc.__name__)
        if pattern is None or method != "__call__" or options:
            raise TypeError(f"{ufunc.__name__} has no counterpart on a device")
        return self._named(pattern.format(*map(written, inputs)))

    def __array_function__(self, function: Any, kinds: Any, arguments: Any, options: Any) -> Symbol:
        if function is not np.where:
            raise TypeError(f"{function.__name__} has no counterpart on a device")
        return self._named("{} > 0.0 ? {} : {}".format(*map(written, arguments)))

    def __bool__(self) -> bool:
        raise TypeError("a device cannot branch on a number of one row")

    def _named(self, expression: str) -> Symbol:
        name = f"t{len(self._lines)}"
        self._lines.append(f"const double {name} = {expression};")
        return Symbol(name, self._lines)


def written(value: Any) -> str:
    """A symbol's name, or a number with all its digits."""
    if isinstance(value, Symbol):
        return value.text
    number = float(value)
    if np.isfinite(number):
        return f"({number!r})"
    return "(0.0 / 0.0)" if np.isnan(number) else f"({'-' if number < 0 else ''}1.0 / 0.0)"


@cache
def value_source(loss: Any) -> str:
    """Statements that set `value` from y and z."""
    lines: list[str] = []
    result = _traced(loss, "value", lines)
    return " ".join([*lines, f"value = {written(result)};"])


@cache
def derivatives_source(loss: Any) -> str:
    """Statements that set `slope` and `curvature` from y and z."""
    lines: list[str] = []
    slope, curvature = _traced(loss, "derivatives", lines)
    return " ".join([*lines, f"slope = {written(slope)};", f"curvature = {written(curvature)};"])


def _traced(loss: Formulas, method: str, lines: list[str]) -> Any:
    try:
        return getattr(loss, method)(Symbol("y", lines), Symbol("z", lines))
    except TypeError as error:
        raise BackendError(
            f"{type(loss).__name__}.{method} cannot run on a device ({error}): write it with arithmetic and functions of "
            "fedns.numerics.formulas, or compute on the processor"
        ) from None
