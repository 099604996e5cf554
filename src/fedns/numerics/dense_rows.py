"""The inner loops over dense rows, in explicit vectors.

Columns are taken in strips of four vectors that stay in registers while a block of rows, already in the first-level
cache, passes by. Rows narrower than a strip use masked loads, so nothing outside a row is read.
"""

import numpy as np

from fedns.numerics import simd
from fedns.numerics.hadamard import butterfly_eight, transform_rows
from fedns.numerics.jit import jit

STRIP = 4 * simd.LANES


@jit
def padded(features):
    """Columns of a table whose every strip can be read and written whole."""
    return -(-features // STRIP) * STRIP


@jit
def aligned(rows, columns):
    """A table of zeros that starts on a cache line: a vector that straddles two costs twice to load, more to store."""
    raw = np.zeros(rows * columns + 8)
    skip = (-raw.ctypes.data % 64) // 8
    return raw[skip : skip + rows * columns].reshape((rows, columns))


@jit
def dense_margins(flat, columns, first, last, w, z):
    """z[i] = x_i . w. This is the pass that fetches the block: strictly in the order of memory, it runs as fast as a
    plain sum, while taking several rows at a time halves the speed."""
    whole = columns // 8 * 8
    rest = columns - whole
    offset = w[columns] if w.size > columns else 0.0
    for i in range(last - first):
        p = (first + i) * columns
        a = b = simd.splat(0.0)
        for v in range(0, whole - 8, 16):
            a = simd.fma(simd.load(flat, p + v), simd.load(w, v), a)
            b = simd.fma(simd.load(flat, p + v + 8), simd.load(w, v + 8), b)
        if whole % 16 > 0:
            a = simd.fma(simd.load(flat, p + whole - 8), simd.load(w, whole - 8), a)
        if rest > 0:
            b = simd.fma(simd.load_first(flat, p + whole, rest), simd.load_first(w, whole, rest), b)
        z[i] = simd.total(simd.add(a, b)) + offset


@jit
def dense_add_combination(flat, columns, first, last, coefficients, intercept, total):
    """total += sum_i coefficients[i] x_i, a strip of the total at a time."""
    for strip in range(0, columns, STRIP):
        left = columns - strip
        n0, n1, n2, n3 = min(left, 8), min(max(left - 8, 0), 8), min(max(left - 16, 0), 8), min(max(left - 24, 0), 8)
        t0, t1 = simd.load(total, strip), simd.load(total, strip + 8)
        t2, t3 = simd.load(total, strip + 16), simd.load(total, strip + 24)
        if left >= STRIP:
            for i in range(last - first):
                p = (first + i) * columns + strip
                s = simd.splat(coefficients[i])
                t0, t1 = simd.fma(simd.load(flat, p), s, t0), simd.fma(simd.load(flat, p + 8), s, t1)
                t2, t3 = simd.fma(simd.load(flat, p + 16), s, t2), simd.fma(simd.load(flat, p + 24), s, t3)
        else:
            for i in range(last - first):
                p = (first + i) * columns + strip
                s = simd.splat(coefficients[i])
                t0 = simd.fma(simd.load_first(flat, p, n0), s, t0)
                if n1 > 0:
                    t1 = simd.fma(simd.load_first(flat, p + 8, n1), s, t1)
                if n2 > 0:
                    t2 = simd.fma(simd.load_first(flat, p + 16, n2), s, t2)
                if n3 > 0:
                    t3 = simd.fma(simd.load_first(flat, p + 24, n3), s, t3)
        simd.store(total, strip, t0)
        simd.store(total, strip + 8, t1)
        simd.store(total, strip + 16, t2)
        simd.store(total, strip + 24, t3)
    if intercept:
        for i in range(last - first):
            total[columns] += coefficients[i]


@jit
def dense_add_to_buckets(flat, columns, first, last, slopes, total, buckets, coefficients, intercept, table):
    """total += sum_i slopes[i] x_i and table[buckets[i]] += coefficients[i] x_i; each x_i is loaded once for both."""
    width = table.shape[1]
    cells = table.reshape(table.size)
    for strip in range(0, columns, STRIP):
        left = columns - strip
        t0, t1 = simd.load(total, strip), simd.load(total, strip + 8)
        t2, t3 = simd.load(total, strip + 16), simd.load(total, strip + 24)
        if left >= STRIP:
            for i in range(last - first):
                p = (first + i) * columns + strip
                q = buckets[i] * width + strip
                s, r = simd.splat(slopes[i]), simd.splat(coefficients[i])
                x0, x1 = simd.load(flat, p), simd.load(flat, p + 8)
                x2, x3 = simd.load(flat, p + 16), simd.load(flat, p + 24)
                t0, t1, t2, t3 = simd.fma(x0, s, t0), simd.fma(x1, s, t1), simd.fma(x2, s, t2), simd.fma(x3, s, t3)
                simd.store(cells, q, simd.fma(x0, r, simd.load(cells, q)))
                simd.store(cells, q + 8, simd.fma(x1, r, simd.load(cells, q + 8)))
                simd.store(cells, q + 16, simd.fma(x2, r, simd.load(cells, q + 16)))
                simd.store(cells, q + 24, simd.fma(x3, r, simd.load(cells, q + 24)))
        else:
            n0, n1, n2, n3 = min(left, 8), min(max(left - 8, 0), 8), min(max(left - 16, 0), 8), max(left - 24, 0)
            for i in range(last - first):
                p = (first + i) * columns + strip
                q = buckets[i] * width + strip
                s, r = simd.splat(slopes[i]), simd.splat(coefficients[i])
                x0 = simd.load_first(flat, p, n0)
                t0 = simd.fma(x0, s, t0)
                simd.store(cells, q, simd.fma(x0, r, simd.load(cells, q)))
                if n1 > 0:
                    x1 = simd.load_first(flat, p + 8, n1)
                    t1 = simd.fma(x1, s, t1)
                    simd.store(cells, q + 8, simd.fma(x1, r, simd.load(cells, q + 8)))
                if n2 > 0:
                    x2 = simd.load_first(flat, p + 16, n2)
                    t2 = simd.fma(x2, s, t2)
                    simd.store(cells, q + 16, simd.fma(x2, r, simd.load(cells, q + 16)))
                if n3 > 0:
                    x3 = simd.load_first(flat, p + 24, n3)
                    t3 = simd.fma(x3, s, t3)
                    simd.store(cells, q + 24, simd.fma(x3, r, simd.load(cells, q + 24)))
        simd.store(total, strip, t0)
        simd.store(total, strip + 8, t1)
        simd.store(total, strip + 16, t2)
        simd.store(total, strip + 24, t3)
    if intercept:
        for i in range(last - first):
            total[columns] += slopes[i]
            cells[buckets[i] * width + columns] += coefficients[i]


@jit
def dense_hadamard(flat, columns, first, last, coefficients, offset, intercept, block):
    """block = H (coefficients[offset + i] x_i)_i: the first three butterfly stages happen on the way in."""
    length, width = block.shape
    cells = block.reshape(block.size)
    for start in range(0, length, 8):
        own = offset + start
        if first + start + 8 <= last:
            s0, s1, s2, s3 = (
                simd.splat(coefficients[own]),
                simd.splat(coefficients[own + 1]),
                simd.splat(coefficients[own + 2]),
                simd.splat(coefficients[own + 3]),
            )
            s4, s5, s6, s7 = (
                simd.splat(coefficients[own + 4]),
                simd.splat(coefficients[own + 5]),
                simd.splat(coefficients[own + 6]),
                simd.splat(coefficients[own + 7]),
            )
            for v in range(0, columns, 8):
                p, n, q = (first + start) * columns + v, min(columns - v, 8), start * width + v
                butterfly_eight(
                    cells,
                    q,
                    width,
                    simd.multiply(simd.load_first(flat, p, n), s0),
                    simd.multiply(simd.load_first(flat, p + columns, n), s1),
                    simd.multiply(simd.load_first(flat, p + 2 * columns, n), s2),
                    simd.multiply(simd.load_first(flat, p + 3 * columns, n), s3),
                    simd.multiply(simd.load_first(flat, p + 4 * columns, n), s4),
                    simd.multiply(simd.load_first(flat, p + 5 * columns, n), s5),
                    simd.multiply(simd.load_first(flat, p + 6 * columns, n), s6),
                    simd.multiply(simd.load_first(flat, p + 7 * columns, n), s7),
                )
            if intercept:
                for i in range(start, start + 8):
                    block[i, columns] = coefficients[offset + i]
                _transform_column(block, start, columns)
        else:
            block[start : start + 8] = 0.0
            for i in range(start, min(start + 8, last - first)):
                for c in range(columns):
                    block[i, c] = coefficients[offset + i] * flat[(first + i) * columns + c]
                if intercept:
                    block[i, columns] = coefficients[offset + i]
            for v in range(0, width, 8):
                q = start * width + v
                butterfly_eight(
                    cells,
                    q,
                    width,
                    simd.load(cells, q),
                    simd.load(cells, q + width),
                    simd.load(cells, q + 2 * width),
                    simd.load(cells, q + 3 * width),
                    simd.load(cells, q + 4 * width),
                    simd.load(cells, q + 5 * width),
                    simd.load(cells, q + 6 * width),
                    simd.load(cells, q + 7 * width),
                )
    transform_rows(block, 8)


@jit
def _transform_column(block, start, column):
    """Three butterfly stages of eight entries of one column."""
    half = 1
    while half < 8:
        for group in range(start, start + 8, 2 * half):
            for i in range(group, group + half):
                a, b = block[i, column], block[i + half, column]
                block[i, column] = a + b
                block[i + half, column] = a - b
        half *= 2
