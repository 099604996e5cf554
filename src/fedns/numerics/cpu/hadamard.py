"""The Walsh-Hadamard transform of a block of rows, in place."""

import numpy as np
from numba import njit

from fedns.numerics.cpu import simd
from fedns.numerics.jit import exact_jit, jit


@jit
def parity(x):
    """Number of one bits of a 64-bit word, modulo 2."""
    return simd.one_bits(x) & 1


@jit
def transform_rows(block, done):
    """block <- H block for the unnormalised Hadamard matrix H[r, i] = (-1)^popcount(r & i).

    Rows a power of two, columns a multiple of eight. Stages that pair rows less than `done` apart have been applied
    already; the others go two at a time, so that the block is read and written half as often.
    """
    count, width = block.shape
    cells = block.reshape(block.size)
    half = done
    while half * 4 <= count:
        stride = half * width
        for start in range(0, count, 4 * half):
            for q in range(start * width, (start + half) * width, 8):
                a, b = simd.load(cells, q), simd.load(cells, q + stride)
                c, d = simd.load(cells, q + 2 * stride), simd.load(cells, q + 3 * stride)
                a, b, c, d = a + b, a - b, c + d, c - d
                simd.store(cells, q, a + c)
                simd.store(cells, q + stride, b + d)
                simd.store(cells, q + 2 * stride, a - c)
                simd.store(cells, q + 3 * stride, b - d)
        half *= 4
    if half < count:
        stride = half * width
        for q in range(0, stride, 8):
            a, b = simd.load(cells, q), simd.load(cells, q + stride)
            simd.store(cells, q, a + b)
            simd.store(cells, q + stride, a - b)


@jit
def add_sampled_outputs(block, outer, chosen, sketch):
    """sketch[r] += +-block[chosen[r] mod B], the sign that of the outer Hadamard entry (chosen[r] div B, outer)."""
    inner, width = block.shape
    cells = block.reshape(block.size)
    sketch_width = sketch.shape[1]
    outputs = sketch.reshape(sketch.size)
    for r in range(chosen.size):
        sign = simd.splat(1.0 - 2.0 * parity((chosen[r] // inner) & outer))
        p, q = (chosen[r] & (inner - 1)) * width, r * sketch_width
        for c in range(0, width, 8):
            simd.store(outputs, q + c, simd.fma(simd.load(cells, p + c), sign, simd.load(outputs, q + c)))


@exact_jit
def places_of(chosen, inner, lanes):
    """Output `chosen` is made of an output of each block of `inner` rows, with the sign of an outer Hadamard entry: which
    outputs those are, zeros after them up to `lanes`, and which rows of the outer matrix."""
    order = np.zeros(lanes, np.int64)
    for r in range(chosen.size):
        order[r] = chosen[r] & (inner - 1)
    return order, chosen // inner


@njit(inline="always")
def write_signs(signs, place, outer, number):
    """signs[place + r] = that of row outer[r] of the outer matrix for the block with this number."""
    for r in range(outer.size):
        signs[place + r] = 1.0 - 2.0 * parity(outer[r] & number)
