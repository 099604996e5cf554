"""The Walsh-Hadamard transform of a block of rows, in place."""

import numpy as np
from numba import njit

from fedns.numerics.cpu import simd
from fedns.numerics.cpu.aligned import aligned, aligned_row
from fedns.numerics.jit import exact_jit, jit

_FLIPS = 12  # bits of the number of a block that change together, more than most do


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
                a, b, c, d = simd.add(a, b), simd.subtract(a, b), simd.add(c, d), simd.subtract(c, d)
                simd.store(cells, q, simd.add(a, c))
                simd.store(cells, q + stride, simd.add(b, d))
                simd.store(cells, q + 2 * stride, simd.subtract(a, c))
                simd.store(cells, q + 3 * stride, simd.subtract(b, d))
        half *= 4
    if half < count:
        stride = half * width
        for q in range(0, stride, 8):
            a, b = simd.load(cells, q), simd.load(cells, q + stride)
            simd.store(cells, q, simd.add(a, b))
            simd.store(cells, q + stride, simd.subtract(a, b))


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
def orders_and_signs(chosen, inner, number, lanes):
    """The output of a block of `inner` rows that each chosen output is made from, its sign for the block with this number,
    and what the sign is multiplied by when the last changed + 1 bits of a number change."""
    order, current, flips = np.zeros(lanes, np.int64), aligned_row(lanes), aligned(_FLIPS, lanes)
    for r in range(chosen.size):
        order[r] = chosen[r] & (inner - 1)
        current[r] = 1.0 - 2.0 * parity((chosen[r] // inner) & number)
    for changed in range(_FLIPS):
        for r in range(chosen.size):
            flips[changed, r] = 1.0 - 2.0 * parity((chosen[r] // inner) & ((2 << changed) - 1))
    return order, current, flips.reshape(flips.size)


@njit(inline="always")
def write_signs(signs, place, chosen, inner, number, current, flips, lanes):
    """signs[place : place + lanes] = those of the block with this number; `current` becomes those of the next."""
    changed = simd.one_bits(number ^ (number + 1)) - 1
    for v in range(0, lanes, 8):
        own = simd.load(current, v)
        simd.store(signs, place + v, own)
        simd.store(current, v, own * simd.load(flips, lanes * min(changed, _FLIPS - 1) + v))
    if changed >= _FLIPS:
        for r in range(chosen.size):
            current[r] = 1.0 - 2.0 * parity((chosen[r] // inner) & (number + 1))
