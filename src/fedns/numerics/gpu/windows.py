"""What passes see of rows on the device, whether they stay there or come by in turn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import cupy as cp
import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from fedns.numerics.backend import Batch, FloatArray, IntArray
from fedns.numerics.gpu.pieces import Pieces, Run
from fedns.numerics.rows import DenseRows, Rows, written_once

_MOST_ROWS = 1024  # of a padded piece
BLOCK_BYTES = 1 << 27  # of padded pieces that are multiplied together


class Window(NamedTuple):
    """Pieces low:high, and the rows on the device that they are in."""

    low: int
    high: int
    table: Any  # (pieces, 4), with rows counted as in the arrays here
    flat: Any  # (rows * columns,)
    targets: Any  # (rows,)
    weights: Any | None  # (rows,)
    runs: list[Run] | None = None  # which of the host's rows these are, in order; None: all of them


class DeviceRows(ABC):
    """Rows, targets and sample weights as the device gets to see them."""

    def __init__(self, columns: int, dtype: np.dtype[Any], weighted: bool) -> None:
        self.columns, self.dtype, self.weighted = columns, dtype, weighted
        self._pieces: dict[tuple[Any, ...], Pieces] = {}

    @property
    @abstractmethod
    def window_rows(self) -> int:
        """How many rows passes that need no working memory have at a time."""

    @abstractmethod
    def windows(self, batch: Batch, pieces: Pieces) -> Iterator[Window]:
        """The windows of these pieces, in order; one is gone when the next comes."""

    @abstractmethod
    def alone(self, batch: Batch, pieces: Pieces) -> Iterator[Window]:
        """The same, with no rows but the windows' own."""

    @abstractmethod
    def own(self, window: Window, values: FloatArray) -> Any:
        """A number for each of the host's rows, as numbers of the window's."""

    @abstractmethod
    def chosen(self, batch: Batch, index: Any) -> tuple[Any, Any, Any | None]:
        """Some rows, their targets and weights: index (...) gives (..., columns), (...), (...)."""

    def pieces(self, batch: Batch, length: int, most_rows: int, padded: bool = False) -> Pieces:
        key = length, most_rows, padded, batch.starts.tobytes(), batch.stops.tobytes()
        if key not in self._pieces:
            if len(self._pieces) > 64:
                self._pieces.clear()
            self._pieces[key] = Pieces.of(batch.starts, batch.stops, length, most_rows, padded)
        return self._pieces[key]

    def blocks(self, batch: Batch, features: int) -> Iterable[Padded]:
        """The rows of the batch in float64, pieces of one length; one more feature than columns is the intercept's."""
        # The cuts are the same wherever the rows are: a product of another shape may add up in another order.
        length = min(_MOST_ROWS, -(-int((batch.stops - batch.starts).max()) // 32) * 32)
        return self._padded(batch, self.pieces(batch, length, BLOCK_BYTES // (8 * features), padded=True), features)

    def _padded(self, batch: Batch, pieces: Pieces, features: int) -> Iterable[Padded]:
        return (Padded.of(self.columns, window, pieces, features) for window in self.windows(batch, pieces))


@dataclass(frozen=True)
class Padded:
    """A window of pieces of equal length, the shorter ones filled up with rows of zeros whose weight is zero."""

    pieces: Pieces
    window: Window
    rows: Any  # (pieces, length, features), with a last column of ones for an intercept
    targets: Any  # (pieces, length)
    weights: Any  # (pieces, length), not divided by anybody's total
    index: Any  # (pieces, length) of the row
    client: IntArray  # (pieces,) on the host

    @classmethod
    def of(cls, columns: int, window: Window, pieces: Pieces, features: int) -> Padded:
        index = window.table[:, 1:2] + cp.arange(pieces.length)
        present = index < window.table[:, 2:3]
        index = cp.where(present, index, 0)
        rows = cp.zeros((*index.shape, features))
        rows[..., :columns] = window.flat.reshape(-1, columns)[index]
        rows[..., columns:] = 1.0
        rows *= present[..., None]
        ones = present.astype(cp.float64)
        weights = ones if window.weights is None else ones * window.weights[index]
        client = pieces.host[window.low : window.high, 0]
        return cls(pieces, window, rows, window.targets[index], weights, index, client)


def arrays_of(batch: Batch) -> list[NDArray[Any]]:
    """What rows of a batch are in: their numbers, targets, and weights where they have any."""
    return [array for array in (batch.rows[0], batch.targets, batch.sample_weights) if array is not None]


def dtype_of(rows: Rows) -> np.dtype[Any]:
    """What the numbers of these rows are stored in."""
    return rows[0].dtype


def dense(rows: Rows, index: Any) -> Any:
    """Some of the rows, by a slice or by numbers (...), in the type that they are stored in: (..., columns)."""
    rows = written_once(rows)
    if isinstance(rows, DenseRows):
        return rows.values[index]
    if not isinstance(index, slice):
        whole = scipy.sparse.csr_matrix((rows.data, rows.indices, rows.indptr), shape=rows.shape)
        return whole[index.reshape(-1)].toarray().reshape(*index.shape, rows.num_columns)
    pointers = rows.indptr[index.start : index.stop + 1]
    run = slice(int(pointers[0]), int(pointers[-1]))
    parts = rows.data[run], rows.indices[run], pointers - pointers[0]
    return scipy.sparse.csr_matrix(parts, shape=(len(pointers) - 1, rows.num_columns)).toarray()
