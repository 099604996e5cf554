"""SJLT and gradient in one loop over dense rows that fit the registers, eight rows at a time.

While eight rows are added to the sums, the margins of the next eight are found: the processor works on rows in the
first-level cache, and the memory is read all the time, strictly in order. Everything is in one function, since a call
counts a reference, atomically, to every array it is given, which costs as much as the work on several rows.
"""

from functools import cache
from typing import Any

import numpy as np
from numba import from_dtype, types

from fedns.numerics.cpu import simd
from fedns.numerics.cpu.dense import aligned
from fedns.numerics.cpu.formulas import FormulasType, address_of, type_of
from fedns.numerics.cpu.jit import exact_jit
from fedns.numerics.cpu.pointwise import derivatives_of_eight
from fedns.numerics.formulas import Formulas
from fedns.numerics.rows import DenseRows, Rows

_EIGHT = (0,) * 8


def groups_address(loss: Formulas, rows: Rows, features: int) -> int:
    """Where the loop for this loss and rows of this width is; 0 where there is none, since they are not narrow."""
    vectors = -(-features // 8)
    if not isinstance(rows, DenseRows) or vectors > 8:  # a row, the coefficients and the gradient take 24 registers of 32
        return 0
    return _groups_address(type_of(loss), rows.flat.dtype, vectors)


@cache
def _groups_address(loss: FormulasType, dtype: Any, vectors: int) -> int:
    run, table, number, word = types.float64[::1], types.float64[:, ::1], types.int64, types.uint64
    return address_of(
        _add_groups, loss, from_dtype(dtype)[::1], number, run, run, number, number, number, run, types.float64, word, word,
        run, table, types.literal(vectors),
    )  # fmt: skip


@exact_jit
def _add_groups(loss, flat, columns, y, s, begin, first, stop, w, scale, key0, key1, total, table, vectors):
    """total += sum_i slope_i x_i and table[bucket_i] += +-root_i x_i, in groups of eight rows from `first` on.

    Rows first:stop, a multiple of eight, of as many vectors as the type of `vectors` says; an intercept is a column of ones.
    """
    shape = simd.zeros(vectors)
    cells, width, size = table.reshape(table.size), table.shape[1], table.shape[0]
    rest = columns - 8 * (len(shape) - 1)
    none = simd.splat(0.0)
    ones = simd.unit(rest) if w.size > columns else none
    weights = simd.load_row(w, 0, w.size - 8 * (len(shape) - 1), none, shape)
    sums = simd.load_row(total, 0, 8, none, shape)
    scratch = aligned(10, 8).reshape(80)  # the products of eight rows with the coefficients, their slopes, their roots
    places = np.empty(8, np.int64)
    for j in range(8):
        simd.store(scratch, 8 * j, simd.dot(simd.load_row(flat, (first + j) * columns, rest, ones, shape), weights))
    for i in range(first, stop, 8):
        weight = simd.load(s, i) * scale if s.size > 0 else simd.splat(scale)
        z = simd.totals(simd.load_row(scratch, 0, 8, none, _EIGHT))
        slope, curvature = derivatives_of_eight(loss, simd.load(y, i), z)
        root = simd.draw_buckets(key0, key1, i - begin, size, width, simd.square_root(curvature * weight), places)
        simd.store(scratch, 64, slope * weight)
        simd.store(scratch, 72, root)
        following = min(i + 8, stop - 8)  # after the last group its own margins again, which nobody reads
        for j in range(8):
            products, sums = simd.add_row_looking_ahead(
                flat, (i + j) * columns, rest, ones, simd.splat(scratch[64 + j]), sums,
                cells, places[j], simd.splat(scratch[72 + j]), (following + j) * columns, weights,
            )  # fmt: skip
            simd.store(scratch, 8 * j, products)
    simd.store_row(total, 0, sums)
