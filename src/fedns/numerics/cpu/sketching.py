"""Sketches applied to a block of rows while it is in cache, each scaled so that E[S'S] = I."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedns.numerics.cpu.jit import jit
from fedns.numerics.cpu.rows import add_to_buckets, add_transformed, scaled_block
from fedns.numerics.rng import random_bits


class SketchPlan(NamedTuple):
    """What a kernel needs to know of a sketch."""

    kind: int
    sizes: NDArray[np.int64]  # (clients,) rows of each client's sketch
    nonzeros: int = 1  # per column, for SJLT
    block_length: int = 1  # of the blocks SRHT transforms, a power of two


NO_SKETCH, GAUSSIAN, RADEMACHER, SRHT, SJLT, ROW_SAMPLING = range(6)
NO_PLAN = SketchPlan(NO_SKETCH, np.zeros(0, dtype=np.int64))
_UNIT = 1.0 / 9007199254740992.0  # 2^-53
_ONE = np.uint64(1)
_SHIFT_6, _SHIFT_11, _SHIFT_32, _LOW_6 = np.uint64(6), np.uint64(11), np.uint64(32), np.uint64(63)


@jit
def sample_without_replacement(key0, key1, population, count):
    """Floyd's algorithm: `count` distinct numbers below `population`, uniformly, in increasing order."""
    if count * count > population:
        taken = np.zeros(population, np.uint8)
        for j in range(population - count, population):
            t = _below(key0, key1, j)
            taken[j if taken[t] else t] = 1
        return np.flatnonzero(taken)
    chosen = np.empty(count, np.int64)  # a few numbers are kept in order at less cost than a mark for each candidate
    for drawn in range(count):
        j = population - count + drawn
        t = _below(key0, key1, j)
        place = np.searchsorted(chosen[:drawn], t)
        if place < drawn and chosen[place] == t:
            t, place = j, drawn  # j is above all earlier numbers
        for r in range(drawn, place, -1):
            chosen[r] = chosen[r - 1]
        chosen[place] = t
    return chosen


@jit
def _below(key0, key1, j):
    """A uniform number among 0, ..., j."""
    return np.int64(np.float64(random_bits(key0, key1, j) >> _SHIFT_11) * _UNIT * (j + 1))


@jit
def _signs(key0, key1, position, count, scale, root, signed):
    """signed[i] = +-scale root[i], the sign of row position + i of a stream: 64 signs from each word."""
    start = np.uint64(position)
    for i in range(count):
        at = start + np.uint64(i)
        bit = (random_bits(key0, key1, at >> _SHIFT_6) >> (at & _LOW_6)) & _ONE
        signed[i] = (1.0 - 2.0 * np.float64(np.int64(bit))) * (scale * root[i])


@jit
def add_srht(rows, begin, first, last, slope, root, intercept, chosen, key0, key1, signed, block, total, sketch):
    """S = sqrt(1/k) R H diag(signs). With H_P = H_(P/B) (x) H_B: transform blocks of B rows in cache, then add row
    (r mod B), with the sign of the outer Hadamard entry (r div B, block number), to each sampled output r. The gradient
    goes along, total += sum_i slope[i] x_i."""
    _signs(key0, key1, first - begin, last - first, np.sqrt(1.0 / chosen.size), root, signed)
    add_transformed(rows, first - begin, first, last, slope, signed, intercept, total, chosen, block, sketch)


@jit
def add_sjlt(rows, position, first, last, slope, root, intercept, nonzeros, key0, key1, signed, buckets, total, sketch):
    """Each row goes to `nonzeros` distinct outputs with random signs, scaled by sqrt(1 / nonzeros)."""
    count = last - first
    for q in range(nonzeros):
        _draw_buckets(key0, key1, position, count, q, nonzeros, sketch.shape[0], root, signed, buckets)
        add_to_buckets(rows, first, last, slope, total, buckets, signed, intercept, sketch)
        for i in range(count):
            slope[i] = 0.0  # the first draw carried the gradient along


@jit
def _draw_buckets(key0, key1, position, count, q, nonzeros, size, root, signed, buckets):
    """The q-th of each row's distinct outputs, by Floyd's algorithm, and its signed coefficient.

    The q-th draw is below size - nonzeros + q + 1, and a repeat of an earlier one becomes that bound less 1.
    """
    stride = np.uint64(nonzeros)
    start = np.uint64(position) * stride + np.uint64(q)
    bound = np.uint64(size - nonzeros + q + 1)
    scale = np.sqrt(1.0 / nonzeros)
    for i in range(count):
        bits = random_bits(key0, key1, start + np.uint64(i) * stride)
        buckets[i] = np.int64(((bits >> _SHIFT_32) * bound) >> _SHIFT_32)
        signed[i] = (1.0 - 2.0 * np.float64(np.int64(bits & _ONE))) * (scale * root[i])
    if q > 0:
        drawn = np.empty(q, np.int64)
        for i in range(count):
            for earlier in range(q + 1):  # an earlier draw is cheap to make again, and needs no table of its own
                bits = random_bits(key0, key1, start + np.uint64(i) * stride - np.uint64(q - earlier))
                bucket = np.int64(((bits >> _SHIFT_32) * np.uint64(size - nonzeros + earlier + 1)) >> _SHIFT_32)
                for other in range(earlier):
                    if drawn[other] == bucket:
                        bucket = size - nonzeros + earlier
                        break
                if earlier < q:
                    drawn[earlier] = bucket
                else:
                    buckets[i] = bucket


@jit
def add_sampled(rows, begin, first, last, root, intercept, chosen, population, sketch):
    """The chosen rows themselves, scaled by sqrt(population / k)."""
    scale = np.sqrt(population / chosen.size)
    low = np.searchsorted(chosen, first - begin)
    high = np.searchsorted(chosen, last - begin)
    coefficient = np.empty(1)
    for r in range(low, high):
        row = begin + chosen[r]
        coefficient[0] = scale * root[row - first]
        scaled_block(rows, row, row + 1, coefficient, intercept, sketch[r : r + 1])


@jit
def add_dense_sketch(position, count, features, gaussian, key0, key1, block, sketch):
    """Independent entries: normal with variance 1/k, or +-sqrt(1/k)."""
    entries = np.empty(sketch.shape[0])
    for i in range(count):
        if gaussian:
            normal_row(key0, key1, position + i, entries)
        else:
            sign_row(key0, key1, position + i, entries)
        row = block[i]
        for r in range(entries.size):
            output, entry = sketch[r], entries[r]
            for c in range(features):
                output[c] += entry * row[c]


@jit
def normal_row(key0, key1, position, entries):
    """Column `position` of a Gaussian sketch, by the Box-Muller transform."""
    pairs = (entries.size + 1) // 2
    scale = np.sqrt(1.0 / entries.size)
    for p in range(pairs):
        index = 2 * (position * pairs + p)
        u = (np.float64(random_bits(key0, key1, index) >> _SHIFT_11) + 1.0) * _UNIT  # never 0
        angle = 2.0 * np.pi * np.float64(random_bits(key0, key1, index + 1) >> _SHIFT_11) * _UNIT
        radius = scale * np.sqrt(-2.0 * np.log(u))
        entries[2 * p] = radius * np.cos(angle)
        if 2 * p + 1 < entries.size:
            entries[2 * p + 1] = radius * np.sin(angle)


@jit
def sign_row(key0, key1, position, entries):
    """Column `position` of a Rademacher sketch: 64 signs from each word."""
    words = (entries.size + 63) // 64
    scale = np.sqrt(1.0 / entries.size)
    for word in range(words):
        bits = random_bits(key0, key1, position * words + word)
        for r in range(64 * word, min(64 * word + 64, entries.size)):
            entries[r] = scale * (1.0 - 2.0 * np.float64((bits >> np.uint64(r - 64 * word)) & _ONE))
