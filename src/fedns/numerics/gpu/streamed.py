"""Rows larger than the device's memory: they come by in every pass, through two pinned buffers that take turns."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any

import cupy as cp
import numpy as np
from cupyx import empty_pinned

from fedns.numerics.backend import Batch, FloatArray
from fedns.numerics.gpu.pieces import Pieces, Run
from fedns.numerics.gpu.windows import DeviceRows, Window, dense, dtype_of
from fedns.numerics.parallel import map_clients, thread_count

SPARE = 16  # numbers after the last row, which a copy of whole words may touch
_WINDOW_BYTES = 1 << 26  # long enough for a copy to be at its best, short enough for the first one to be there soon
_PART_BYTES = 1 << 20  # that a thread gathers at a time, at least
_ALIGNED = 256


class _Slot:
    """A buffer on the host, pinned so that the device copies from it by itself, and its counterpart there."""

    def __init__(self) -> None:
        self.host, self.there = np.empty(0, np.uint8), None
        self.copied = cp.cuda.Event(disable_timing=True)  # the buffer on the host is free again
        self.used = cp.cuda.Event(disable_timing=True)  # and the one on the device

    def reserve(self, count: int) -> None:
        """Wait until the host's buffer is free, and make both large enough."""
        self.copied.synchronize()
        if count > self.host.size:
            self.host, self.there = empty_pinned(count, np.uint8), cp.empty(count, np.uint8)
            cp.cuda.get_current_stream().synchronize()  # what was freed before may be in use until now


class StreamedRows(DeviceRows):
    """Windows of rows, the next one on its way while the device works on this one; nothing of the host's is held."""

    def __init__(self, batch: Batch) -> None:
        super().__init__(batch.rows.num_columns, dtype_of(batch.rows), batch.sample_weights is not None)
        self._slots = _Slot(), _Slot()
        self._copies = cp.cuda.Stream(non_blocking=True)

    @property
    def window_rows(self) -> int:
        return max(1, _WINDOW_BYTES // (self.columns * self.dtype.itemsize))

    def windows(self, batch: Batch, pieces: Pieces) -> Iterator[Window]:
        table, runs = pieces.alone
        work, filling = cp.cuda.get_current_stream(), self._fill(batch, runs[0], self._slots[0])
        try:
            for number, (low, high) in enumerate(pieces.cuts):
                slot = self._slots[number % 2]
                filling.result()
                self._send(slot, runs[number])
                if number + 1 < len(runs):
                    filling = self._fill(batch, runs[number + 1], self._slots[(number + 1) % 2])
                work.wait_event(slot.copied)
                yield Window(low, high, table[low:high], *self._views(slot.there, _rows_of(runs[number])), runs[number])
                slot.used.record(work)
        finally:
            filling.result()

    def alone(self, batch: Batch, pieces: Pieces) -> Iterator[Window]:
        return self.windows(batch, pieces)

    def own(self, window: Window, values: FloatArray) -> Any:
        return cp.asarray(np.concatenate([values[first:last] for first, last in window.runs or []]))

    def chosen(self, batch: Batch, index: Any) -> tuple[Any, Any, Any | None]:
        places = cp.asnumpy(index)
        weights = None if batch.sample_weights is None else cp.asarray(batch.sample_weights[places])
        return cp.asarray(dense(batch.rows, places)), cp.asarray(batch.targets[places]), weights

    def _fill(self, batch: Batch, runs: list[Run], slot: _Slot) -> Future[Any]:
        """Begin to gather these rows in the slot's buffer on the host, on several threads."""
        slot.reserve(self._places(_rows_of(runs))[-1])
        flat, targets, weights = self._views(slot.host, _rows_of(runs))
        rows = flat.reshape(-1, self.columns)

        def gather(first: int, last: int, place: int) -> None:
            here = slice(place, place + last - first)
            rows[here] = dense(batch.rows, slice(first, last))
            targets[here] = batch.targets[first:last]
            if weights is not None and batch.sample_weights is not None:
                weights[here] = batch.sample_weights[first:last]

        shares = -(-_rows_of(runs) // thread_count()), _PART_BYTES // (self.columns * self.dtype.itemsize)
        parts, place = [], 0
        for low, high in runs:
            for first in range(low, high, max(*shares, 1)):
                last = min(first + max(*shares, 1), high)
                parts.append((first, last, place))
                place += last - first
        return _ahead().submit(map_clients, lambda part: gather(*parts[part]), len(parts))

    def _send(self, slot: _Slot, runs: list[Run]) -> None:
        self._copies.wait_event(slot.used)
        count, kind = self._places(_rows_of(runs))[-1], cp.cuda.runtime.memcpyHostToDevice
        cp.cuda.runtime.memcpyAsync(slot.there.data.ptr, slot.host.ctypes.data, count, kind, self._copies.ptr)  # type: ignore[attr-defined]
        slot.copied.record(self._copies)

    def _places(self, rows: int) -> list[int]:
        """Where in a buffer so many rows, their targets and weights begin, and where all of it ends."""
        sizes = [rows * self.columns * self.dtype.itemsize, *[8 * rows] * (1 + self.weighted)]
        return [0, *np.cumsum([-(-(size + SPARE) // _ALIGNED) * _ALIGNED for size in sizes]).tolist()]

    def _views(self, buffer: Any, rows: int) -> tuple[Any, Any, Any | None]:
        flat = buffer[: rows * self.columns * self.dtype.itemsize].view(self.dtype)
        others = [buffer[place : place + 8 * rows].view(np.float64) for place in self._places(rows)[1:-1]]
        return flat, others[0], others[1] if self.weighted else None


def _rows_of(runs: list[Run]) -> int:
    return sum(last - first for first, last in runs)


@cache
def _ahead() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "fedns-ahead")
