"""One pass over the rows of a batch of clients: margins, derivatives, gradient and sketch while a block is in cache.

Each function takes the rows, their segments and a range of segments, and writes to those segments' slots alone.
Coefficients are a table with one row for all clients, or a row for each.
"""

import numpy as np

from fedns.numerics.backend import COLUMNS, ROW_SAMPLING, SJLT, SRHT
from fedns.numerics.cpu import pointwise, simd
from fedns.numerics.cpu.aligned import aligned, aligned_row
from fedns.numerics.cpu.dense import copy, copy_doubles, own_row, padded, total_of
from fedns.numerics.cpu.parts import in_parts
from fedns.numerics.cpu.pointwise import LossCode
from fedns.numerics.cpu.rows import (
    add_combination,
    add_gram_triangle,
    add_sjlt_groups,
    add_srht_blocks,
    gram_scratch,
    margins,
    opened,
    room_for,
    rows_at_once,
    scaled_block,
)
from fedns.numerics.cpu.sketching import SketchCode, add_columns, add_sampled, add_sjlt, add_srht
from fedns.numerics.formulas import where_positive
from fedns.numerics.jit import exact_jit, jit
from fedns.numerics.parallel import Segments
from fedns.numerics.rng import sample_without_replacement

# A block of rows is read twice or three times, the first time from memory. An eighth of a 1 MiB second-level cache
# measured best: smaller blocks leave the memory idle too often, larger ones push each other out.
_BLOCK_BYTES = 131072
_GRAM_ROWS = 128


@jit
def block_rows(num_features, multiple):
    """How many rows stay in the second-level cache, at least 16, rounded up to a multiple."""
    wanted = max(16, _BLOCK_BYTES // (8 * num_features))
    return -(-wanted // multiple) * multiple


@jit
def along(rows, y, s, totals, segments, low, high, points, directions, steps, loss, norms, out, sums):
    """Losses, or curvatures, at each point + steps[t] direction: what there is room for.

    out[segment, t] = sum_i s_i loss(y_i, x_i . (point + steps[t] direction)) / total weight of the client, and
    sums[segment, t] = the four of `_add_curvatures`.
    """
    features = points.shape[1]
    intercept = features > rows.num_columns
    size = block_rows(features, 1)
    most = rows_at_once(rows, size)
    z, dz, at, slope, root = np.empty(most), np.empty(most), np.empty(most), np.empty(most), np.empty(most)
    dz[:] = 0.0
    room = room_for(rows, most)
    for segment in range(low, high):
        client = segments.client[segment]
        scale = 1.0 / totals[client]
        point, direction = own_row(points, client), own_row(directions, client)
        for first in range(segments.first[segment], segments.last[segment], most):
            last = min(first + most, segments.last[segment])
            count = last - first
            part, start = opened(rows, first, last, room)
            margins(part, start, start + count, point, z)
            if out.size > 0 or steps.any():
                margins(part, start, start + count, direction, dz)
            for t in range(steps.size):
                for i in range(count):
                    at[i] = z[i] + steps[t] * dz[i]
                if out.size > 0:
                    pointwise.values(loss, y, first, count, at, slope)
                    out[segment, t] = _add_losses(s, first, count, size, scale, slope, out[segment, t])
                if sums.size > 0:
                    pointwise.derivatives(loss, y, first, count, at, slope, root)
                    _weigh(s, first, count, scale, slope, root)
                    _add_curvatures(first, count, size, root, norms, 1.0 if intercept else 0.0, sums[segment, t])


@exact_jit
def _add_losses(s, first, count, size, scale, values, total):
    """total + scale sum_i s_i values[i], block by block of `size` rows; s_i is 1 where there are none. Weighs the values."""
    if s.size > 0:
        for i in range(count):
            values[i] *= s[first + i]
    for start in range(0, count, size):
        total += scale * total_of(values, start, min(size, count - start))
    return total


@exact_jit
def _weigh(s, first, count, scale, slope, curvature):
    """slope <- s slope scale, curvature <- sqrt(s curvature scale): the coefficients of gradient and root rows."""
    if s.size > 0:
        for i in range(count):
            weight = s[first + i] * scale
            slope[i] *= weight
            curvature[i] = np.sqrt(curvature[i] * weight)
    else:
        for i in range(count):
            slope[i] *= scale
            curvature[i] = np.sqrt(curvature[i] * scale)


@jit
def gradient_and_hessian(rows, y, s, totals, segments, low, high, points, loss, gradient, triangle):
    """Gradient of each client's mean loss; the upper triangle of its Hessian, row by row."""
    features = points.shape[1]
    intercept = features > rows.num_columns
    most = rows_at_once(rows, _GRAM_ROWS)
    z, slope, root = np.empty(most), np.empty(most), np.empty(most)
    scratch = gram_scratch(rows, _GRAM_ROWS, features)
    room = room_for(rows, most)
    total = aligned_row(padded(features))
    for segment in range(low, high):
        client = segments.client[segment]
        scale = 1.0 / totals[client]
        w, hessian = own_row(points, client), triangle[segment]
        total[:] = 0.0
        hessian[:] = 0.0
        for first in range(segments.first[segment], segments.last[segment], most):
            last = min(first + most, segments.last[segment])
            count = last - first
            part, start = opened(rows, first, last, room)
            margins(part, start, start + count, w, z)
            pointwise.derivatives(loss, y, first, count, z, slope, root)
            _weigh(s, first, count, scale, slope, root)
            add_gram_triangle(part, start, start + count, slope, root, intercept, scratch, total, hessian)
        copy(total, 0, features, gradient[segment])


@jit
def value_and_gradient(rows, y, s, totals, segments, low, high, points, loss, value, gradient, norms, sums):
    """Gradient of each client's mean loss; the mean loss itself and sums of curvatures where there is room for them."""
    features = points.shape[1]
    intercept = features > rows.num_columns
    size = block_rows(features, 1)
    most = rows_at_once(rows, size)
    z, slope, root = np.empty(most), np.empty(most), np.empty(most)
    total, room = aligned_row(padded(features)), room_for(rows, most)
    for segment in range(low, high):
        client = segments.client[segment]
        scale = 1.0 / totals[client]
        w = own_row(points, client)
        total[:] = 0.0
        for first in range(segments.first[segment], segments.last[segment], most):
            last = min(first + most, segments.last[segment])
            count = last - first
            part, start = opened(rows, first, last, room)
            margins(part, start, start + count, w, z)
            if value.size > 0:
                pointwise.values(loss, y, first, count, z, slope)
                value[segment] = _add_losses(s, first, count, size, scale, slope, value[segment])
            pointwise.derivatives(loss, y, first, count, z, slope, root)
            _weigh(s, first, count, scale, slope, root)
            if sums.size > 0:
                _add_curvatures(first, count, size, root, norms, 1.0 if intercept else 0.0, sums[segment, 0])
            add_combination(part, start, start + count, slope, intercept, total)
        copy(total, 0, features, gradient[segment])


@exact_jit
def _add_curvatures(first, count, size, root, norms, constant, sums):
    """sums += (sum d, sum d^2, sum d |x|^2) of each block of `size` rows in turn, and the largest d |x|^2; d = root^2, and
    `constant` belongs to |x|^2."""
    for start in range(0, count, size):
        stop = min(start + size, count)
        whole = start + (stop - start) // 8 * 8
        totals = squares = traces = simd.splat(0.0)
        most = simd.splat(sums[3])
        for i in range(start, whole, 8):
            root_of_eight = simd.load(root, i)
            curvature = root_of_eight * root_of_eight
            own = curvature * (simd.load(norms, first + i) + constant)
            totals, squares, traces = totals + curvature, squares + curvature * curvature, traces + own
            most = where_positive(own - most, own, most)
        total, square, trace, largest = simd.total(totals), simd.total(squares), simd.total(traces), sums[3]
        for lane in range(8):
            largest = max(largest, simd.lane(most, lane))
        for i in range(whole, stop):
            curvature_of_one = root[i] * root[i]
            own_of_one = curvature_of_one * (norms[first + i] + constant)
            total += curvature_of_one
            square += curvature_of_one * curvature_of_one
            trace += own_of_one
            largest = max(largest, own_of_one)
        sums[0] += total
        sums[1] += square
        sums[2] += trace
        sums[3] = largest


@jit
def hessian_times(rows, y, s, totals, segments, low, high, points, loss, vectors, out):
    """out[segment, v] = H vectors[client, v] for the Hessian H of each client's mean loss, which is not formed."""
    features = points.shape[1]
    intercept = features > rows.num_columns
    size = rows_at_once(rows, block_rows(features, 1))
    z, slope, curvature = np.empty(size), np.empty(size), np.empty(size)
    sums, room = np.empty((vectors.shape[1], padded(features))), room_for(rows, size)
    for segment in range(low, high):
        client = segments.client[segment]
        scale = 1.0 / totals[client]
        w, own = own_row(points, client), own_row(vectors, client)
        sums[:] = 0.0
        for first in range(segments.first[segment], segments.last[segment], size):
            last = min(first + size, segments.last[segment])
            count = last - first
            part, start = opened(rows, first, last, room)
            margins(part, start, start + count, w, z)
            pointwise.derivatives(loss, y, first, count, z, slope, curvature)
            _weigh(s, first, count, scale, curvature, slope)  # what it makes of the slopes is not used
            for v in range(own.shape[0]):
                margins(part, start, start + count, own[v], z)
                for i in range(count):
                    z[i] *= curvature[i]
                add_combination(part, start, start + count, z, intercept, sums[v])
        for v in range(own.shape[0]):
            copy(sums[v], 0, features, out[segment, v])


@jit
def gradient_and_sketch(rows, y, s, totals, segments, low, high, points, loss, gradient, plan, keys, table, starts):
    """Gradient of each client's mean loss, and S A for the root A of its Hessian.

    A segment's share of the sketch fills rows starts[segment] : starts[segment + 1] of the table.
    """
    features = points.shape[1]
    intercept = features > rows.num_columns
    kind = plan.kind
    size = block_rows(features, plan.block_length)
    z, slope, root = np.empty(size), np.empty(size), np.empty(size)
    signed, buckets = np.empty(size), np.empty(size, np.int64)
    total, room = aligned_row(padded(features)), room_for(rows, size)
    largest = 0
    for segment in range(low, high):
        largest = max(largest, starts[segment + 1] - starts[segment])
    cells = aligned(largest, padded(features))
    flat_cells, flat_table = cells.reshape(cells.size), table.reshape(table.size)
    block = aligned(plan.block_length if kind == SRHT else size if kind == COLUMNS else 0, -(-features // 8) * 8)
    for segment in range(low, high):
        client = segments.client[segment]
        scale = 1.0 / totals[client]
        w = own_row(points, client)
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
        done, end = segments.first[segment], segments.last[segment]
        if kind == SJLT:
            done = add_sjlt_groups(rows, y, s, begin, done, end, w, scale, loss, key0, key1, total, sketch)
        elif kind == SRHT:
            done = add_srht_blocks(rows, y, s, begin, done, end, w, scale, loss, key0, key1, chosen, total, sketch)
        for first in range(done, end, size):
            last = min(first + size, end)
            count = last - first
            part, start = opened(rows, first, last, room)
            stop = start + count
            margins(part, start, stop, w, z)
            pointwise.derivatives(loss, y, first, count, z, slope, root)
            _weigh(s, first, count, scale, slope, root)
            if kind == SJLT:
                add_sjlt(
                    part, first - begin, start, stop, slope, root, intercept, plan.nonzeros, key0, key1, signed, buckets,
                    total, sketch,
                )  # fmt: skip
                continue
            if kind == SRHT:
                add_srht(
                    part, plan.transform, first - begin, start, stop, slope, root, intercept, chosen, key0, key1, signed,
                    block, total, sketch,
                )  # fmt: skip
                continue
            add_combination(part, start, stop, slope, intercept, total)
            if kind == ROW_SAMPLING:
                add_sampled(part, first - begin, start, stop, root, intercept, chosen, population, sketch)
            else:
                scaled_block(part, start, stop, root, intercept, block)
                add_columns(first - begin, count, features, plan, key0, key1, block, sketch)
        copy(total, 0, features, gradient[segment])
        for r in range(sketch.shape[0]):
            copy_doubles(flat_cells, r * cells.shape[1], features, flat_table, (starts[segment] + r) * features)


# Named tuples other than rows come without their names (`backend._launch`) and get them back here.
@jit
def along_in_parts(starter, cuts, rows, y, s, totals, segments, points, directions, steps, loss, norms, out, sums):
    before, after = (rows, y, s, totals, Segments(*segments)), (points, directions, steps, LossCode(*loss), norms, out, sums)
    in_parts(starter, along, cuts, before, after)


@jit
def value_and_gradient_in_parts(starter, cuts, rows, y, s, totals, segments, points, loss, value, gradient, norms, sums):
    before, after = (rows, y, s, totals, Segments(*segments)), (points, LossCode(*loss), value, gradient, norms, sums)
    in_parts(starter, value_and_gradient, cuts, before, after)


@jit
def gradient_and_hessian_in_parts(starter, cuts, rows, y, s, totals, segments, points, loss, gradient, triangle):
    before, after = (rows, y, s, totals, Segments(*segments)), (points, LossCode(*loss), gradient, triangle)
    in_parts(starter, gradient_and_hessian, cuts, before, after)


@jit
def hessian_times_in_parts(starter, cuts, rows, y, s, totals, segments, points, loss, vectors, out):
    before, after = (rows, y, s, totals, Segments(*segments)), (points, LossCode(*loss), vectors, out)
    in_parts(starter, hessian_times, cuts, before, after)


@jit
def gradient_and_sketch_in_parts(
    starter, cuts, rows, y, s, totals, segments, points, loss, gradient, plan, keys, table, starts
):
    before = (rows, y, s, totals, Segments(*segments))
    after = (points, LossCode(*loss), gradient, SketchCode(*plan), keys, table, starts)
    in_parts(starter, gradient_and_sketch, cuts, before, after)
