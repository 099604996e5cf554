"""Rows of clients on the device, where they stay from round to round."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import cupy as cp
import numpy as np
import scipy.sparse

from fedns.numerics.backend import Batch, FloatArray, IntArray
from fedns.numerics.errors import BackendError
from fedns.numerics.rows import DenseRows, Rows, narrowed

_CHUNK_ROWS = 1 << 16
_MOST_ROWS = 1024  # of a piece
_SPARE = 16  # bytes after the last row, which a copy of whole words may touch


@dataclass(frozen=True)
class Pieces:
    """Runs of at most `length` rows of one client each, in client order; they depend on the client alone."""

    table: Any  # (pieces, 4) on the device: client, first row, last row, first row of the client
    bounds: Any  # (clients + 1,) on the device: which pieces are a client's
    host: IntArray  # the table on the host
    host_bounds: IntArray
    length: int

    @classmethod
    def of(cls, starts: IntArray, stops: IntArray, length: int) -> Pieces:
        sizes = stops - starts
        counts = -(-sizes // length)
        client = np.repeat(np.arange(starts.size), counts)
        bounds = np.concatenate([[0], np.cumsum(counts)])
        number = np.arange(client.size) - bounds[client]
        even = (sizes + 32 * counts - 1) // (32 * counts) * 32  # pieces of a client are alike, in whole tiles
        first = starts[client] + number * even[client]
        last = np.minimum(first + even[client], stops[client])
        table = np.stack([client, first, np.maximum(first, last), starts[client]], axis=1)
        return cls(cp.asarray(table), cp.asarray(bounds), table, bounds, length)


class ResidentRows:
    """A copy of rows, targets and sample weights in device memory, in the narrowest type that holds them."""

    def __init__(self, rows: Rows, targets: FloatArray, weights: FloatArray | None) -> None:
        narrow = narrowed(rows)
        count, self.columns = rows.shape
        values = narrow.flat if isinstance(narrow, DenseRows) else narrow.data
        needed = count * self.columns * values.dtype.itemsize
        free = cp.cuda.Device().mem_info[0]
        if needed > free:
            raise BackendError(
                f"the rows take {needed / 1e9:.3g} GB and the device has {free / 1e9:.3g} GB free: use device='cpu'"
            )
        buffer = cp.empty(count * self.columns + _SPARE, dtype=values.dtype)
        self.flat = buffer[: count * self.columns]
        for start in range(0, count, _CHUNK_ROWS):
            stop = min(start + _CHUNK_ROWS, count)
            self.flat[start * self.columns : stop * self.columns] = cp.asarray(_dense(narrow, start, stop).reshape(-1))
        self.targets = cp.asarray(targets)
        self.weights = None if weights is None else cp.asarray(weights)
        self._pieces: dict[tuple[int, bytes, bytes], Pieces] = {}
        self._padded: tuple[Any, Padded] | None = None

    def pieces(self, batch: Batch, length: int) -> Pieces:
        key = length, batch.starts.tobytes(), batch.stops.tobytes()
        if key not in self._pieces:
            if len(self._pieces) > 64:
                self._pieces.clear()
            self._pieces[key] = Pieces.of(batch.starts, batch.stops, length)
        return self._pieces[key]

    def padded(self, batch: Batch, intercept: bool) -> Padded:
        """The rows of the batch as one block per piece; the last one is kept."""
        pieces = self.pieces(batch, min(_MOST_ROWS, -(-int((batch.stops - batch.starts).max()) // 32) * 32))
        if self._padded is None or self._padded[0] != (id(pieces), intercept):
            self._padded = (id(pieces), intercept), Padded.of(self, pieces, intercept)
        return self._padded[1]


@dataclass(frozen=True)
class Padded:
    """Pieces of equal length, the shorter ones filled up with rows of zeros whose weight is zero."""

    pieces: Pieces
    rows: Any  # (pieces, length, features), with a last column of ones for an intercept
    targets: Any  # (pieces, length)
    weights: Any  # (pieces, length), not divided by anybody's total
    index: Any  # (pieces, length) of the row
    client: IntArray  # (pieces,) on the host

    @classmethod
    def of(cls, resident: ResidentRows, pieces: Pieces, intercept: bool) -> Padded:
        index = pieces.table[:, 1:2] + cp.arange(pieces.length)
        present = index < pieces.table[:, 2:3]
        index = cp.where(present, index, 0)
        rows = cp.zeros((*index.shape, resident.columns + intercept))
        rows[..., : resident.columns] = resident.flat.reshape(-1, resident.columns)[index]
        rows[..., resident.columns :] = 1.0
        rows *= present[..., None]
        ones = present.astype(cp.float64)
        weights = ones if resident.weights is None else ones * resident.weights[index]
        return cls(pieces, rows, resident.targets[index], weights, index, pieces.host[:, 0])


_residents: dict[tuple[int, ...], tuple[tuple[Any, ...], ResidentRows]] = {}


def resident(batch: Batch) -> ResidentRows:
    """The device's copy of the batch's rows, made once; it goes when the rows on the host go."""
    values = batch.rows.flat if isinstance(batch.rows, DenseRows) else batch.rows.data
    sources = [array for array in (values, batch.targets, batch.sample_weights) if array is not None]
    key = tuple(map(id, sources))
    known = _residents.get(key)
    if known is None or any(reference() is not source for reference, source in zip(known[0], sources, strict=True)):
        copy = ResidentRows(batch.rows, batch.targets, batch.sample_weights)
        known = tuple(weakref.ref(source, lambda _: _residents.pop(key, None)) for source in sources), copy
        _residents[key] = known
    return known[1]


_constants: dict[tuple[str, bytes], Any] = {}


def constant(array: Any) -> Any:
    """A small array on the device that is the same in every round: it is sent once."""
    key = array.dtype.str, array.tobytes()
    if key not in _constants:
        if len(_constants) > 256:
            _constants.clear()
        _constants[key] = cp.asarray(array)
    return _constants[key]


def _dense(rows: Rows, start: int, stop: int) -> Any:
    if isinstance(rows, DenseRows):
        return rows.values[start:stop]
    run = slice(int(rows.indptr[start]), int(rows.indptr[stop]))
    pointers = rows.indptr[start : stop + 1] - rows.indptr[start]
    part = scipy.sparse.csr_matrix((rows.data[run], rows.indices[run], pointers), shape=(stop - start, rows.num_columns))
    return part.toarray()
