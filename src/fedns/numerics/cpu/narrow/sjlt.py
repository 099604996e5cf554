"""SJLT and gradient in one loop over dense rows that fit the registers, eight rows at a time.

While eight rows are added to the sums, the margins of the next eight are found: the processor works on rows in the
first-level cache, and the memory is read all the time, strictly in order. Everything is in one function, since a call
counts a reference, atomically, to every array it is given, which costs as much as the work on several rows.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import from_dtype, types
from numba.extending import intrinsic

from fedns.numerics import rng
from fedns.numerics.cpu import simd
from fedns.numerics.cpu.aligned import aligned_row
from fedns.numerics.cpu.emit import DOUBLES, LANES, Vectors, address, fused, joined, moved, parts_of, repeated, vector
from fedns.numerics.cpu.formulas import FormulasType, address_of, type_of
from fedns.numerics.cpu.narrow.rows import MOST_VECTORS, RowCode, products_of_eight
from fedns.numerics.cpu.pointwise import derivatives_of_eight
from fedns.numerics.formulas import Formulas
from fedns.numerics.jit import exact_jit
from fedns.numerics.rows import Rows, SparseRows

_INDEX = ir.IntType(64)
_WORDS = ir.VectorType(_INDEX, LANES)


def groups_address(loss: Formulas, rows: Rows, features: int) -> int:
    """Where the loop for this loss and rows of this width is; 0 where there is none, since they are not narrow."""
    vectors = -(-features // 8)
    if isinstance(rows, SparseRows) or vectors > MOST_VECTORS:
        return 0
    return _groups_address(type_of(loss), rows[0].dtype, vectors)


@cache
def _groups_address(loss: FormulasType, dtype: Any, vectors: int) -> int:
    run, table, number, word = types.float64[::1], types.float64[:, ::1], types.int64, types.uint64
    return address_of(
        _add_groups, loss, from_dtype(dtype)[::1], number, run, run, number, number, number, run, types.float64, word,
        word, run, table, types.literal(vectors),
    )  # fmt: skip


def _every(word: Any) -> Any:
    return ir.Constant(_WORDS, [int(word)] * LANES)


def _mixed(builder: Any, x: Any) -> Any:
    """`rng.mix` of eight words."""
    for shift, factor in ((rng.SHIFTS[0], rng.FACTORS[0]), (rng.SHIFTS[1], rng.FACTORS[1])):
        x = builder.mul(builder.xor(x, builder.lshr(x, _every(shift))), _every(factor))
    return builder.xor(x, builder.lshr(x, _every(rng.SHIFTS[2])))


@intrinsic
def draw_buckets(typing_context, key0, key1, index, size, width, root, places, at):
    """For eight rows, index, index + 1, ...: places[at + i] = width * bucket, of `size` buckets, and the roots with
    their signs, from `rng.random_bits` of each row: the upper half of the bits gives the bucket, the lowest one the sign."""

    def generate(context, builder, signature, arguments):
        key0, key1, index, size, width, root, places, at = arguments
        counter = builder.add(repeated(builder, index), ir.Constant(_WORDS, list(range(LANES))))
        first = _mixed(builder, builder.add(repeated(builder, key0), builder.mul(counter, _every(rng.GOLDEN))))
        bits = _mixed(builder, builder.xor(first, repeated(builder, key1)))
        bucket = builder.lshr(builder.mul(builder.lshr(bits, _every(32)), repeated(builder, size)), _every(32))
        pointer = address(context, builder, signature.args[6], places, at)
        cell = builder.mul(bucket, repeated(builder, width))
        builder.store(cell, builder.bitcast(pointer, _WORDS.as_pointer()), align=8)
        sign = builder.shl(bits, _every(63))
        return builder.bitcast(builder.xor(builder.bitcast(root, _WORDS), sign), DOUBLES)

    word, number = types.uint64, types.int64
    return vector(word, word, number, number, number, vector, places, number), generate


@exact_jit
def _add_groups(loss, flat, columns, y, s, begin, first, last, w, scale, key0, key1, total, table, vectors):
    """total += sum_i slope_i x_i and table[bucket_i] += +-root_i x_i for the rows first:last, in groups of eight.

    They have as many vectors as the type of `vectors` says; an intercept is a column of ones. There are rows for the whole
    of the last group, though those after `last` are somebody else's: they are looked at, and not added.
    """
    shape = simd.zeros(vectors)
    cells, width, size = table.reshape(table.size), table.shape[1], table.shape[0]
    rest = columns - 8 * (len(shape) - 1)
    none = simd.splat(0.0)
    ones = simd.unit(rest) if w.size > columns else none
    weights = simd.load_row(w, 0, w.size - 8 * (len(shape) - 1), none, shape)
    sums = simd.load_row(total, 0, 8, none, shape)
    scratch, places = aligned_row(16), aligned_row(8).view(np.int64)  # slopes and roots of eight rows, where they go
    products = products_of_eight(flat, first, columns, rest, ones, weights)
    final = first + (last - first - 1) // 8 * 8
    for i in range(first, last, 8):
        weight = simd.load(s, i) * scale if s.size > 0 else simd.splat(scale)
        z = simd.totals(products)
        slope, curvature = derivatives_of_eight(loss, simd.load(y, i), z)
        root = draw_buckets(key0, key1, i - begin, size, width, simd.square_root(curvature * weight), places, 0)
        simd.store(scratch, 0, slope * weight)
        simd.store(scratch, 8, root)
        if i + 8 <= last:
            following = min(i + 8, final)  # after the last group its own margins again, which nobody reads
            products, sums = _add_eight(flat, i, following, columns, rest, ones, weights, sums, scratch, places, cells)
        else:
            for j in range(last - i):
                sums = _add_one(flat, i + j, columns, rest, ones, sums, scratch[j], scratch[8 + j], cells, places[j])
    simd.store_row(total, 0, sums)


class _Cells(NamedTuple):
    """What the code that adds to a table is made from."""

    context: Any
    builder: Any
    kind: Any
    table: Any

    def add(self, cell: Any, i: int, x: Any, root: Any) -> None:
        """table[cell + 8 i : ...] += root x."""
        place = address(self.context, self.builder, self.kind, self.table, moved(self.builder, cell, i))
        pointer = self.builder.bitcast(place, DOUBLES.as_pointer())
        self.builder.store(fused(self.builder, x, root, self.builder.load(pointer, align=8)), pointer, align=8)


@intrinsic
def _add_one(typing_context, array, row, columns, rest, more, sums, slope, root, table, cell):
    """One row is added, with its slope and root, to the sums, which it returns, and to table[cell : ...]."""

    def generate(context, builder, signature, arguments):
        array, row, columns, rest, more, sums, slope, root, table, cell = arguments
        sums, cells = parts_of(builder, sums), _Cells(context, builder, signature.args[8], table)
        rows = RowCode(context, builder, signature.args[0], array, columns, len(sums), rest)
        slope, root = repeated(builder, slope), repeated(builder, root)
        for i, total in enumerate(sums):
            x = rows.part(row, i, more)
            sums[i] = fused(builder, x, slope, total)
            cells.add(cell, i, x, root)
        return joined(builder, sums)

    number, real = types.intp, types.float64
    return sums(array, number, number, number, vector, sums, real, real, table, number), generate


@intrinsic
def _add_eight(typing_context, array, first, following, columns, rest, more, weights, sums, scratch, places, table):
    """Eight rows from `first` on are added, with slopes and roots from scratch[0 : 8] and scratch[8 : 16], to the sums and,
    at places[0 : 8], to the table. Returns the products of eight rows from `following` on, and the sums.

    Vector by vector in turn. First one row and then the other is 10 to 30 % slower when one of them comes from memory.
    """

    def generate(context, builder, signature, arguments):
        array, first, following, columns, rest, more, weights, sums, scratch, places, table = arguments
        kinds, products = signature.args, []
        weights, sums = parts_of(builder, weights), parts_of(builder, sums)
        rows = RowCode(context, builder, kinds[0], array, columns, len(weights), rest)
        cells = _Cells(context, builder, kinds[10], table)

        def at(kind: Any, own: Any, index: int) -> Any:
            return builder.load(address(context, builder, kind, own, ir.Constant(_INDEX, index)))

        for j in range(LANES):
            total = ir.Constant(DOUBLES, [0.0] * LANES)
            row, ahead = moved(builder, first, j, 1), moved(builder, following, j, 1)
            slope, root = (repeated(builder, at(kinds[8], scratch, start + j)) for start in (0, LANES))
            cell = at(kinds[9], places, j)
            for i, weight in enumerate(weights):
                total = fused(builder, rows.part(ahead, i, more), weight, total)
                rows.ask_ahead(ahead, i)
                x = rows.part(row, i, more)
                sums[i] = fused(builder, x, slope, sums[i])
                cells.add(cell, i, x, root)
            products.append(total)
        return context.make_tuple(builder, signature.return_type, [joined(builder, products), joined(builder, sums)])

    both, number = types.Tuple((Vectors(LANES), sums)), types.intp
    return both(array, number, number, number, number, vector, weights, sums, scratch, places, table), generate
