"""Rows of a matrix, dense or compressed: what passes over rows read."""

import mmap
import weakref
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from fedns.numerics.onehot import OneHotRows, onehot_of

# What rows may be stored in besides float64, smallest first. Kernels widen them in registers.
NARROW_TYPES = (np.uint8, np.int8, np.int16, np.float32)
_CHUNK = 1 << 14
_WORTH_COMPILING = 1 << 21  # entries: with fewer, a run is over before the kernels for another kind of rows are compiled


class DenseRows(NamedTuple):
    """Rows one after the other; kept flat because compiled code pays for every change of an array's shape."""

    flat: NDArray[Any]  # (rows * columns,), float64 or one of NARROW_TYPES
    num_columns: int

    @classmethod
    def of(cls, values: NDArray[Any]) -> "DenseRows":
        """Over the memory of a C-contiguous matrix."""
        return cls(values.reshape(-1), values.shape[1])

    @property
    def values(self) -> NDArray[Any]:
        return self.flat.reshape(-1, self.num_columns)

    @property
    def shape(self) -> tuple[int, int]:
        return self.flat.size // self.num_columns, self.num_columns

    @property
    def nbytes(self) -> int:
        return self.flat.nbytes

    def block(self, start: int, stop: int) -> NDArray[np.float64]:
        """Some of the rows in float64, over the same memory where they are."""
        return self.values[start:stop].astype(np.float64, copy=False)

    def dense(self, start: int, stop: int) -> NDArray[np.float64]:
        return self.block(start, stop)


class SparseRows(NamedTuple):
    """Compressed sparse rows, column indices increasing along each row."""

    data: NDArray[Any]  # (nonzeros,), float64 or one of NARROW_TYPES
    indices: NDArray[np.int32]  # (nonzeros,)
    indptr: NDArray[np.int64]  # (rows + 1,)
    num_columns: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.indptr.shape[0] - 1, self.num_columns

    @property
    def nbytes(self) -> int:
        return self.data.nbytes + self.indices.nbytes + self.indptr.nbytes

    def block(self, start: int, stop: int) -> Any:
        """Some of the rows in float64, as a csr_matrix."""
        run, pointers = slice(self.indptr[start], self.indptr[stop]), self.indptr[start : stop + 1] - self.indptr[start]
        pieces = (self.data[run].astype(np.float64, copy=False), self.indices[run], pointers)
        return scipy.sparse.csr_matrix(pieces, shape=(stop - start, self.num_columns))

    def dense(self, start: int, stop: int) -> NDArray[np.float64]:
        return np.asarray(self.block(start, stop).toarray())


PlainRows = DenseRows | SparseRows
Rows = PlainRows | OneHotRows


def narrowed(rows: PlainRows) -> PlainRows:
    """The same rows with their numbers in the smallest type that holds each of them exactly; themselves where none does.

    Rows that are mapped from a file stay there: they may be more than the memory holds.
    """
    values = rows.flat if isinstance(rows, DenseRows) else rows.data
    if _is_mapped(values):
        return rows
    for kind in NARROW_TYPES:
        if np.dtype(kind).itemsize < values.itemsize and (copy := _in_type(values, kind)) is not None:
            return rows._replace(flat=copy) if isinstance(rows, DenseRows) else rows._replace(data=copy)
    return rows


def onehot_where_it_pays(rows: PlainRows) -> Rows:
    """Large dense rows with an index for every one-hot group, where that leaves at most half of the columns to be held."""
    if not isinstance(rows, DenseRows) or rows.flat.size < _WORTH_COMPILING:
        return rows
    if find_spec("numba") is None or _is_mapped(rows.flat):
        return rows
    found = onehot_of(rows.values)
    if found is None or 2 * (found.width + found.firsts.size) > rows.num_columns:
        return rows
    return found._replace(numbers=narrowed(DenseRows(found.numbers, max(1, found.width)))[0])


def written_out(rows: Rows) -> PlainRows:
    """Rows as a matrix: one-hot ones with all their columns, in the type of their numbers."""
    if not isinstance(rows, OneHotRows):
        return rows
    return DenseRows.of(rows.written_out(0, rows.shape[0], rows.numbers.dtype))


_known: dict[int, tuple[Any, PlainRows]] = {}


def written_once(rows: Rows) -> PlainRows:
    """The same for what reads one-hot rows again and again and only in this form: it is kept for as long as they are."""
    if not isinstance(rows, OneHotRows):
        return rows
    key = id(rows.codes)
    known = _known.get(key)
    if known is None or known[0]() is not rows.codes:
        known = weakref.ref(rows.codes, lambda _: _known.pop(key, None)), written_out(rows)
        _known[key] = known
    return known[1]


def _is_mapped(values: Any) -> bool:
    while isinstance(values, np.ndarray):
        values = values.base
    return isinstance(values, mmap.mmap)


def _in_type(values: NDArray[Any], kind: Any) -> NDArray[Any] | None:
    """The values in this type, or None at the first chunk in which one is not exact."""
    out = np.empty(values.size, kind)
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, values.size, _CHUNK):
            part = slice(start, start + _CHUNK)
            out[part] = values[part]
            if not np.array_equal(out[part], values[part]):
                return None
    return out
