"""Formulas that are written once, in Python, and compiled into whatever passes over rows need them.

A loss is a function of a target and a margin; a random sketch is a function that fills a column. The functions below may
be used in formulas: called from Python they work on numbers and arrays, compiled on one number or on eight.
"""

from typing import Any

import numpy as np
from scipy.special import log_ndtr


class Formulas:
    """A value whose methods are compiled; its type says which. Fields, of a frozen dataclass, are floats and integers."""


def where_positive(condition: Any, a: Any, b: Any) -> Any:
    """a where the condition is above 0, b elsewhere."""
    return np.where(np.greater(condition, 0.0), a, b)


def exp(x: Any) -> Any:
    """exp(x); infinite above 709.78, about 1e-304 below -700."""
    return np.exp(np.maximum(x, -700.0))


def exp_of_nonpositive(x: Any) -> Any:
    """exp(x) for x <= 0, about 1e-304 below -700."""
    return np.exp(np.maximum(x, -700.0))


def log1p_of_unit(x: Any) -> Any:
    """log(1 + x) for 0 <= x <= 1."""
    return np.log1p(x)


def log(x: Any) -> Any:
    """log(x) for x > 0; compiled, one number at a time."""
    return np.log(x)


def expm1(x: Any) -> Any:
    """exp(x) - 1; compiled, one number at a time."""
    return np.expm1(x)


def normal_log_cdf(x: Any) -> Any:
    """log Phi(x) of the normal distribution; compiled, one number at a time."""
    return log_ndtr(x)


def normal_ratio(x: Any) -> Any:
    """phi(x) / Phi(x) of the normal distribution; compiled, one number at a time."""
    return np.exp(-0.5 * np.square(x) - log_ndtr(x)) / np.sqrt(2.0 * np.pi)
