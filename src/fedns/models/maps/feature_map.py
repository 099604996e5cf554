"""Feature maps phi: functions of a row that every site applies alike; those of kernels are in `kernel_maps.py`."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse

from fedns.core.checked import Checked, Count
from fedns.core.errors import ConfigError
from fedns.core.shards import Shards, as_rows
from fedns.core.types import FloatArray, IntArray
from fedns.numerics import parallel
from fedns.numerics.linalg import single_threaded_blas
from fedns.numerics.rows import DenseRows, Rows

Block = Any  # (rows, columns) in float64: an ndarray, or a csr_matrix where the rows are compressed

BLOCK_ENTRIES = 1 << 18  # 2 MiB of float64: what a thread needs beyond the result is a few times this
_MOST_MONOMIALS = 100_000  # already 40 GB of packed Hessian


class FeatureMap(Checked, ABC):
    """A function of one row. Its results are dense float64, (rows, num_features)."""

    example: ClassVar[str] = "fedns.RandomFourier(200)"

    @abstractmethod
    def num_features(self, num_columns: int) -> int:
        """M, for rows with this many columns."""

    @abstractmethod
    def prepare(self, num_columns: int) -> Callable[[Block], FloatArray]:
        """The map as a function of a block of rows, with all that does not depend on them worked out."""

    def transform(self, matrix: Any) -> FloatArray:
        """phi of every row of a dense or compressed matrix."""
        rows = as_rows(matrix)
        return self._mapped(rows, np.zeros(1, dtype=np.int64), np.array([rows.shape[0]]))

    def apply(self, shards: Shards) -> Shards:
        """The same clients, targets and weights over mapped rows; rows of clients that are not present stay unmapped.

        Blocks are cut within clients, so that a client's bits do not depend on who else is there.
        """
        mapped = self._mapped(shards.rows, shards.starts, shards.stops)
        return replace(shards, rows=DenseRows.of(mapped), columns=None)

    def _mapped(self, rows: Rows, starts: IntArray, stops: IntArray) -> FloatArray:
        features = self.num_features(rows.shape[1])
        phi = self.prepare(rows.shape[1])
        longest = max(features, rows.shape[1])
        segments = parallel.cut(starts, stops, max(1, BLOCK_ENTRIES // longest))
        # Untouched pages of zeros take no memory: rows that are nobody's cost nothing.
        out = np.zeros((rows.shape[0], features))

        def part(low: int, high: int) -> None:
            for segment in range(low, high):
                first, last = int(segments.first[segment]), int(segments.last[segment])
                out[first:last] = phi(rows.block(first, last))

        with single_threaded_blas():
            parallel.for_each_part(segments, part, longest)
        return out


@dataclass(frozen=True)
class Identity(FeatureMap):
    """phi(x) = x; rows keep their layout and precision."""

    def num_features(self, num_columns: int) -> int:
        return num_columns

    def prepare(self, num_columns: int) -> Callable[[Block], FloatArray]:
        return as_dense

    def apply(self, shards: Shards) -> Shards:
        return shards


@dataclass(frozen=True)
class Polynomial(FeatureMap):
    """All monomials of the columns up to `degree`, by degree and then in the order of the columns, as in scikit-learn.

    interaction_only leaves out powers of a column; bias adds a constant 1, which is penalised, unlike a problem's intercept.

    - degree: largest degree of a product of columns, at least 1.
    - interaction_only: leave out powers of a column.
    - bias: add a constant feature.
    """

    degree: Count = 2
    interaction_only: bool = False
    bias: bool = False

    def num_features(self, num_columns: int) -> int:
        if self.interaction_only:
            count = sum(math.comb(num_columns, k) for k in range(1, self.degree + 1))
        else:
            count = math.comb(num_columns + self.degree, self.degree) - 1
        if count > _MOST_MONOMIALS:
            raise ConfigError(
                f"Polynomial of degree {self.degree} has {count} features on {num_columns} columns, more than "
                f"{_MOST_MONOMIALS}: lower the degree, or use RandomFourier"
            )
        return count + int(self.bias)

    def prepare(self, num_columns: int) -> Callable[[Block], FloatArray]:
        count = self.num_features(num_columns)
        steps = self._steps(num_columns)

        def phi(block: Block) -> FloatArray:
            x = as_dense(block)
            out = np.ones((len(x), count))
            at = int(self.bias)
            out[:, at : at + num_columns] = x
            at += num_columns
            for columns, tails in steps:
                out[:, at : at + columns.size] = x[:, columns] * out[:, tails]
                at += columns.size
            return out

        return phi

    def _steps(self, num_columns: int) -> list[tuple[IntArray, IntArray]]:
        """For each degree above 1, every monomial as its first column and where the product of the others stands."""
        choose = itertools.combinations if self.interaction_only else itertools.combinations_with_replacement
        place: dict[tuple[int, ...], int] = {(column,): column + int(self.bias) for column in range(num_columns)}
        steps = []
        for degree in range(2, self.degree + 1):
            monomials: list[tuple[int, ...]] = list(choose(range(num_columns), degree))
            columns = np.array([monomial[0] for monomial in monomials], dtype=np.int64)
            tails = np.array([place[monomial[1:]] for monomial in monomials], dtype=np.int64)
            steps.append((columns, tails))
            start = max(place.values()) + 1
            place = {monomial: start + index for index, monomial in enumerate(monomials)}
            if not place:
                break
        return steps


def as_dense(block: Block) -> FloatArray:
    return np.asarray(block.toarray() if scipy.sparse.issparse(block) else block)
