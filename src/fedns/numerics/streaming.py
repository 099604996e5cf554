"""Rows that are larger than memory: a pass reads some of them at a time, the next ones while it works on these."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedns.numerics import memory
from fedns.numerics.errors import BackendError
from fedns.numerics.onehot import OneHotRows
from fedns.numerics.parallel import Segments
from fedns.numerics.rows import DenseRows, PlainRows, Rows, SparseRows

# Long enough for a disk to be at its best, short enough for the first ones to come soon.
_READ_BYTES = 32 << 20
# A segment above this is left to the system to page in: wide rows, and passes that cannot cut a client.
_MOST_BYTES = 512 << 20


class Run(NamedTuple):
    """Segments low:high with their rows in memory; these are rows first:last of the whole."""

    low: int
    high: int
    first: int
    last: int
    rows: Rows
    segments: Segments  # all of them, their rows counted from `first`

    @property
    def own(self) -> Segments:
        if self.high - self.low == self.segments.number:
            return self.segments
        return Segments(*(column[self.low : self.high] for column in self.segments))


def streamed(rows: Rows) -> bool:
    """Whether these rows are in a file and take more than memory has room for."""
    if isinstance(rows, OneHotRows):
        return False
    return rows.nbytes > memory.room() and all(file_of(array) is not None for array in _numbers(rows))


def in_memory(rows: Rows, segments: Segments) -> Iterator[Run]:
    """The segments in order, with their rows in memory; all at once where the rows are."""
    if isinstance(rows, OneHotRows) or not streamed(rows):
        yield Run(0, segments.number, 0, rows.shape[0], rows, segments)
        return
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(contextlib.closing(_Source(rows)))
        reader = stack.enter_context(ThreadPoolExecutor(1, "fedns-read"))
        runs = _runs(rows, segments)
        ahead = [reader.submit(source.read, *run[2:]) for run in runs[:1]]
        for number, (low, high, first, last) in enumerate(runs):
            part = ahead.pop().result()
            if number + 1 < len(runs):
                ahead.append(reader.submit(source.read, *runs[number + 1][2:]))
            moved = segments._replace(first=segments.first - first, last=segments.last - first, begin=segments.begin - first)
            yield Run(low, high, first, last, part, moved)


def _runs(rows: PlainRows, segments: Segments) -> list[tuple[int, int, int, int]]:
    """Segments low:high that stand one after the other and are read together, with their rows first:last."""
    sizes = _bytes_before(rows, segments.last) - _bytes_before(rows, segments.first)
    broken = segments.first[1:] != segments.last[:-1]
    runs, low, held = [], 0, 0
    for at in range(segments.number):
        if at > low and (broken[at - 1] or held + sizes[at] > _READ_BYTES):
            runs.append((low, at, int(segments.first[low]), int(segments.last[at - 1])))
            low, held = at, 0
        held += int(sizes[at])
    return [*runs, (low, segments.number, int(segments.first[low]), int(segments.last[-1]))]


def _bytes_before(rows: PlainRows, places: NDArray[np.int64]) -> NDArray[np.int64]:
    if isinstance(rows, SparseRows):
        return np.asarray(rows.indptr[places] * (rows.data.itemsize + rows.indices.itemsize), dtype=np.int64)
    return places * (rows.num_columns * rows.flat.itemsize)


class _Source:
    """The file or files that rows are in; two buffers take turns, so that a part is gone when the next but one comes."""

    def __init__(self, rows: PlainRows) -> None:
        self._rows = rows
        self._arrays = _numbers(rows)
        self._places = [file_of(array) or ("", 0) for array in self._arrays]
        self._files = [open(path, "rb", buffering=0) for path, _ in self._places]  # noqa: PTH123, SIM115
        self._buffers = [[np.empty(0, np.uint8) for _ in self._arrays] for _ in range(2)]

    def close(self) -> None:
        for file in self._files:
            file.close()

    def read(self, first: int, last: int) -> PlainRows:
        """Rows first:last, counted from 0."""
        rows = self._rows
        self._buffers.reverse()
        if isinstance(rows, DenseRows):
            return rows._replace(flat=self._part(0, first * rows.num_columns, last * rows.num_columns))
        pointers = np.array(rows.indptr[first : last + 1])
        low, high = int(pointers[0]), int(pointers[-1])
        return rows._replace(data=self._part(0, low, high), indices=self._part(1, low, high), indptr=pointers - low)

    def _part(self, which: int, low: int, high: int) -> NDArray[Any]:
        """Entries low:high of one of the arrays."""
        kind, (path, start) = self._arrays[which].dtype, self._places[which]
        start, size = start + low * kind.itemsize, (high - low) * kind.itemsize
        if size > _MOST_BYTES:  # copy on write: the kernels are compiled for arrays that can be written
            return np.asarray(np.memmap(path, kind, "c", start, (high - low,)))
        buffers = self._buffers[0]
        if buffers[which].size < size:
            buffers[which] = np.empty(size, np.uint8)
        part = buffers[which][:size]
        _fill(part, self._files[which], start)
        return part.view(kind)


def _fill(part: NDArray[np.uint8], file: FileIO, start: int) -> None:
    file.seek(start)
    done = 0
    while done < part.size:
        count = file.readinto(part.data[done:])
        if not count:
            raise BackendError(f"'{file.name!s}' ends after {start + done} bytes: it was cut short while it was in use")
        done += count
    if hasattr(os, "posix_fadvise"):
        # What was read would be pushed out before the next pass comes to it; meanwhile it would push out other things.
        os.posix_fadvise(file.fileno(), start, part.size, os.POSIX_FADV_DONTNEED)


def file_of(array: NDArray[Any]) -> tuple[str, int] | None:
    """The file that an array is mapped from, and where in it the array begins; None where it is in memory."""
    root: Any = array
    while isinstance(root, np.ndarray) and isinstance(root.base, np.ndarray):
        root = root.base
    if not isinstance(root, np.memmap) or root.filename is None:
        return None
    return str(root.filename), int(root.offset + array.ctypes.data - root.ctypes.data)


def _numbers(rows: PlainRows) -> list[NDArray[Any]]:
    return [rows.flat] if isinstance(rows, DenseRows) else [rows.data, rows.indices]
