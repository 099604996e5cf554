"""Sums of rows and of their products with themselves, for compressed rows."""

import numpy as np

from fedns.numerics.cpu.sparse import added_in_order
from fedns.numerics.jit import jit


@jit
def sparse_gram_scratch(features):
    """Room for the entries of one row, scaled; for where their rows of the triangle are; and where those of all are."""
    above = np.empty(features, np.uint64)
    for a in range(features):
        above[a] = a * (2 * features - a - 1) // 2
    return np.empty(features + 4), np.empty(features + 4, np.uint64), above


@jit
def sparse_add_gram_triangle(rows, first, last, slopes, roots, intercept, scratch, total, triangle):
    """total += sum_i slopes[i] x_i, and triangle += that of sum_i roots[i]^2 x_i x_i'.

    Entry (a, b) of the triangle is at above[a] + b. Places increase along a row: four entries at a time are multiplied by
    all before them and by each other. How often the inner loop is run is then the same for every row, up to where it ends:
    the processor guesses wrong once a row, where it would for every loop over the entries that are left.
    """
    scaled, starts, above = scratch
    one, two, three, four = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
    for i in range(first, last):
        slope, square = slopes[i - first], roots[i - first] ** 2
        e, stop, known = np.uint64(rows.indptr[i]), np.uint64(rows.indptr[i + 1]), np.uint64(0)
        while e + four <= stop:
            a, b = np.uint64(np.uint32(rows.indices[e])), np.uint64(np.uint32(rows.indices[e + one]))
            c, d = np.uint64(np.uint32(rows.indices[e + two])), np.uint64(np.uint32(rows.indices[e + three]))
            va, vb = np.float64(rows.data[e]), np.float64(rows.data[e + one])
            vc, vd = np.float64(rows.data[e + two]), np.float64(rows.data[e + three])
            total[a] += slope * va
            total[b] += slope * vb
            total[c] += slope * vc
            total[d] += slope * vd
            for k in range(known):
                start, s = starts[k], scaled[k]
                triangle[start + a] += s * va
                triangle[start + b] += s * vb
                triangle[start + c] += s * vc
                triangle[start + d] += s * vd
            at_a, at_b, at_c, at_d = above[a], above[b], above[c], above[d]
            sa, sb, sc, sd = square * va, square * vb, square * vc, square * vd
            starts[known], starts[known + one], starts[known + two], starts[known + three] = at_a, at_b, at_c, at_d
            scaled[known], scaled[known + one], scaled[known + two], scaled[known + three] = sa, sb, sc, sd
            triangle[at_a + a] += sa * va
            triangle[at_a + b] += sa * vb
            triangle[at_a + c] += sa * vc
            triangle[at_a + d] += sa * vd
            triangle[at_b + b] += sb * vb
            triangle[at_b + c] += sb * vc
            triangle[at_b + d] += sb * vd
            triangle[at_c + c] += sc * vc
            triangle[at_c + d] += sc * vd
            triangle[at_d + d] += sd * vd
            e += four
            known += four
        while e < stop:
            a, va = np.uint64(np.uint32(rows.indices[e])), np.float64(rows.data[e])
            total[a] += slope * va
            starts[known], scaled[known] = above[a], square * va
            e += one
            known += one
            for k in range(known):
                triangle[starts[k] + a] += scaled[k] * va
        if intercept:
            a = np.uint64(rows.num_columns)
            starts[known], scaled[known] = above[a], square
            for k in range(known + one):
                triangle[starts[k] + a] += scaled[k]
    if intercept:
        total[rows.num_columns] = added_in_order(total[rows.num_columns], slopes, last - first)
