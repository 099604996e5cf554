"""Numbers in a few bits: integers times a unit, rounded to the nearest or at random, and powers of two for columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedns.core.errors import MessageError
from fedns.core.types import FloatArray
from fedns.numerics.compiled import COMPILED
from fedns.numerics.rng import round_rows, uniforms

Integers = NDArray[np.int16]
MOST_EXPONENT = 40
MOST_BITS = 16
_EIGHTHS = 2.0 ** (np.arange(8) / 8.0)


def exponents_of(mean_squares: FloatArray) -> Integers:
    """The power of two nearest to the root of each, within bounds; the lowest for a column of zeros."""
    known = mean_squares > 0
    exponents = np.round(0.5 * np.log2(np.where(known, mean_squares, 1.0)))
    return np.clip(np.where(known, exponents, -MOST_EXPONENT), -MOST_EXPONENT, MOST_EXPONENT).astype(np.int16)


def products_of(scales: FloatArray) -> FloatArray:
    """s_a s_b for each entry of a packed Hessian: (..., features) to (..., entries)."""
    first, second = np.triu_indices(scales.shape[-1])
    return scales[..., first] * scales[..., second]


def round_to_nearest(values: FloatArray, bits: int) -> tuple[Integers, np.float32]:
    """Integers of so many bits and their unit; what the server sends needs no chance."""
    unit = _unit(np.abs(values).max(initial=0.0), bits)
    return np.rint(np.divide(values, float(unit), out=np.zeros_like(values), where=unit > 0)).astype(np.int16), unit


def round_at_random(values: FloatArray, bits: int, keys: NDArray[np.uint64]) -> tuple[Integers, NDArray[np.float32]]:
    """Each client's numbers as integers of so many bits times a unit, rounded up or down so that the mean is right."""
    unit = _unit(np.abs(values).max(axis=1), bits)
    if not COMPILED:
        return rounded_by(values, unit.astype(np.float64), uniforms(keys, values.shape[1])), unit
    rounded = np.zeros(values.shape, dtype=np.int16)
    round_rows(np.ascontiguousarray(values), unit.astype(np.float64), keys, rounded)
    return rounded, unit


def eighths(units: Integers) -> FloatArray:
    """2^(units / 8), the same to the last bit on every machine."""
    whole = units.astype(np.int64)
    return np.ldexp(_EIGHTHS[whole % 8], whole // 8)


def eighths_above(values: FloatArray) -> Integers:
    known = values > 0
    return np.where(known, np.ceil(8.0 * np.log2(np.where(known, values, 1.0)) + 1e-9), 0).astype(np.int16)


def levels(bits: int) -> int:
    if not 2 <= bits <= MOST_BITS:
        raise MessageError(f"numbers of {bits} bits were asked for: there are those of 2 to {MOST_BITS}")
    return (1 << (bits - 1)) - 1


def _unit(largest: Any, bits: int) -> Any:
    with np.errstate(over="ignore"):
        unit = np.asarray(largest / levels(bits), dtype=np.float32)
    return np.where(unit > 0, np.nextafter(unit, np.float32(np.inf)), unit)  # the next number above still spans all


def rounded_by(values: FloatArray, units: FloatArray, draws: FloatArray) -> Integers:
    with np.errstate(over="ignore", invalid="ignore"):  # infinite units are refused when they are sent
        position = np.divide(values, units[:, None], out=np.zeros_like(values), where=units[:, None] > 0)
        below = np.floor(position)
        return (below + (draws < position - below)).astype(np.int16)
