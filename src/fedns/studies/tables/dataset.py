"""Rows and targets of a file, ready for training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from fedns.core.errors import DataError
from fedns.numerics.streaming import file_of
from fedns.studies.tables.files import sources, unpacked
from fedns.studies.tables.files.table import Table
from fedns.studies.tables.labels import Task, encode_targets

DTYPES = {"float64": np.float64, "float32": np.float32}


@dataclass(frozen=True, eq=False)
class Dataset(Table):
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
        table: Table,
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


def read_path(
    path: Path, target: str | None = None, group: str | None = None, weight: str | None = None, folder: Path | None = None
) -> Table:
    """Read a file whatever its format and size, or a folder that an .npz was unpacked into.

    folder: where a file that is larger than memory is taken apart; the cache unless given.
    """
    if path.is_dir():
        return unpacked.read_folder(path, target, group, weight)
    if unpacked.too_large(path):
        return unpacked.read_large(path, target, group, weight, folder)
    return sources.read(path, target=target, group=group, weight=weight)


def check_dtype(dtype: str) -> None:
    if dtype not in DTYPES:
        raise DataError(f"dtype must be float64 or float32, got '{dtype}'")


def _cast(features: Any, dtype: str) -> Any:
    if scipy.sparse.issparse(features):
        return features if file_of(features.data) else features.astype(DTYPES[dtype], copy=False)
    # What is mapped from a file stays there, in the type it has.
    return features if file_of(features) else np.ascontiguousarray(features, dtype=DTYPES[dtype])
