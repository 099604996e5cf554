"""One pass over the rows of a batch of clients: margins, derivatives, gradient and sketch while a block is in cache.

Each function takes the rows, their segments and a range of segments, and writes to those segments' slots alone.
Coefficients are a table with one row for all clients, or a row for each.
"""

from typing import NamedTuple

import numpy as np
from numba import prange
from numpy.typing import NDArray

from fedns.numerics import pointwise
from fedns.numerics.dense_rows import aligned, padded
from fedns.numerics.hadamard import add_sampled_outputs
from fedns.numerics.jit import jit, parallel_jit
from fedns.numerics.rng import random_bits
from fedns.numerics.rows import (
    add_combination,
    add_gram,
    add_to_buckets,
    hadamard_of_scaled,
    margins,
    scaled_block,
)


class SketchPlan(NamedTuple):
    """What a kernel needs to know of a sketch."""

    kind: int
    sizes: NDArray[np.int64]  # (clients,) rows of each client's sketch
    nonzeros: int = 1  # per column, for SJLT
    block_length: int = 1  # of the blocks SRHT transforms, a power of two


NO_SKETCH, GAUSSIAN, RADEMACHER, SRHT, SJLT, ROW_SAMPLING = range(6)
NO_PLAN = SketchPlan(NO_SKETCH, np.zeros(0, dtype=np.int64))

# A block of rows is read twice or three times, the first time from memory. An eighth of a 1 MiB second-level cache
# measured best: smaller blocks leave the memory idle too often, larger ones push each other out.
_BLOCK_BYTES = 131072
_GRAM_ROWS = 128
_UNIT = 1.0 / 9007199254740992.0  # 2^-53
_ONE = np.uint64(1)
_SHIFT_6, _SHIFT_11, _SHIFT_32, _LOW_6 = np.uint64(6), np.uint64(11), np.uint64(32), np.uint64(63)


@jit
def block_rows(num_features, multiple):
    """How many rows stay in the second-level cache, at least 16, rounded up to a multiple."""
    wanted = max(16, _BLOCK_BYTES // (8 * num_features))
    return -(-wanted // multiple) * multiple


@jit
def _own(table, client):
    """The client's row of a table that may have a single row for all."""
    return table[client if table.shape[0] > 1 else 0]


@jit
def losses_along(rows, y, s, totals, segments, low, high, points, directions, steps, family, out):
    """out[segment, t] = sum_i s_i loss(y_i, x_i . (point + steps[t] direction)) / total weight of the client."""
    size = block_rows(points.shape[1], 1)
    z, dz, at, value = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    for segment in range(low, high):
        client = segments.client[segment]
        scale = 1.0 / totals[client]
        point, direction = _own(points, client), _own(directions, client)
        for first in range(segments.first[segment], segments.last[segment], size):
            last = min(first + size, segments.last[segment])
            count = last - first
            margins(rows, first, last, point, z)
            margins(rows, first, last, direction, dz)
            for t in range(steps.size):
                for i in range(count):
                    at[i] = z[i] + steps[t] * dz[i]
                pointwise.values(family, y, first, count, at, value)
                out[segment, t] += scale * _weighted_total(s, first, count, value)


@jit
def _weighted_total(s, first, count, values):
    """sum_i s_i values[i], all s_i being 1 where there are none."""
    total = 0.0
    if s.size > 0:
        for i in range(count):
            total += s[first + i] * values[i]
    else:
        for i in range(count):
            total += values[i]
    return total


@jit
def _weigh(s, first, count, scale, slope, curvature):
    """slope <- s slope scale, curvature <- sqrt(s curvature scale): the coefficients of gradient and root rows."""
    if s.size > 0:
        for i in range(count):
            slope[i] *= s[first + i] * scale
            curvature[i] = np.sqrt(curvature[i] * s[first + i] * scale)
    else:
        for i in range(count):
            slope[i] *= scale
            curvature[i] = np.sqrt(curvature[i] * scale)


@jit
def gradient_and_hessian(rows, y, s, totals, segments, low, high, points, intercept, family, gradient, packed):
    """Gradient and packed upper triangle of the Hessian of each client's mean loss."""
    features = points.shape[1]
    z, slope, root = np.empty(_GRAM_ROWS), np.empty(_GRAM_ROWS), np.empty(_GRAM_ROWS)
    block = np.empty((_GRAM_ROWS, features))
    total = np.empty(padded(features))
    hessian = np.empty((features, features))
    for segment in range(low, high):
        client = segments.client[segment]
        scale = 1.0 / totals[client]
        w = _own(points, client)
        total[:] = 0.0
        hessian[:] = 0.0
        for first in range(segments.first[segment], segments.last[segment], _GRAM_ROWS):
            last = min(first + _GRAM_ROWS, segments.last[segment])
            count = last - first
            margins(rows, first, last, w, z)
            pointwise.derivatives(family, y, first, count, z, slope, root)
            _weigh(s, first, count, scale, slope, root)
            add_combination(rows, first, last, slope, intercept, total)
            add_gram(rows, first, last, root, intercept, block, hessian)
        gradient[segment] = total[:features]
        entry = 0
        for a in range(features):
            for b in range(a, features):
                packed[segment, entry] = hessian[a, b]
                entry += 1


@jit
def gradient_and_sketch(
    rows,
    y,
    s,
    totals,
    segments,
    low,
    high,
    points,
    intercept,
    family,
    value,
    gradient,
    kind,
    nonzeros,
    inner,
    keys,
    table,
    starts,
):
    """Gradient of each client's mean loss and, unless kind is NO_SKETCH, S A for the root A of its Hessian.

    The mean loss itself is found too where `value` has room for it.

    A segment's share of the sketch fills rows starts[segment] : starts[segment + 1] of the table. `inner` is the
    length of the blocks that SRHT transforms, a power of two, and 1 for the others.
    """
    features = points.shape[1]
    size = block_rows(features, inner)
    z, slope, root = np.empty(size), np.empty(size), np.empty(size)
    signed, buckets = np.empty(size), np.empty(size, np.int64)
    total = np.empty(padded(features))
    largest = 0
    for segment in range(low, high):
        largest = max(largest, starts[segment + 1] - starts[segment])
    cells = aligned(largest, padded(features))
    block = aligned(inner if kind == SRHT else size, -(-features // 8) * 8)
    for segment in range(low, high):
        client = segments.client[segment]
        scale = 1.0 / totals[client]
        w = _own(points, client)
        begin = segments.begin[segment]
        key0, key1 = keys[client, 0], keys[client, 1]
        sketch = cells[: starts[segment + 1] - starts[segment]]
        sketch[:] = 0.0
        total[:] = 0.0
        population = segments.size[segment]
        if kind == SRHT:
            padded_population = 1
            while padded_population < population:
                padded_population *= 2
            chosen = sample_without_replacement(key0, ~key1, padded_population, sketch.shape[0])
        elif kind == ROW_SAMPLING:
            chosen = sample_without_replacement(key0, ~key1, population, sketch.shape[0])
        else:
            chosen = np.empty(0, np.int64)
        for first in range(segments.first[segment], segments.last[segment], size):
            last = min(first + size, segments.last[segment])
            count = last - first
            margins(rows, first, last, w, z)
            if value.size > 0:
                pointwise.values(family, y, first, count, z, slope)
                value[segment] += scale * _weighted_total(s, first, count, slope)
            pointwise.derivatives(family, y, first, count, z, slope, root)
            _weigh(s, first, count, scale, slope, root)
            if kind == SJLT:
                _add_sjlt(
                    rows,
                    first - begin,
                    first,
                    last,
                    slope,
                    root,
                    intercept,
                    nonzeros,
                    key0,
                    key1,
                    signed,
                    buckets,
                    total,
                    sketch,
                )
                continue
            add_combination(rows, first, last, slope, intercept, total)
            if kind == SRHT:
                _add_srht(rows, begin, first, last, root, intercept, chosen, key0, key1, signed, block, sketch)
            elif kind == ROW_SAMPLING:
                _add_sampled(rows, begin, first, last, root, intercept, chosen, population, sketch)
            elif kind != NO_SKETCH:
                scaled_block(rows, first, last, root, intercept, block)
                _add_dense_sketch(first - begin, count, features, kind == GAUSSIAN, key0, key1, block, sketch)
        gradient[segment] = total[:features]
        table[starts[segment] : starts[segment + 1]] = sketch[:, :features]


@jit
def sample_without_replacement(key0, key1, population, count):
    """Floyd's algorithm: `count` distinct numbers below `population`, uniformly, in increasing order."""
    taken = np.zeros(population, np.uint8)
    for j in range(population - count, population):
        t = np.int64(np.float64(random_bits(key0, key1, j) >> _SHIFT_11) * _UNIT * (j + 1))
        taken[j if taken[t] else t] = 1
    return np.flatnonzero(taken)


@jit
def _signs(key0, key1, position, count, scale, root, signed):
    """signed[i] = +-scale root[i], the sign of row position + i of a stream: 64 signs from each word."""
    start = np.uint64(position)
    for i in range(count):
        at = start + np.uint64(i)
        bit = (random_bits(key0, key1, at >> _SHIFT_6) >> (at & _LOW_6)) & _ONE
        signed[i] = (1.0 - 2.0 * np.float64(np.int64(bit))) * (scale * root[i])


@jit
def _add_srht(rows, begin, first, last, root, intercept, chosen, key0, key1, signed, block, sketch):
    """S = sqrt(1/k) R H diag(signs). With H_P = H_(P/B) (x) H_B: transform blocks of B rows in cache, then add row
    (r mod B), with the sign of the outer Hadamard entry (r div B, block number), to each sampled output r."""
    inner = block.shape[0]
    _signs(key0, key1, first - begin, last - first, np.sqrt(1.0 / chosen.size), root, signed)
    for start in range(first, last, inner):
        hadamard_of_scaled(rows, start, min(start + inner, last), signed, start - first, intercept, block)
        add_sampled_outputs(block, (start - begin) // inner, chosen, sketch)


@jit
def _add_sjlt(rows, position, first, last, slope, root, intercept, nonzeros, key0, key1, signed, buckets, total, sketch):
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
def _add_sampled(rows, begin, first, last, root, intercept, chosen, population, sketch):
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
def _add_dense_sketch(position, count, features, gaussian, key0, key1, block, sketch):
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


@parallel_jit
def losses_along_in_parts(rows, y, s, totals, segments, cuts, points, directions, steps, family, out):
    for part in prange(cuts.size - 1):
        low, high = cuts[part], cuts[part + 1]
        losses_along(rows, y, s, totals, segments, low, high, points, directions, steps, family, out)


@parallel_jit
def gradient_and_hessian_in_parts(rows, y, s, totals, segments, cuts, points, intercept, family, gradient, packed):
    for part in prange(cuts.size - 1):
        low, high = cuts[part], cuts[part + 1]
        gradient_and_hessian(rows, y, s, totals, segments, low, high, points, intercept, family, gradient, packed)


@parallel_jit
def gradient_and_sketch_in_parts(
    rows,
    y,
    s,
    totals,
    segments,
    cuts,
    points,
    intercept,
    family,
    value,
    gradient,
    kind,
    nonzeros,
    inner,
    keys,
    table,
    starts,
):
    for part in prange(cuts.size - 1):
        low, high = cuts[part], cuts[part + 1]
        gradient_and_sketch(
            rows, y, s, totals, segments, low, high, points, intercept, family, value, gradient, kind, nonzeros, inner, keys,
            table, starts,
        )  # fmt: skip
