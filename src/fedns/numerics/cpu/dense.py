"""The inner loops over dense rows, in explicit vectors.

Columns are taken in strips of four vectors that stay in registers while a block of rows, already in the first-level
cache, passes by. Rows narrower than a strip use masked loads, so nothing outside a row is read.
"""

import numpy as np
from numba import njit

from fedns.numerics.cpu import simd
from fedns.numerics.cpu.aligned import aligned
from fedns.numerics.cpu.emit import LANES
from fedns.numerics.cpu.formulas import call
from fedns.numerics.cpu.hadamard import transform_rows, write_signs
from fedns.numerics.jit import exact_jit, jit

STRIP = 4 * LANES
ONE_CHAIN = 64  # columns: the processor works on several rows that are no longer
_GROUP_BYTES = 65536
_SIXTEEN = (0,) * 16


@jit
def padded(features):
    """Columns of a table whose every strip can be read and written whole."""
    return -(-features // STRIP) * STRIP


@jit
def own_row(table, client):
    """The client's row of a table that may have a single row for all."""
    return table[client if table.shape[0] > 1 else 0]


@jit
def copy(source, start, count, target):
    """target[i] = source[start + i]. An assignment to a slice takes seconds to compile: it can say which lengths differ."""
    for i in range(count):
        target[i] = source[start + i]


@njit(inline="always")
def copy_doubles(source, start, count, target, place):
    """target[place + i] = source[start + i], eight at a time. Both are flat: a slice of a table costs more than this."""
    whole = count // 8 * 8
    for i in range(0, whole, 8):
        simd.store(target, place + i, simd.load(source, start + i))
    for i in range(whole, count):
        target[place + i] = source[start + i]


@exact_jit
def total_of(values, start, count):
    """The sum of values[start : start + count], in eight lanes and then the last ones."""
    lanes, whole = simd.splat(0.0), start + count // 8 * 8
    for i in range(start, whole, 8):
        lanes = lanes + simd.load(values, i)
    total = simd.total(lanes)
    for i in range(whole, start + count):
        total += values[i]
    return total


@jit
def dense_margins(rows, first, last, w, z):
    """z[i] = x_i . w. This is the pass that fetches the block: strictly in the order of memory, it runs as fast as a
    plain sum, while taking several rows at a time halves the speed. The sum of a long row is made in two chains, so that
    additions need not wait for one another."""
    flat, columns = rows.flat, rows.num_columns
    whole = columns // 8 * 8
    rest = columns - whole
    offset = w[columns] if w.size > columns else 0.0
    for i in range(last - first):
        p = (first + i) * columns
        a = b = simd.splat(0.0)
        if columns <= ONE_CHAIN:
            for v in range(0, whole, 8):
                a = simd.fma(simd.load(flat, p + v), simd.load(w, v), a)
            if rest > 0:
                a = simd.fma(simd.load_first(flat, p + whole, rest), simd.load_first(w, whole, rest), a)
        else:
            for v in range(0, whole - 8, 16):
                a = simd.fma(simd.load(flat, p + v), simd.load(w, v), a)
                b = simd.fma(simd.load(flat, p + v + 8), simd.load(w, v + 8), b)
            if whole % 16 > 0:
                a = simd.fma(simd.load(flat, p + whole - 8), simd.load(w, whole - 8), a)
            if rest > 0:
                b = simd.fma(simd.load_first(flat, p + whole, rest), simd.load_first(w, whole, rest), b)
        z[i] = simd.total(a + b) + offset


@jit
def dense_add_combination(rows, first, last, coefficients, intercept, total):
    """total += sum_i coefficients[i] x_i, a strip of the total at a time."""
    flat, columns = rows.flat, rows.num_columns
    for strip in range(0, columns, STRIP):
        left = columns - strip
        n0, n1, n2, n3 = min(left, 8), min(max(left - 8, 0), 8), min(max(left - 16, 0), 8), min(max(left - 24, 0), 8)
        t0, t1 = simd.load(total, strip), simd.load(total, strip + 8)
        t2, t3 = simd.load(total, strip + 16), simd.load(total, strip + 24)
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
        total[columns] += total_of(coefficients, 0, last - first)


@jit
def dense_add_to_buckets(rows, first, last, slopes, total, buckets, coefficients, intercept, table):
    """total += sum_i slopes[i] x_i and table[buckets[i]] += coefficients[i] x_i; each x_i is loaded once for both."""
    flat, columns = rows.flat, rows.num_columns
    width = table.shape[1]
    cells = table.reshape(table.size)
    for strip in range(0, columns, STRIP):
        left = columns - strip
        t0, t1 = simd.load(total, strip), simd.load(total, strip + 8)
        t2, t3 = simd.load(total, strip + 16), simd.load(total, strip + 24)
        n0, n1, n2, n3 = min(left, 8), min(max(left - 8, 0), 8), min(max(left - 16, 0), 8), min(max(left - 24, 0), 8)
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
        total[columns] += total_of(slopes, 0, last - first)
        for i in range(last - first):
            cells[buckets[i] * width + columns] += coefficients[i]


@jit
def dense_add_groups(rows, y, s, begin, first, last, w, scale, loss, key0, key1, total, table):
    """Call the loop of `narrow/sjlt.py`, where there is one."""
    stop = first + (last - first) // 8 * 8
    # Less than eight rows are left: a group, where there are rows after them to make one of. With an intercept they
    # are added to its sum together, which a group does not.
    if w.size == rows.num_columns and (stop + 8) * rows.num_columns <= rows.flat.size:
        stop = last
    if loss.groups == 0 or stop == first:
        return first
    call(
        loss.groups,
        (loss.parameters, rows.flat, rows.num_columns, y, s, begin, first, stop, w, scale, key0, key1, total, table,
         -(-w.size // 8)),
    )  # fmt: skip
    return stop


@jit
def dense_add_srht_blocks(rows, y, s, begin, first, last, w, scale, loss, key0, key1, chosen, total, sketch):
    """Call the loop of `narrow/srht.py`, where there is one."""
    if loss.blocks == 0:
        return first
    call(
        loss.blocks,
        (loss.parameters, rows.flat, rows.num_columns, y, s, begin, first, last, w, scale, key0, key1, chosen, total, sketch,
         0, 0),
    )  # fmt: skip
    return last


@jit
def dense_scaled_block(rows, first, last, coefficients, intercept, block):
    columns = rows.num_columns
    for i in range(last - first):
        s, source, target = coefficients[i], rows.flat[(first + i) * columns :], block[i]
        for c in range(columns):
            target[c] = s * source[c]
        if intercept:
            target[columns] = s


@jit
def dense_add_gram(rows, first, last, coefficients, intercept, block, gram):
    dense_scaled_block(rows, first, last, coefficients, intercept, block)
    part = block[: last - first]
    gram += np.dot(part.T, part)


@jit
def dense_add_transformed(rows, code, position, first, last, slopes, signed, intercept, total, chosen, block, sketch):
    call(
        code,
        (rows.flat, rows.num_columns, position, first, last, slopes, signed, intercept, total, chosen, block.shape[0],
         sketch),
    )  # fmt: skip


@jit
def dense_add_srht(flat, columns, ahead, position, first, last, slopes, signed, intercept, total, chosen, inner, sketch):
    """total += sum_i slopes[i] x_i, and sketch[r] += row chosen[r] of H (signed[i] x_i)_i, where row `first` is row
    `position` of the client. Rows are transformed `inner` at a time; the client's last ones are padded by zeros.

    Unless `ahead` is None, memory is asked for the rows that follow."""
    count = last - first
    whole, padded_count = count // inner * inner, -(-count // inner) * inner
    tail = np.zeros((padded_count - whole) * columns, flat.dtype)
    if whole < count:
        copy(flat, (first + whole) * columns, (count - whole) * columns, tail)
        for i in range(count, padded_count):  # they have room for whole blocks
            slopes[i] = signed[i] = 0.0
    add_whole_blocks(
        flat[first * columns :], tail, columns, None, ahead, columns, position, slopes, signed, intercept, total,
        padded_count, chosen, inner, sketch,
    )  # fmt: skip


@jit
def add_whole_blocks(
    flat, tail, stride, ones, ahead, columns, position, slopes, signed, intercept, total, count, chosen, inner, sketch
):
    """The same for the first `count` rows, whole blocks of them; those of the last block are in `tail`, if it has any.

    A strip of eight columns of a group of rows at a time: sixteen rows are transformed in registers, the rest of the way in
    the first-level cache. One function, since a call counts a reference, atomically, to every array it is given.

    Rows have `stride` numbers each. Of one-hot rows, where they are fewer than the columns, `ones` has a byte for each strip
    and row, strip by strip, with a bit for each column. Unless `ahead` is None, memory is asked for as many rows after them.
    """
    group = max(inner, min(count, _group_rows(columns)))
    own = count - inner if tail.size > 0 else count
    scratch = aligned(group, 8)
    cells, outputs, width = scratch.reshape(scratch.size), sketch.reshape(sketch.size), sketch.shape[1]
    signs = np.empty(group // inner * chosen.size)
    # A last stage that is alone is made for the outputs only, which are fewer than the rows: no store and load of its own.
    alone = inner == 32
    source, outer = 8 * (chosen % 16 if alone else chosen % inner), chosen // inner
    last = 1.0 - 2.0 * (chosen // 16 % 2)
    features = columns + 1 if intercept else columns
    for start in range(0, count, group):
        stop = min(start + group, count)
        blocks = (stop - start) // inner
        for b in range(blocks):
            write_signs(signs, b * chosen.size, outer, (position + start) // inner + b)
        for v in range(0, features, 8):
            lanes = min(stride - v, 8)
            t = simd.load(total, v)
            for i in range(start, stop, 16):
                if ones is None:
                    if i < own:
                        if ahead is not None:
                            simd.fetch_strip(flat, (count + i) * stride + v, stride, _SIXTEEN)
                        rows = simd.load_strip(flat, i * stride + v, stride, lanes, _SIXTEEN)
                    else:
                        rows = simd.load_strip(tail, (i - own) * stride + v, stride, lanes, _SIXTEEN)
                if ones is not None:  # by itself: so it is not compiled where there are none
                    rows = simd.no_strip(_SIXTEEN)
                    if lanes > 0:
                        rows = simd.load_strip(flat, i * stride + v, stride, lanes, _SIXTEEN)
                    rows = simd.with_ones(rows, ones, v // 8 * count + i)
                if intercept and v + 8 > columns:
                    rows = simd.add_to_each(rows, simd.unit(columns - v))
                t = simd.combine(rows, slopes, i, t)
                simd.store_row(cells, 8 * (i - start), simd.scaled_hadamard(rows, signed, i))
            simd.store(total, v, t)
            if inner > 16 and not alone:
                for b in range(blocks):
                    transform_rows(scratch[b * inner : (b + 1) * inner], 16)
            for r in range(chosen.size):
                output = simd.load(outputs, r * width + v)
                for b in range(blocks):
                    entry = simd.load(cells, source[r] + 8 * b * inner)
                    if alone:
                        other = simd.load(cells, source[r] + 8 * (b * inner + 16))
                        entry = simd.exact_fma(other, simd.splat(last[r]), entry)
                    output = simd.fma(entry, simd.splat(signs[b * chosen.size + r]), output)
                simd.store(outputs, r * width + v, output)


@jit
def _group_rows(columns):
    """How many rows are taken strip by strip, 16 to 128, a power of two: more of them share what is done once for each
    output, and fewer stay in the first-level cache from a strip to the next, whose columns partly are on the same lines."""
    rows = 128
    while rows > 16 and rows * columns * 8 > _GROUP_BYTES:
        rows //= 2
    return rows
