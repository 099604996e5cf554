"""Sums over what many clients sent, on threads, each always in the same order."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedns.numerics import parallel
from fedns.numerics.cpu.parts import in_parts, launch, take, tell, told
from fedns.numerics.cpu.triangles.dense import add_panels, dense_gram_scratch, write_panels
from fedns.numerics.jit import exact_jit, jit

_PIECE = 1024  # columns, which stay in the first-level cache while all clients are added
_PIECES_PER_THREAD = 2  # at least: threads follow one another, each begins a piece later than the one before it
_LEAST_FOR_THREADS = 1 << 18  # numbers: some 60 microseconds of work, twice what starting threads costs
_GRAM_ROWS = 256  # enough for an efficient product, few enough that several threads find work
_LEAST_PRODUCTS = 1 << 21  # of two numbers: as much work
_NOBODY = np.empty(0, np.int64)
_PATIENCE = 100_000  # looks at whether another thread has begun: about a tenth of a millisecond


def add_weighted_rows(total: Any, rows: Any, weights: Any) -> None:
    """total += sum_j weights[j] rows[j], one row after the other."""
    threads = min(parallel.thread_count(), -(-total.size // _PIECE) // _PIECES_PER_THREAD)
    if rows.size < _LEAST_FOR_THREADS or threads < 2:
        _add_share(total, rows, weights, 0, len(rows), _NOBODY)
    else:
        shares = _cuts(len(rows), threads)
        taken, added = np.zeros((2, len(rows) + 1), dtype=np.int64)
        launch(_add_in_shares, _cuts(shares.size - 1, threads), total, rows, weights, shares, taken, added)


@cache
def _cuts(pieces: int, parts: int) -> NDArray[np.int64]:
    return np.unique(np.linspace(0, pieces, parts + 1).astype(np.int64))


# Nothing is reordered: the sum is the same however many clients come at once. A thread adds all columns of its share of the
# clients, those whose rows it is likely to have written, piece by piece after the thread before it: where two cores seem to
# share no cache, a line that one has written and the other reads takes three times as long to be written again.
@exact_jit
def _add_share(total, rows, weights, low, high, added):
    """Rows low:high, each piece of the columns when added[low] says that those of the rows before it are; added[high] says
    how many are. Without `added` nobody waits."""
    whole = low + (high - low) // 4 * 4
    for piece in range(-(-total.size // _PIECE)):
        first, last = np.uint64(piece * _PIECE), np.uint64(min((piece + 1) * _PIECE, total.size))
        if low > 0 and added.size > 0:
            while told(added, low) <= piece:
                pass
        for j in range(low, whole, 4):
            for c in range(first, last):
                value = total[c] + weights[j] * rows[j, c]
                value += weights[j + 1] * rows[j + 1, c]
                value += weights[j + 2] * rows[j + 2, c]
                total[c] = value + weights[j + 3] * rows[j + 3, c]
        for j in range(whole, high):
            for c in range(first, last):
                total[c] += weights[j] * rows[j, c]
        if added.size > 0:
            tell(added, high, piece + 1)


@exact_jit
def _add_shares(total, rows, weights, low, high, shares, taken, added):
    """Shares low:high, and before them those that nobody has begun for a while: whoever should may be waiting for this
    thread to end. So nobody waits for a share that is not begun."""
    for share in range(high):
        for _ in range(_PATIENCE if share < low else 0):
            if told(taken, share) > 0:
                break
        if take(taken, share):
            _add_share(total, rows, weights, shares[share], shares[share + 1], added)


@jit
def _add_in_shares(starter, cuts, total, rows, weights, shares, taken, added):
    in_parts(starter, _add_shares, cuts, (total, rows, weights), (shares, taken, added))


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
    roots, flat = np.empty(_GRAM_ROWS), rows.reshape(rows.size)
    for block in range(low, high):
        first = block * _GRAM_ROWS
        last = min(first + _GRAM_ROWS, len(rows))
        for i in range(last - first):
            roots[i] = np.sqrt(weights[first + i])
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
