"""SJLT and gradient over one-hot rows, eight at a time, with the bits that `narrow` gives for dense ones.

One-hot rows are so short that memory keeps up: slopes and roots of a block of rows are found first, then the rows are added.
Numbers go as vectors of eight columns, and of a group the one column that has the 1: its coefficient is added to the
margin, the slope to one number of the gradient and the root to one of the sketch. What a dense row adds besides are zeros.
Where a coefficient, a slope or a root is not finite they are none, and rows are written out.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import from_dtype, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from fedns.numerics.cpu import simd
from fedns.numerics.cpu.aligned import aligned
from fedns.numerics.cpu.dense import copy_doubles
from fedns.numerics.cpu.emit import (
    DOUBLES,
    LANES,
    Vectors,
    address,
    fused,
    joined,
    lane_mask,
    moved,
    parts_of,
    repeated,
    row_part,
)
from fedns.numerics.cpu.formulas import FormulasType, address_of, call, type_of
from fedns.numerics.cpu.narrow.sjlt import draw_buckets
from fedns.numerics.cpu.onehot.block import scratch_of, write_out
from fedns.numerics.cpu.pointwise import derivatives_of_eight
from fedns.numerics.formulas import Formulas
from fedns.numerics.jit import exact_jit, jit
from fedns.numerics.onehot import OneHotRows

_INDEX = ir.IntType(64)
MOST_GROUPS = 8
_BLOCK = 256  # rows whose slopes and roots are held, or that are written out at a time; a multiple of eight


def onehot_groups_address(loss: Formulas, rows: OneHotRows, features: int) -> int:
    """Where the loop for this loss and this kind of rows is; 0 where there is none.

    Numbers first: then a lane of a margin adds up its numbers before its ones, as in a dense row."""
    if features > 8 * LANES or rows.width == 0 or not rows.numbers_first or rows.firsts.size > MOST_GROUPS:
        return 0
    groups = rows.firsts.size
    ones = groups + features - rows.num_columns
    vectors = -(-rows.width // LANES)
    rest = rows.width - LANES * (vectors - 1)
    return _address(type_of(loss), rows.numbers.dtype, vectors, rest, groups, ones)


@cache
def _address(loss: FormulasType, dtype: Any, vectors: int, rest: int, groups: int, ones: int) -> int:
    run, table, number, word = types.float64[::1], types.float64[:, ::1], types.int64, types.uint64
    columns, codes = types.int64[::1], types.uint8[::1]
    return address_of(
        _add_groups, loss, from_dtype(dtype)[::1], codes, columns, columns, number, run, run, number, number, number,
        run, types.float64, word, word, run, table, columns, types.literal(vectors), types.literal(rest),
        types.literal(groups), types.literal(ones),
    )  # fmt: skip


@jit
def add_onehot_groups(rows, y, s, begin, first, last, w, scale, loss, key0, key1, total, table):
    """What `rows.add_sjlt_groups` does for one-hot rows."""
    stop = first + (last - first) // 8 * 8
    if loss.groups == 0 or stop == first:
        return first
    if loss.onehot_groups != 0:
        # Of dense rows the last ones, less than eight, are added to an intercept's sum together.
        end, done = last if w.size == rows.num_columns else stop, np.zeros(1, np.int64)
        call(
            loss.onehot_groups,
            (loss.parameters, rows.numbers, rows.codes, rows.firsts, rows.lasts, rows.num_columns, y, s, begin, first, end,
             w, scale, key0, key1, total, table, done, 0, 0, 0, 0),
        )  # fmt: skip
        if done[0] > 0:
            return end
    scratch, vectors = scratch_of(rows, _BLOCK), -(-w.size // 8)
    for start in range(first, stop, _BLOCK):
        count = min(_BLOCK, stop - start)
        write_out(rows, start, start + count, scratch, 0)
        own = s[start:] if s.size > 0 else s
        call(
            loss.groups,
            (loss.parameters, scratch, rows.num_columns, y[start:], own, begin - start, 0, count, w, scale,
             key0, key1, total, table, vectors),
        )  # fmt: skip
    return stop


@intrinsic(prefer_literal=True)
def tuple_of(typing_context, array, count):
    """The first elements of an array of numbers, as many as the type of `count` says."""
    found = types.UniTuple(types.int64, count.literal_value)

    def generate(context, builder, signature, arguments):
        places = (
            address(context, builder, signature.args[0], arguments[0], ir.Constant(_INDEX, i)) for i in range(found.count)
        )
        return context.make_tuple(builder, found, [builder.load(place) for place in places])

    return found(array, count), generate


class _Row(NamedTuple):
    """What the code for one row is made from: arrays with their types, and how many numbers the last vector has."""

    context: Any
    builder: Any
    numbers_type: Any
    numbers: Any
    codes_type: Any
    codes: Any
    width: Any
    each: Any
    rest: int
    cells: list[Any]
    groups: int

    @classmethod
    def of(cls, context: Any, builder: Any, kind: Any, layout: Any, rest: Any, groups: Any) -> "_Row":
        """From (numbers, numbers in a row, codes, codes in a row, cells) and what is known when it is compiled."""
        numbers, width, codes, each, cells = cgutils.unpack_tuple(builder, layout)
        own = cgutils.unpack_tuple(builder, cells)
        return cls(
            context, builder, kind[0], numbers, kind[2], codes, width, each, rest.literal_value, own, groups.literal_value,
        )  # fmt: skip

    def number(self, row: Any, i: int, vectors: int) -> Any:
        """Vector i of the numbers of a row."""
        mask = (lane_mask(self.builder, ir.Constant(_INDEX, self.rest)), None) if i + 1 == vectors else None
        index = self.builder.mul(row, self.width)
        return row_part(self.context, self.builder, self.numbers_type, self.numbers, index, i, mask)

    def ones(self, row: Any) -> list[Any]:
        """The cells of a row's ones: that of an intercept, the last, is always the same."""
        place, found = self.builder.mul(row, self.each), []
        for g, cell in enumerate(self.cells):
            if g < self.groups:
                at = moved(self.builder, place, g, 1)
                code = self.builder.load(address(self.context, self.builder, self.codes_type, self.codes, at))
                cell = self.builder.add(cell, self.builder.zext(code, _INDEX))
            found.append(cell)
        return found


def _products(rows: _Row, row: Any, weights: list[Any], shares_type: Any, shares: Any) -> Any:
    """The products of a row with the coefficients, summed lane by lane, as of a dense row."""
    builder, total = rows.builder, ir.Constant(DOUBLES, [0.0] * LANES)
    for i, weight in enumerate(weights):
        total = fused(builder, rows.number(row, i, len(weights)), weight, total)
    for cell in rows.ones(row):
        share = row_part(rows.context, builder, shares_type, shares, builder.mul(cell, ir.Constant(_INDEX, LANES)), 0, None)
        total = builder.fadd(total, share)
    return total


def _add_row(rows: _Row, row: Any, scale: Any, sums: list[Any], root: Any, arrays: Any, cell: Any) -> list[Any]:
    """sums + scale x of a row's numbers, and table[cell : ...] += root x; scale and root are added where its ones are, which
    stand after the vectors of numbers in the table."""
    builder, (ones_type, ones, table_type, table) = rows.builder, arrays
    scales, roots = repeated(builder, scale), repeated(builder, root)
    after = []
    for i, total in enumerate(sums):
        x = rows.number(row, i, len(sums))
        after.append(fused(builder, x, scales, total))
        pointer = address(rows.context, builder, table_type, table, moved(builder, cell, i))
        pointer = builder.bitcast(pointer, DOUBLES.as_pointer())
        builder.store(fused(builder, x, roots, builder.load(pointer, align=8)), pointer, align=8)
    behind = moved(builder, cell, len(sums))
    for at in rows.ones(row):
        for kind, array, index, x in ((ones_type, ones, at, scale), (table_type, table, builder.add(behind, at), root)):
            pointer = address(rows.context, builder, kind, array, index)
            builder.store(builder.fadd(builder.load(pointer), x), pointer)
    return after


@intrinsic(prefer_literal=True)
def products_of_eight(typing_context, layout, rest, groups, first, weights, shares):
    """The products of eight rows from `first` on with the coefficients: eight vectors."""

    def generate(context, builder, signature, arguments):
        layout_values, _, _, first, weights, shares = arguments
        kinds, rows = signature.args, _Row.of(context, builder, layout, layout_values, rest, groups)
        weights = parts_of(builder, weights)
        return joined(
            builder, [_products(rows, moved(builder, first, j, 1), weights, kinds[5], shares) for j in range(LANES)]
        )

    return Vectors(LANES)(layout, rest, groups, types.intp, weights, shares), generate


@intrinsic(prefer_literal=True)
def _add_eight(typing_context, layout, rest, groups, first, sums, slopes, roots, at, places, ones, table):
    """Eight rows from `first` on are added, with their slopes and roots, to the sums, to `ones` and, at their places, to the
    table. Returns the sums."""

    def generate(context, builder, signature, arguments):
        layout_values, _, _, first, sums, slopes, roots, at, places, ones, table = arguments
        kinds, rows = signature.args, _Row.of(context, builder, layout, layout_values, rest, groups)
        sums, arrays = parts_of(builder, sums), (kinds[9], ones, kinds[10], table)
        for j in range(LANES):
            slope, root, place = (
                builder.load(address(context, builder, kinds[k], array, moved(builder, at, j, 1)))
                for k, array in ((5, slopes), (6, roots), (8, places))
            )
            sums = _add_row(rows, moved(builder, first, j, 1), slope, sums, root, arrays, place)
        return joined(builder, sums)

    return sums(layout, rest, groups, types.intp, sums, slopes, roots, types.intp, places, ones, table), generate


@exact_jit
def _add_groups(
    loss, numbers, codes, firsts, lasts, columns, y, s, begin, first, stop, w, scale, key0, key1, total, table, done,
    vectors, rest, groups, ones,
):  # fmt: skip
    """total = sum_i slope_i x_i and table[bucket_i] = the sum of +-root_i x_i, in groups of eight rows from `first` on.

    Rows first:stop; `ones` are the groups and, where there is one, the intercept. Where something is not finite nothing is
    written, and done[0] stays 0.
    """
    shape, width, each, size = simd.zeros(vectors), firsts[0], firsts.size, table.shape[0]
    held, cells_of_ones = 8 * len(shape), columns - width + each + 1
    row_cells = held + -(-cells_of_ones // 8) * 8
    own, shares, starts = np.zeros(held), aligned(cells_of_ones, 8), np.empty(each + 1, np.int64)
    bad = coefficients_of(w, firsts, lasts, columns, own, shares, starts)
    flat, none = shares.reshape(shares.size), simd.splat(0.0)
    weights = simd.load_row(own, 0, 8, none, shape)
    layout = (numbers, width, codes, each, tuple_of(starts, ones))
    sketch, slopes, sums = aligned(size, row_cells), np.zeros(cells_of_ones), simd.load_row(total, 0, 8, none, shape)
    cells = sketch.reshape(sketch.size)
    scratch, places, check = aligned(2, _BLOCK), np.empty(_BLOCK, np.int64), simd.splat(bad)
    own_slopes, roots = scratch[0], scratch[1]
    start = first
    while start < stop:
        count, at = min(_BLOCK, (stop - start) // 8 * 8), start
        if count == 0:  # rows that have neither numbers nor ones add nothing
            numbers, codes, y, s = last_rows(numbers, codes, firsts, lasts, y, s, start, stop, 8)
            layout, count, at = (numbers, width, codes, each, tuple_of(starts, ones)), 8, 0
        for i in range(0, count, 8):
            row = at + i
            weight = simd.load(s, row) * scale if s.size > 0 else simd.splat(scale)
            z = simd.totals(products_of_eight(layout, rest, groups, row, weights, flat))
            slope, curvature = derivatives_of_eight(loss, simd.load(y, row), z)
            slope = slope * weight
            root = draw_buckets(
                key0, key1, start + i - begin, size, row_cells, simd.square_root(curvature * weight), places, i
            )
            check = simd.exact_fma(slope, none, simd.exact_fma(root, none, check))
            simd.store(own_slopes, i, slope)
            simd.store(roots, i, root)
        for i in range(0, count, 8):
            sums = _add_eight(layout, rest, groups, at + i, sums, own_slopes, roots, i, places, slopes, cells)
        start += count
    if simd.total(check) == 0.0:
        simd.store_row(own, 0, sums)
        _unfold(own, 0, slopes, 0, firsts, lasts, columns, total, 0, table.shape[1])
        flat_table = table.reshape(table.size)
        for b in range(size):
            place = b * table.shape[1]
            _unfold(
                cells, b * row_cells, cells, b * row_cells + held, firsts, lasts, columns, flat_table, place, table.shape[1]
            )
        done[0] = 1


@njit(inline="always")
def last_rows(numbers, codes, firsts, lasts, y, s, first, last, room):
    """Numbers, codes, targets and weights of the rows first:last, and after them of rows that have neither numbers nor ones,
    with the target of the last one, as many as there is room for."""
    width, each, count = firsts[0], firsts.size, last - first
    own_numbers, own_codes = np.zeros(room * width, numbers.dtype), np.empty(room * each, np.uint8)
    own_y, own_s = np.empty(room), np.ones(room if s.size > 0 else 0)
    for e in range(count * width):
        own_numbers[e] = numbers[first * width + e]
    for i in range(room):
        own_y[i] = y[min(first + i, last - 1)]
        for g in range(each):
            own_codes[i * each + g] = codes[(first + i) * each + g] if i < count else lasts[g] - firsts[g]
    for i in range(min(count, own_s.size)):
        own_s[i] = s[first + i]
    return own_numbers, own_codes, own_y, own_s


@exact_jit
def coefficients_of(w, firsts, lasts, columns, own, shares, starts):
    """Those of numbers and those of ones, each in its lane, with the cell of each group's first column; 0 where
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
            shares[starts[g] + c - low, c % 8] = w[c]
    return check


@njit(inline="always")
def _unfold(numbers, number, ones, one, firsts, lasts, columns, target, place, room):
    """Sums of numbers, from `number` on, and of ones by their cells, from `one` on, to a row of the target, from `place` on,
    that has room for so many columns."""
    width, each = firsts[0], firsts.size
    copy_doubles(numbers, number, width, target, place)
    for g in range(each):
        copy_doubles(ones, one + firsts[g] - width + g, lasts[g] - firsts[g], target, place + firsts[g])
    if columns < room:
        target[place + columns] = ones[one + columns - width + each]
