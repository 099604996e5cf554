"""SJLT and gradient in one loop over packed rows, eight at a time, as `narrow` has it for dense ones: the same bits.

Numbers go as vectors of eight columns, and of a group the one column that has the 1: its coefficient is added to the
margin, the slope to one number of the gradient and the root to one of the sketch. What a dense row adds besides are zeros.
Where a coefficient, a slope or a root is not finite they are none, and rows are written out.
"""

from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import from_dtype, types
from numba.core import cgutils
from numba.extending import intrinsic

from fedns.numerics.cpu import simd
from fedns.numerics.cpu.dense import aligned
from fedns.numerics.cpu.formulas import FormulasType, address_of, call, type_of
from fedns.numerics.cpu.jit import exact_jit, jit
from fedns.numerics.cpu.packed.block import scratch_of, write_out
from fedns.numerics.cpu.pointwise import derivatives_of_eight
from fedns.numerics.cpu.simd import DOUBLES, LANES, address, fused, joined, lane_mask, moved, parts_of, repeated, row_part
from fedns.numerics.formulas import Formulas
from fedns.numerics.packed import PackedRows

_EIGHT = (0,) * 8
_INDEX = ir.IntType(64)
_MOST_GROUPS = 8
_BLOCK = 256  # rows that are written out at a time, a multiple of eight


def packed_groups_address(loss: Formulas, rows: PackedRows, features: int) -> int:
    """Where the loop for this loss and this kind of rows is; 0 where there is none.

    Numbers first: then a lane of a margin adds up its numbers before its ones, as in a dense row."""
    if features > 8 * LANES or rows.width == 0 or not rows.numbers_first or rows.firsts.size > _MOST_GROUPS:
        return 0
    groups = rows.firsts.size
    ones = groups + features - rows.num_columns
    return _address(type_of(loss), rows.numbers.dtype, -(-rows.width // LANES), groups, ones)


@cache
def _address(loss: FormulasType, dtype: Any, vectors: int, groups: int, ones: int) -> int:
    run, table, number, word = types.float64[::1], types.float64[:, ::1], types.int64, types.uint64
    columns, codes = types.int64[::1], types.uint8[::1]
    return address_of(
        _add_groups, loss, from_dtype(dtype)[::1], codes, columns, columns, number, run, run, number, number, number, run,
        types.float64, word, word, run, table, columns, types.literal(vectors), types.literal(groups),
        types.literal(ones),
    )  # fmt: skip


@jit
def add_packed_groups(rows, y, s, begin, first, last, w, scale, loss, key0, key1, total, table):
    """What `rows.add_sjlt_groups` does for packed rows."""
    stop = first + (last - first) // 8 * 8
    if loss.groups == 0 or stop == first:
        return first
    if loss.packed_groups != 0:
        done = np.zeros(1, np.int64)
        call(
            loss.packed_groups,
            (loss.parameters, rows.numbers, rows.codes, rows.firsts, rows.lasts, rows.num_columns, y, s, begin, first, stop,
             w, scale, key0, key1, total, table, done, 0, 0, 0),
        )  # fmt: skip
        if done[0] > 0:
            return stop
    scratch, vectors = scratch_of(rows, _BLOCK), -(-w.size // 8)
    for start in range(first, stop, _BLOCK):
        count = min(_BLOCK, stop - start)
        write_out(rows, start, start + count, scratch, 0)
        own = s[start:] if s.size > 0 else s
        call(
            loss.groups,
            (loss.parameters, scratch, rows.num_columns, y[start:], own, begin - start, 0, count, w, scale, key0, key1,
             total, table, vectors),
        )  # fmt: skip
    return stop


@intrinsic(prefer_literal=True)
def _tuple_of(typing_context, array, count):
    """The first elements of an array of numbers, as many as the type of `count` says."""
    found = types.UniTuple(types.int64, count.literal_value)

    def generate(context, builder, signature, arguments):
        places = (
            address(context, builder, signature.args[0], arguments[0], ir.Constant(_INDEX, i)) for i in range(found.count)
        )
        return context.make_tuple(builder, found, [builder.load(place) for place in places])

    return found(array, count), generate


def _codes(context: Any, builder: Any, codes_type: Any, codes: Any, place: Any, cells: list[Any], groups: int) -> list[Any]:
    """The cells of a row's ones: that of an intercept, the last, is always the same."""
    found = []
    for g, cell in enumerate(cells):
        if g < groups:
            code = builder.load(address(context, builder, codes_type, codes, moved(builder, place, g, 1)))
            cell = builder.add(cell, builder.zext(code, _INDEX))
        found.append(cell)
    return found


@intrinsic(prefer_literal=True)
def _products(typing_context, numbers, index, rest, codes, place, groups, cells, weights, shares):
    """The products of a row with the coefficients, summed lane by lane in two chains, as of a dense row."""

    def generate(context, builder, signature, arguments):
        numbers, index, rest, codes, place, _, cells, weights, shares = arguments
        kinds = signature.args
        chains = [ir.Constant(DOUBLES, [0.0] * LANES)] * 2
        weights = parts_of(builder, weights)
        for i, weight in enumerate(weights):
            last = (lane_mask(builder, rest), None) if i + 1 == len(weights) else None
            x = row_part(context, builder, kinds[0], numbers, index, i, last)
            chains[i % 2] = fused(builder, x, weight, chains[i % 2])
        own = cgutils.unpack_tuple(builder, cells)
        for cell in _codes(context, builder, kinds[3], codes, place, own, groups.literal_value):
            for chain in range(2):
                at = moved(builder, ir.Constant(_INDEX, LANES * chain), 2 * LANES, cell)
                more = row_part(context, builder, kinds[8], shares, at, 0, None)
                chains[chain] = builder.fadd(chains[chain], more)
        return builder.fadd(*chains)

    arguments = (numbers, types.intp, types.intp, codes, types.intp, groups, cells, weights, shares)
    return simd.vector(*arguments), generate


@intrinsic(prefer_literal=True)
def _add_row(typing_context, numbers, index, rest, codes, place, groups, cells, scale, sums, ones, table, cell, root):
    """sums + scale x of a row's numbers, and table[cell : ...] += root x; scale and root are added where its ones are, which
    stand after the vectors of numbers in the table."""

    def generate(context, builder, signature, arguments):
        numbers, index, rest, codes, place, _, cells, scale, sums, ones, table, cell, root = arguments
        kinds = signature.args
        sums, scales, roots = parts_of(builder, sums), repeated(builder, scale), repeated(builder, root)
        for i in range(len(sums)):
            last = (lane_mask(builder, rest), None) if i + 1 == len(sums) else None
            x = row_part(context, builder, kinds[0], numbers, index, i, last)
            sums[i] = fused(builder, x, scales, sums[i])
            pointer = address(context, builder, kinds[10], table, moved(builder, cell, i))
            pointer = builder.bitcast(pointer, DOUBLES.as_pointer())
            builder.store(fused(builder, x, roots, builder.load(pointer, align=8)), pointer, align=8)
        own = cgutils.unpack_tuple(builder, cells)
        after = moved(builder, cell, len(sums))
        for at in _codes(context, builder, kinds[3], codes, place, own, groups.literal_value):
            for array, kind, index, x in ((ones, kinds[9], at, scale), (table, kinds[10], builder.add(after, at), root)):
                pointer = address(context, builder, kind, array, index)
                builder.store(builder.fadd(builder.load(pointer), x), pointer)
        return joined(builder, sums)

    arguments = (numbers, types.intp, types.intp, codes, types.intp, groups, cells, types.float64, sums, ones, table)
    return sums(*arguments, types.intp, types.float64), generate


@exact_jit
def _add_groups(
    loss, numbers, codes, firsts, lasts, columns, y, s, begin, first, stop, w, scale, key0, key1, total, table, done,
    vectors, groups, ones,
):  # fmt: skip
    """total = sum_i slope_i x_i and table[bucket_i] = the sum of +-root_i x_i, in groups of eight rows from `first` on.

    Rows first:stop, a multiple of eight; `ones` are the groups and, where there is one, the intercept. Where something is
    not finite nothing is written, and done[0] stays 0.
    """
    shape, width, each, size = simd.zeros(vectors), firsts[0], firsts.size, table.shape[0]
    held, cells_of_ones = 8 * len(shape), columns - width + each + 1
    row_cells = held + -(-cells_of_ones // 8) * 8
    own, shares, starts = np.zeros(held), aligned(cells_of_ones, 16), np.empty(each + 1, np.int64)
    bad = _coefficients(w, firsts, lasts, columns, own, shares, starts)
    flat, rest, none = shares.reshape(shares.size), width - held + 8, simd.splat(0.0)
    weights = simd.load_row(own, 0, 8, none, shape)
    at = _tuple_of(starts, ones)
    sketch, slopes, sums = aligned(size, row_cells), np.zeros(cells_of_ones), simd.load_row(total, 0, 8, none, shape)
    cells = sketch.reshape(sketch.size)
    scratch = aligned(10, 8).reshape(80)  # the products of eight rows with the coefficients, their slopes, their roots
    places = np.empty(8, np.int64)
    check = simd.splat(bad)
    for j in range(8):
        p = first + j
        simd.store(scratch, 8 * j, _products(numbers, p * width, rest, codes, p * each, groups, at, weights, flat))
    for i in range(first, stop, 8):
        weight = simd.load(s, i) * scale if s.size > 0 else simd.splat(scale)
        z = simd.totals(simd.load_row(scratch, 0, 8, none, _EIGHT))
        slope, curvature = derivatives_of_eight(loss, simd.load(y, i), z)
        slope = slope * weight
        root = simd.draw_buckets(key0, key1, i - begin, size, row_cells, simd.square_root(curvature * weight), places)
        check = simd.exact_fma(slope, none, simd.exact_fma(root, none, check))
        simd.store(scratch, 64, slope)
        simd.store(scratch, 72, root)
        following = min(i + 8, stop - 8)  # after the last group its own margins again, which nobody reads
        for j in range(8):
            p, q = i + j, following + j
            products = _products(numbers, q * width, rest, codes, q * each, groups, at, weights, flat)
            sums = _add_row(
                numbers, p * width, rest, codes, p * each, groups, at, scratch[64 + j], sums, slopes, cells, places[j],
                scratch[72 + j],
            )  # fmt: skip
            simd.store(scratch, 8 * j, products)
    if simd.total(check) == 0.0:
        simd.store_row(own, 0, sums)
        _unfold(own, slopes, firsts, lasts, columns, total)
        for b in range(size):
            _unfold(sketch[b], sketch[b, held:], firsts, lasts, columns, table[b])
        done[0] = 1


@exact_jit
def _coefficients(w, firsts, lasts, columns, own, shares, starts):
    """Those of numbers and those of ones, each in its lane and chain, with the cell of each group's first column; 0 where
    all are finite."""
    check, width, each = 0.0, firsts[0], firsts.size
    for c in range(w.size):
        check += 0.0 * w[c]
    for c in range(width):
        own[c] = w[c]
    for g in range(each + 1):
        low, high = (firsts[g], lasts[g]) if g < each else (columns, w.size)
        starts[g] = low - width + g
        for c in range(low, high):
            shares[starts[g] + c - low, c % 16] = w[c]
    return check


@exact_jit
def _unfold(numbers, ones, firsts, lasts, columns, target):
    """Sums of numbers, and of ones by their cells, column by column."""
    width, each = firsts[0], firsts.size
    for c in range(width):
        target[c] = numbers[c]
    for g in range(each + 1):
        low, high = (firsts[g], lasts[g]) if g < each else (columns, min(columns + 1, target.size))
        for c in range(low, high):
            target[c] = ones[c - width + g]
