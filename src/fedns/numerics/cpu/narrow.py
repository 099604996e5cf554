"""SJLT and gradient in one loop over dense rows that fit the registers, eight rows at a time.

While eight rows are added to the sums, the margins of the next eight are found: the processor works on rows in the
first-level cache, and the memory is read all the time, strictly in order. Everything is in one function, since a call
counts a reference, atomically, to every array it is given, which costs as much as the work on several rows.
"""

import numpy as np
from numba import njit

from fedns.numerics.cpu import pointwise, simd
from fedns.numerics.cpu.dense import aligned
from fedns.numerics.cpu.jit import jit
from fedns.numerics.rng import random_bits

_EIGHT = (0,) * 8
_ONE = np.uint64(1)
_SHIFT_32 = np.uint64(32)


@jit
def narrow_sjlt(flat, columns, y, s, begin, first, last, w, scale, family, key0, key1, total, table):
    """total += sum_i slope_i x_i and table[bucket_i] += +-root_i x_i, in groups of eight rows from `first` on.

    Returns where it stopped: fewer than eight rows are left, or all of them if they are not narrow.
    """
    stop = first + (last - first) // 8 * 8
    vectors = -(-w.size // 8)
    if stop == first or vectors > 8:  # a row, the coefficients and the gradient take 24 registers of 32
        return first
    data = (flat, columns, y, s, begin, first, stop, w, scale, family, key0, key1, total, table)
    if vectors == 1:
        _add_groups(*data, (0,))
    elif vectors == 2:
        _add_groups(*data, (0,) * 2)
    elif vectors == 3:
        _add_groups(*data, (0,) * 3)
    elif vectors == 4:
        _add_groups(*data, (0,) * 4)
    elif vectors == 5:
        _add_groups(*data, (0,) * 5)
    elif vectors == 6:
        _add_groups(*data, (0,) * 6)
    elif vectors == 7:
        _add_groups(*data, (0,) * 7)
    else:
        _add_groups(*data, (0,) * 8)
    return stop


# No reordering, for the exponential's sake.
@njit(cache=True, nogil=True, error_model="numpy", fastmath=False)
def _add_groups(flat, columns, y, s, begin, first, stop, w, scale, family, key0, key1, total, table, shape):
    """Rows first:stop, a multiple of eight, of as many vectors as `shape` has items; an intercept is a column of ones."""
    cells, width, size = table.reshape(table.size), table.shape[1], np.uint64(table.shape[0])
    rest = columns - 8 * (len(shape) - 1)
    none = simd.splat(0.0)
    ones = simd.unit(rest) if w.size > columns else none
    weights = simd.load_row(w, 0, w.size - 8 * (len(shape) - 1), none, shape)
    sums = simd.load_row(total, 0, 8, none, shape)
    scratch = aligned(10, 8).reshape(80)  # the products of eight rows with the coefficients, their slopes, their roots
    for j in range(8):
        simd.store(scratch, 8 * j, simd.dot(simd.load_row(flat, (first + j) * columns, rest, ones, shape), weights))
    for i in range(first, stop, 8):
        weight = simd.load(s, i) * scale if s.size > 0 else simd.splat(scale)
        slope, root = _slope_and_root(family, simd.load(y, i), simd.load_row(scratch, 0, 8, none, _EIGHT), weight)
        simd.store(scratch, 64, slope)
        simd.store(scratch, 72, root)
        following = min(i + 8, stop - 8)  # after the last group its own margins again, which nobody reads
        for j in range(8):
            bits = random_bits(key0, key1, i + j - begin)
            bucket = np.int64(((bits >> _SHIFT_32) * size) >> _SHIFT_32)
            sign = 1.0 - 2.0 * np.float64(np.int64(bits & _ONE))
            products, sums = simd.add_row_looking_ahead(
                flat, (i + j) * columns, rest, ones, simd.splat(scratch[64 + j]), sums,
                cells, bucket * width, simd.splat(sign * scratch[72 + j]), (following + j) * columns, weights,
            )  # fmt: skip
            simd.store(scratch, 8 * j, products)
    simd.store_row(total, 0, sums)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=False)
def _slope_and_root(family, target, products, weight):
    """The coefficients of eight rows in the gradient and in the root of the Hessian."""
    z = simd.totals(products)
    if family == pointwise.LOGISTIC:
        slope, curvature = pointwise.logistic_derivatives(target, z)
    else:
        slope, curvature = z - target, simd.splat(1.0)
    return slope * weight, simd.square_root(curvature * weight)
