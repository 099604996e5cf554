"""Mini-batch gradient steps that every client of a batch takes by itself, over dense or compressed rows."""

import numpy as np

from fedns.numerics.cpu import pointwise
from fedns.numerics.cpu.dense import copy, own_row, padded
from fedns.numerics.cpu.rows import add_combination, drawn, margins, room_for
from fedns.numerics.jit import jit
from fedns.numerics.rng import random_bits

_UNIT = 1.0 / 9007199254740992.0  # 2^-53
_SHIFT_11 = np.uint64(11)


@jit
def shuffle(key0, key1, epoch, order):
    """A fresh permutation of 0, 1, ... for this epoch of this stream, by Fisher and Yates."""
    count = order.size
    for i in range(count):
        order[i] = i
    for i in range(count - 1, 0, -1):
        bits = random_bits(key0, key1, epoch * count + i) >> _SHIFT_11
        j = np.int64(np.float64(bits) * _UNIT * (i + 1))
        order[i], order[j] = order[j], order[i]


@jit
def next_batch(key0, key1, order, position, epoch, batch_size):
    """Where the next mini-batch begins in `order`, shuffled anew at its end; the epoch, and how many rows it has."""
    if position == order.size:
        shuffle(key0, key1, epoch, order)
        position, epoch = 0, epoch + 1
    return position, epoch, min(batch_size, order.size - position)


@jit
def take_step(gradient, first, count, diagonal, proximal, rate, start, u):
    """u -= rate (gradient + diagonal u + proximal (u - start)), for `count` coefficients of u from `first` on."""
    for j in range(count):
        c = first + j
        u[c] -= rate * (gradient[j] + diagonal[c] * u[c] + proximal * (u[c] - start[c]))


@jit
def minibatch_steps(
    rows, y, s, totals, segments, low, high, points, loss, diagonal, proximal, rate, steps, batch_size, keys, out
):
    """out[j] = point after steps[j] steps u <- u - rate (g_B(u) + diagonal u + proximal (u - point)) of client j.

    g_B is the mini-batch's estimate of the gradient of the client's mean loss, (n / |B|) sum_{i in B} s_i grad_i / sum s:
    unbiased with sample weights too. Batches walk through a permutation of the client's rows, a fresh one each epoch,
    the last batch of which may be shorter. Segments are whole clients: the steps of one cannot be cut.
    """
    features = out.shape[1]
    intercept = features > rows.num_columns
    size = 1
    for segment in range(low, high):
        size = max(size, min(batch_size, segments.size[segment]))
    z, target = np.empty(size), np.empty(size)
    slope, curvature = np.empty(size), np.empty(size)
    gradient, room, chosen = np.empty(padded(features)), room_for(rows, size), np.empty(size, np.int64)
    for segment in range(low, high):
        client, begin, population = segments.client[segment], segments.begin[segment], segments.size[segment]
        start, u = own_row(points, client), out[client]
        copy(start, 0, features, u)
        order = np.empty(population, np.int64)
        position, epoch = population, 0
        for _ in range(steps[client]):
            position, epoch, count = next_batch(keys[client, 0], keys[client, 1], order, position, epoch, batch_size)
            for i in range(count):
                chosen[i] = begin + order[position + i]
                target[i] = y[chosen[i]]
            part = drawn(rows, chosen, count, room)
            for i in range(count):
                margins(part, chosen[i], chosen[i] + 1, u, z[i : i + 1])
            pointwise.derivatives(loss, target, 0, count, z, slope, curvature)
            scale = population / (count * totals[client])
            gradient[:] = 0.0
            for i in range(count):
                slope[i] *= scale * s[begin + order[position + i]] if s.size > 0 else scale
                add_combination(part, chosen[i], chosen[i] + 1, slope[i : i + 1], intercept, gradient)
            take_step(gradient, 0, features, diagonal, proximal, rate, start, u)
            position += count
