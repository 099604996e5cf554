"""A Hessian in few bits: its triangular root, each column in units of what the columns before it leave of it.

H = R' R with R upper triangular, columns ordered so that its diagonal falls. An error e in column b of R changes |R v| by
|e v_b|, and |R v| is at least |R_bb v_b| where b is the last column that v has a part of. In units of R_bb, column by
column, errors are fractions of the curvature even in directions that have little of it, which drown where all entries of H
have one unit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from fedns.core.messages import Ragged
from fedns.core.messages.reducers import GramSum
from fedns.core.types import FloatArray
from fedns.methods.auto.rounding import Integers
from fedns.methods.auto.thresholds import ROOT_BITS, SINGULAR, SPAN
from fedns.numerics.linalg import LowRank, triangle_of


class Root(NamedTuple):
    """The order of the columns, the power of two in whose fractions each is counted, and the triangle row by row."""

    order: Integers  # (features,)
    exponents: Integers  # (features,)
    entries: Integers  # (features (features + 1) / 2,)


def rounded_root(hessian: FloatArray, draws: FloatArray, bits: int = ROOT_BITS) -> Root:
    """The root of a positive matrix, rounded up or down so that the mean is right; `draws` are as many as its entries."""
    factor, order = _pivoted(hessian)
    exponents = np.frexp(np.diag(factor))[1] - 1
    largest = np.frexp(np.abs(factor).max(axis=0))[1]
    exponents = np.maximum(exponents, largest + bits - SPAN)
    positions = np.ldexp(factor, bits - exponents)[np.triu_indices(len(factor))]
    below = np.floor(positions)
    with np.errstate(invalid="ignore"):  # what is not finite is refused when the gradient beside it is sent
        entries = (below + (draws < positions - below)).astype(np.int16)
    return Root(order.astype(np.int16), exponents.astype(np.int16), entries)


def _pivoted(hessian: FloatArray) -> tuple[FloatArray, Integers]:
    """R and the order p with H[p][:, p] = R' R; a matrix that is singular up to rounding is lifted by as much."""
    factor, pivots, rank, _ = scipy.linalg.lapack.dpstrf(hessian + SINGULAR * np.eye(len(hessian)))
    factor = np.triu(factor)
    factor[rank:] = 0.0
    return factor, pivots - 1


def unrounded(root: Root) -> FloatArray:
    """The root with its columns in their own order: (features, features)."""
    size = root.order.size
    triangle, square = np.zeros((size, size)), np.zeros((size, size))
    triangle[np.triu_indices(size)] = root.entries
    square[:, root.order] = np.ldexp(triangle, root.exponents.astype(np.int64) - ROOT_BITS)
    return square


class mean_of_roots:
    """sum_j p_j R_j' R_j, packed, in units of the columns' scales."""

    def __init__(self, scales: FloatArray) -> None:
        self._scales, self._gram = scales, GramSum("HessianRoot", "entries")

    def add(self, batch: Any, weights: FloatArray) -> None:
        size = self._scales.size
        for j, weight in enumerate(weights):
            root = Root(batch.order[j], batch.exponents[j], batch.entries[j])
            rows = Ragged(unrounded(root) * self._scales, np.array([0, size]))
            self._gram.add(rows, np.array([weight]))

    def result(self) -> FloatArray:
        gram = self._gram.result()
        return triangle_of(gram.dense() if isinstance(gram, LowRank) else gram)
