"""What kernels do with compressed rows: the bodies of `rows.py` for them.

Indices are unsigned: a signed one may count from the end, and asking costs as much as the work.
"""

import numpy as np

from fedns.numerics.cpu.hadamard import add_sampled_outputs, transform_rows
from fedns.numerics.jit import exact_jit, jit

_MOST_ROWS, _MOST_ENTRIES = 1024, 10_000  # that stay in the second-level cache


@jit
def sparse_rows_at_once(rows, size):
    stored = rows.indptr.size - 1
    entries = 1 + (rows.indptr[stored] - rows.indptr[0]) // max(1, stored)
    return size * max(1, min(_MOST_ROWS, _MOST_ENTRIES // entries) // size)


@jit
def sparse_margins(rows, first, last, w, z):
    offset = w[rows.num_columns] if w.size > rows.num_columns else 0.0
    for i in range(first, last):
        total = 0.0
        for e in range(np.uint64(rows.indptr[i]), np.uint64(rows.indptr[i + 1])):
            total += rows.data[e] * w[np.uint32(rows.indices[e])]
        z[i - first] = total + offset


@exact_jit
def added_in_order(total, values, count):
    """total + values[0] + values[1] + ..."""
    for i in range(count):
        total += values[i]
    return total


@jit
def sparse_add_combination(rows, first, last, coefficients, intercept, total):
    # One loop over the entries of all rows: to leave a loop for each takes longer than its twelve entries do.
    row, stop, s = np.uint64(first), np.uint64(rows.indptr[first]), 0.0
    for e in range(np.uint64(rows.indptr[first]), np.uint64(rows.indptr[last])):
        while e >= stop:
            row, s = row + np.uint64(1), coefficients[row - np.uint64(first)]
            stop = np.uint64(rows.indptr[row])
        total[np.uint32(rows.indices[e])] += s * rows.data[e]
    if intercept:
        total[rows.num_columns] = added_in_order(total[rows.num_columns], coefficients, last - first)


@jit
def sparse_add_to_buckets(rows, first, last, slopes, total, buckets, coefficients, intercept, table):
    for i in range(first, last):
        s, t = slopes[i - first], coefficients[i - first]
        bucket = table[buckets[i - first]]
        for e in range(np.uint64(rows.indptr[i]), np.uint64(rows.indptr[i + 1])):
            total[np.uint32(rows.indices[e])] += s * rows.data[e]
            bucket[np.uint32(rows.indices[e])] += t * rows.data[e]
        if intercept:
            total[rows.num_columns] += s
            bucket[rows.num_columns] += t


@jit
def sparse_scaled_block(rows, first, last, coefficients, intercept, block):
    block[: last - first] = 0.0
    for i in range(first, last):
        s, target = coefficients[i - first], block[i - first]
        for e in range(np.uint64(rows.indptr[i]), np.uint64(rows.indptr[i + 1])):
            target[np.uint32(rows.indices[e])] = s * rows.data[e]
        if intercept:
            target[rows.num_columns] = s


@jit
def sparse_add_transformed(rows, code, position, first, last, slopes, signed, intercept, total, chosen, block, sketch):
    sparse_add_combination(rows, first, last, slopes, intercept, total)
    inner = block.shape[0]
    for start in range(first, last, inner):
        stop = min(start + inner, last)
        sparse_scaled_block(rows, start, stop, signed[start - first :], intercept, block)
        block[stop - start :] = 0.0
        transform_rows(block, 1)
        add_sampled_outputs(block, (position + start - first) // inner, chosen, sketch)


@jit
def sparse_add_gram(rows, first, last, coefficients, intercept, block, gram):
    columns = rows.num_columns
    for i in range(first, last):
        square = coefficients[i - first] ** 2
        stop = np.uint64(rows.indptr[i + 1])
        for e in range(np.uint64(rows.indptr[i]), stop):  # indices increase along a row: this fills the upper triangle
            left, target = square * rows.data[e], gram[np.uint32(rows.indices[e])]
            for f in range(e, stop):
                target[np.uint32(rows.indices[f])] += left * rows.data[f]
            if intercept:
                target[columns] += left
        if intercept:
            gram[columns, columns] += square
