"""The few things a kernel does with a run of rows, whatever way they are stored in.

Every kernel is written once over these functions; numba takes the body for the rows at hand when it compiles. Bodies are in
`dense.py`, `onehot/` and `sparse.py`, those of Hessians in `triangles/`.
An intercept is a virtual last column of ones: it is never stored. Vectors and tables that are added to are padded to
`padded(features)` columns, whose last ones stay zero.
"""

from functools import wraps
from typing import Any

from numba.extending import overload

from fedns.numerics.cpu.dense import (
    dense_add_combination,
    dense_add_gram,
    dense_add_groups,
    dense_add_srht_blocks,
    dense_add_to_buckets,
    dense_add_transformed,
    dense_margins,
    dense_scaled_block,
)
from fedns.numerics.cpu.onehot.block import (
    OpenedRows,
    draw_onehot,
    onehot_room,
    open_onehot,
    opened_add_combination,
    opened_add_gram_triangle,
    opened_add_to_buckets,
    opened_add_transformed,
    opened_margins,
    opened_scaled_block,
)
from fedns.numerics.cpu.onehot.groups import add_onehot_groups
from fedns.numerics.cpu.onehot.srht import add_onehot_blocks
from fedns.numerics.cpu.sparse import (
    sparse_add_combination,
    sparse_add_gram,
    sparse_add_to_buckets,
    sparse_add_transformed,
    sparse_margins,
    sparse_rows_at_once,
    sparse_scaled_block,
)
from fedns.numerics.cpu.triangles.dense import dense_add_gram_triangle, dense_gram_scratch
from fedns.numerics.cpu.triangles.sparse import sparse_add_gram_triangle, sparse_gram_scratch
from fedns.numerics.jit import FUSED
from fedns.numerics.onehot import OneHotRows
from fedns.numerics.rows import DenseRows, SparseRows


def _by_storage(dense, sparse, onehot=None, opened=None):
    """A function with a body for each way in which rows are stored; one-hot rows may have to be opened first."""
    bodies = {DenseRows: dense, SparseRows: sparse, OneHotRows: onehot, OpenedRows: opened}

    def register(contract: Any) -> Any:
        @wraps(contract)
        def compiled_only(*_: Any) -> Any:
            raise NotImplementedError("compiled code only")

        def choose(rows, *_):
            body = bodies[rows.instance_class]
            return getattr(body, "py_func", body)

        overload(compiled_only, strict=False, jit_options={"fastmath": set(FUSED), "error_model": "numpy"})(choose)
        return compiled_only

    return register


@_by_storage(lambda rows, size: size, sparse_rows_at_once, onehot=lambda rows, size: size)
def rows_at_once(rows, size):
    """How many rows a kernel takes at a time, a multiple of `size`: more than that where they have few entries, since each
    call of a formula costs as much as some fifty rows."""


@_by_storage(lambda rows, count: None, lambda rows, count: None, onehot=onehot_room)
def room_for(rows, count):
    """Scratch space in which so many rows can be opened."""


@_by_storage(
    lambda rows, first, last, room: (rows, first), lambda rows, first, last, room: (rows, first), onehot=open_onehot
)
def opened(rows, first, last, room):
    """Rows that the other functions here take, and the place of row `first` in them. One-hot ones are written out where they
    have to be; what was opened in the same room before is gone."""


@_by_storage(lambda rows, chosen, count, room: rows, lambda rows, chosen, count, room: rows, onehot=draw_onehot)
def drawn(rows, chosen, count, room):
    """The same for the first `count` of chosen rows, whose numbers become those that they have in what is returned."""


@_by_storage(dense_margins, sparse_margins, opened=opened_margins)
def margins(rows, first, last, w, z):
    """z[i] = x_i . w for rows first:last, plus the intercept w[columns] where w is longer than a row."""


@_by_storage(dense_add_combination, sparse_add_combination, opened=opened_add_combination)
def add_combination(rows, first, last, coefficients, intercept, total):
    """total += sum_i coefficients[i] x_i."""


@_by_storage(dense_add_to_buckets, sparse_add_to_buckets, opened=opened_add_to_buckets)
def add_to_buckets(rows, first, last, slopes, total, buckets, coefficients, intercept, table):
    """total += sum_i slopes[i] x_i, and table[buckets[i]] += coefficients[i] x_i, reading the rows once."""


def _none_of_them(rows, y, s, begin, first, last, *_):
    return first


@_by_storage(dense_add_groups, _none_of_them, onehot=add_onehot_groups)
def add_sjlt_groups(rows, y, s, begin, first, last, w, scale, loss, key0, key1, total, table):
    """Margins, derivatives, gradient and SJLT, with one nonzero per column, of as many groups of eight rows as there are;
    returns where it stopped, at once where there is no fast way."""


@_by_storage(dense_add_srht_blocks, _none_of_them, onehot=add_onehot_blocks)
def add_srht_blocks(rows, y, s, begin, first, last, w, scale, loss, key0, key1, chosen, total, sketch):
    """Margins, derivatives, gradient and SRHT of as many blocks of rows as there are; returns where it stopped, at once
    where there is no fast way."""


@_by_storage(dense_add_transformed, sparse_add_transformed, opened=opened_add_transformed)
def add_transformed(rows, code, position, first, last, slopes, signed, intercept, total, chosen, block, sketch):
    """total += sum_i slopes[i] x_i, and sketch[r] += row chosen[r] of H (signed[i] x_i)_i, where row `first` is row
    `position` of H's columns. Block is scratch space whose length, at least 16, is the number of rows that are
    transformed together; `code` is where dense rows find the code to do it with."""


@_by_storage(dense_scaled_block, sparse_scaled_block, opened=opened_scaled_block)
def scaled_block(rows, first, last, coefficients, intercept, block):
    """block[i] = coefficients[i] x_i."""


def _dense_scratch(rows, count, features):
    return dense_gram_scratch(count, features)


@_by_storage(_dense_scratch, lambda rows, count, features: sparse_gram_scratch(features), onehot=_dense_scratch)
def gram_scratch(rows, count, features):
    """Scratch space for `add_gram_triangle` of so many rows."""


@_by_storage(dense_add_gram_triangle, sparse_add_gram_triangle, opened=opened_add_gram_triangle)
def add_gram_triangle(rows, first, last, slopes, roots, intercept, scratch, total, triangle):
    """total += sum_i slopes[i] x_i, and triangle += the upper triangle, row by row, of sum_i roots[i]^2 x_i x_i'."""


@_by_storage(dense_add_gram, sparse_add_gram)
def add_gram(rows, first, last, coefficients, intercept, block, gram):
    """gram += sum_i coefficients[i]^2 x_i x_i', its upper triangle at least; block is scratch space."""
