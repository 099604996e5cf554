"""Giving rows to clients: equal parts, label skew, unequal sizes or the natural sites."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike

from fedns.core.checked import checked
from fedns.core.errors import DataError
from fedns.core.shards import Shards
from fedns.core.types import FloatArray, IntArray
from fedns.numerics.rng import generator
from fedns.numerics.rows import DenseRows
from fedns.numerics.streaming import streamed
from fedns.studies.tables.dataset import Dataset
from fedns.studies.tables.labels import Task, infer_task

SPLITS = ("iid", "contiguous", "sorted", "dirichlet:ALPHA", "quantity:ALPHA", "group")
QUANTILE_BINS = 10  # classes that a regression target is cut into for label skew
_EVEN_ALPHA = 1e12  # beyond it the shares are equal to six digits, and a larger one would overflow


class _Deal(NamedTuple):
    """Rows by client: client j owns the next sizes[j] rows of `order`."""

    order: IntArray | None  # (rows,), None means as they are
    sizes: IntArray  # (clients,)


@checked
def split(
    features: Any,
    targets: ArrayLike,
    clients: int | None = None,
    how: str = "iid",
    seed: int = 0,
    *,
    groups: ArrayLike | None = None,
    group_names: tuple[str, ...] | None = None,
    sample_weights: ArrayLike | None = None,
    columns: tuple[str, ...] | None = None,
    task: Task | None = None,
) -> Shards:
    """Give every row to exactly one client, and every client at least one row.

    Where a draw leaves a client empty, it gets the last row of the client that is largest at that moment.

    - features: (rows, columns), an array or a scipy.sparse matrix.
    - targets: (rows,).
    - clients: their number; leave it out with `group`.
    - how: `contiguous` parts in the order given; `iid` parts of a random order; `sorted` by target, then contiguous;
      `dirichlet:ALPHA` shares of each class drawn for every client (label skew; a regression target is cut into ten
      classes at its quantiles); `quantity:ALPHA` sizes drawn, rows random; `group` one client per distinct group.
    - seed: of the random order and draws.
    - groups: (rows,), the site of each row, for `group`.
    - group_names: one for each distinct group, in sorted order.
    - sample_weights: (rows,), at least 0.
    - columns: names of the columns.
    - task: binary, regression or multiclass, for `dirichlet`; by the targets unless given.
    """
    y = np.asarray(targets, dtype=np.float64)
    num_rows = _count_rows(features)
    if y.shape != (num_rows,):
        raise DataError(f"targets have shape {y.shape}, but there are {num_rows} rows: give one target per row")
    kind, alpha = _parse(how)
    names: tuple[str, ...] | None = None
    if kind == "group":
        deal, names = _by_group(groups, group_names, clients, num_rows)
    else:
        deal = _by_draw(kind, alpha, y, _checked_clients(clients, num_rows), seed, task)
    weights = None if sample_weights is None else np.asarray(sample_weights, dtype=np.float64)
    if weights is not None and weights.shape != y.shape:
        raise DataError(f"sample weights have shape {weights.shape}, but there are {num_rows} rows: give one per row")
    if deal.order is not None and not np.array_equal(deal.order, np.arange(num_rows)):  # else there is nothing to copy
        if not scipy.sparse.issparse(features) and streamed(DenseRows.of(np.asarray(features))):
            raise DataError(f"the table is larger than memory, and split '{how}' moves its rows: use 'contiguous'")
        matrix = features.tocsr() if scipy.sparse.issparse(features) else np.asarray(features)
        features, y, weights = matrix[deal.order], y[deal.order], None if weights is None else weights[deal.order]
    return Shards.from_arrays(features, y, deal.sizes, sample_weights=weights, names=names, columns=columns)


@checked
def split_dataset(dataset: Dataset, clients: int | None = None, how: str = "iid", seed: int = 0) -> Shards:
    """`split`, with everything the data set knows about its rows.

    - dataset: what fedns.load gives.
    - clients: their number; leave it out with `group`.
    - how: as for fedns.split.
    - seed: of the random order and draws.
    """
    known = ("groups", "group_names", "sample_weights", "columns", "task")
    rest = {name: getattr(dataset, name) for name in known}
    return split(dataset.features, dataset.targets, clients, how, seed, **rest)


def _count_rows(features: Any) -> int:
    try:
        rows, _ = np.shape(features)
    except ValueError:  # not two axes, or rows of unequal lengths
        raise DataError(f"features must be a table of rows and columns, got a {type(features).__name__}") from None
    return int(rows)


def _parse(how: str) -> tuple[str, float]:
    kind, colon, text = how.partition(":")
    takes_alpha = f"{kind}:ALPHA" in SPLITS
    if not takes_alpha and how not in SPLITS:
        raise DataError(f"unknown split '{how}': use {', '.join(SPLITS)}")
    if not takes_alpha:
        return kind, math.nan
    try:
        alpha = float(text)
    except ValueError:
        alpha = math.nan
    if not colon or not 0 < alpha < math.inf:
        raise DataError(f"split '{how}' needs a number above 0 behind the colon, for example {kind}:0.5")
    return kind, min(alpha, _EVEN_ALPHA)


def _checked_clients(clients: int | None, num_rows: int) -> int:
    if clients is None or clients < 1:
        raise DataError(f"the number of clients must be at least 1, got {clients}")
    if clients > num_rows:
        raise DataError(f"there are {num_rows} rows for {clients} clients: use at most {num_rows} clients")
    return int(clients)


def _by_draw(kind: str, alpha: float, y: FloatArray, clients: int, seed: int, task: str | None) -> _Deal:
    draw = generator(seed, f"split {kind}")
    match kind:
        case "contiguous":
            return _Deal(None, _equal_sizes(y.size, clients))
        case "sorted":
            return _Deal(np.argsort(y, kind="stable"), _equal_sizes(y.size, clients))
        case "iid":
            return _Deal(draw.permutation(y.size), _equal_sizes(y.size, clients))
        case "quantity":
            cuts = _cuts(draw.dirichlet(np.full(clients, alpha)), y.size)
            return _Deal(draw.permutation(y.size), _fill_empty(np.diff(cuts, prepend=0)))
        case _:
            return _by_label(y, alpha, clients, draw, task or infer_task(y))


def _equal_sizes(num_rows: int, clients: int) -> IntArray:
    """Sizes that differ by at most one, the larger ones first."""
    sizes = np.full(clients, num_rows // clients, dtype=np.int64)
    sizes[: num_rows % clients] += 1
    return sizes


def _cuts(shares: FloatArray, num_rows: int) -> IntArray:
    """Where each client's run of rows ends; rounding the running sum keeps the total exact."""
    ends = np.rint(np.cumsum(shares) * num_rows).astype(np.int64)
    ends[-1] = num_rows
    return np.minimum(ends, num_rows)


def _fill_empty(sizes: IntArray) -> IntArray:
    filled = sizes.copy()
    for client in np.flatnonzero(sizes == 0):
        filled[np.argmax(filled)] -= 1  # the first of the largest
        filled[client] = 1
    return filled


def _by_label(y: FloatArray, alpha: float, clients: int, draw: np.random.Generator, task: str) -> _Deal:
    classes = _classes(y, task)
    owner = np.empty(y.size, dtype=np.int64)
    for label in range(int(classes.max()) + 1):
        rows = draw.permutation(np.flatnonzero(classes == label))
        cuts = _cuts(draw.dirichlet(np.full(clients, alpha)), rows.size)
        owner[rows] = np.repeat(np.arange(clients), np.diff(cuts, prepend=0))
    owner = _give_to_empty(owner, clients)
    return _Deal(np.argsort(owner, kind="stable"), np.bincount(owner, minlength=clients))


def _classes(y: FloatArray, task: str) -> IntArray:
    """A class number per row: the rank of its label, or of the quantile it falls into."""
    if task == "regression":
        edges = np.quantile(y, np.linspace(0, 1, QUANTILE_BINS + 1)[1:-1])
        return np.searchsorted(edges, y, side="right").astype(np.int64)
    return np.unique(y, return_inverse=True)[1].astype(np.int64)


def _give_to_empty(owner: IntArray, clients: int) -> IntArray:
    sizes = np.bincount(owner, minlength=clients)
    filled = _fill_empty(sizes)
    order = np.argsort(owner, kind="stable")
    place = np.arange(owner.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # of each row within its client
    surplus = order[place >= np.repeat(filled, sizes)]
    given = owner.copy()
    given[surplus] = np.flatnonzero(sizes == 0)
    return given


def _by_group(
    groups: ArrayLike | None, group_names: tuple[str, ...] | None, clients: int | None, num_rows: int
) -> tuple[_Deal, tuple[str, ...]]:
    if groups is None:
        raise DataError("this data set has no natural sites: name the column that holds them (group=...)")
    labels = np.asarray(groups)
    if labels.shape != (num_rows,):
        raise DataError(f"groups have shape {labels.shape}, but there are {num_rows} rows: give one label per row")
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        raise DataError(f"groups hold {int(np.isnan(labels).sum())} missing labels: drop those rows")
    distinct, place, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    if clients is not None and clients != distinct.size:
        raise DataError(f"there are {distinct.size} natural sites, not {clients}: leave out the number of clients")
    if group_names is not None and len(group_names) != distinct.size:
        raise DataError(f"{len(group_names)} group names were given for {distinct.size} groups")
    names = group_names or tuple(str(label) for label in distinct)
    return _Deal(np.argsort(place, kind="stable"), sizes.astype(np.int64)), names
