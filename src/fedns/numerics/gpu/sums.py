"""Sums of clients from the sums of their pieces, in order."""

from __future__ import annotations

from functools import cache
from math import prod
from typing import Any

import cupy as cp
import numpy as np

from fedns.numerics.gpu import kernels
from fedns.numerics.gpu.windows import Padded


class Sums:
    """What the pieces of clients add up to; the bits do not depend on how many of them come at a time."""

    def __init__(self, clients: int, places: Any | None = None) -> None:
        """places: (kept,) which of a piece's numbers are kept; all of them otherwise."""
        self._clients, self._places = clients, places
        self.total: Any = None  # (clients, ...)

    def add(self, block: Padded, partial: Any, low: int | None = None) -> None:
        """The sums of pieces of a block, from `low` on where they are not all of it: (pieces, ...)."""
        begin = block.window.low if low is None else low
        shape = partial.shape[1:] if self._places is None else self._places.shape
        if self.total is None:
            self.total = cp.empty((self._clients, *shape))
        end = begin + len(partial)
        first, last = block.pieces.clients(begin, end)
        kept, numbers = prod(shape), (begin, end, first, last - first, prod(partial.shape[1:]))
        kernels.kernel("add_pieces")(
            (-(-(last - first) * kept // 256),), (256,),
            (cp.ascontiguousarray(partial), block.pieces.bounds, *map(np.int64, numbers),
             0 if self._places is None else self._places, np.int64(kept), self.total),
        )  # fmt: skip


@cache
def triangle(features: int) -> Any:
    """Where in a square matrix its upper triangle is, by rows."""
    rows, columns = np.triu_indices(features)
    return cp.asarray(rows * features + columns)
