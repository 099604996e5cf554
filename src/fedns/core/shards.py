"""The rows of one or many clients, stored back to back."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray

from fedns.core.checked import checked
from fedns.core.errors import DataError
from fedns.core.types import Array, DType, FloatArray, IntArray
from fedns.numerics.onehot import OneHotRows
from fedns.numerics.parallel import Segments, cut
from fedns.numerics.rows import (
    NARROW_TYPES,
    DenseRows,
    Rows,
    SparseRows,
    narrowed,
    onehot_where_it_pays,
    written_out,
)
from fedns.numerics.streaming import file_of, in_memory

# Above this share of nonzeros dense rows are several times faster, and at most twice as large.
DENSE_ABOVE = 0.35
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Shards:
    """Client j owns rows starts[j]:stops[j]; selecting clients copies nothing."""

    example: ClassVar[str] = "fedns.split(X, y, clients=10)"
    rows: Rows
    targets: FloatArray  # (rows,)
    starts: IntArray  # (clients,)
    stops: IntArray  # (clients,)
    sample_weights: FloatArray | None = None  # (rows,), None means all ones
    names: tuple[str, ...] | None = None  # one per client
    columns: tuple[str, ...] | None = None  # one per column

    @classmethod
    @checked
    def from_arrays(
        cls,
        features: Any,
        targets: ArrayLike,
        sizes: ArrayLike,
        *,
        sample_weights: ArrayLike | None = None,
        names: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
    ) -> Shards:
        """Shards over rows already in client order; `sizes[j]` rows belong to client j. Refuses missing values."""
        column_names = tuple(str(c) for c in columns) if columns is not None else None
        rows = as_rows(features, column_names)
        num_rows = rows.shape[0]
        y = np.ascontiguousarray(targets, dtype=np.float64)
        if y.shape != (num_rows,):
            raise DataError(f"targets have shape {y.shape}, but there are {num_rows} rows: give one target per row")
        if not np.isfinite(y).all():
            raise DataError(f"targets hold {int((~np.isfinite(y)).sum())} missing or infinite values: drop those rows")
        counts = np.asarray(sizes, dtype=np.int64)
        if counts.ndim != 1 or counts.size == 0 or counts.min(initial=1) < 1 or counts.sum() != num_rows:
            raise DataError(f"client sizes must be positive and add up to {num_rows} rows, got {counts.tolist()}")
        stops, weights = np.cumsum(counts), None
        if sample_weights is not None:
            weights = np.ascontiguousarray(sample_weights, dtype=np.float64)
            if weights.shape != (num_rows,) or not (np.isfinite(weights).all() and (weights >= 0).all()):
                raise DataError(f"sample weights must be {num_rows} finite numbers >= 0")
            totals = np.add.reduceat(weights, stops - counts)
            if (totals <= 0).any():
                raise DataError(f"client {int(np.argmin(totals))} has no row with a positive sample weight")
        return cls(rows, y, stops - counts, stops, weights, tuple(str(n) for n in names) if names else None, column_names)

    @property
    def num_clients(self) -> int:
        return int(self.starts.size)

    @property
    def num_columns(self) -> int:
        return self.rows.shape[1]

    @cached_property
    def sizes(self) -> IntArray:
        return self.stops - self.starts

    @property
    def num_samples(self) -> int:
        return int(self.sizes.sum())

    @cached_property
    def total_weights(self) -> FloatArray:
        """The summed sample weights of each client; its number of rows where none were given."""
        if self.sample_weights is None:
            return self.sizes.astype(np.float64)
        return np.array([self.sample_weights[a:b].sum() for a, b in zip(self.starts, self.stops, strict=True)])

    @cached_property
    def segments(self) -> Segments:
        """The rows cut into work."""
        return cut(self.starts, self.stops)

    def cached(self, name: Hashable, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` made last under this name, or makes now where the key was another: for what follows from the clients'
        sizes. Rounds ask for the same again and again, after reading so much that what makes it is in no cache."""
        known = self._cached.get(name)
        if known is None or known[0] != key:
            known = self._cached[name] = key, make()
        return cast(T, known[1])

    @cached_property
    def _cached(self) -> dict[Hashable, tuple[Hashable, Any]]:
        return {}

    def mean_squares(self) -> FloatArray:
        """The mean square of each column at each client: (clients, columns)."""
        means = np.empty((self.num_clients, self.num_columns))
        for client, (start, stop) in enumerate(zip(self.starts, self.stops, strict=True)):
            if isinstance(self.rows, SparseRows):
                entries = slice(self.rows.indptr[start], self.rows.indptr[stop])
                squares = self.rows.data[entries].astype(np.float64) ** 2
                totals = np.bincount(self.rows.indices[entries], weights=squares, minlength=self.num_columns)
            else:
                totals = np.einsum("ij,ij->j", *[self.rows.dense(start, stop)] * 2)
            means[client] = totals / (stop - start)
        return means

    def blocks(self, client: int, rows: int = 4096) -> Iterator[tuple[int, int, FloatArray]]:
        """The rows of a client as they are, some at a time: first, last + 1, and (rows, columns)."""
        for start in range(int(self.starts[client]), int(self.stops[client]), rows):
            stop = min(start + rows, int(self.stops[client]))
            yield start, stop, self.rows.dense(start, stop)

    def select(self, clients: ArrayLike) -> Shards:
        """These clients only, in this order, over the same memory."""
        chosen = np.asarray(clients, dtype=np.int64)
        names = tuple(self.names[j] for j in chosen) if self.names is not None else None
        return replace(self, starts=self.starts[chosen], stops=self.stops[chosen], names=names)

    def extract(self, low: int, high: int) -> Shards:
        """Clients low:high with a view of their rows alone, for whoever is to get no others."""
        first, last = int(self.starts[low]), int(self.stops[high - 1])
        if isinstance(self.rows, SparseRows):
            begin, end = self.rows.indptr[first], self.rows.indptr[last]
            entries = {name: getattr(self.rows, name)[begin:end] for name in ("data", "indices")}
            rows: Rows = self.rows._replace(**entries, indptr=self.rows.indptr[first : last + 1] - begin)
        elif isinstance(self.rows, OneHotRows):
            rows = self.rows.part(first, last)
        else:
            rows = DenseRows.of(self.rows.values[first:last])
        weights = None if self.sample_weights is None else self.sample_weights[first:last]
        starts, stops = self.starts[low:high] - first, self.stops[low:high] - first
        names = None if self.names is None else self.names[low:high]
        return Shards(rows, self.targets[first:last], starts, stops, weights, names, self.columns)

    @cached_property
    def narrowed(self) -> Shards:
        """The same numbers in the smallest type that holds each of them exactly: every pass gives the same bits."""
        rows = narrowed(written_out(self.rows))
        return self if rows is self.rows else replace(self, rows=rows)

    @cached_property
    def onehot(self) -> Shards:
        """The same with an index for each one-hot group of columns, where that pays: every pass gives the same bits."""
        if isinstance(self.rows, OneHotRows):
            return self
        rows = onehot_where_it_pays(written_out(self.narrowed.rows))
        return self.narrowed if rows is self.narrowed.rows else replace(self, rows=rows)

    def pooled(self) -> Shards:
        """All rows as one client. Only for a contiguous whole, which is what a split makes."""
        if not np.array_equal(self.starts[1:], self.stops[:-1]):
            raise DataError("only shards that cover a contiguous run of rows can be pooled")
        return replace(self, starts=self.starts[:1], stops=self.stops[-1:], names=None)


def as_rows(features: Any, columns: tuple[str, ...] | None = None) -> Rows:
    """Dense or compressed rows in a layout the kernels read, checked to be finite; no copy when it already is."""
    if scipy.sparse.issparse(features):
        csr = scipy.sparse.csr_matrix(features)
        if not csr.has_canonical_format:
            csr = csr.copy()  # the caller's matrix may share these arrays
            csr.sum_duplicates()
        data = np.ascontiguousarray(csr.data, dtype=_row_dtype(csr.data))
        _refuse_missing_sparse(data, csr.indices, columns)
        if csr.nnz >= DENSE_ABOVE * csr.shape[0] * csr.shape[1] and file_of(data) is None:
            return as_rows(csr.astype(data.dtype).toarray(), columns)
        rows: Rows = SparseRows(
            data, csr.indices.astype(np.int32, copy=False), csr.indptr.astype(np.int64, copy=False), int(csr.shape[1])
        )
    else:
        values = np.asarray(features)
        if values.ndim != 2:
            raise DataError(f"features must be a table of rows and columns, got an array of shape {values.shape}")
        values = np.ascontiguousarray(values, dtype=_row_dtype(values))
        dense = rows = DenseRows.of(values)
        _refuse_missing_dense(dense, columns)
    if columns is not None and len(columns) != rows.shape[1]:
        raise DataError(f"{len(columns)} column names were given for {rows.shape[1]} columns")
    return rows


def column_label(index: int, columns: tuple[str, ...] | None) -> str:
    return f"column '{columns[index]}'" if columns is not None else f"column {index}"


def _row_dtype(values: Array) -> DType:
    if values.dtype.kind not in "fiub":
        raise DataError(f"features must be numbers, got dtype {values.dtype}: encode text columns first")
    kept = NARROW_TYPES if file_of(values) else (np.float32,)  # a file is read as it is
    return values.dtype if values.dtype in kept else np.dtype(np.float64)


def _refuse_missing_dense(rows: DenseRows, columns: tuple[str, ...] | None) -> None:
    bad = np.zeros(rows.num_columns, dtype=np.int64)
    whole = cut(np.array([0]), np.array([rows.shape[0]]))  # in segments, so that the check adds no memory
    for run in in_memory(rows, whole):
        assert isinstance(run.rows, DenseRows)
        for first, last in zip(run.own.first, run.own.last, strict=True):
            part = run.rows.values[first:last]
            with np.errstate(over="ignore", invalid="ignore"):
                total = part.sum()
            if not np.isfinite(total):  # a sum is finite only if all its terms are, and takes a quarter of the time
                bad += (~np.isfinite(part)).sum(axis=0)
    _refuse_bad_columns(bad, columns)


def _refuse_missing_sparse(data: Array, indices: Array, columns: tuple[str, ...] | None) -> None:
    missing = ~np.isfinite(data)
    if missing.any():
        _refuse_bad_columns(np.bincount(indices[missing]), columns)


def _refuse_bad_columns(bad: NDArray[np.int64], columns: tuple[str, ...] | None) -> None:
    worst = np.flatnonzero(bad)
    if worst.size:
        others = f" (and {worst.size - 1} more columns)" if worst.size > 1 else ""
        raise DataError(
            f"{column_label(int(worst[0]), columns)} has {int(bad[worst[0]])} missing or infinite values{others}: "
            "drop those rows, or fill them in, before training"
        )
