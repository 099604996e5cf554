"""Cutting rows into work and spreading it over threads so that the result does not depend on how many there are."""

import contextlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

# Long clients are cut here, so that one site with all the rows still uses every core. A power of two: sketches that
# transform blocks of rows need cuts on block boundaries.
SEGMENT_ROWS = 1 << 16
# More parts than threads even out clients of unequal length, and threads of unequal speed.
_PARTS_PER_THREAD = 32
_SMALLEST_PART = 1 << 16  # entries: some 30 microseconds of work, several times what starting a part costs

_threads = os.cpu_count() or 1

Result = TypeVar("Result")


class Segments(NamedTuple):
    """Runs of rows of one client each, in client order; a segment's sums go to its own slot."""

    client: NDArray[np.int64]  # (segments,) position of the client
    first: NDArray[np.int64]  # (segments,)
    last: NDArray[np.int64]  # (segments,)
    begin: NDArray[np.int64]  # (segments,) where the client's rows begin: row i is the client's row i - begin
    size: NDArray[np.int64]  # (segments,) rows of the whole client

    @property
    def number(self) -> int:
        return int(self.client.size)


def cut(starts: NDArray[np.int64], stops: NDArray[np.int64], segment_rows: int = SEGMENT_ROWS) -> Segments:
    """Segments of at most `segment_rows` rows. The cuts depend on the client alone, never on threads or chunks."""
    sizes = stops - starts
    if sizes.max(initial=0) <= segment_rows:  # the usual case, in a tenth of the time: small passes notice
        return Segments(np.arange(starts.size), starts, stops, starts, sizes)
    pieces = np.maximum(1, -(-sizes // segment_rows))
    client = np.repeat(np.arange(starts.size, dtype=np.int64), pieces)
    index = np.arange(client.size) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    first = starts[client] + index * segment_rows
    return Segments(client, first, np.minimum(first + segment_rows, stops[client]), starts[client], sizes[client])


def part_cuts(segments: Segments, row_cost: int) -> NDArray[np.int64]:
    """Where to cut the segments into parts of about equal work, one part where threads would not pay.

    `row_cost` is about the number of entries of a row. A part may be empty, beside a long segment.
    """
    rows = (segments.last - segments.first).cumsum()
    parts = min(_PARTS_PER_THREAD * _threads, segments.number, int(rows[-1]) * row_cost // _SMALLEST_PART)
    if _threads == 1 or parts < 2:
        return np.array([0, segments.number])
    cuts: NDArray[np.int64] = rows.searchsorted(np.arange(parts + 1) * (rows[-1] / parts))
    cuts[0], cuts[parts] = 0, segments.number
    return cuts


def offsets_of(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where things of these sizes, back to back, start, and where the last one ends: (things + 1,)."""
    offsets = np.zeros(sizes.size + 1, dtype=np.int64)
    sizes.cumsum(out=offsets[1:])
    return offsets


def thread_count() -> int:
    """How many threads are allowed."""
    return _threads


def for_each_part(segments: Segments, work: Callable[[int, int], Any], row_cost: int) -> None:
    """Call work(low, high) over ranges of segments that together cover all, on Python's threads."""
    cuts = part_cuts(segments, row_cost).tolist()
    map_clients(lambda part: work(cuts[part], cuts[part + 1]), len(cuts) - 1)


def map_clients(work: Callable[[int], Result], count: int) -> list[Result]:
    """[work(0), ..., work(count - 1)], on every thread allowed.

    For work that one client's arrays decide and that lets go of the interpreter, as compiled kernels and `numpy.linalg` do.
    """
    if _threads == 1 or count < 2:
        return [work(client) for client in range(count)]
    results: list[Any] = [None] * count
    clients = iter(list(range(count)))  # next() on a list iterator is atomic: threads share it

    def take() -> None:
        for client in clients:
            results[client] = work(client)

    futures = [_pool(_threads - 1).submit(take) for _ in range(min(_threads, count) - 1)]
    try:
        take()
    finally:
        for future in futures:
            future.result()
    return results


def merge(partial: NDArray[np.float64], segments: Segments, num_clients: int) -> NDArray[np.float64]:
    """Sum the segments' slots client by client, in order: (segments, ...) to (clients, ...)."""
    if segments.number == num_clients:
        return partial
    boundaries = np.searchsorted(segments.client, np.arange(num_clients))
    return np.stack([_sum_in_order(part) for part in np.split(partial, boundaries[1:])])


@contextlib.contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Use this many threads inside the block; None leaves the setting alone."""
    global _threads
    before = _threads
    _threads = before if count is None else count
    try:
        yield
    finally:
        _threads = before


def _sum_in_order(parts: NDArray[np.float64]) -> NDArray[np.float64]:
    total: NDArray[np.float64] = parts[0].copy()
    for part in parts[1:]:
        total += part
    return total


@cache
def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="fedns")
