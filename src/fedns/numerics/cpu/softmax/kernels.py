"""Passes over rows with several margins each: the softmax of all outputs, its slopes and its curvatures.

Coefficients of K outputs stand one after the other, M each. With `shift` = 1 the first class has no output: its margin is 0.
"""

import numpy as np

from fedns.numerics.cpu.dense import copy, own_row, padded
from fedns.numerics.cpu.local_steps import next_batch, take_step
from fedns.numerics.cpu.rows import add_combination, add_gram, margins, scaled_block
from fedns.numerics.jit import exact_jit, jit

_BLOCK_ROWS = 128


@jit
def _all_margins(rows, first, last, w, z):
    """z[k] = margins of output k."""
    features = w.size // z.shape[0]
    for k in range(z.shape[0]):
        margins(rows, first, last, w[k * features : (k + 1) * features], z[k])


@exact_jit
def _softmax(y, first, count, shift, z, value, rest):
    """Margins z (outputs, rows) become probabilities; value = minus the log of the target's, rest = the reference's."""
    outputs = z.shape[0]
    for i in range(count):
        own = np.int64(y[first + i]) - shift
        margin = z[own, i] if own >= 0 else 0.0
        top = 0.0 if shift else z[0, i]
        for k in range(outputs):
            top = max(top, z[k, i])
        rest[i] = np.exp(-top) if shift else 0.0
        total = rest[i]
        for k in range(outputs):
            z[k, i] = np.exp(z[k, i] - top)
            total += z[k, i]
        for k in range(outputs):
            z[k, i] /= total
        rest[i] /= total
        value[i] = top + np.log(total) - margin


@exact_jit
def _weight(s, row, scale):
    return s[row] * scale if s.size > 0 else scale


@exact_jit
def _add_curvatures(s, first, count, scale, p, norms, constant, sums):
    """The four sums of a row's curvature d, the trace of its K x K matrix: sum d, sum d^2, sum d |x|^2, largest d |x|^2."""
    for i in range(count):
        d = 0.0
        for k in range(p.shape[0]):
            d += p[k, i] * (1.0 - p[k, i])
        d *= _weight(s, first + i, scale)
        own = d * (norms[first + i] + constant)
        sums[0] += d
        sums[1] += d * d
        sums[2] += own
        sums[3] = max(sums[3], own)


@jit
def along(rows, y, s, totals, segments, low, high, points, directions, steps, shift, outputs, norms, out, sums):
    """Losses, or the four sums of `_add_curvatures`, at each point + steps[t] direction, as for a single margin."""
    z, dz, at = np.empty((outputs, _BLOCK_ROWS)), np.empty((outputs, _BLOCK_ROWS)), np.empty((outputs, _BLOCK_ROWS))
    value, rest = np.empty(_BLOCK_ROWS), np.empty(_BLOCK_ROWS)
    constant = 1.0 if points.shape[1] // outputs > rows.num_columns else 0.0
    for segment in range(low, high):
        client = segments.client[segment]
        scale = 1.0 / totals[client]
        for first in range(segments.first[segment], segments.last[segment], _BLOCK_ROWS):
            last = min(first + _BLOCK_ROWS, segments.last[segment])
            _all_margins(rows, first, last, own_row(points, client), z)
            _all_margins(rows, first, last, own_row(directions, client), dz)
            for t in range(steps.size):
                for k in range(outputs):
                    for i in range(last - first):
                        at[k, i] = z[k, i] + steps[t] * dz[k, i]
                _softmax(y, first, last - first, shift, at, value, rest)
                if out.size > 0:
                    for i in range(last - first):
                        out[segment, t] += _weight(s, first + i, scale) * value[i]
                if sums.size > 0:
                    _add_curvatures(s, first, last - first, scale, at, norms, constant, sums[segment, t])


@jit
def value_and_gradient(rows, y, s, totals, segments, low, high, points, shift, outputs, value, gradient):
    """The mean loss and its gradient."""
    features = points.shape[1] // outputs
    intercept = features > rows.num_columns
    z, loss, rest = np.empty((outputs, _BLOCK_ROWS)), np.empty(_BLOCK_ROWS), np.empty(_BLOCK_ROWS)
    total = np.empty((outputs, padded(features)))
    for segment in range(low, high):
        client = segments.client[segment]
        total[:] = 0.0
        for first in range(segments.first[segment], segments.last[segment], _BLOCK_ROWS):
            last = min(first + _BLOCK_ROWS, segments.last[segment])
            _all_margins(rows, first, last, own_row(points, client), z)
            _softmax(y, first, last - first, shift, z, loss, rest)
            value[segment] += _slopes(y, s, first, last - first, shift, 1.0 / totals[client], z, loss)
            for k in range(outputs):
                add_combination(rows, first, last, z[k], intercept, total[k])
        for k in range(outputs):
            copy(total[k], 0, features, gradient[segment, k * features :])


@exact_jit
def _slopes(y, s, first, count, shift, scale, p, loss):
    """Probabilities p become weighted slopes; the weighted sum of the losses."""
    total = 0.0
    for i in range(count):
        own, weight = np.int64(y[first + i]) - shift, _weight(s, first + i, scale)
        total += weight * loss[i]
        for k in range(p.shape[0]):
            p[k, i] = weight * (p[k, i] - (1.0 if k == own else 0.0))
    return total


@jit
def hessian(rows, y, s, totals, segments, low, high, points, shift, outputs, triangle):
    """The upper triangle; block (a, b) is X' diag(p_a ((a = b) - p_b)) X."""
    features = points.shape[1] // outputs
    intercept = features > rows.num_columns
    z, loss, rest = np.empty((outputs, _BLOCK_ROWS)), np.empty(_BLOCK_ROWS), np.empty(_BLOCK_ROWS)
    root, block = np.empty(_BLOCK_ROWS), np.empty((_BLOCK_ROWS, features))
    grams = np.empty((outputs, outputs, features, features))
    for segment in range(low, high):
        client = segments.client[segment]
        scale = 1.0 / totals[client]
        grams[:] = 0.0
        for first in range(segments.first[segment], segments.last[segment], _BLOCK_ROWS):
            last = min(first + _BLOCK_ROWS, segments.last[segment])
            _all_margins(rows, first, last, own_row(points, client), z)
            _softmax(y, first, last - first, shift, z, loss, rest)
            for a in range(outputs):
                for b in range(a, outputs):
                    for i in range(last - first):
                        other = 1.0 - z[a, i] if a == b else z[b, i]
                        root[i] = np.sqrt(_weight(s, first + i, scale) * z[a, i] * other)
                    add_gram(rows, first, last, root, intercept, block, grams[a, b])
        _pack(grams, triangle[segment])


@exact_jit
def _pack(grams, triangle):
    """The upper triangle of the matrix of blocks, those off the diagonal with a minus; blocks have theirs filled alone."""
    outputs, features = grams.shape[0], grams.shape[2]
    entry = 0
    for a in range(outputs):
        for i in range(features):
            for b in range(a, outputs):
                for j in range(i if a == b else 0, features):
                    found = grams[a, b, min(i, j), max(i, j)]
                    triangle[entry] = found if a == b else -found
                    entry += 1


@jit
def hessian_times(rows, y, s, totals, segments, low, high, points, shift, outputs, vectors, out):
    """out[segment, v] = H vectors[client, v]: output a of row i adds p_a (u_a - sum_b p_b u_b) x_i, u_b being x_i . v_b."""
    features = points.shape[1] // outputs
    intercept = features > rows.num_columns
    p, u = np.empty((outputs, _BLOCK_ROWS)), np.empty((outputs, _BLOCK_ROWS))
    loss, rest = np.empty(_BLOCK_ROWS), np.empty(_BLOCK_ROWS)
    total = np.empty((vectors.shape[1], outputs, padded(features)))
    for segment in range(low, high):
        client = segments.client[segment]
        own = own_row(vectors, client)
        total[:] = 0.0
        for first in range(segments.first[segment], segments.last[segment], _BLOCK_ROWS):
            last = min(first + _BLOCK_ROWS, segments.last[segment])
            _all_margins(rows, first, last, own_row(points, client), p)
            _softmax(y, first, last - first, shift, p, loss, rest)
            for v in range(own.shape[0]):
                _all_margins(rows, first, last, own[v], u)
                _curved(s, first, last - first, 1.0 / totals[client], p, u)
                for k in range(outputs):
                    add_combination(rows, first, last, u[k], intercept, total[v, k])
        for v in range(own.shape[0]):
            for k in range(outputs):
                copy(total[v, k], 0, features, out[segment, v, k * features :])


@exact_jit
def _curved(s, first, count, scale, p, u):
    """u_a <- weight p_a (u_a - sum_b p_b u_b)."""
    for i in range(count):
        mean = 0.0
        for k in range(p.shape[0]):
            mean += p[k, i] * u[k, i]
        weight = _weight(s, first + i, scale)
        for k in range(p.shape[0]):
            u[k, i] = weight * p[k, i] * (u[k, i] - mean)


@jit
def fill_root(rows, y, s, scale, begin, low, high, w, shift, outputs, out):
    """Rows low : high of the root of a client's Hessian: for class c of a row, sqrt(p_c) (e_c - p) times the row."""
    features, classes = w.size // outputs, outputs + shift
    intercept = features > rows.num_columns
    z, loss, rest = np.empty((outputs, 1)), np.empty(1), np.empty(1)
    one, x = np.ones(1), np.empty((1, features))
    for position in range(low // classes, (high - 1) // classes + 1):
        row = begin + position
        _all_margins(rows, row, row + 1, w, z)
        _softmax(y, row, 1, shift, z, loss, rest)
        scaled_block(rows, row, row + 1, one, intercept, x)
        for c in range(classes):
            target = position * classes + c - low
            if target < 0 or target >= high - low:
                continue
            root = np.sqrt(_weight(s, row, scale) * (z[c - shift, 0] if c >= shift else rest[0]))
            for k in range(outputs):
                factor = root * ((1.0 if c - shift == k else 0.0) - z[k, 0])
                for j in range(features):
                    out[target, k * features + j] = factor * x[0, j]


@jit
def minibatch_steps(
    rows, y, s, totals, segments, low, high, points, shift, outputs, diagonal, proximal, rate, steps, batch_size, keys, out
):
    """Where steps u <- u - rate (g_B(u) + diagonal u + proximal (u - point)) lead each client, as for a single margin."""
    features = out.shape[1] // outputs
    intercept = features > rows.num_columns
    z, loss, rest = np.empty((outputs, 1)), np.empty(1), np.empty(1)
    gradient = np.empty((outputs, padded(features)))
    for segment in range(low, high):
        client, begin, population = segments.client[segment], segments.begin[segment], segments.size[segment]
        start, u = own_row(points, client), out[client]
        copy(start, 0, u.size, u)
        order = np.empty(population, np.int64)
        position, epoch = population, 0
        for _ in range(steps[client]):
            position, epoch, count = next_batch(keys[client, 0], keys[client, 1], order, position, epoch, batch_size)
            gradient[:] = 0.0
            for i in range(count):
                row = begin + order[position + i]
                _all_margins(rows, row, row + 1, u, z)
                _softmax(y, row, 1, shift, z, loss, rest)
                _slopes(y, s, row, 1, shift, population / (count * totals[client]), z, loss)
                for k in range(outputs):
                    add_combination(rows, row, row + 1, z[k], intercept, gradient[k])
            for k in range(outputs):
                take_step(gradient[k], k * features, features, diagonal, proximal, rate, start, u)
            position += count
