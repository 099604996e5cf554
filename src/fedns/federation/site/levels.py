"""Levels that few rows have: an outcome or a value of a column that is almost nobody's points to whoever has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from fedns.core.errors import ConfigError
from fedns.core.shards import Shards, as_rows
from fedns.numerics.rows import DenseRows, written_out


@dataclass(frozen=True)
class RareLevels:
    """Columns in which almost all rows have one value, and fewer than the owner's number another; or a rare code."""

    columns: NDArray[np.int64]
    usual: NDArray[np.float64]  # what almost all rows have there, of a category most of them
    outcome: bool  # whether the targets are such a column
    codes: dict[int, NDArray[np.float64]] = field(default_factory=dict)  # by column of a category: the levels that are rare


def named_columns(shards: Shards, names: Sequence[str]) -> list[int]:
    """The columns with these names, or numbers where columns have no names."""
    known = list(shards.columns) if shards.columns else [str(column) for column in range(shards.num_columns)]
    for name in names:
        if name not in known:
            raise ConfigError(
                f"categories in [permit] names '{name}', which is no column of the rows: correct it, or leave it out"
            )
    return [known.index(name) for name in names]


def rare_levels(shards: Shards, smallest: int, categories: Sequence[int] = ()) -> RareLevels:
    """Found in one pass: where fewer than s rows differ from the usual value, most of any 2 s - 1 rows have it.

    categories: columns of codes, each value of which is a level.
    """
    few = min(2 * smallest - 1, shards.num_samples) if smallest else 0
    if not few:
        return RareLevels(np.empty(0, dtype=np.int64), np.empty(0), False)
    matrix = _matrix(shards)
    head = matrix[:few].toarray() if scipy.sparse.issparse(matrix) else matrix[:few]
    usual = _middle(head)
    others = _differing(matrix, usual)
    outcomes = int((shards.targets != _middle(shards.targets[:few, None])[0]).sum())
    common, codes = usual.astype(np.float64), {}
    for column in categories:
        part = matrix[:, [column]]
        levels, counts = np.unique(part.toarray() if scipy.sparse.issparse(part) else part, return_counts=True)
        others[column] = int(counts.min() < smallest)
        if others[column]:
            codes[column], common[column] = levels[counts < smallest].astype(np.float64), levels[counts.argmax()]
    columns = np.flatnonzero((others > 0) & (others < smallest))
    return RareLevels(columns, common[columns], 0 < outcomes < smallest, codes)


def has_small_group(groups: NDArray[Any], smallest: int) -> bool:
    """Whether fewer rows than that are alike."""
    return bool((np.unique(groups, return_counts=True)[1] < smallest).any())


def blanked(shards: Shards, rare: RareLevels) -> Shards:
    """The same rows with the usual value wherever a rare level stood; the owner's own rows are not touched."""
    if not rare.columns.size:
        return shards
    matrix = _matrix(shards)
    sparse = scipy.sparse.issparse(matrix)
    part = matrix[:, rare.columns].toarray() if sparse else matrix[:, rare.columns]
    clean = part.copy()
    for place, (column, usual) in enumerate(zip(rare.columns.tolist(), rare.usual, strict=True)):
        chosen = np.isin(part[:, place], rare.codes[column]) if column in rare.codes else slice(None)
        clean[chosen, place] = usual
    if sparse:
        at = np.nonzero(part != clean)
        change = (clean - part)[at].astype(matrix.dtype)
        return replace(
            shards, rows=as_rows(matrix + scipy.sparse.csr_matrix((change, (at[0], rare.columns[at[1]])), matrix.shape))
        )
    values = matrix.copy()
    values[:, rare.columns] = clean
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
    rows = written_out(shards.rows)
    return rows.values if isinstance(rows, DenseRows) else rows.block(0, rows.shape[0])
