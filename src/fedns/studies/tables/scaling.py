"""Column scaling that every site can apply alike, from summaries that say nothing about single rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedns.core.checked import checked
from fedns.core.errors import DataError
from fedns.core.shards import Shards
from fedns.core.types import FloatArray
from fedns.numerics.onehot import OneHotRows
from fedns.numerics.rows import DenseRows, Rows, SparseRows
from fedns.numerics.streaming import streamed
from fedns.runs.compare import SCALINGS

CHUNK_ROWS = 8192  # summed chunk by chunk: less memory, and rounding errors that do not grow with the number of rows


@dataclass(frozen=True, eq=False)
class ColumnSummary:
    """A site's summary of its columns; rows count alike, whatever their sample weights."""

    count: int
    mean: FloatArray  # (columns,)
    squared_deviations: FloatArray  # (columns,), sum over rows of (x - mean)^2
    max_abs: FloatArray  # (columns,)


@dataclass(frozen=True, eq=False)
class Scaling:
    """x becomes (x - center) / scale, column by column."""

    center: FloatArray  # (columns,)
    scale: FloatArray  # (columns,), all positive

    def apply(self, shards: Shards) -> Shards:
        """New rows with the same owners; compressed rows stay so where nothing is centred, else they become dense."""
        if shards.num_columns != self.center.size:
            raise DataError(f"the scaling is for {self.center.size} columns, the rows have {shards.num_columns}")
        return replace(shards, rows=_transformed(shards.rows, self))


def column_summaries(shards: Shards) -> list[ColumnSummary]:
    """One summary per client, from that client's rows alone."""
    return [
        merged_summary([_summary(shards.rows, a, b) for a, b in _chunks(int(start), int(stop))])
        for start, stop in zip(shards.starts, shards.stops, strict=True)
    ]


def merged_summary(summaries: Sequence[ColumnSummary]) -> ColumnSummary:
    """The summary of all rows together, added up in the order given (Chan, Golub and LeVeque 1983)."""
    if not summaries:
        raise DataError("there are no column summaries to merge: ask at least one site")
    width = summaries[0].mean.size
    for site, summary in enumerate(summaries):
        if summary.mean.size != width:
            raise DataError(f"site {site} has {summary.mean.size} columns, but site 0 has {width}: use the same columns")
    return reduce(_merge_two, summaries)


def scaling_from(summary: ColumnSummary, how: str) -> Scaling:
    """`none`; `maxabs`, division by the largest absolute value; `standardise`, mean 0 and variance 1 over all rows.

    A constant column is neither centred nor divided by its deviation, so that it can still serve as an intercept.
    """
    zeros, ones = np.zeros(summary.mean.size), np.ones(summary.mean.size)
    match how:
        case "none":
            return Scaling(zeros, ones)
        case "maxabs":
            return Scaling(zeros, np.where(summary.max_abs > 0, summary.max_abs, 1.0))
        case "standardise":
            varies = ~_is_constant(summary)
            deviation = np.sqrt(summary.squared_deviations / summary.count)
            return Scaling(np.where(varies, summary.mean, 0.0), np.where(varies, deviation, 1.0))
        case _:
            raise DataError(f"unknown scaling '{how}': use {', '.join(SCALINGS)}")


@checked
def scale(shards: Shards, how: str) -> tuple[Shards, Scaling]:
    """Summarise, merge and apply, as the sites and the server would together.

    - shards: the rows of all clients.
    - how: "none", "maxabs" or "standardise".
    """
    if how == "none":
        return shards, Scaling(np.zeros(shards.num_columns), np.ones(shards.num_columns))
    scaling = scaling_from(merged_summary(column_summaries(shards)), how)
    return scaling.apply(shards), scaling


def _chunks(start: int, stop: int) -> Iterator[tuple[int, int]]:
    return ((first, min(first + CHUNK_ROWS, stop)) for first in range(start, stop, CHUNK_ROWS))


def _summary(rows: Rows, start: int, stop: int) -> ColumnSummary:
    if isinstance(rows, SparseRows):
        return _sparse_summary(rows, start, stop)
    values = rows.dense(start, stop)
    mean = values.mean(axis=0)
    deviations = values - mean
    return ColumnSummary(stop - start, mean, np.einsum("ij,ij->j", deviations, deviations), np.abs(values).max(axis=0))


def _sparse_summary(rows: SparseRows, start: int, stop: int) -> ColumnSummary:
    first, last = rows.indptr[start], rows.indptr[stop]
    indices, data = rows.indices[first:last], rows.data[first:last].astype(np.float64, copy=False)
    count, width = stop - start, rows.num_columns
    mean = np.bincount(indices, weights=data, minlength=width) / count
    zeros = count - np.bincount(indices, minlength=width)
    deviations = data - mean[indices]
    squares = np.bincount(indices, weights=deviations * deviations, minlength=width) + zeros * mean * mean
    max_abs = np.zeros(width)
    np.maximum.at(max_abs, indices, np.abs(data))
    return ColumnSummary(count, mean, squares, max_abs)


def _merge_two(a: ColumnSummary, b: ColumnSummary) -> ColumnSummary:
    """With d = mean_b - mean_a: mean = mean_a + d n_b / n, and the squares add up with d^2 n_a n_b / n."""
    count = a.count + b.count
    difference = b.mean - a.mean
    return ColumnSummary(
        count,
        a.mean + difference * (b.count / count),
        a.squared_deviations + b.squared_deviations + difference * difference * (a.count * (b.count / count)),
        np.maximum(a.max_abs, b.max_abs),
    )


def _is_constant(summary: ColumnSummary) -> NDArray[np.bool_]:
    """Whether the deviations are within the rounding errors of a constant column, whose means are off by n epsilon.

    As in scikit-learn, but with n the rows summed at once, so that more rows do not make more columns constant.
    """
    relative = min(summary.count, CHUNK_ROWS) * np.finfo(np.float64).eps
    variance = summary.squared_deviations / summary.count
    bound = relative * variance + (relative * summary.mean) ** 2
    return np.asarray(variance <= bound)


def _transformed(rows: Rows, scaling: Scaling) -> Rows:
    if isinstance(rows, OneHotRows):
        rows = DenseRows.of(rows.block(0, rows.shape[0]))
    if streamed(rows):
        raise DataError("the table is larger than memory and cannot be scaled here: scale its columns before, scale='none'")
    if isinstance(rows, SparseRows) and not scaling.center.any():
        data = rows.data / scaling.scale[rows.indices]
        return rows._replace(data=data.astype(rows.data.dtype, copy=False))
    dtype: Any = rows.data.dtype if isinstance(rows, SparseRows) else rows.values.dtype
    scaled = np.empty(rows.shape, dtype=dtype)
    for start, stop in _chunks(0, rows.shape[0]):
        scaled[start:stop] = (rows.dense(start, stop) - scaling.center) / scaling.scale
    return DenseRows.of(scaled)
