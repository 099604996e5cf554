"""Rows larger than the device's memory: they come by in every pass, through two buffers that take turns.

Dense rows in memory are pinned where they are, and the device copies them by itself. Those in a file or compressed are
gathered in two pinned buffers first, which takes longer than the copy.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Any

import cupy as cp
import numpy as np
from cupyx import empty_pinned
from numpy.typing import NDArray

from fedns.numerics.backend import Batch, FloatArray
from fedns.numerics.gpu.pieces import Pieces, Run
from fedns.numerics.gpu.windows import DeviceRows, Window, arrays_of, dense, dtype_of
from fedns.numerics.parallel import map_clients, thread_count
from fedns.numerics.rows import DenseRows
from fedns.numerics.streaming import file_of

SPARE = 16  # numbers after the last row, which a copy of whole words may touch
_WINDOW_BYTES = 1 << 27  # long enough for threads that gather to be at their best
_PART_BYTES = 1 << 20  # that a thread gathers at a time, at least
_ALIGNED = 256


class _Slot:
    """A buffer on the device, and a pinned one on the host for what is to be gathered first."""

    def __init__(self) -> None:
        self.host, self.there = np.empty(0, np.uint8), cp.empty(0, np.uint8)
        self.copied = cp.cuda.Event(disable_timing=True)  # the buffer on the host is free again
        self.used = cp.cuda.Event(disable_timing=True)  # and the one on the device

    def reserve(self, count: int, gathered: bool) -> None:
        """Wait until the host's buffer is free, and make both large enough."""
        self.copied.synchronize()
        if count > self.there.size:
            self.there = cp.empty(count, np.uint8)
            cp.cuda.get_current_stream().synchronize()  # what was freed before may be in use until now
        if gathered and count > self.host.size:
            self.host = empty_pinned(count, np.uint8)


class StreamedRows(DeviceRows):
    """Windows of rows, the next one on its way while the device works on this one; nothing of the host's is held."""

    def __init__(self, batch: Batch) -> None:
        super().__init__(batch.rows.num_columns, dtype_of(batch.rows), batch.sample_weights is not None)
        self._slots = _Slot(), _Slot()
        self._copies = cp.cuda.Stream(non_blocking=True)
        self._straight = isinstance(batch.rows, DenseRows) and all(map(pinned, arrays_of(batch)))

    @property
    def window_rows(self) -> int:
        return max(1, _WINDOW_BYTES // (self.columns * self.dtype.itemsize))

    def windows(self, batch: Batch, pieces: Pieces) -> Iterator[Window]:
        table, runs = pieces.alone
        work, filling = cp.cuda.get_current_stream(), self._fill(batch, runs[0], self._slots[0])
        try:
            for number, (low, high) in enumerate(pieces.cuts):
                slot = self._slots[number % 2]
                if filling is not None:
                    filling.result()
                self._send(batch, runs[number], slot)
                if number + 1 < len(runs):
                    filling = self._fill(batch, runs[number + 1], self._slots[(number + 1) % 2])
                work.wait_event(slot.copied)
                yield Window(low, high, table[low:high], *self._views(slot.there, _rows_of(runs[number])), runs[number])
                slot.used.record(work)
        finally:  # nothing reads the host's memory any more, however the pass has ended
            if filling is not None:
                filling.result()
            self._copies.synchronize()

    def alone(self, batch: Batch, pieces: Pieces) -> Iterator[Window]:
        return self.windows(batch, pieces)

    def own(self, window: Window, values: FloatArray) -> Any:
        return cp.asarray(np.concatenate([values[first:last] for first, last in window.runs or []]))

    def chosen(self, batch: Batch, index: Any) -> tuple[Any, Any, Any | None]:
        places = cp.asnumpy(index)
        weights = None if batch.sample_weights is None else cp.asarray(batch.sample_weights[places])
        return cp.asarray(dense(batch.rows, places)), cp.asarray(batch.targets[places]), weights

    def _fill(self, batch: Batch, runs: list[Run], slot: _Slot) -> Future[Any] | None:
        """Begin to gather these rows in the slot's buffer on the host, on several threads, unless they go straight."""
        slot.reserve(self._places(_rows_of(runs))[-1], not self._straight)
        if self._straight:
            return None
        rows, *others = self._views(slot.host, _rows_of(runs))
        beside = list(zip(others, arrays_of(batch)[1:], strict=False))  # weights only where there are some
        share = max(1, _PART_BYTES // (self.columns * self.dtype.itemsize), -(-_rows_of(runs) // thread_count()))
        parts, place = [], 0
        for low, high in runs:
            for first in range(low, high, share):
                parts.append((slice(first, min(first + share, high)), slice(place, place + min(share, high - first))))
                place = parts[-1][1].stop

        def gather(number: int) -> None:
            source, here = parts[number]
            rows.reshape(-1, self.columns)[here] = dense(batch.rows, source)
            for own, array in beside:
                own[here] = array[source]

        return _ahead().submit(map_clients, gather, len(parts))

    def _send(self, batch: Batch, runs: list[Run], slot: _Slot) -> None:
        self._copies.wait_event(slot.used)
        if self._straight:
            for own, array in zip(self._views(slot.there, _rows_of(runs)), arrays_of(batch), strict=False):
                width, place = array.size // batch.targets.size, 0
                for first, last in runs:
                    self._copy(own[place * width :], array[first * width : last * width])
                    place += last - first
        else:
            self._copy(slot.there, slot.host[: self._places(_rows_of(runs))[-1]])
        slot.copied.record(self._copies)

    def _copy(self, there: Any, here: NDArray[Any]) -> None:
        kind = cp.cuda.runtime.memcpyHostToDevice
        cp.cuda.runtime.memcpyAsync(there.data.ptr, here.ctypes.data, here.nbytes, kind, self._copies.ptr)

    def _places(self, rows: int) -> list[int]:
        """Where in a buffer so many rows, their targets and weights begin, and where all of it ends."""
        sizes = [rows * self.columns * self.dtype.itemsize, *[8 * rows] * (1 + self.weighted)]
        return [0, *np.cumsum([-(-(size + SPARE) // _ALIGNED) * _ALIGNED for size in sizes]).tolist()]

    def _views(self, buffer: Any, rows: int) -> tuple[Any, Any, Any | None]:
        flat = buffer[: rows * self.columns * self.dtype.itemsize].view(self.dtype)
        others = [buffer[place : place + 8 * rows].view(np.float64) for place in self._places(rows)[1:-1]]
        return flat, others[0], others[1] if self.weighted else None


def pinned(array: NDArray[Any]) -> bool:
    """Let the device copy from this memory by itself for as long as it is there; False where it cannot."""
    place = array.ctypes.data, array.nbytes
    if file_of(array) is not None:
        return False
    if not _pins[place]:
        try:
            cp.cuda.runtime.hostRegister(*place, 0)
        except cp.cuda.runtime.CUDARuntimeError:  # a part of it is pinned already, or so much must not be
            return False
    _pins[place] += 1
    weakref.finalize(array, _let_go, place).atexit = False
    return True


_pins: Counter[tuple[int, int]] = Counter()


def _let_go(place: tuple[int, int]) -> None:
    _pins[place] -= 1
    if not _pins[place]:
        cp.cuda.runtime.hostUnregister(place[0])


def _rows_of(runs: list[Run]) -> int:
    return sum(last - first for first, last in runs)


@cache
def _ahead() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "fedns-ahead")
