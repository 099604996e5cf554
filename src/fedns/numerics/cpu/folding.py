"""Sums over what many clients sent, on threads, each always in the same order."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedns.numerics import parallel
from fedns.numerics.cpu.jit import exact_jit, jit
from fedns.numerics.cpu.parts import in_parts, launch
from fedns.numerics.cpu.triangles.dense import add_panels, dense_gram_scratch, write_panels

_PIECE = 2048  # columns, which stay in the first-level cache while all clients are added
_PARTS_PER_THREAD = 4
_LEAST_FOR_THREADS = 1 << 18  # numbers: some 60 microseconds of work, twice what starting threads costs
_GRAM_ROWS = 256  # enough for an efficient product, few enough that several threads find work
_LEAST_PRODUCTS = 1 << 21  # of two numbers: as much work


def add_weighted_rows(total: Any, rows: Any, weights: Any) -> None:
    """total += sum_j weights[j] rows[j], one row after the other."""
    pieces = -(-total.size // _PIECE)
    if rows.size < _LEAST_FOR_THREADS or parallel.thread_count() == 1:
        _add_pieces(total, rows, weights, 0, pieces)
    else:
        launch(_add_in_parts, _cuts(pieces, parallel.thread_count() * _PARTS_PER_THREAD), total, rows, weights)


@cache
def _cuts(pieces: int, parts: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, pieces, parts + 1).astype(np.int64))


# Nothing is reordered: the sum is the same however many clients come at once.
@exact_jit
def _add_pieces(total, rows, weights, low, high):
    whole = rows.shape[0] // 4 * 4
    for piece in range(low, high):
        first, last = np.uint64(piece * _PIECE), np.uint64(min((piece + 1) * _PIECE, total.size))
        for j in range(0, whole, 4):
            for c in range(first, last):
                value = total[c] + weights[j] * rows[j, c]
                value += weights[j + 1] * rows[j + 1, c]
                value += weights[j + 2] * rows[j + 2, c]
                total[c] = value + weights[j + 3] * rows[j + 3, c]
        for j in range(whole, rows.shape[0]):
            for c in range(first, last):
                total[c] += weights[j] * rows[j, c]


@jit
def _add_in_parts(starter, cuts, total, rows, weights):
    in_parts(starter, _add_pieces, cuts, (total, rows, weights), ())


def weighted_gram(rows: Any, weights: Any) -> Any:
    """sum_i weights[i] rows[i] rows[i]', in blocks whose sums do not depend on threads."""
    columns, number = rows.shape[1], -(-len(rows) // _GRAM_ROWS)
    blocks, gram = np.empty((number, columns * (columns + 1) // 2)), np.empty((columns, columns))
    if rows.size * columns < _LEAST_PRODUCTS or parallel.thread_count() == 1:
        _weighted_grams(rows, weights, 0, number, blocks)
        _write_sum(blocks, gram)
    else:
        launch(_weighted_grams_in_parts, _cuts(number, number), rows, weights, blocks, gram)
    return gram


@exact_jit
def _weighted_grams(rows, weights, low, high, out):
    """out[b] = the sum of weighted products of block b of rows, for blocks low:high."""
    columns = rows.shape[1]
    panels, tile = dense_gram_scratch(_GRAM_ROWS, columns)
    roots = np.empty(_GRAM_ROWS)
    for block in range(low, high):
        first = block * _GRAM_ROWS
        last = min(first + _GRAM_ROWS, len(rows))
        for i in range(last - first):
            roots[i] = np.sqrt(weights[first + i])
        flat = rows.reshape(rows.size)
        write_panels(flat, columns, first, last, roots, False, panels)
        for e in range(out.shape[1]):
            out[block, e] = 0.0
        add_panels(panels, last - first, columns, tile, out[block], flat, last * columns)


@exact_jit
def _write_sum(blocks, gram):
    """The matrix whose upper triangle, row by row, is the sum of the blocks; the first of them becomes their sum."""
    for block in range(1, len(blocks)):
        for e in range(blocks.shape[1]):
            blocks[0, e] += blocks[block, e]
    entry = 0
    for a in range(len(gram)):
        for b in range(a, len(gram)):
            gram[a, b] = gram[b, a] = blocks[0, entry]
            entry += 1


@exact_jit
def _weighted_grams_in_parts(starter, cuts, rows, weights, blocks, gram):
    in_parts(starter, _weighted_grams, cuts, (rows, weights), (blocks,))
    _write_sum(blocks, gram)
