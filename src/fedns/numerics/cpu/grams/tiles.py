"""Products of a block of rows with itself, in tiles of eight by eight columns that stay in registers.

A library's product of two matrices makes both triangles and copies its arguments into its own order first, which for few
columns takes as long as the product. Every entry is the sum over the rows in order, as it is there.
"""

from numba import types
from numba.extending import intrinsic

from fedns.numerics.cpu import simd
from fedns.numerics.cpu.jit import exact_jit
from fedns.numerics.cpu.simd import DOUBLES, address, fused, joined, moved, parts_of, repeated

SIDE = simd.LANES
_EIGHT = (0,) * SIDE


@exact_jit
def tiles_of(width):
    """How many tiles the upper triangle of so many columns, a multiple of eight, has."""
    strips = width // SIDE
    return strips * (strips + 1) // 2


@exact_jit
def products_in_tiles(rows, count, width, out):
    """out = the tiles of sum_i x_i x_i' on and above the diagonal, row by row, for `count` rows of `width` columns."""
    place = 0
    for left in range(0, width, SIDE):
        for right in range(left, width, SIDE):
            sums = simd.no_strip(_EIGHT)
            for i in range(count):
                sums = _add_products(sums, rows, i * width + left, i * width + right)
            simd.store_row(out, place, sums)
            place += SIDE * SIDE


@exact_jit
def matrix_of_tiles(tiles, width, out):
    """The symmetric matrix of which these are the tiles."""
    columns, place = out.shape[0], 0
    for left in range(0, width, SIDE):
        for right in range(left, width, SIDE):
            for a in range(left, min(left + SIDE, columns)):
                for b in range(right, min(right + SIDE, columns)):
                    out[a, b] = out[b, a] = tiles[place + (a - left) * SIDE + b - right]
            place += SIDE * SIDE


@intrinsic
def _add_products(typing_context, sums, array, left, right):
    """sums[j] + array[left + j] array[right : right + 8] for j = 0, ..., 7."""

    def generate(context, builder, signature, arguments):
        sums, array, left, right = arguments
        kind = signature.args[1]
        pointer = builder.bitcast(address(context, builder, kind, array, right), DOUBLES.as_pointer())
        eight = builder.load(pointer, align=8)
        parts = []
        for j, part in enumerate(parts_of(builder, sums)):
            one = builder.load(address(context, builder, kind, array, moved(builder, left, j, 1)))
            parts.append(fused(builder, repeated(builder, one), eight, part))
        return joined(builder, parts)

    return sums(sums, array, types.intp, types.intp), generate
