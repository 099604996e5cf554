"""Levels that few rows have: an outcome or a value of a column that is almost nobody's points to whoever has it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from fedns.core.shards import Shards, as_rows
from fedns.numerics.rows import DenseRows


@dataclass(frozen=True)
class RareLevels:
    """Columns in which almost all rows have one value, and fewer than the owner's number another."""

    columns: NDArray[np.int64]
    usual: NDArray[np.float64]  # what almost all rows have there
    outcome: bool  # whether the targets are such a column


def rare_levels(shards: Shards, smallest: int) -> RareLevels:
    """Found in one pass: where fewer than s rows differ from the usual value, most of any 2 s - 1 rows have it."""
    few = min(2 * smallest - 1, shards.num_samples) if smallest else 0
    if not few:
        return RareLevels(np.empty(0, dtype=np.int64), np.empty(0), False)
    matrix = _matrix(shards)
    head = matrix[:few].toarray() if scipy.sparse.issparse(matrix) else matrix[:few]
    usual = _middle(head)
    others = _differing(matrix, usual)
    outcomes = int((shards.targets != _middle(shards.targets[:few, None])[0]).sum())
    columns = np.flatnonzero((others > 0) & (others < smallest))
    return RareLevels(columns, usual[columns].astype(np.float64), 0 < outcomes < smallest)


def rare_class(shards: Shards, smallest: int) -> bool:
    """Whether fewer rows than that have one of the classes which the targets are numbers of."""
    counts = np.bincount(shards.targets.astype(np.int64))
    return bool(((counts > 0) & (counts < smallest)).any())


def blanked(shards: Shards, rare: RareLevels) -> Shards:
    """The same rows with the usual value wherever a rare level stood; the owner's own rows are not touched."""
    if not rare.columns.size:
        return shards
    matrix = _matrix(shards)
    if scipy.sparse.issparse(matrix):
        part = matrix[:, rare.columns].toarray()
        at = np.nonzero(part != rare.usual)
        change = (rare.usual[at[1]] - part[at]).astype(matrix.dtype)
        return replace(
            shards, rows=as_rows(matrix + scipy.sparse.csr_matrix((change, (at[0], rare.columns[at[1]])), matrix.shape))
        )
    values = matrix.copy()
    values[:, rare.columns] = rare.usual
    return replace(shards, rows=DenseRows.of(values))


def _middle(head: NDArray[Any]) -> NDArray[Any]:
    """The median of an odd number of rows, column by column: always one of the values."""
    return np.asarray(np.sort(head, axis=0)[(len(head) - 1) // 2])


def _differing(matrix: Any, usual: NDArray[Any]) -> NDArray[np.int64]:
    """How many rows differ from the usual value, for each column."""
    rows, columns = matrix.shape
    if not scipy.sparse.issparse(matrix):
        blocks = (matrix[start : start + 65536] for start in range(0, rows, 65536))
        return sum(((block != usual).sum(axis=0) for block in blocks), np.zeros(columns, np.int64))
    same = np.bincount(matrix.indices[matrix.data == usual[matrix.indices]], minlength=columns)
    stored = np.bincount(matrix.indices, minlength=columns)
    return np.asarray(rows - same - np.where(usual == 0, rows - stored, 0))


def _matrix(shards: Shards) -> Any:
    rows = shards.rows
    return rows.values if isinstance(rows, DenseRows) else rows.block(0, rows.shape[0])
