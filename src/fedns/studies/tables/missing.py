"""Rows with missing values, which no method can train on as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from fedns.core.errors import DataError
from fedns.runs.compare import MISSING_RULES
from fedns.studies.tables.dataset import Dataset


def treat_missing(dataset: Dataset, how: str) -> Dataset:
    """`refuse` leaves them to be refused; `rows` drops rows that miss a value; `mean` fills in the mean of the column.

    A mean over all rows is a sum and a count from every site, so that it does not depend on how rows are given to clients.
    """
    if how not in MISSING_RULES:
        raise DataError(f"unknown treatment '{how}' of missing values: use {', '.join(MISSING_RULES)}")
    if how == "refuse" or scipy.sparse.issparse(dataset.features):
        return dataset
    absent: NDArray[np.bool_] = np.isnan(dataset.features)
    if not absent.any():
        return dataset
    if how == "mean":
        return _filled(dataset, absent)
    return _complete_rows(dataset, np.asarray((~absent).all(axis=1), dtype=np.bool_))


def _complete_rows(dataset: Dataset, keep: NDArray[np.bool_]) -> Dataset:
    if not keep.any():
        raise DataError(f"every row of '{dataset.name}' misses a value: fill them in with missing='mean'")

    def kept(values: NDArray[Any] | None) -> NDArray[Any] | None:
        return None if values is None else values[keep]

    names = dataset.group_names
    if names is not None and dataset.groups is not None:
        left = np.isin(np.unique(dataset.groups), np.unique(dataset.groups[keep]))
        names = tuple(name for name, there in zip(names, left, strict=True) if there)
    return replace(
        dataset,
        features=np.ascontiguousarray(dataset.features[keep]),
        targets=dataset.targets[keep],
        groups=kept(dataset.groups),
        group_names=names,
        sample_weights=kept(dataset.sample_weights),
        description=f"{dataset.description}; {int((~keep).sum())} rows with missing values dropped",
    )


def _filled(dataset: Dataset, absent: NDArray[np.bool_]) -> Dataset:
    counts = (~absent).sum(axis=0)
    if not counts.all():
        empty = int(np.argmin(counts))
        name = dataset.columns[empty] if dataset.columns else empty
        raise DataError(f"column '{name}' of '{dataset.name}' has no value at all: drop it")
    means = np.where(absent, 0.0, dataset.features).sum(axis=0) / counts
    filled = np.where(absent, means, dataset.features).astype(dataset.features.dtype, copy=False)
    note = f"{int(absent.sum())} missing values replaced by the mean of their column"
    return replace(dataset, features=filled, description=f"{dataset.description}; {note}")
