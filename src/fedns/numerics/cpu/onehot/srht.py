"""SRHT and gradient of one-hot rows, sixteen at a time: the ones of a group cost a sum for each row, not for each column.

Columns that share a strip of eight with numbers are transformed as those of dense rows are, the others by their codes; the
bits are those of dense rows. Where something is not finite, zeros are none, and rows are left to the loops for dense ones.
"""

from functools import cache
from typing import Any

import numpy as np
from numba import from_dtype, njit, types

from fedns.numerics.cpu import simd
from fedns.numerics.cpu.aligned import aligned, aligned_row
from fedns.numerics.cpu.dense import ONE_CHAIN
from fedns.numerics.cpu.emit import LANES
from fedns.numerics.cpu.formulas import FormulasType, address_of, call, type_of
from fedns.numerics.cpu.hadamard import places_of, write_signs
from fedns.numerics.cpu.onehot import ones
from fedns.numerics.cpu.onehot.groups import MOST_GROUPS, coefficients_of, last_rows, products_of_eight, tuple_of
from fedns.numerics.cpu.onehot.ones import add_by_code, add_slopes, codes_by_group, first_rows, sum_quads
from fedns.numerics.cpu.pointwise import derivatives_of_eight
from fedns.numerics.formulas import Formulas
from fedns.numerics.jit import exact_jit, jit
from fedns.numerics.onehot import OneHotRows
from fedns.numerics.rng import random_bits

_ROWS, _TOGETHER, _QUADS = ones.ROWS, ones.TOGETHER, ones.QUADS
_BATCH = 512  # rows whose slopes and roots are held, a multiple of the others
_GROUP = 128  # rows of a strip that are transformed before the outputs are added up
_SIXTEEN = (0,) * _ROWS
_STRIPS_OF_A_GROUP = 2  # that take as long as one group does


def onehot_srht_address(loss: Formulas, rows: OneHotRows, features: int, block_length: int, size: int) -> int:
    """Where the loop for this loss and this kind of rows is; 0 where there is none, or dense strips are faster."""
    vectors = -(-rows.width // LANES)
    held = LANES * vectors
    by_code = int((rows.lasts > held).sum()) + features - rows.num_columns
    suited = rows.numbers_first and vectors > 0 and rows.firsts.size <= MOST_GROUPS and block_length == _ROWS
    suited &= rows.num_columns <= ONE_CHAIN  # as the margins are added up here
    if not suited or features - held <= LANES * _STRIPS_OF_A_GROUP * by_code or not ones.available():
        return 0
    rest, outputs = rows.width - held + LANES, -(-size // LANES)
    return _address(type_of(loss), rows.numbers.dtype, vectors, rest, rows.firsts.size, outputs)


@cache
def _address(loss: FormulasType, dtype: Any, vectors: int, rest: int, groups: int, outputs: int) -> int:
    run, table, number, word = types.float64[::1], types.float64[:, ::1], types.int64, types.uint64
    columns, codes = types.int64[::1], types.uint8[::1]
    return address_of(
        _add_blocks, loss, from_dtype(dtype)[::1], codes, columns, columns, number, run, run, number, number, number,
        run, types.float64, word, word, columns, run, table, columns, types.literal(vectors), types.literal(rest),
        types.literal(groups), types.literal(outputs),
    )  # fmt: skip


@jit
def add_onehot_blocks(rows, y, s, begin, first, last, w, scale, loss, key0, key1, chosen, total, sketch):
    """What `rows.add_srht_blocks` does for one-hot rows."""
    if loss.onehot_srht == 0 or first == last:
        return first
    done = np.empty(1, np.int64)
    call(
        loss.onehot_srht,
        (loss.parameters, rows.numbers, rows.codes, rows.firsts, rows.lasts, rows.num_columns, y, s, begin, first, last, w,
         scale, key0, key1, chosen, total, sketch, done, 0, 0, 0, 0),
    )  # fmt: skip
    return done[0]


@exact_jit
def _add_blocks(
    loss, numbers, codes, firsts, lasts, columns, y, s, begin, first, stop, w, scale, key0, key1, chosen, total, sketch,
    done, vectors, rest, groups, outputs,
):  # fmt: skip
    """total = sum_i slope_i x_i and sketch = R H (+-root_i x_i)_i for the rows first:stop, where the client's first row is
    `begin`; done[0] becomes the first row that is left out."""
    width, each, size, features = firsts[0], firsts.size, chosen.size, w.size
    shape, output_shape, none = simd.zeros(vectors), simd.zeros(outputs), simd.splat(0.0)
    held, lanes = 8 * len(shape), 8 * len(output_shape)
    # The cells of a group are its columns and one for rows without a one; that of an intercept comes last.
    coefficients, shares, starts = np.zeros(held), aligned(columns - width + each + 1, 8), np.empty(each + 1, np.int64)
    finite = coefficients_of(w, firsts, lasts, columns, coefficients, shares, starts) == 0.0
    weights, flat_shares = simd.load_row(coefficients, 0, 8, none, shape), shares.reshape(shares.size)
    offset = w[columns] if features > columns else 0.0
    layout = (numbers, width, codes, each, tuple_of(starts, groups))
    cells, even, odd = aligned(starts[each] + 1, lanes), np.zeros(starts[each] + 1), np.zeros(starts[each] + 1)
    # Output r of the sketch is output order[r] of a block, times signs[b, r] for block b.
    order, outer = places_of(chosen, _ROWS, lanes)
    signs = aligned(_BATCH // _ROWS, lanes)
    flat_signs, flat_sketch, sketch_width = signs.reshape(signs.size), sketch.reshape(sketch.size), sketch.shape[1]
    slopes, signed = aligned_row(_BATCH), aligned_row(_BATCH)
    bits, by_group = np.zeros(_BATCH, np.uint8), np.zeros((each + 1) * _BATCH, np.uint8)  # an intercept is code 0
    scratch, leaders = aligned_row(8 * _GROUP), np.zeros(_TOGETHER, np.uint8)
    quads = aligned_row(_TOGETHER // _ROWS * _QUADS)
    root_scale = np.sqrt(1.0 / size)
    at = first
    while at < stop and finite:
        count, check, place = min(_BATCH, (stop - at) // _ROWS * _ROWS), none, at
        if count == 0:
            numbers, codes, y, s = last_rows(numbers, codes, firsts, lasts, y, s, at, stop, _ROWS)
            layout, count, place = (numbers, width, codes, each, tuple_of(starts, groups)), _ROWS, 0
        for i in range(0, count, 8):
            row = place + i
            weight = simd.load(s, row) * scale if s.size > 0 else simd.splat(scale)
            z = simd.totals(products_of_eight(layout, rest, groups, row, weights, flat_shares)) + offset
            slope, curvature = derivatives_of_eight(loss, simd.load(y, row), z)
            slope = slope * weight
            position = np.uint64(at + i - begin)
            sign_bits = random_bits(key0, key1, position >> np.uint64(6)) >> (position & np.uint64(63))
            root = simd.negated_where(simd.square_root(curvature * weight) * root_scale, sign_bits)
            check = simd.exact_fma(slope, none, simd.exact_fma(root, none, check))
            simd.store(slopes, i, slope)
            simd.store(signed, i, root)
        if simd.total(check) != 0.0:
            break
        for i in range(stop - at, count):  # an intercept is a one that they have
            slopes[i] = signed[i] = 0.0
        for i in range(0, count, _ROWS):
            codes_by_group(codes, (place + i) * each, by_group, i, _BATCH, groups)
        bits[:] = 0
        for g in range(each):
            if firsts[g] < held:
                _mark(by_group, g * _BATCH, firsts[g] % 8, min(held, lasts[g]) - firsts[g], count, bits)
        for b in range(count // _ROWS):
            write_signs(flat_signs, b * lanes, outer, (at - begin) // _ROWS + b)
        # Strips with numbers, as those of dense rows.
        for v in range(0, held, 8):
            for start in range(0, count, _GROUP):
                stop_of_group, t = min(start + _GROUP, count), simd.load(total, v)
                for i in range(start, stop_of_group, _ROWS):
                    if v + 8 < held:
                        rows = simd.load_strip(numbers, (place + i) * width + v, width, 8, _SIXTEEN)
                    else:
                        rows = simd.load_strip(numbers, (place + i) * width + v, width, width - v, _SIXTEEN)
                        rows = simd.with_ones(rows, bits, i)
                    t = simd.combine(rows, slopes, i, t)
                    simd.store_row(scratch, 8 * (i - start), simd.scaled_hadamard(rows, signed, i))
                simd.store(total, v, t)
                blocks = (stop_of_group - start) // _ROWS
                _add_outputs(scratch, order, flat_signs, start // _ROWS, blocks, size, lanes, flat_sketch, sketch_width, v)
        # The other columns by their codes.
        for g in range(each + 1):
            if (g < each and lasts[g] > held) or (g == each and features > columns):
                for i in range(0, count, _TOGETHER):
                    some, own = min(_TOGETHER, count - i), g * _BATCH + i
                    for j in range(0, some, _ROWS):
                        sum_quads(signed, i + j, quads, _QUADS // _ROWS * j)
                        add_slopes(by_group, own + j, slopes, i + j, even, odd, starts[g])
                    found = first_rows(by_group, own, some, leaders)
                    add_by_code(
                        by_group, own, leaders, found, quads, order, flat_signs, i // _ROWS * lanes, cells,
                        starts[g] * lanes, output_shape,
                    )  # fmt: skip
        at = min(at + count, stop)
    for g in range(each + 1):
        low, high = (firsts[g], lasts[g]) if g < each else (columns, features)
        for c in range(max(low, held), high):
            total[c] = even[starts[g] + c - low]
            for r in range(size):
                sketch[r, c] = cells[starts[g] + c - low, r]
    done[0] = at


@njit(inline="always")
def _mark(codes, place, lane, high, count, bits):
    """Set a bit for each row with one of the first `high` codes, the columns from this lane of a strip on."""
    for i in range(np.uint64(count)):
        code = np.uint32(codes[np.uint64(place) + i])
        bit = np.uint8(np.uint32(1) << (code + np.uint32(lane)) & np.uint32(255))
        bits[i] |= bit if code < np.uint32(high) else np.uint8(0)


@njit(inline="always")
def _add_outputs(scratch, order, signs, first, count, size, lanes, sketch, width, v):
    """Strip v of the sketch += the outputs of as many blocks, with their signs. Indices are unsigned: others might count
    from the end, and are compared with zero."""
    for r in range(np.uint64(size)):
        place, source = np.uint64(width) * r + np.uint64(v), np.uint64(8 * order[r])
        output, sign = simd.load(sketch, place), np.uint64(first * lanes) + r
        for b in range(np.uint64(count)):
            entry = simd.load(scratch, source + np.uint64(8 * _ROWS) * b)
            output = simd.exact_fma(entry, simd.splat(signs[sign + np.uint64(lanes) * b]), output)
        simd.store(sketch, place, output)
