"""Folding replies. Every sum runs over clients in order, so that it does not depend on how they were batched."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from fedns.core.errors import MessageError
from fedns.core.messages import Message, Ragged, refuse_non_finite
from fedns.core.types import FloatArray
from fedns.numerics.linalg import LowRank, add_weighted_rows, weighted_gram

_GRAM_ROWS = 4096  # what the server holds before it multiplies


class Reducer(Protocol):
    """Sees each client's reply once, in client order, with the clients' weights."""

    def add(self, batch: Message, weights: FloatArray) -> None: ...

    def result(self) -> Any: ...


class _Total:
    """A sum over clients, of the shape that the first reply has."""

    def __init__(self, field: str) -> None:
        self.field = field
        self._total: FloatArray | None = None

    def result(self) -> FloatArray:
        assert self._total is not None
        return self._total


class mean(_Total):
    """sum_j p_j value_j."""

    def values(self, batch: Message) -> FloatArray:
        """What is averaged of these replies: a field of theirs, unless a derived class makes it of one."""
        return np.asarray(getattr(batch, self.field))

    def add(self, batch: Message, weights: FloatArray) -> None:
        values = np.ascontiguousarray(self.values(batch), dtype=np.float64)
        if self._total is None:
            self._total = np.zeros(values.shape[1:])
        add_weighted_rows(self._total.reshape(-1), values.reshape(len(values), -1), weights)


class GramSum:
    """sum_j p_j Y_j' Y_j for ragged rows Y_j: a matrix, or its root where all of them have fewer rows than columns.

    Refuses rows that are not finite, which the products tell without another read; `kind` and `field` say what they are of.
    """

    def __init__(self, kind: str, field: str) -> None:
        self._kind, self._field = kind, field
        self._pending: list[tuple[FloatArray, FloatArray]] = []  # rows and their weights
        self._pending_rows = 0
        self._blocks: list[tuple[FloatArray, FloatArray]] = []  # enough rows for a product, but it may not be needed
        self._rows = 0
        self._total: FloatArray | None = None

    def add(self, ragged: Ragged, weights: FloatArray) -> None:
        row_weights = weights.repeat(ragged.counts)
        start, rows = 0, len(ragged.values)
        self._rows += rows
        # Products are cut at clients, after a number of rows that does not depend on the batch.
        while (end := int(ragged.offsets.searchsorted(start + _GRAM_ROWS - self._pending_rows))) < len(ragged.offsets):
            stop = int(ragged.offsets[end])
            self._pending.append((ragged.values[start:stop], row_weights[start:stop]))
            self._close_block()
            start = stop
        if start < rows:
            self._pending.append((ragged.values[start:], row_weights[start:]))
            self._pending_rows += rows - start
        if self._rows >= ragged.values.shape[1]:
            self._multiply()

    def result(self) -> FloatArray | LowRank:
        self._close_block()
        if self._total is None and self._rows < self._blocks[0][0].shape[1]:
            root = np.concatenate([np.sqrt(weights)[:, None] * rows for rows, weights in self._blocks])
            refuse_non_finite(self._kind, self._field, root)
            return LowRank(root)
        self._multiply()
        assert self._total is not None
        return self._total

    def _close_block(self) -> None:
        if self._pending:
            rows, weights = self._pending[0]
            if len(self._pending) > 1:
                rows, weights = (np.concatenate(parts) for parts in zip(*self._pending, strict=True))
            self._blocks.append((rows, weights))
        self._pending, self._pending_rows = [], 0

    def _multiply(self) -> None:
        for rows, weights in self._blocks:
            product = weighted_gram(np.ascontiguousarray(rows), weights)
            refuse_non_finite(self._kind, self._field, rows, product)
            self._total = product if self._total is None else self._total + product
        self._blocks = []


class mean_gram:
    """sum_j p_j Y_j' Y_j for the rows Y_j in a field of the replies."""

    def __init__(self, field: str) -> None:
        self.field = field
        self._sum: GramSum | None = None

    def add(self, batch: Message, weights: FloatArray) -> None:
        if self._sum is None:
            self._sum = GramSum(batch.kind, self.field)
        self._sum.add(getattr(batch, self.field), weights)

    def result(self) -> FloatArray | LowRank:
        assert self._sum is not None
        return self._sum.result()


class root_weighted_sum(_Total):
    """sum_j sqrt(p_j) Y_j for ragged rows Y_j, shorter ones padded with zero rows to `rows`."""

    def __init__(self, field: str, rows: int) -> None:
        super().__init__(field)
        self._rows = rows

    def add(self, batch: Message, weights: FloatArray) -> None:
        ragged: Ragged = getattr(batch, self.field)
        if self._total is None:
            self._total = np.zeros((self._rows, ragged.values.shape[1]))
        for client, weight in enumerate(weights):
            part = ragged.part(client)
            if len(part) > self._rows:
                raise MessageError(f"field '{self.field}' of {batch.kind} has {len(part)} rows, at most {self._rows} fit")
            self._total[: len(part)] += np.sqrt(weight) * part


class minimum:
    """The smallest value of any client."""

    def __init__(self, field: str) -> None:
        self._field = field
        self._smallest = np.inf

    def add(self, batch: Message, weights: FloatArray) -> None:
        self._smallest = min(self._smallest, float(np.min(getattr(batch, self._field))))

    def result(self) -> float:
        return self._smallest
