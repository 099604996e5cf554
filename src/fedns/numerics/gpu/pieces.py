"""Rows cut into pieces, and pieces put together into windows that the device works on at a time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import cupy as cp
import numpy as np

from fedns.numerics.backend import IntArray
from fedns.numerics.parallel import offsets_of

Run = tuple[int, int]  # rows first:last


@dataclass(frozen=True)
class Pieces:
    """Runs of at most `length` rows of one client each, in client order; they depend on the client alone."""

    table: Any  # (pieces, 4) on the device: client, first row, last row, first row of the client
    bounds: Any  # (clients + 1,) on the device: which pieces are a client's
    host: IntArray  # the table on the host
    host_bounds: IntArray
    length: int
    cuts: tuple[Run, ...]  # pieces low:high of every window

    @classmethod
    def of(cls, starts: IntArray, stops: IntArray, length: int, most_rows: int, padded: bool) -> Pieces:
        """most_rows: of a window, which has one piece at least; padded: every piece counts as a full one."""
        sizes = stops - starts
        counts = -(-sizes // length)
        client = np.repeat(np.arange(starts.size), counts)
        bounds = offsets_of(counts)
        number = np.arange(client.size) - bounds[client]
        even = (sizes + 32 * counts - 1) // (32 * counts) * 32  # pieces of a client are alike, in whole tiles
        first = starts[client] + number * even[client]
        last = np.minimum(first + even[client], stops[client])
        table = np.stack([client, first, last, starts[client]], axis=1)
        cuts = _cut(np.full(client.size, length) if padded else last - first, most_rows)
        return cls(cp.asarray(table), cp.asarray(bounds), table, bounds, length, cuts)

    def clients(self, low: int, high: int) -> Run:
        """Whose pieces low:high are: clients first:last."""
        return int(self.host[low, 0]), int(self.host[high - 1, 0]) + 1

    @cached_property
    def alone(self) -> tuple[Any, list[list[Run]]]:
        """For windows that hold nothing but their own rows: the table as it is then, and each window's rows among all."""
        first, last = self.host[:, 1], self.host[:, 2]
        before = offsets_of(last - first)
        low = np.repeat([cut[0] for cut in self.cuts], [cut[1] - cut[0] for cut in self.cuts])
        table = self.host.copy()
        table[:, 1:] += (before[:-1] - before[low] - first)[:, None]
        return cp.asarray(table), [_runs(first[low:high], last[low:high]) for low, high in self.cuts]


def _cut(sizes: IntArray, most: int) -> tuple[Run, ...]:
    """Runs of things whose sizes add up to at most `most`, or of one thing."""
    before, cuts, low = offsets_of(sizes), [], 0
    while low < sizes.size:
        high = max(low + 1, int(np.searchsorted(before, before[low] + most, "right")) - 1)
        cuts.append((low, high))
        low = high
    return tuple(cuts)


def _runs(first: IntArray, last: IntArray) -> list[Run]:
    """Rows of pieces as few runs, in order: pieces that follow on each other are one."""
    begins = np.concatenate([[True], first[1:] != last[:-1]])
    ends = np.concatenate([begins[1:], [True]])
    return list(zip(first[begins].tolist(), last[ends].tolist(), strict=True))
