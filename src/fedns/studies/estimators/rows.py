"""Rows of arrays, in the order of the sites that they belong to."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedns.core.errors import DataError
from fedns.core.shards import Shards
from fedns.core.types import FloatArray


def shards_of(features: Any, targets: FloatArray, weights: FloatArray | None, sites: Any) -> Shards:
    """Rows in the order of their sites; those of no weight say nothing and are left out."""
    rows = len(targets)
    names, which = _numbered(np.zeros(rows, dtype=np.int64) if sites is None else _labels_of(sites, rows))
    kept = np.arange(rows) if weights is None else np.flatnonzero(weights > 0)
    order: Any = kept[np.argsort(which[kept], kind="stable")]
    sizes = np.bincount(which[order], minlength=names.size)
    if (np.diff(order, prepend=-1) == 1).all() and order.size == rows:  # as they are: a copy would take long
        order = slice(None)
    chosen = None if weights is None else weights[order]
    there = [str(name) for name, size in zip(names, sizes, strict=True) if size]
    return Shards.from_arrays(features[order], targets[order], sizes[sizes > 0], sample_weights=chosen, names=there)


def _labels_of(sites: Any, rows: int) -> NDArray[Any]:
    """The site of each row; refused where a row has none, which would otherwise be a site by the name of nan."""
    labels = np.asarray(sites)
    if labels.shape != (rows,):
        raise DataError(f"sites must name the site of each of {rows} rows, got an array of shape {labels.shape}")
    mixed = labels.dtype.kind == "O"
    absent = np.array([_is_absent(label) for label in labels]) if mixed else labels != labels
    if absent.any():
        raise DataError(f"sites must name the site of each row: row {int(absent.argmax())} has none")
    return labels.astype(str) if mixed and len(set(map(type, labels))) > 1 else labels


def _is_absent(label: Any) -> bool:
    """None, not a number, or pandas' NA, which does not even say whether it is itself."""
    try:
        return label is None or bool(label != label)
    except TypeError:
        return True


def _numbered(labels: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """The sites in order, and the place of each row's among them; nothing is sorted where rows stand site by site."""
    if not (labels[:-1] <= labels[1:]).all():
        return np.unique(labels, return_inverse=True)
    changes = np.concatenate([[True], labels[:-1] != labels[1:]])
    return labels[changes], np.cumsum(changes) - 1
