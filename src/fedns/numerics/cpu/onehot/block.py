"""A block of one-hot rows: read as they are where that is faster, written out as dense rows when something else reads them.

Where numbers come before all groups, a margin adds up products of numbers and then the coefficients of the ones, in the
lanes and the order of a dense row; what a dense row adds besides are zeros, unless something is not finite. Rows that are
written out stay in the cache; what reads them is what reads dense rows, and so are the bits.
"""

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from fedns.numerics.cpu import simd
from fedns.numerics.cpu.aligned import aligned
from fedns.numerics.cpu.dense import (
    ONE_CHAIN,
    add_whole_blocks,
    dense_add_combination,
    dense_add_srht,
    dense_add_to_buckets,
    dense_margins,
    dense_scaled_block,
    total_of,
)
from fedns.numerics.cpu.emit import LANES, address, lane_mask, masked_load, size_of
from fedns.numerics.cpu.triangles.dense import dense_add_gram_triangle
from fedns.numerics.jit import jit
from fedns.numerics.onehot import OneHotRows
from fedns.numerics.rows import DenseRows

_AT_ONCE = 64  # rows that are written out while they are in the first-level cache


class OpenedRows(NamedTuple):
    """Rows first:last of one-hot ones, counted from 0."""

    rows: OneHotRows
    first: int
    last: int
    scratch: NDArray[Any]  # room for all columns of so many rows, and eight elements
    written: NDArray[np.int64]  # (1,) whether they are in it


@intrinsic
def _copy_eight(typing_context, source, at, target, place, count):
    """target[place : place + 8] = the first `count` elements of source from `at` on, and zeros."""

    def generate(context, builder, signature, arguments):
        source, at, target, place, count = arguments
        element = context.get_value_type(signature.args[0].dtype)
        start = address(context, builder, signature.args[0], source, at)
        loaded = masked_load(builder, element, start, lane_mask(builder, count))
        pointer = address(context, builder, signature.args[2], target, place)
        pointer = builder.bitcast(pointer, ir.VectorType(element, LANES).as_pointer())
        builder.store(loaded, pointer, align=size_of(element))
        return context.get_dummy_value()

    return types.void(source, types.intp, target, types.intp, types.intp), generate


@jit
def scratch_of(rows, count):
    """Room for so many rows; the last strip of the last row may reach beyond it."""
    return np.empty(count * rows.num_columns + LANES, rows.numbers.dtype)


@jit
def write_out(rows, first, last, scratch, place):
    """Row `place` of scratch = row `first`, all columns of it, and so on.

    A strip or a group of some rows at a time: short loops inside a loop over rows take twice as long.
    """
    columns, width, numbers, strips, codes = rows.num_columns, rows.width, rows.numbers, rows.strips, rows.codes
    firsts, lasts, each = rows.firsts, rows.lasts, np.uint64(rows.firsts.size)
    for low in range(first, last, _AT_ONCE):
        count, start = min(last - low, _AT_ONCE), (place + low - first) * columns
        scratch[start : start + count * columns] = 0
        for k in range(strips.size - 1, -1, -1):  # a row's last strip may reach into the next row
            p, q = start + LANES * strips[k], low * width + LANES * k
            for i in range(count):
                _copy_eight(numbers, q + i * width, scratch, p + i * columns, width - LANES * k)
        for g in range(each):
            p, q, wide = np.uint64(start + firsts[g]), np.uint64(low) * each + g, np.uint64(lasts[g] - firsts[g])
            for i in range(np.uint64(count)):
                code = np.uint64(codes[q + i * each])
                if code < wide:
                    scratch[p + i * np.uint64(columns) + code] = 1


def onehot_room(rows, count):
    return scratch_of(rows, count), np.empty(1, np.int64)


def open_onehot(rows, first, last, room):
    room[1][0] = 0
    return OpenedRows(rows, first, last, room[0], room[1]), 0


def draw_onehot(rows, chosen, count, room):
    for i in range(count):
        write_out(rows, chosen[i], chosen[i] + 1, room[0], i)
        chosen[i] = i
    return DenseRows(room[0], rows.num_columns)


@jit
def _written(opened):
    """All columns of the rows, one row after the other."""
    if opened.written[0] == 0:
        write_out(opened.rows, opened.first, opened.last, opened.scratch, 0)
        opened.written[0] = 1
    return DenseRows(opened.scratch, opened.rows.num_columns)


@jit
def finite(values, count):
    """Whether zero times each of the first `count` values is zero."""
    check = 0.0
    for i in range(count):
        check += 0.0 * values[i]
    return check == 0.0


@jit
def opened_margins(opened, first, last, w, z):
    rows = opened.rows
    if opened.written[0] != 0 or rows.width != rows.firsts[0] or not finite(w, w.size):
        dense_margins(_written(opened), first, last, w, z)
    else:
        _margins(
            rows.numbers, rows.codes, rows.firsts, rows.lasts, rows.num_columns, opened.first + first,
            opened.first + last, w, z,
        )  # fmt: skip


@jit
def _margins(numbers, codes, firsts, lasts, columns, first, last, w, z):
    """`dense_margins` of rows whose numbers come first."""
    width, each = firsts[0], firsts.size
    inside, rest = width // 8 * 8, width % 8
    shares, starts = aligned(columns - width + each, 16), np.empty(each, np.int64)
    for g in range(each):
        starts[g] = firsts[g] - width + g
        for c in range(firsts[g], lasts[g]):
            shares[c - width + g, c % 8 + 8 * _chain(c, columns)] = w[c]
    flat = shares.reshape(shares.size)
    offset = w[columns] if w.size > columns else 0.0
    for i in range(last - first):
        p, q = (first + i) * width, np.uint64((first + i) * each)
        a = b = simd.splat(0.0)
        for v in range(0, inside, 8):
            x, u = simd.load(numbers, p + v), simd.load(w, v)
            if _chain(v, columns) == 0:
                a = simd.exact_fma(x, u, a)
            else:
                b = simd.exact_fma(x, u, b)
        if rest > 0:
            x, u = simd.load_first(numbers, p + inside, rest), simd.load_first(w, inside, rest)
            if _chain(inside, columns) == 0:
                a = simd.exact_fma(x, u, a)
            else:
                b = simd.exact_fma(x, u, b)
        for g in range(np.uint64(each)):
            at = 16 * (starts[g] + np.int64(codes[q + g]))
            a, b = a + simd.load(flat, at), b + simd.load(flat, at + 8)
        z[i] = simd.total(a + b) + offset


@jit
def _chain(column, columns):
    """Which of the two chains of a margin a column belongs to."""
    if columns <= ONE_CHAIN:
        return 0
    return column // 8 % 2 if column < columns // 8 * 8 else 1


@jit
def opened_add_combination(opened, first, last, coefficients, intercept, total):
    rows = opened.rows
    if opened.written[0] != 0 or rows.width != rows.firsts[0] or not finite(coefficients, last - first):
        dense_add_combination(_written(opened), first, last, coefficients, intercept, total)
    else:
        start, stop = opened.first + first, opened.first + last
        dense_add_combination(DenseRows(rows.numbers, rows.width), start, stop, coefficients, False, total)
        _add_ones(rows.codes, rows.firsts, rows.lasts, start, stop, coefficients, total)
        if intercept:
            total[rows.num_columns] += total_of(coefficients, 0, last - first)


@jit
def _add_ones(codes, firsts, lasts, first, last, coefficients, total):
    """total[column] += coefficients[i] for the columns in which row first + i has a one."""
    each, width = firsts.size, firsts[0]
    starts, sums = np.empty(each, np.int64), np.empty(lasts[each - 1] - width + each)
    for g in range(each):
        starts[g] = firsts[g] - width + g
        for c in range(firsts[g], lasts[g]):
            sums[c - width + g] = total[c]
    for i in range(np.uint64(last - first)):
        q = (np.uint64(first) + i) * np.uint64(each)
        for g in range(np.uint64(each)):
            sums[np.uint64(starts[g] + np.int64(codes[q + g]))] += coefficients[i]
    for g in range(each):
        for c in range(firsts[g], lasts[g]):
            total[c] = sums[c - width + g]


@jit
def opened_add_to_buckets(opened, first, last, slopes, total, buckets, coefficients, intercept, table):
    dense_add_to_buckets(_written(opened), first, last, slopes, total, buckets, coefficients, intercept, table)


@jit
def opened_add_gram_triangle(opened, first, last, slopes, roots, intercept, scratch, total, triangle):
    dense_add_gram_triangle(_written(opened), first, last, slopes, roots, intercept, scratch, total, triangle)


@jit
def opened_scaled_block(opened, first, last, coefficients, intercept, block):
    if last == first + 1 and opened.written[0] == 0:  # one of many rows that are not wanted
        write_out(opened.rows, opened.first + first, opened.first + last, opened.scratch, 0)
        dense_scaled_block(DenseRows(opened.scratch, opened.rows.num_columns), 0, 1, coefficients, intercept, block)
    else:
        dense_scaled_block(_written(opened), first, last, coefficients, intercept, block)


@jit
def opened_add_transformed(opened, code, position, first, last, slopes, signed, intercept, total, chosen, block, sketch):
    """`dense_add_srht`; of whole blocks of rows the ones come as a bit for each column, and the numbers as they are."""
    rows, columns, inner = opened.rows, opened.rows.num_columns, block.shape[0]
    whole_rows = (last - first) // inner * inner if rows.width == rows.firsts[0] else 0
    if whole_rows > 0:
        start = opened.first + first
        ones = _bits(rows, start, start + whole_rows)
        add_whole_blocks(
            rows.numbers[start * rows.width :], rows.numbers[:0], rows.width, ones, None, columns, position, slopes, signed,
            intercept, total, whole_rows, chosen, inner, sketch,
        )  # fmt: skip
    if first + whole_rows < last:
        left = last - first - whole_rows
        write_out(rows, opened.first + last - left, opened.first + last, opened.scratch, 0)
        opened.written[0] = 0
        dense_add_srht(
            opened.scratch, columns, None, position + whole_rows, 0, left, slopes[whole_rows:], signed[whole_rows:],
            intercept, total, chosen, inner, sketch,
        )  # fmt: skip


@jit
def _bits(rows, first, last):
    """For each strip of eight columns and each row a byte that says which columns have ones."""
    count, each, codes = np.uint64(last - first), np.uint64(rows.firsts.size), rows.codes
    bits = np.zeros((rows.num_columns // LANES + 1) * (last - first), np.uint8)
    for g in range(each):
        low, wide, q = np.uint64(rows.firsts[g]), np.uint64(rows.lasts[g] - rows.firsts[g]), np.uint64(first) * each + g
        for i in range(count):
            code = np.uint64(codes[q + i * each])
            if code < wide:
                column = low + code
                bits[(column >> np.uint64(3)) * count + i] |= np.uint8(np.uint64(1) << (column & np.uint64(7)))
    return bits
