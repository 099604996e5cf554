"""The few things a kernel does with a run of rows, dense or compressed.

Every kernel is written once over these primitives; numba picks the dense or the compressed body when it compiles.
Compressed bodies index with unsigned numbers: a signed index may count from the end, and asking costs as much as the work.
An intercept is a virtual last column of ones: it is never stored. Vectors and tables that primitives add to are padded to
`padded(features)` columns, whose last ones stay zero.
"""

from typing import Any

import numpy as np
from numba.extending import overload

from fedns.numerics.cpu.dense import dense_add_combination, dense_add_to_buckets, dense_margins
from fedns.numerics.cpu.formulas import call
from fedns.numerics.cpu.hadamard import add_sampled_outputs, transform_rows
from fedns.numerics.cpu.onehot.block import (
    OpenedRows,
    opened_add_combination,
    opened_add_srht,
    opened_margins,
    row_of,
    scratch_of,
    whole,
    write_out,
)
from fedns.numerics.cpu.onehot.groups import add_onehot_groups
from fedns.numerics.cpu.onehot.srht import add_onehot_blocks
from fedns.numerics.cpu.triangles.dense import add_panels, dense_gram_scratch, write_panels
from fedns.numerics.cpu.triangles.sparse import add_sparse_gram, sparse_gram_scratch
from fedns.numerics.jit import FUSED, exact_jit, jit
from fedns.numerics.onehot import OneHotRows
from fedns.numerics.rows import DenseRows


def rows_at_once(rows, size):
    """How many rows a kernel takes at a time, a multiple of `size`: more than that where they have few entries, since each
    call of a formula costs as much as some fifty rows."""
    raise NotImplementedError("compiled code only")


def room_for(rows, count):
    """Scratch space in which so many rows can be opened."""
    raise NotImplementedError("compiled code only")


def opened(rows, first, last, room):
    """Rows that the other functions here take, and the place of row `first` in them. One-hot ones are written out where
    they have to be; what was opened in the same room before is gone."""
    raise NotImplementedError("compiled code only")


def drawn(rows, chosen, count, room):
    """The same for the first `count` of chosen rows, whose numbers become those that they have in what is returned."""
    raise NotImplementedError("compiled code only")


def margins(rows, first, last, w, z):
    """z[i] = x_i . w for rows first:last, plus the intercept w[columns] where w is longer than a row."""
    raise NotImplementedError("compiled code only")


def add_combination(rows, first, last, coefficients, intercept, total):
    """total += sum_i coefficients[i] x_i."""
    raise NotImplementedError("compiled code only")


def add_to_buckets(rows, first, last, slopes, total, buckets, coefficients, intercept, table):
    """total += sum_i slopes[i] x_i, and table[buckets[i]] += coefficients[i] x_i, reading the rows once."""
    raise NotImplementedError("compiled code only")


def add_sjlt_groups(rows, y, s, begin, first, last, w, scale, loss, key0, key1, total, table):
    """Margins, derivatives, gradient and SJLT, with one nonzero per column, of as many groups of eight rows as there are;
    returns where it stopped, at once where there is no fast way."""
    raise NotImplementedError("compiled code only")


def add_srht_blocks(rows, y, s, begin, first, last, w, scale, loss, key0, key1, chosen, total, sketch):
    """Margins, derivatives, gradient and SRHT of as many blocks of rows as there are; returns where it stopped, at once
    where there is no fast way."""
    raise NotImplementedError("compiled code only")


def add_transformed(rows, code, position, first, last, slopes, signed, intercept, total, chosen, block, sketch):
    """total += sum_i slopes[i] x_i, and sketch[r] += row chosen[r] of H (signed[i] x_i)_i, where row `first` is row
    `position` of H's columns. Block is scratch space whose length, at least 16, is the number of rows that are
    transformed together; `code` is where dense rows find the code to do it with."""
    raise NotImplementedError("compiled code only")


def scaled_block(rows, first, last, coefficients, intercept, block):
    """block[i] = coefficients[i] x_i."""
    raise NotImplementedError("compiled code only")


def gram_scratch(rows, count, features):
    """Scratch space for `add_gram_triangle` of so many rows."""
    raise NotImplementedError("compiled code only")


def add_gram_triangle(rows, first, last, slopes, roots, intercept, scratch, total, triangle):
    """total += sum_i slopes[i] x_i, and triangle += the upper triangle, row by row, of sum_i roots[i]^2 x_i x_i'."""
    raise NotImplementedError("compiled code only")


def add_gram(rows, first, last, coefficients, intercept, block, gram):
    """gram += sum_i coefficients[i]^2 x_i x_i', its upper triangle at least; block is scratch space."""
    raise NotImplementedError("compiled code only")


_MOST_ROWS, _MOST_ENTRIES = 1024, 10_000  # of compressed rows that stay in the second-level cache


def _body(stub: Any) -> Any:
    return overload(stub, jit_options={"fastmath": set(FUSED), "error_model": "numpy"})


def _is_dense(rows: Any) -> bool:
    return getattr(rows, "instance_class", None) is DenseRows


def _is_onehot(rows: Any) -> bool:
    return getattr(rows, "instance_class", None) is OneHotRows


def _is_opened(rows: Any) -> bool:
    return getattr(rows, "instance_class", None) is OpenedRows


@jit
def _written(rows):
    return DenseRows(whole(rows), rows.rows.num_columns)


@_body(room_for)
def _room_for(rows, count):
    if _is_onehot(rows):
        return lambda rows, count: (scratch_of(rows, count), np.empty(1, np.int64))
    return lambda rows, count: None


@_body(opened)
def _opened(rows, first, last, room):
    if _is_onehot(rows):

        def onehot(rows, first, last, room):
            room[1][0] = 0
            return OpenedRows(rows, first, last, room[0], room[1]), 0

        return onehot
    return lambda rows, first, last, room: (rows, first)


@_body(drawn)
def _drawn(rows, chosen, count, room):
    if _is_onehot(rows):

        def onehot(rows, chosen, count, room):
            for i in range(count):
                write_out(rows, chosen[i], chosen[i] + 1, room[0], i)
                chosen[i] = i
            return DenseRows(room[0], rows.num_columns)

        return onehot
    return lambda rows, chosen, count, room: rows


@_body(rows_at_once)
def _rows_at_once(rows, size):
    if _is_dense(rows) or _is_onehot(rows):
        return lambda rows, size: size

    def sparse(rows, size):
        stored = rows.indptr.size - 1
        entries = 1 + (rows.indptr[stored] - rows.indptr[0]) // max(1, stored)
        return size * max(1, min(_MOST_ROWS, _MOST_ENTRIES // entries) // size)

    return sparse


@_body(margins)
def _margins(rows, first, last, w, z):
    if _is_dense(rows):

        def dense(rows, first, last, w, z):
            dense_margins(rows.flat, rows.num_columns, first, last, w, z)

        return dense
    if _is_opened(rows):
        return lambda rows, first, last, w, z: opened_margins(rows, first, last, w, z)

    def sparse(rows, first, last, w, z):
        offset = w[rows.num_columns] if w.size > rows.num_columns else 0.0
        for i in range(first, last):
            total = 0.0
            for e in range(np.uint64(rows.indptr[i]), np.uint64(rows.indptr[i + 1])):
                total += rows.data[e] * w[np.uint32(rows.indices[e])]
            z[i - first] = total + offset

    return sparse


@exact_jit
def _added_in_order(total, values, count):
    for i in range(count):
        total += values[i]
    return total


@_body(add_combination)
def _add_combination(rows, first, last, coefficients, intercept, total):
    if _is_dense(rows):

        def dense(rows, first, last, coefficients, intercept, total):
            dense_add_combination(rows.flat, rows.num_columns, first, last, coefficients, intercept, total)

        return dense
    if _is_opened(rows):
        return lambda rows, first, last, coefficients, intercept, total: opened_add_combination(
            rows, first, last, coefficients, intercept, total
        )

    def sparse(rows, first, last, coefficients, intercept, total):
        # One loop over the entries of all rows: to leave a loop for each takes longer than its twelve entries do.
        row, stop, s = np.uint64(first), np.uint64(rows.indptr[first]), 0.0
        for e in range(np.uint64(rows.indptr[first]), np.uint64(rows.indptr[last])):
            while e >= stop:
                row, s = row + np.uint64(1), coefficients[row - np.uint64(first)]
                stop = np.uint64(rows.indptr[row])
            total[np.uint32(rows.indices[e])] += s * rows.data[e]
        if intercept:
            total[rows.num_columns] = _added_in_order(total[rows.num_columns], coefficients, last - first)

    return sparse


@_body(add_to_buckets)
def _add_to_buckets(rows, first, last, slopes, total, buckets, coefficients, intercept, table):
    if _is_dense(rows):

        def dense(rows, first, last, slopes, total, buckets, coefficients, intercept, table):
            dense_add_to_buckets(
                rows.flat, rows.num_columns, first, last, slopes, total, buckets, coefficients, intercept, table
            )

        return dense
    if _is_opened(rows):
        return lambda rows, first, last, slopes, total, buckets, coefficients, intercept, table: add_to_buckets(
            _written(rows), first, last, slopes, total, buckets, coefficients, intercept, table
        )

    def sparse(rows, first, last, slopes, total, buckets, coefficients, intercept, table):
        for i in range(first, last):
            s, t = slopes[i - first], coefficients[i - first]
            bucket = table[buckets[i - first]]
            for e in range(np.uint64(rows.indptr[i]), np.uint64(rows.indptr[i + 1])):
                total[np.uint32(rows.indices[e])] += s * rows.data[e]
                bucket[np.uint32(rows.indices[e])] += t * rows.data[e]
            if intercept:
                total[rows.num_columns] += s
                bucket[rows.num_columns] += t

    return sparse


@_body(add_sjlt_groups)
def _add_sjlt_groups(rows, y, s, begin, first, last, w, scale, loss, key0, key1, total, table):
    if _is_dense(rows):

        def dense(rows, y, s, begin, first, last, w, scale, loss, key0, key1, total, table):
            stop = first + (last - first) // 8 * 8
            # Less than eight rows are left: a group, where there are rows after them to make one of. With an intercept they
            # are added to its sum together, which a group does not.
            if w.size == rows.num_columns and (stop + 8) * rows.num_columns <= rows.flat.size:
                stop = last
            if loss.groups == 0 or stop == first:
                return first
            vectors = -(-w.size // 8)
            call(
                loss.groups,
                (loss.parameters, rows.flat, rows.num_columns, y, s, begin, first, stop, w, scale, key0, key1, total, table,
                 vectors),
            )  # fmt: skip
            return stop

        return dense
    if _is_onehot(rows):
        return lambda rows, y, s, begin, first, last, w, scale, loss, key0, key1, total, table: add_onehot_groups(
            rows, y, s, begin, first, last, w, scale, loss, key0, key1, total, table
        )
    return lambda rows, y, s, begin, first, last, w, scale, loss, key0, key1, total, table: first


@_body(add_srht_blocks)
def _add_srht_blocks(rows, y, s, begin, first, last, w, scale, loss, key0, key1, chosen, total, sketch):
    if _is_onehot(rows):
        return lambda rows, y, s, begin, first, last, w, scale, loss, key0, key1, chosen, total, sketch: add_onehot_blocks(
            rows, y, s, begin, first, last, w, scale, loss, key0, key1, chosen, total, sketch
        )
    if _is_dense(rows):

        def dense(rows, y, s, begin, first, last, w, scale, loss, key0, key1, chosen, total, sketch):
            if loss.blocks == 0:
                return first
            call(
                loss.blocks,
                (loss.parameters, rows.flat, rows.num_columns, y, s, begin, first, last, w, scale, key0, key1, chosen, total,
                 sketch, 0, 0),
            )  # fmt: skip
            return last

        return dense
    return lambda rows, y, s, begin, first, last, w, scale, loss, key0, key1, chosen, total, sketch: first


@_body(add_transformed)
def _add_transformed(rows, code, position, first, last, slopes, signed, intercept, total, chosen, block, sketch):
    if _is_dense(rows):

        def dense(rows, code, position, first, last, slopes, signed, intercept, total, chosen, block, sketch):
            call(
                code,
                (rows.flat, rows.num_columns, position, first, last, slopes, signed, intercept, total, chosen,
                 block.shape[0], sketch),
            )  # fmt: skip

        return dense
    if _is_opened(rows):

        def opened_rows(rows, code, position, first, last, slopes, signed, intercept, total, chosen, block, sketch):
            opened_add_srht(rows, position, first, last, slopes, signed, intercept, total, chosen, block.shape[0], sketch)

        return opened_rows

    def sparse(rows, code, position, first, last, slopes, signed, intercept, total, chosen, block, sketch):
        add_combination(rows, first, last, slopes, intercept, total)
        inner = block.shape[0]
        for start in range(first, last, inner):
            stop = min(start + inner, last)
            scaled_block(rows, start, stop, signed[start - first :], intercept, block)
            block[stop - start :] = 0.0
            transform_rows(block, 1)
            add_sampled_outputs(block, (position + start - first) // inner, chosen, sketch)

    return sparse


@_body(scaled_block)
def _scaled_block(rows, first, last, coefficients, intercept, block):
    if _is_dense(rows):

        def dense(rows, first, last, coefficients, intercept, block):
            columns = rows.num_columns
            for i in range(first, last):
                s, source, target = coefficients[i - first], rows.flat[i * columns :], block[i - first]
                for c in range(columns):
                    target[c] = s * source[c]
                if intercept:
                    target[columns] = s

        return dense
    if _is_opened(rows):

        def opened_block(rows, first, last, coefficients, intercept, block):
            if last == first + 1:  # one of many rows that are not wanted
                scaled_block(DenseRows(row_of(rows, first), rows.rows.num_columns), 0, 1, coefficients, intercept, block)
            else:
                scaled_block(_written(rows), first, last, coefficients, intercept, block)

        return opened_block

    def sparse(rows, first, last, coefficients, intercept, block):
        block[: last - first] = 0.0
        for i in range(first, last):
            s, target = coefficients[i - first], block[i - first]
            for e in range(np.uint64(rows.indptr[i]), np.uint64(rows.indptr[i + 1])):
                target[np.uint32(rows.indices[e])] = s * rows.data[e]
            if intercept:
                target[rows.num_columns] = s

    return sparse


@_body(gram_scratch)
def _gram_scratch(rows, count, features):
    if _is_dense(rows) or _is_onehot(rows):
        return lambda rows, count, features: dense_gram_scratch(count, features)
    return lambda rows, count, features: sparse_gram_scratch(features)


@_body(add_gram_triangle)
def _add_gram_triangle(rows, first, last, slopes, roots, intercept, scratch, total, triangle):
    if _is_dense(rows):

        def dense(rows, first, last, slopes, roots, intercept, scratch, total, triangle):
            panels, tile = scratch
            columns = rows.num_columns
            dense_add_combination(rows.flat, columns, first, last, slopes, intercept, total)
            write_panels(rows.flat, columns, first, last, roots, intercept, panels)
            features = columns + 1 if intercept else columns
            # Of one-hot rows only these are written out: what lies after them is asked for in vain, soon in the cache.
            add_panels(panels, last - first, features, tile, triangle, rows.flat, last * columns)

        return dense
    if _is_opened(rows):
        return lambda rows, first, last, slopes, roots, intercept, scratch, total, triangle: add_gram_triangle(
            _written(rows), first, last, slopes, roots, intercept, scratch, total, triangle
        )

    def sparse(rows, first, last, slopes, roots, intercept, scratch, total, triangle):
        add_sparse_gram(rows, first, last, slopes, roots, intercept, scratch, total, triangle)
        if intercept:
            total[rows.num_columns] = _added_in_order(total[rows.num_columns], slopes, last - first)

    return sparse


@_body(add_gram)
def _add_gram(rows, first, last, coefficients, intercept, block, gram):
    if _is_dense(rows):

        def dense(rows, first, last, coefficients, intercept, block, gram):
            scaled_block(rows, first, last, coefficients, intercept, block)
            part = block[: last - first]
            gram += np.dot(part.T, part)

        return dense

    def sparse(rows, first, last, coefficients, intercept, block, gram):
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

    return sparse
