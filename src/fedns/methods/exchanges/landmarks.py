"""What the sites must agree on before a kernel map can be used, found without a row leaving its site.

`federated_width` takes the median distance from histograms of distances; `federated_landmarks` takes landmarks from means
over at least SMALLEST_GROUP rows. Both go through `cohort.ask`, so that their bytes are
counted. A site keeps to SMALLEST_GROUP whatever it is asked. Neither adds noise: a mean over five rows is what disclosure
rules for published tables allow, and is not differential privacy.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy  # whose distances are loaded when a map has landmarks
import scipy.sparse
from numpy.typing import NDArray

from fedns.core.checked import Count, checked
from fedns.core.clients import Clients, on_client
from fedns.core.cohort import Cohort, Replies
from fedns.core.errors import ConfigError, DataError, MessageError
from fedns.core.messages import Message, Payload, Ragged, wire
from fedns.core.shards import Shards
from fedns.core.types import FloatArray, IntArray
from fedns.models.maps.feature_map import BLOCK_ENTRIES, as_dense
from fedns.models.maps.kernel_maps import KERNELS, Kernel
from fedns.numerics import parallel
from fedns.numerics.linalg import single_threaded_blas
from fedns.numerics.rng import generator
from fedns.numerics.rows import DenseRows

SMALLEST_GROUP = 5
_LLOYD_ROUNDS = 10
_GROUPS_PER_LANDMARK = 2  # the sites together send twice the landmarks asked for, and the server merges them
_SAMPLE_PER_GROUP = 40  # rows a site looks at per group
_PAIRED_ROWS = 256  # rows a site compares with each other: 32640 pairs
_BINS_PER_OCTAVE = 16  # neighbouring distances differ by 4.4 %
_OCTAVES = 40  # from 2^-40 to 2^40; bin 0 is for all below, identical rows among them


class LandmarkRequest(Message):
    """How many groups to make of a site's rows, and of how many rows at least."""

    groups_per_weight: Payload = wire(dtype="float64")
    smallest_group: Payload = wire(dtype="int64")
    seed: Payload = wire(dtype="int64")


class GroupMeans(Message):
    """Means over groups of similar rows and about how many rows each stands for; none from a site with too few rows."""

    means: Payload = wire("groups", "columns", ragged=True, discloses="moments")
    sizes: Payload = wire("groups", dtype="int64", ragged=True, discloses="count")


class WidthRequest(Message):
    """Which distance to take: 0 for the Euclidean one of the gaussian kernel, 1 for the sum of differences of laplace."""

    kernel: Payload = wire(dtype="int32")
    seed: Payload = wire(dtype="int64")


class DistanceHistogram(Message):
    """How many pairs of a site's rows are how far apart; bins with fewer than SMALLEST_GROUP pairs are left out."""

    bins: Payload = wire("bins", dtype="int32", ragged=True, discloses="moments")
    counts: Payload = wire("bins", dtype="int64", ragged=True, discloses="count")


@on_client(LandmarkRequest, GroupMeans)
def group_means(problem: Any, clients: Clients, request: LandmarkRequest) -> GroupMeans:
    smallest = max(SMALLEST_GROUP, int(request.smallest_group))
    problem.before_rows_are_read()
    totals, seed = clients.shards.total_weights, clients.seed_for("landmarks", int(request.seed))

    def groups(client: int) -> tuple[FloatArray, IntArray]:
        size = int(clients.shards.sizes[client])
        if size < smallest:
            return np.empty((0, clients.shards.num_columns)), np.empty(0, dtype=np.int64)
        count = min(math.ceil(totals[client] * float(request.groups_per_weight)), size // smallest)
        random = generator(seed, "landmarks", client=int(clients.ids[client]))
        x = _some_rows(clients.shards, client, max(_SAMPLE_PER_GROUP, 2 * smallest) * count, random)
        means, sizes = _grouped(x, count, smallest, random)
        return means, np.rint(sizes * (size / len(x))).astype(np.int64)

    answers = parallel.map_clients(groups, clients.shards.num_clients)
    return GroupMeans(means=_ragged([a[0] for a in answers]), sizes=_ragged([a[1] for a in answers]))


@on_client(WidthRequest, DistanceHistogram)
def distance_histogram(problem: Any, clients: Clients, request: WidthRequest) -> DistanceHistogram:
    problem.before_rows_are_read()
    metric, seed = ("euclidean", "cityblock")[int(request.kernel)], clients.seed_for("kernel width", int(request.seed))

    def histogram(client: int) -> tuple[NDArray[np.int32], IntArray]:
        if clients.shards.sizes[client] < SMALLEST_GROUP:
            return np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64)
        random = generator(seed, "kernel width", client=int(clients.ids[client]))
        distances = scipy.spatial.distance.pdist(_some_rows(clients.shards, client, _PAIRED_ROWS, random), metric)
        counts = np.bincount(_bin_of(distances))
        bins = np.flatnonzero(counts >= SMALLEST_GROUP)
        return bins.astype(np.int32), counts[bins].astype(np.int64)

    answers = parallel.map_clients(histogram, clients.shards.num_clients)
    return DistanceHistogram(bins=_ragged([a[0] for a in answers]), counts=_ragged([a[1] for a in answers]))


@checked
def federated_landmarks(
    cohort: Cohort,
    size: Count,
    *,
    smallest_group: int = SMALLEST_GROUP,
    seed: int = 0,
) -> FloatArray:
    """Landmarks for `Nystroem` from summaries of the sites: (size, columns).

    Each site sends k-means centres of its rows with their sizes, and the server clusters those. A site with fewer rows than
    `smallest_group` sends nothing. Distances decide: scale the columns first.

    - cohort: the clients, for example fedns.simulated_cohort(problem, shards).
    - size: landmarks, at least 1.
    - smallest_group: rows that a group must have to be sent.
    - seed: of the random choices.
    """
    if smallest_group < SMALLEST_GROUP:
        raise ConfigError(f"smallest_group must be >= {SMALLEST_GROUP}, so that no mean tells a row, got {smallest_group}")
    request = LandmarkRequest(groups_per_weight(size, cohort), np.int64(smallest_group), np.int64(seed))
    with single_threaded_blas():
        return landmarks_from(cohort.ask(group_means, request), size, smallest_group, seed)


@checked
def federated_width(cohort: Cohort, kernel: Kernel = "gaussian", *, seed: int = 0) -> float:
    """The median distance between rows of the same site, sites weighted like their data, from one histogram each.

    Exact to within a bin, 4.4 %, of the median that the pooled rows have where sites are alike. Where they differ, rows of
    different sites lie further apart than rows of one, and the width comes out smaller: on cod_rna sorted by label, by half.

    - cohort: the clients, for example fedns.simulated_cohort(problem, shards).
    - kernel: gaussian or laplace.
    - seed: of the random choices.
    """
    request = WidthRequest(np.int32(KERNELS.index(kernel)), np.int64(seed))
    return width_from(cohort.ask(distance_histogram, request))


def groups_per_weight(size: int, cohort: Cohort) -> np.float64:
    """How many groups sites make of their rows, so that all together have enough for this many landmarks."""
    return np.float64(_GROUPS_PER_LANDMARK * size / cohort.total_weights.sum())


def landmarks_from(replies: Replies, size: int, smallest_group: int, seed: int) -> FloatArray:
    """Landmarks from the groups of all sites: (size, columns)."""
    batches = [batch for _, batch in replies]
    if len({batch.means.values.shape[1:] for batch in batches}) > 1 or any((b.sizes.values < 1).any() for b in batches):
        raise MessageError("sites sent groups that cannot be put together: other columns, or no rows")
    means = np.concatenate([batch.means.values for batch in batches])
    sizes = np.concatenate([batch.sizes.values for batch in batches]).astype(np.float64)
    if len(means) < size:
        raise ConfigError(
            f"the sites gave {len(means)} groups of at least {smallest_group} rows for {size} landmarks: "
            f"ask for at most {len(means)}"
        )
    random = generator(seed, "landmarks", round=1)
    chosen = np.sort(random.choice(len(means), size, replace=False, p=sizes / sizes.sum()))
    return _lloyd(means, sizes, means[chosen])


def width_from(replies: Replies) -> float:
    """The median distance from the histograms of all sites."""
    shares = np.zeros(2 * _OCTAVES * _BINS_PER_OCTAVE + 2)
    for positions, batch in replies:
        for client, weight in enumerate(replies.weights[positions]):
            bins, counts = batch.bins.part(client), batch.counts.part(client)
            if np.any((bins < 0) | (bins >= shares.size)) or np.any(counts < 1):
                raise MessageError("a site sent a histogram of distances that cannot be one")
            if counts.size:
                shares[bins] += weight * counts / counts.sum()
    if not shares.any():
        raise DataError("no site has enough rows to tell distances between them: give the kernel width")
    return _median_of(shares)


def _grouped(x: FloatArray, count: int, smallest: int, random: np.random.Generator) -> tuple[FloatArray, IntArray]:
    """Means and sizes of at most `count` groups, each of at least `smallest` rows."""
    ones = np.ones(len(x))
    centres = _lloyd(x, ones, x[np.sort(random.choice(len(x), count, replace=False))])
    sizes = np.bincount(_nearest(x, centres), minlength=count)
    # Rows of dissolved groups join the nearest that stay: those only grow, so that one pass is enough.
    stay = sizes >= smallest
    stay[np.argmax(sizes)] = True
    labels = _nearest(x, centres[stay])
    return _means(x, ones, labels, centres[stay]), np.bincount(labels, minlength=int(stay.sum()))


def _lloyd(points: FloatArray, weights: FloatArray, centres: FloatArray) -> FloatArray:
    for _ in range(_LLOYD_ROUNDS):
        centres = _means(points, weights, _nearest(points, centres), centres)
    return centres


def _nearest(points: FloatArray, centres: FloatArray) -> IntArray:
    labels = np.empty(len(points), dtype=np.int64)
    step = max(1, BLOCK_ENTRIES // len(centres))
    for start in range(0, len(points), step):
        labels[start : start + step] = scipy.spatial.distance.cdist(
            points[start : start + step], centres, "sqeuclidean"
        ).argmin(axis=1)
    return labels


def _means(points: FloatArray, weights: FloatArray, labels: IntArray, centres: FloatArray) -> FloatArray:
    """The mean of every group; the old centre where a group is empty."""
    totals = np.bincount(labels, weights, minlength=len(centres))
    members = scipy.sparse.csr_matrix((weights, (labels, np.arange(len(points)))), shape=(len(centres), len(points)))
    occupied = totals > 0
    means = centres.copy()
    means[occupied] = (members @ points)[occupied] / totals[occupied, None]
    return means


def _some_rows(shards: Shards, client: int, most: int, random: np.random.Generator) -> FloatArray:
    """All rows of a client, or as many drawn without replacement, dense."""
    start, stop = int(shards.starts[client]), int(shards.stops[client])
    chosen = np.arange(stop - start)
    if chosen.size > most:
        chosen = np.sort(random.choice(chosen.size, most, replace=False))
    rows = shards.rows
    if isinstance(rows, DenseRows):
        return rows.values[start + chosen].astype(np.float64)
    return as_dense(rows.block(start, stop)[chosen])


def _bin_of(distances: FloatArray) -> IntArray:
    octaves = np.log2(np.maximum(distances, 2.0 ** -(_OCTAVES + 1)))
    bins = np.floor((octaves + _OCTAVES) * _BINS_PER_OCTAVE) + 1
    return np.asarray(np.clip(bins, 0, 2 * _OCTAVES * _BINS_PER_OCTAVE + 1), dtype=np.int64)


def _median_of(shares: FloatArray) -> float:
    """Where half of the pairs are closer, with the pairs of a bin spread evenly over it on the log scale."""
    below = np.cumsum(shares)
    half = below[-1] / 2
    bin_ = int(np.searchsorted(below, half))
    if bin_ == 0:
        raise DataError("at least half of the rows are identical to each other: give the kernel width")
    part = (half - below[bin_ - 1]) / shares[bin_]
    return float(2.0 ** ((bin_ - 1 + part) / _BINS_PER_OCTAVE - _OCTAVES))


def _ragged(parts: list[NDArray[Any]]) -> Ragged:
    return Ragged(np.concatenate(parts), np.concatenate([[0], np.cumsum([len(part) for part in parts])]))
