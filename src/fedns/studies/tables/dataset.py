"""Rows and targets of a file, ready for training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from fedns.core.errors import DataError
from fedns.numerics.streaming import file_of
from fedns.studies.tables.files.file_rows import FileRows
from fedns.studies.tables.labels import Task, encode_targets

DTYPES = {"float64": np.float64, "float32": np.float32}


@dataclass(frozen=True, eq=False)
class Dataset(FileRows):
    """Rows and targets, not yet given to clients; iterates as `features, targets`.

    - features: (rows, columns), an array or a scipy.sparse matrix.
    - targets: (rows,), -1 and +1 where the task is binary.
    - columns: their names.
    - groups: (rows,), the natural site of each row.
    - group_names: one per distinct group, in sorted order of the labels.
    - sample_weights: (rows,).
    - source: where it came from.
    - description: in words.
    - name: of the set.
    - task: binary, regression or multiclass.
    """

    example: ClassVar[str] = "fedns.load(NAME)"
    name: str = field(kw_only=True)
    task: Task = field(kw_only=True)
    targets: NDArray[np.float64]  # -1 and +1 where the task is binary
    description: str = ""

    def __iter__(self) -> Iterator[Any]:
        yield self.features
        yield self.targets

    @property
    def num_samples(self) -> int:
        return int(self.features.shape[0])

    @property
    def num_columns(self) -> int:
        return int(self.features.shape[1])

    @classmethod
    def of(
        cls,
        table: FileRows,
        name: str,
        *,
        positive: float | str | None = None,
        task: str | None = None,
        dtype: str = "float64",
        note: str = "",
    ) -> Dataset:
        """Encode the targets of a table and cast its rows. note: for the description."""
        encoded, decided = encode_targets(table.targets, positive=positive, task=task)
        rows, columns = table.features.shape
        described = f"{rows} rows, {columns} columns, {decided}{f'; {note}' if note else ''}"
        ready = replace(table, features=_cast(table.features, dtype), targets=encoded)
        return cls(**vars(ready), name=name, task=decided, description=described)


def check_dtype(dtype: str) -> None:
    if dtype not in DTYPES:
        raise DataError(f"dtype must be float64 or float32, got '{dtype}'")


def _cast(features: Any, dtype: str) -> Any:
    if scipy.sparse.issparse(features):
        return features if file_of(features.data) else features.astype(DTYPES[dtype], copy=False)
    # What is mapped from a file stays there, in the type it has.
    return features if file_of(features) else np.ascontiguousarray(features, dtype=DTYPES[dtype])
