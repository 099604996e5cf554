"""Rows of clients on the device, where they stay from round to round."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import cupy as cp

from fedns.numerics import memory
from fedns.numerics.backend import Batch, FloatArray
from fedns.numerics.gpu.pieces import Pieces
from fedns.numerics.gpu.streamed import SPARE, StreamedRows
from fedns.numerics.gpu.windows import DeviceRows, Padded, Window, arrays_of, dense, dtype_of
from fedns.numerics.rows import Rows, narrowed, written_once

VARIABLE = "FEDNS_DEVICE_MEMORY"  # gigabytes of a table that stay on the device, where its own room is not wanted
_CHUNK_ROWS = 1 << 16


def device_room() -> int:
    """Bytes of a table that stay on the device; larger ones come by in turn in every pass."""
    stated = memory.stated(VARIABLE)
    if stated is not None:
        return stated
    free = cp.cuda.Device().mem_info[0] + cp.get_default_memory_pool().free_bytes()
    return int(0.6 * free)


class ResidentRows(DeviceRows):
    """A copy of all rows in device memory."""

    window_rows = 1 << 62

    def __init__(self, batch: Batch, rows: Rows) -> None:
        """rows: the batch's own in the narrowest type that holds them."""
        super().__init__(rows.num_columns, dtype_of(rows), batch.sample_weights is not None)
        count = rows.shape[0] * self.columns
        self._flat = cp.empty(count + SPARE, dtype=self.dtype)[:count]
        for start in range(0, rows.shape[0], _CHUNK_ROWS):
            part = dense(rows, slice(start, start + _CHUNK_ROWS)).reshape(-1)
            self._flat[start * self.columns : start * self.columns + part.size] = cp.asarray(part)
        self._targets = cp.asarray(batch.targets)
        self._weights = None if batch.sample_weights is None else cp.asarray(batch.sample_weights)
        self._kept: tuple[int, list[Padded]] | None = None  # features, and the last blocks
        self._beside: tuple[Any, Any] | None = None  # numbers of rows that came with a pass, on the host and here

    def windows(self, batch: Batch, pieces: Pieces) -> Iterator[Window]:
        for low, high in pieces.cuts:
            yield Window(low, high, pieces.table[low:high], self._flat, self._targets, self._weights)

    def alone(self, batch: Batch, pieces: Pieces) -> Iterator[Window]:
        table, runs = pieces.alone
        rows = self._flat.reshape(-1, self.columns)
        for (low, high), own in zip(pieces.cuts, runs, strict=True):
            flat, targets = (cp.concatenate([array[a:b] for a, b in own]) for array in (rows, self._targets))
            weights = None if self._weights is None else cp.concatenate([self._weights[a:b] for a, b in own])
            yield Window(low, high, table[low:high], flat.reshape(-1), targets, weights, own)

    def own(self, window: Window, values: FloatArray) -> Any:
        if self._beside is None or self._beside[0]() is not values:
            self._beside = weakref.ref(values), cp.asarray(values)
        return self._beside[1]

    def chosen(self, batch: Batch, index: Any) -> tuple[Any, Any, Any | None]:
        weights = None if self._weights is None else self._weights[index]
        return self._flat.reshape(-1, self.columns)[index], self._targets[index], weights

    def _padded(self, batch: Batch, pieces: Pieces, features: int) -> Iterable[Padded]:
        """The last ones are kept, where there is room for them."""
        if self._kept is not None and self._kept[0] == features and self._kept[1][0].pieces is pieces:
            return self._kept[1]
        self._kept = None
        made = super()._padded(batch, pieces, features)
        if 8 * len(pieces.host) * pieces.length * features > device_room() // 2:
            return made
        self._kept = features, list(made)
        return self._kept[1]


_known: dict[tuple[int, ...], tuple[tuple[Any, ...], DeviceRows]] = {}


def device_rows(batch: Batch) -> DeviceRows:
    """The batch's rows for the device: found once, and let go of when the rows on the host go."""
    sources = arrays_of(batch)
    key = tuple(map(id, sources))
    known = _known.get(key)
    if known is None or any(reference() is not source for reference, source in zip(known[0], sources, strict=True)):
        rows, narrow = batch.rows, narrowed(written_once(batch.rows))
        needed = rows.shape[0] * (rows.num_columns * dtype_of(narrow).itemsize + 8 * (len(sources) - 1))
        found = ResidentRows(batch, narrow) if needed <= device_room() else StreamedRows(batch)
        known = tuple(weakref.ref(source, lambda _: _known.pop(key, None)) for source in sources), found
        _known[key] = known
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
