"""Sums of products of dense rows with themselves, the upper triangle alone: BLAS would make both.

Scaled rows are written in panels of eight columns, so that what a tile of the triangle needs lies side by side in the
first-level cache. A tile is eight rows by at most 24 columns, which stay in registers over all rows of a block.
"""

import numpy as np
from numba import types
from numba.extending import intrinsic

from fedns.numerics.cpu import simd
from fedns.numerics.cpu.aligned import aligned
from fedns.numerics.cpu.dense import dense_add_combination
from fedns.numerics.cpu.emit import DOUBLES, LANES, address, fused, joined, moved, parts_of, repeated
from fedns.numerics.jit import exact_jit, jit

_WIDTH = 3  # panels of a tile: 24 vectors of sums, three of the rows and one to multiply with are in registers
_LINE = 64  # bytes
_ONE = (0,)


@exact_jit
def dense_gram_scratch(count, features):
    """Room for panels of so many rows, and for a tile."""
    return aligned(-(-features // 8), count * 8), np.empty(64 * _WIDTH)


@exact_jit
def write_panels(flat, columns, first, last, coefficients, intercept, panels):
    """Number c of row first + i, times coefficients[i], goes to panel c // 8, place 8 i + c % 8; an intercept's 1 too."""
    width = panels.shape[1]
    for i in range(last - first):
        s, row = simd.splat(coefficients[i]), (first + i) * columns
        for c in range(0, columns, 8):
            simd.store(panels, c // 8 * width + 8 * i, s * simd.load_first(flat, row + c, columns - c))
        if intercept:
            panels[columns // 8, 8 * i + columns % 8] = coefficients[i]


@jit
def dense_add_gram_triangle(rows, first, last, slopes, roots, intercept, scratch, total, triangle):
    panels, tile = scratch
    columns = rows.num_columns
    dense_add_combination(rows, first, last, slopes, intercept, total)
    write_panels(rows.flat, columns, first, last, roots, intercept, panels)
    features = columns + 1 if intercept else columns
    # Of one-hot rows only these are written out: what lies after them is asked for in vain, soon in the cache.
    add_panels(panels, last - first, features, tile, triangle, rows.flat, last * columns)


@exact_jit
def add_panels(panels, count, features, tile, triangle, flat, following):
    """triangle += the upper triangle, row by row, of the sum of the products of `count` rows in panels.

    Meanwhile memory is asked for flat[following : ...], the numbers of as many rows, a line with each row of a tile.
    """
    line = _LINE // flat.itemsize
    end = following + count * features
    for p in range(len(panels)):
        for q in range(p, len(panels), _WIDTH):
            width = min(_WIDTH, len(panels) - q)
            if width == 3:
                _products(panels, p, q, count, simd.zeros(24), tile, flat, following, line)
            elif width == 2:
                _products(panels, p, q, count, simd.zeros(16), tile, flat, following, line)
            else:
                _products(panels, p, q, count, simd.zeros(8), tile, flat, following, line)
            following = min(following + count * line, end)
            if following == end:
                line = 0
            for a in range(8 * p, min(8 * p + 8, features)):
                above = a * (2 * features - a - 1) // 2
                start = (a - 8 * p) * 8 * width - 8 * q
                for b in range(max(a, 8 * q), min(features, 8 * (q + width))):
                    triangle[above + b] += tile[start + b]


@exact_jit
def _products(panels, p, q, count, shape, tile, flat, following, line):
    """The sums of products of panel p with those from q on; `shape` has an item for each vector of the tile. Memory is asked
    for flat[following], flat[following + line], ..., a number with each row."""
    length = panels.shape[1]
    sums = simd.no_strip(shape)
    for i in range(0, 8 * count, 8):
        sums = _add_products(panels, p * length + i, q * length + i, length, sums)
        simd.fetch_strip(flat, following, line, _ONE)
        following += line
    simd.store_row(tile, 0, sums)


@intrinsic
def _add_products(typing_context, panels, left, right, length, sums):
    """sums + the products of the eight numbers at `left` with the vectors at right, right + length, ..."""
    width = sums.count // LANES

    def generate(context, builder, signature, arguments):
        panels, left, right, length, sums = arguments
        parts, vectors = parts_of(builder, sums), []
        for v in range(width):
            pointer = address(context, builder, signature.args[0], panels, moved(builder, right, v, length))
            vectors.append(builder.load(builder.bitcast(pointer, DOUBLES.as_pointer()), align=8))
        for r in range(LANES):
            pointer = address(context, builder, signature.args[0], panels, moved(builder, left, r, 1))
            factor = repeated(builder, builder.load(pointer))
            for v in range(width):
                parts[r * width + v] = fused(builder, factor, vectors[v], parts[r * width + v])
        return joined(builder, parts)

    return sums(panels, types.intp, types.intp, types.intp, sums), generate
