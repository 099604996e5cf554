"""SRHT and gradient in one loop over dense rows that fit the registers, sixteen rows at a time.

Strip by strip of eight columns, sixteen rows are transformed in registers; between the strips the margins of the next
sixteen are found, row after row: so memory is read all the time, strictly in order, while the processor works on rows that
are in its first-level cache. The bits are those of blocks of many rows (`dense.dense_add_srht`).
"""

from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import from_dtype, njit, types
from numba.extending import intrinsic

from fedns.numerics.cpu import simd
from fedns.numerics.cpu.aligned import aligned_row
from fedns.numerics.cpu.emit import (
    DOUBLES,
    LANES,
    address,
    combined,
    fused,
    hadamard_of,
    lane_sums,
    moved,
    numbers_at,
    parts_of,
    repeated,
    vector,
)
from fedns.numerics.cpu.formulas import FormulasType, address_of, type_of
from fedns.numerics.cpu.hadamard import places_of, write_signs
from fedns.numerics.cpu.narrow.rows import MOST_VECTORS, RowCode, products_of_eight
from fedns.numerics.cpu.pointwise import derivatives_of_eight
from fedns.numerics.formulas import Formulas
from fedns.numerics.jit import exact_jit
from fedns.numerics.rng import random_bits
from fedns.numerics.rows import DenseRows, Rows

_ROWS = 16  # rows of a block
_INDEX = ir.IntType(64)


def blocks_address(loss: Formulas, rows: Rows, features: int, block_length: int) -> int:
    """Where the loop for this loss and rows of this width is; 0 where there is none, since rows are not narrow or blocks are
    longer."""
    vectors = -(-features // LANES)
    if not isinstance(rows, DenseRows) or vectors > MOST_VECTORS or block_length != _ROWS:
        return 0
    return _blocks_address(type_of(loss), rows.flat.dtype, vectors)


@cache
def _blocks_address(loss: FormulasType, dtype: Any, vectors: int) -> int:
    run, table, number, word = types.float64[::1], types.float64[:, ::1], types.int64, types.uint64
    return address_of(
        _add_blocks, loss, from_dtype(dtype)[::1], number, run, run, number, number, number, run, types.float64, word,
        word, types.int64[::1], run, table, types.literal(vectors),
    )  # fmt: skip


@exact_jit
def _add_blocks(loss, flat, columns, y, s, begin, first, last, w, scale, key0, key1, chosen, total, sketch, vectors):
    """total += sum_i slope_i x_i and sketch += R H (+-root_i x_i)_i for the rows first:last, where the client's first row is
    `begin` and first - begin a multiple of sixteen.

    Rows have as many vectors as the type of `vectors` says. An intercept is a column of ones.
    """
    shape, none = simd.zeros(vectors), simd.splat(0.0)
    rest = columns - 8 * (len(shape) - 1)
    ones, offset = (simd.unit(rest), w[columns]) if w.size > columns else (none, 0.0)
    weights = simd.load_row(w, 0, rest, none, shape)
    root_scale = np.sqrt(1.0 / chosen.size)
    order, outer = places_of(chosen, _ROWS, chosen.size)
    signs, coefficients = aligned_row(chosen.size), aligned_row(2 * _ROWS)  # slopes of sixteen rows, then their roots
    margins, cells = aligned_row(_ROWS), aligned_row(_ROWS * 8 * len(shape))
    outputs, width = sketch.reshape(sketch.size), sketch.shape[1]
    at = first
    while at < last:
        count, place = (last - at) // _ROWS * _ROWS, at
        if count == 0:
            flat, y, s = _last_rows(flat, columns, y, s, at, last)
            count, place = _ROWS, 0
        for h in range(0, _ROWS, 8):
            products = products_of_eight(flat, place + h, columns, rest, none, weights)
            simd.store(margins, h, simd.totals(products))
        for i in range(place, place + count, _ROWS):
            position = np.uint64(at + i - place - begin)
            bits = random_bits(key0, key1, position >> np.uint64(6)) >> (position & np.uint64(63))
            for h in range(0, _ROWS, 8):
                weight = simd.load(s, i + h) * scale if s.size > 0 else simd.splat(scale)
                slope, curvature = derivatives_of_eight(loss, simd.load(y, i + h), simd.load(margins, h) + offset)
                root = simd.negated_where(simd.square_root(curvature * weight) * root_scale, bits >> np.uint64(h))
                simd.store(coefficients, h, slope * weight)
                simd.store(coefficients, _ROWS + h, root)
            for j in range(last - at + place - i, _ROWS):  # padding, which has an intercept's 1 too
                coefficients[j] = coefficients[_ROWS + j] = 0.0
            following = min(i + _ROWS, place + count - _ROWS)  # after the last block its own margins, which nobody reads
            _transform_block(flat, i, following, columns, rest, ones, weights, coefficients, total, cells, margins)
            write_signs(signs, 0, outer, (at - begin + i - place) // _ROWS)
            for r in range(np.uint64(chosen.size)):
                _add_output(cells, 8 * order[r], signs[r], outputs, np.int64(r) * width, shape)
        at += count


@njit(inline="always")
def _last_rows(flat, columns, y, s, first, last):
    """Rows, targets and weights of the rows first:last, and of rows of zeros with the last target: sixteen in all."""
    own, own_y, own_s = np.zeros(_ROWS * columns, flat.dtype), np.empty(_ROWS), np.ones(_ROWS if s.size > 0 else 0)
    for e in range((last - first) * columns):
        own[e] = flat[first * columns + e]
    for i in range(_ROWS):
        own_y[i] = y[min(first + i, last - 1)]
    for i in range(min(last - first, own_s.size)):
        own_s[i] = s[first + i]
    return own, own_y, own_s


@intrinsic
def _transform_block(
    typing_context, array, first, following, columns, rest, more, weights, coefficients, total, cells, margins
):
    """Sixteen rows from `first` on: total += their sum with the slopes coefficients[0 : 16], and strip v of row j of their
    Hadamard transform with the roots coefficients[16 : 32] becomes cells[8 (16 v + j) : ...]. The margins become those of
    sixteen rows from `following` on, without an intercept, which are found row by row between the strips."""

    def generate(context, builder, signature, arguments):
        array, first, following, columns, rest, more, weights, coefficients, total, cells, margins = arguments
        kinds, weights, products = signature.args, parts_of(builder, weights), []
        rows = RowCode(context, builder, kinds[0], array, columns, len(weights), rest)

        def place(k: int, array: Any, index: int) -> Any:
            pointer = address(context, builder, kinds[k], array, ir.Constant(_INDEX, index))
            return builder.bitcast(pointer, DOUBLES.as_pointer())

        def find_margin(j: int) -> None:
            row = moved(builder, following, j, 1)
            products.append(rows.products(row, weights))
            for i in range(len(weights)):
                rows.ask_ahead(row, i)
            if len(products) % LANES == 0:
                builder.store(lane_sums(builder, products[-LANES:]), place(10, margins, j + 1 - LANES), align=8)

        for v in range(len(weights)):
            parts = []
            for j in range(_ROWS):
                parts.append(rows.part(moved(builder, first, j, 1), v, more))
                if len(products) * len(weights) < _ROWS * v + j + 1:
                    find_margin(len(products))
            # Read anew for each strip: held for all of them, thirty-two vectors would be spilled.
            numbers = numbers_at(context, builder, kinds[7], coefficients, ir.Constant(_INDEX, 0), 2 * _ROWS)
            own_total = place(8, total, LANES * v)
            builder.store(combined(builder, parts, numbers[:_ROWS], builder.load(own_total, align=8)), own_total, align=8)
            for j, part in enumerate(hadamard_of(builder, parts, numbers[_ROWS:])):
                builder.store(part, place(9, cells, LANES * (_ROWS * v + j)), align=8)
        return context.get_dummy_value()

    number = types.intp
    return types.void(array, number, number, number, number, vector, weights, coefficients, total, cells, margins), generate


@intrinsic
def _add_output(typing_context, cells, source, sign, outputs, index, shape):
    """outputs[index : ...] += sign times the row of a transformed block whose first strip is at cells[source]."""

    def generate(context, builder, signature, arguments):
        cells, source, sign, outputs, index, _ = arguments
        signs = repeated(builder, sign)
        for v in range(shape.count):
            entry, output = (
                builder.bitcast(
                    address(context, builder, kind, array, moved(builder, at, step * v, 1)), signs.type.as_pointer()
                )
                for kind, array, at, step in (
                    (signature.args[0], cells, source, LANES * _ROWS),
                    (signature.args[3], outputs, index, LANES),
                )
            )
            added = fused(builder, builder.load(entry, align=8), signs, builder.load(output, align=8))
            builder.store(added, output, align=8)
        return context.get_dummy_value()

    return types.void(cells, types.intp, types.float64, outputs, types.intp, shape), generate
