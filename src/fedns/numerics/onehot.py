"""Rows whose columns of zeros and ones are held as an index: which column of a group has the one."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

STRIP = 8  # columns that a kernel takes at a time
_FEWEST, _WIDEST = 3, 255  # columns of a group: worth an index, and told apart by a byte that may also say "none"
_CHUNK = 1 << 14


class OneHotRows(NamedTuple):
    """Strips of eight columns that hold other numbers, one after the other, and an index for each group.

    A strip that is shared with a group has zeros in the group's place, so that every number keeps its place in its strip.
    """

    numbers: NDArray[Any]  # (rows * width,), float64 or one of NARROW_TYPES
    width: int  # numbers of a row: eight for each strip, less in the last
    codes: NDArray[np.uint8]  # (rows * groups,), the place of the one in its group, or the group's width for none
    strips: NDArray[np.int64]  # (strips that are held,) their places in a row
    firsts: NDArray[np.int64]  # (groups,) first columns
    lasts: NDArray[np.int64]  # (groups,) last columns + 1
    num_columns: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.codes.size // self.firsts.size, self.num_columns

    @property
    def nbytes(self) -> int:
        return self.numbers.nbytes + self.codes.nbytes

    @property
    def numbers_first(self) -> bool:
        """Whether all columns of numbers come before those of groups."""
        return bool(self.width == self.firsts[0])

    def part(self, start: int, stop: int) -> OneHotRows:
        """Some of the rows, over the same memory."""
        numbers = self.numbers[start * self.width : stop * self.width]
        return self._replace(numbers=numbers, codes=self.codes[start * self.firsts.size : stop * self.firsts.size])

    def written_out(self, start: int, stop: int, kind: Any) -> NDArray[Any]:
        """All columns of some of the rows in this type: (rows, columns)."""
        part, count = self.part(start, stop), stop - start
        whole = np.zeros((count, -(-self.num_columns // STRIP), STRIP), kind)
        numbers = np.zeros((count, self.strips.size * STRIP), kind)
        numbers[:, : self.width] = part.numbers.reshape(count, self.width)
        whole[:, self.strips] = numbers.reshape(count, self.strips.size, STRIP)
        dense = np.ascontiguousarray(whole.reshape(count, -1)[:, : self.num_columns])
        for first, last, codes in zip(self.firsts, self.lasts, part.codes.reshape(count, -1).T, strict=True):
            at = np.flatnonzero(codes < last - first)
            dense[at, first + codes[at]] = 1
        return dense

    def block(self, start: int, stop: int) -> NDArray[np.float64]:
        """Some of the rows in float64."""
        return self.written_out(start, stop, np.float64)

    def dense(self, start: int, stop: int) -> NDArray[np.float64]:
        return self.block(start, stop)


def onehot_of(values: NDArray[Any]) -> OneHotRows | None:
    """The rows of a matrix with an index for each group of columns in which a row has at most one 1; None without groups."""
    groups = _groups(values)
    if not groups:
        return None
    firsts, lasts = np.ascontiguousarray(np.transpose(groups))
    inside = np.zeros(values.shape[1], dtype=bool)
    for first, last in groups:
        inside[first:last] = True
    columns = np.flatnonzero(~inside)
    strips, strip = np.unique(columns // STRIP, return_inverse=True)
    places = strip * STRIP + columns % STRIP
    width = int(places.max(initial=-1)) + 1
    numbers = np.zeros((len(values), width), values.dtype)
    codes = np.empty((len(values), len(groups)), np.uint8)
    for start in range(0, len(values), _CHUNK):
        chunk = values[start : start + _CHUNK]
        numbers[start : start + _CHUNK, places] = chunk[:, columns]
        for g, (first, last) in enumerate(groups):
            ones = chunk[:, first:last] == 1
            codes[start : start + _CHUNK, g] = np.where(ones.any(axis=1), ones.argmax(axis=1), last - first)
    return OneHotRows(numbers.reshape(-1), width, codes.reshape(-1), strips, firsts, lasts, values.shape[1])


def _groups(values: NDArray[Any]) -> list[tuple[int, int]]:
    """First column and last + 1 of runs of columns of zeros and ones of which no row has two ones, from the left."""
    binary, before = np.ones(values.shape[1], dtype=bool), np.full(values.shape[1], -1)
    for start in range(0, len(values), _CHUNK):
        chunk = values[start : start + _CHUNK]
        ones = chunk == 1
        binary &= (ones | (chunk == 0)).all(axis=0)
        if not binary.any():
            return []
        row, column = np.nonzero(ones & binary)
        same = np.flatnonzero(row[1:] == row[:-1])
        pairs = np.unique(column[same + 1] * values.shape[1] + column[same])  # neighbouring ones of a row
        np.maximum.at(before, pairs // values.shape[1], pairs % values.shape[1])
    found, first = [], 0
    while first < values.shape[1]:
        last = first
        while last < min(values.shape[1], first + _WIDEST) and binary[last] and before[last] < first:
            last += 1
        if last - first >= _FEWEST:
            found.append((first, last))
        first = max(last, first + 1)
    return found
