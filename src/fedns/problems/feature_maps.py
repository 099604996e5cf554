"""Feature maps phi: functions of a row that every site applies alike, and what the sites must agree on first.

A map is a value: kind, size, seed and width. Kernel methods are then linear methods: phi(x) . phi(y) stands in for a kernel
k(x, y), `gaussian` exp(-|x - y|_2^2 / (2 width^2)) or `laplace` exp(-|x - y|_1 / width).

Two things depend on the data, and are found without a row leaving its site. `federated_width` takes the median distance from
histograms of distances; `federated_landmarks` takes landmarks from means over at least SMALLEST_GROUP rows, or from column
means and variances. Both go through `cohort.ask`, so that their bytes are counted. Neither adds noise: a mean over five rows
is what disclosure rules for published tables allow, and is not differential privacy.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from scipy.spatial.distance import cdist, pdist
from scipy.special import ndtri

from fedns.core.clients import Clients, on_client
from fedns.core.cohort import Cohort
from fedns.core.errors import ConfigError, DataError
from fedns.core.messages import Message, Payload, Ragged, wire
from fedns.core.shards import Shards, as_rows
from fedns.numerics import parallel
from fedns.numerics.linalg import single_threaded_blas
from fedns.numerics.rng import generator
from fedns.numerics.rows import DenseRows, Rows, SparseRows

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Block = Any  # (rows, columns) in float64: an ndarray, or a csr_matrix where the rows are compressed

KERNELS = ("gaussian", "laplace")
_BLOCK_ENTRIES = 1 << 18  # 2 MiB of float64: what a thread needs beyond the result is a few times this
_MOST_MONOMIALS = 100_000  # already 40 GB of packed Hessian
_SMALLEST_EIGENVALUE = 1e-12  # as in scikit-learn


class FeatureMap(ABC):
    """A function of one row. Its results are dense float64, (rows, num_features)."""

    name: ClassVar[str]

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
        segments = parallel.cut(starts, stops, max(1, _BLOCK_ENTRIES // longest))
        # Untouched pages of zeros take no memory: rows that are nobody's cost nothing.
        out = np.zeros((rows.shape[0], features))

        def part(low: int, high: int) -> None:
            for segment in range(low, high):
                run = slice(int(segments.first[segment]), int(segments.last[segment]))
                out[run] = phi(_block(rows, run))

        with single_threaded_blas():
            parallel.for_each_part(segments, part, longest)
        return out


@dataclass(frozen=True)
class Identity(FeatureMap):
    """phi(x) = x; rows keep their layout and precision."""

    name: ClassVar[str] = "identity"

    def num_features(self, num_columns: int) -> int:
        return num_columns

    def prepare(self, num_columns: int) -> Callable[[Block], FloatArray]:
        return _dense

    def apply(self, shards: Shards) -> Shards:
        return shards


@dataclass(frozen=True)
class RandomFourier(FeatureMap):
    """phi(x) = sqrt(2 / size) (cos(omega_i . x), sin(omega_i . x)) for size / 2 random frequencies omega_i.

    omega is drawn from the Fourier transform of the kernel: normal for gaussian, independent Cauchy for laplace. Pairs
    rather than sqrt(2 / size) cos(omega . x + b): the variance of phi(x) . phi(y) is smaller by
    (k(x, y)^2 - k(2x, 2y) / 2) / size, positive for both kernels (Sutherland and Schneider 2015), and |phi(x)| = 1 exactly.
    """

    size: int
    width: float = 1.0
    kernel: str = "gaussian"
    seed: int = 0
    name: ClassVar[str] = "fourier"

    def __post_init__(self) -> None:
        _check_pairs(type(self).__name__, self.size)
        _check_kernel(type(self).__name__, self.kernel, self.width)

    def num_features(self, num_columns: int) -> int:
        return self.size

    def frequencies(self, num_columns: int) -> FloatArray:
        """The omega_i as rows: (size / 2, columns). A larger size with the same seed keeps the first ones."""
        uniforms = _uniforms(self.seed, self.size // 2 * num_columns).reshape(-1, num_columns)
        omega: FloatArray = ndtri(uniforms) if self.kernel == "gaussian" else np.tan(np.pi * (uniforms - 0.5))
        return omega / self.width

    def prepare(self, num_columns: int) -> Callable[[Block], FloatArray]:
        return _waves(self.frequencies(num_columns))


@dataclass(frozen=True)
class OrthogonalRandom(FeatureMap):
    """Random Fourier features of the gaussian kernel with orthogonal frequencies, as many at a time as there are columns.

    omega_i = s_i q_i / width, with q_i the columns of a random rotation and s_i the length of a normal vector: each omega_i
    is distributed as before, but they cover the directions evenly, which lowers the variance (Yu et al. 2016).
    """

    size: int
    width: float = 1.0
    seed: int = 0
    name: ClassVar[str] = "orthogonal"

    def __post_init__(self) -> None:
        _check_pairs(type(self).__name__, self.size)
        _check_kernel(type(self).__name__, "gaussian", self.width)

    def num_features(self, num_columns: int) -> int:
        return self.size

    def frequencies(self, num_columns: int) -> FloatArray:
        """The omega_i as rows: (size / 2, columns)."""
        count = self.size // 2
        normals = ndtri(_uniforms(self.seed, 2 * count * num_columns)).reshape(count, 2, num_columns)
        omega = np.empty((count, num_columns))
        for first in range(0, count, num_columns):
            run = slice(first, min(first + num_columns, count))
            q, r = np.linalg.qr(normals[run, 0].T)
            # Householder's signs are not random: with those of the diagonal, q is uniform and the same from any LAPACK.
            omega[run] = (q * np.sign(np.diag(r))).T * np.linalg.norm(normals[run, 1], axis=1, keepdims=True)
        return omega / self.width

    def prepare(self, num_columns: int) -> Callable[[Block], FloatArray]:
        return _waves(self.frequencies(num_columns))


@dataclass(frozen=True, eq=False)
class Nystroem(FeatureMap):
    """phi(x) = K_mm^(-1/2) k_m(x) for landmarks l_1 ... l_m: phi(x) . phi(y) is the kernel projected on their span.

    Eigenvalues of K_mm below 1e-12 count as 1e-12: a direction that is rounding noise is not blown up.
    """

    landmarks: FloatArray  # (size, columns), read-only
    width: float = 1.0
    kernel: str = "gaussian"
    name: ClassVar[str] = "nystroem"

    def __post_init__(self) -> None:
        landmarks = np.array(self.landmarks, dtype=np.float64, order="C")
        if landmarks.ndim != 2 or landmarks.size == 0 or not np.isfinite(landmarks).all():
            raise ConfigError(
                f"Nystroem needs a finite table of at least one landmark, got an array of shape {landmarks.shape}"
            )
        landmarks.flags.writeable = False
        object.__setattr__(self, "landmarks", landmarks)
        _check_kernel(type(self).__name__, self.kernel, self.width)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Nystroem) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        return self.landmarks.shape, self.landmarks.tobytes(), self.width, self.kernel

    @property
    def size(self) -> int:
        return len(self.landmarks)

    def num_features(self, num_columns: int) -> int:
        return self.size

    def prepare(self, num_columns: int) -> Callable[[Block], FloatArray]:
        if num_columns != self.landmarks.shape[1]:
            raise ConfigError(
                f"Nystroem's landmarks have {self.landmarks.shape[1]} columns, the rows have {num_columns}: "
                "draw landmarks from the same columns"
            )
        values, vectors = np.linalg.eigh(kernel_matrix(self.kernel, self.landmarks, self.landmarks, self.width))
        whitening = (vectors / np.sqrt(np.maximum(values, _SMALLEST_EIGENVALUE))) @ vectors.T

        def phi(block: Block) -> FloatArray:
            product: FloatArray = kernel_matrix(self.kernel, block, self.landmarks, self.width) @ whitening
            return product

        return phi


@dataclass(frozen=True)
class Polynomial(FeatureMap):
    """All monomials of the columns up to `degree`, by degree and then in the order of the columns, as in scikit-learn.

    interaction_only leaves out powers of a column; bias adds a constant 1, which is penalised, unlike a problem's intercept.
    """

    degree: int = 2
    interaction_only: bool = False
    bias: bool = False
    name: ClassVar[str] = "polynomial"

    def __post_init__(self) -> None:
        if self.degree < 1:
            raise ConfigError(f"Polynomial needs degree >= 1, got {self.degree}")

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
            x = _dense(block)
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


FEATURE_MAPS: dict[str, type[FeatureMap]] = {
    kind.name: kind for kind in (Identity, RandomFourier, OrthogonalRandom, Nystroem, Polynomial)
}


def kernel_matrix(kernel: str, x: Block, landmarks: FloatArray, width: float) -> FloatArray:
    """k(x_i, l_j): (rows, landmarks)."""
    result: FloatArray
    if kernel == "laplace":
        result = np.exp(cdist(_dense(x), landmarks, "cityblock") / -width)
        return result
    if not scipy.sparse.issparse(x):
        # |x|^2 - 2 x.l + |l|^2 loses digits far from the origin; compressed rows have their origin among them.
        middle = landmarks.mean(axis=0)
        x, landmarks = x - middle, landmarks - middle
    norms = x.multiply(x).sum(axis=1) if scipy.sparse.issparse(x) else np.einsum("ij,ij->i", x, x)
    squares = x @ (-2.0 * landmarks.T)
    squares += np.asarray(norms).reshape(-1, 1)
    squares += np.einsum("ij,ij->i", landmarks, landmarks)
    result = np.exp(np.maximum(squares, 0.0, out=squares) / (-2.0 * width * width))
    return result


def _waves(omega: FloatArray) -> Callable[[Block], FloatArray]:
    count = len(omega)
    transposed = np.ascontiguousarray(omega.T)

    def phi(block: Block) -> FloatArray:
        angles = block @ transposed
        out = np.empty((len(angles), 2 * count))
        np.cos(angles, out=out[:, :count])
        np.sin(angles, out=out[:, count:])
        out *= math.sqrt(1.0 / count)
        return out

    return phi


def _uniforms(seed: int, count: int) -> FloatArray:
    """Numbers strictly between 0 and 1 from the generator's raw bits.

    numpy may change what `standard_normal` draws between versions (NEP 19), but not the bits: sites with different versions
    still apply the same map.
    """
    raw = generator(seed, "random features").bit_generator.random_raw(count)
    return ((raw >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def _block(rows: Rows, run: slice) -> Block:
    if isinstance(rows, DenseRows):
        return rows.values[run].astype(np.float64, copy=False)
    return _csr(rows, run.start, run.stop)


def _csr(rows: SparseRows, start: int, stop: int) -> Any:
    first, last = int(rows.indptr[start]), int(rows.indptr[stop])
    data = rows.data[first:last].astype(np.float64, copy=False)
    pointers = rows.indptr[start : stop + 1] - first
    return scipy.sparse.csr_matrix((data, rows.indices[first:last], pointers), shape=(stop - start, rows.num_columns))


def _dense(block: Block) -> FloatArray:
    dense: FloatArray = block.toarray() if scipy.sparse.issparse(block) else block
    return dense


def _check_pairs(name: str, size: int) -> None:
    if size < 2 or size % 2:
        raise ConfigError(f"{name} needs an even size >= 2, since features come in pairs of cos and sin, got {size}")


def _check_kernel(name: str, kernel: str, width: float) -> None:
    if kernel not in KERNELS:
        raise ConfigError(f"{name} knows no kernel {kernel!r}: use {' or '.join(KERNELS)}")
    if not (np.isfinite(width) and width > 0):
        raise ConfigError(f"{name} needs a kernel width > 0, got {width}")


# What the sites tell. A site keeps to SMALLEST_GROUP whatever it is asked for.

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

    means: Payload = wire("groups", "columns")
    sizes: Payload = wire("groups", dtype="int64")


class ColumnMoments(Message):
    """Number of rows, column means and variances, as one row (n, means, variances); none from a site with too few rows."""

    moments: Payload = wire("present", "numbers", dtype="float64")


class WidthRequest(Message):
    """Which distance to take: 0 for the Euclidean one of the gaussian kernel, 1 for the sum of differences of laplace."""

    kernel: Payload = wire(dtype="int32")
    seed: Payload = wire(dtype="int64")


class DistanceHistogram(Message):
    """How many pairs of a site's rows are how far apart; bins with fewer than SMALLEST_GROUP pairs are left out."""

    bins: Payload = wire("bins", dtype="int32")
    counts: Payload = wire("bins", dtype="int64")


@on_client(LandmarkRequest, GroupMeans)
def group_means(problem: Any, clients: Clients, request: LandmarkRequest) -> GroupMeans:
    smallest = max(SMALLEST_GROUP, int(request.smallest_group))
    totals = clients.shards.total_weights

    def groups(client: int) -> tuple[FloatArray, IntArray]:
        size = int(clients.shards.sizes[client])
        if size < smallest:
            return np.empty((0, clients.shards.num_columns)), np.empty(0, dtype=np.int64)
        count = min(math.ceil(totals[client] * float(request.groups_per_weight)), size // smallest)
        random = generator(int(request.seed), "landmarks", client=int(clients.ids[client]))
        x = _some_rows(clients.shards, client, max(_SAMPLE_PER_GROUP, 2 * smallest) * count, random)
        means, sizes = _grouped(x, count, smallest, random)
        return means, np.rint(sizes * (size / len(x))).astype(np.int64)

    answers = parallel.map_clients(groups, clients.shards.num_clients)
    return GroupMeans(means=_ragged([a[0] for a in answers]), sizes=_ragged([a[1] for a in answers]))


@on_client(LandmarkRequest, ColumnMoments)
def column_moments(problem: Any, clients: Clients, request: LandmarkRequest) -> ColumnMoments:
    smallest = max(SMALLEST_GROUP, int(request.smallest_group))

    def moments(client: int) -> FloatArray:
        start, stop = int(clients.shards.starts[client]), int(clients.shards.stops[client])
        if stop - start < smallest:
            return np.empty((0, 1 + 2 * clients.shards.num_columns))
        mean, variance = _mean_and_variance(clients.shards.rows, start, stop)
        return np.concatenate([[float(stop - start)], mean, variance])[None]

    return ColumnMoments(moments=_ragged(parallel.map_clients(moments, clients.shards.num_clients)))


@on_client(WidthRequest, DistanceHistogram)
def distance_histogram(problem: Any, clients: Clients, request: WidthRequest) -> DistanceHistogram:
    metric = ("euclidean", "cityblock")[int(request.kernel)]

    def histogram(client: int) -> tuple[NDArray[np.int32], IntArray]:
        if clients.shards.sizes[client] < SMALLEST_GROUP:
            return np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int64)
        random = generator(int(request.seed), "kernel width", client=int(clients.ids[client]))
        distances = pdist(_some_rows(clients.shards, client, _PAIRED_ROWS, random), metric)
        counts = np.bincount(_bin_of(distances))
        bins = np.flatnonzero(counts >= SMALLEST_GROUP)
        return bins.astype(np.int32), counts[bins].astype(np.int64)

    answers = parallel.map_clients(histogram, clients.shards.num_clients)
    return DistanceHistogram(bins=_ragged([a[0] for a in answers]), counts=_ragged([a[1] for a in answers]))


def federated_landmarks(
    cohort: Cohort, size: int, *, how: str = "groups", smallest_group: int = SMALLEST_GROUP, seed: int = 0
) -> FloatArray:
    """Landmarks for `Nystroem` from summaries of the sites: (size, columns).

    how: `groups`, each site sends k-means centres of its rows, of at least `smallest_group` rows each, with their sizes, and
    the server clusters those; `moments`, each site sends its number of rows and the mean and variance of every column, and
    landmarks are drawn from the normal distribution with the merged ones, which ignores that columns belong together. A site
    with fewer rows than `smallest_group` sends nothing. Distances decide both: scale the columns first.
    """
    if size < 1:
        raise ConfigError(f"federated_landmarks needs size >= 1, got {size}")
    if smallest_group < SMALLEST_GROUP:
        raise ConfigError(f"smallest_group must be >= {SMALLEST_GROUP}, so that no mean tells a row, got {smallest_group}")
    density = _GROUPS_PER_LANDMARK * size / cohort.total_weights.sum()
    request = LandmarkRequest(np.float64(density), np.int64(smallest_group), np.int64(seed))
    random = generator(seed, "landmarks", round=1)
    with single_threaded_blas():
        if how == "groups":
            return _landmarks_from_groups(cohort, request, size, random)
        if how == "moments":
            mean, variance = _merged_moments(cohort, request)
            return mean + np.sqrt(variance) * random.standard_normal((size, mean.size))
    raise ConfigError(f"federated_landmarks knows no way {how!r}: use groups or moments")


def federated_width(cohort: Cohort, kernel: str = "gaussian", *, seed: int = 0) -> float:
    """The median distance between rows of the same site, sites weighted like their data, from one histogram each.

    Exact to within a bin, 4.4 %, of the median that the pooled rows have where sites are alike. Where they differ, rows of
    different sites lie further apart than rows of one, and the width comes out smaller: on cod_rna sorted by label, by half.
    """
    _check_kernel("federated_width", kernel, 1.0)
    shares = np.zeros(2 * _OCTAVES * _BINS_PER_OCTAVE + 2)
    request = WidthRequest(np.int32(KERNELS.index(kernel)), np.int64(seed))
    for positions, batch in cohort.ask(distance_histogram, request):
        for client, weight in enumerate(cohort.weights[positions]):
            counts = batch.counts.part(client)
            if counts.size:
                shares[batch.bins.part(client)] += weight * counts / counts.sum()
    if not shares.any():
        raise DataError("no site has enough rows to tell distances between them: give the kernel width")
    return _median_of(shares)


def _landmarks_from_groups(cohort: Cohort, request: LandmarkRequest, size: int, random: np.random.Generator) -> FloatArray:
    batches = [batch for _, batch in cohort.ask(group_means, request)]
    means = np.concatenate([batch.means.values for batch in batches])
    sizes = np.concatenate([batch.sizes.values for batch in batches]).astype(np.float64)
    if len(means) < size:
        raise ConfigError(
            f"the sites gave {len(means)} groups of at least {int(request.smallest_group)} rows for {size} landmarks: "
            f"ask for at most {len(means)}, or use how='moments'"
        )
    chosen = np.sort(random.choice(len(means), size, replace=False, p=sizes / sizes.sum()))
    return _lloyd(means, sizes, means[chosen])


def _merged_moments(cohort: Cohort, request: LandmarkRequest) -> tuple[FloatArray, FloatArray]:
    """Means and variances over all rows, one site after the other (Chan, Golub and LeVeque 1983)."""
    count, mean, squares = 0.0, np.zeros(0), np.zeros(0)
    for _, batch in cohort.ask(column_moments, request):
        for moments in batch.moments.values:
            n, (m, v) = moments[0], np.split(moments[1:], 2)
            if count == 0:
                mean, squares = np.zeros_like(m), np.zeros_like(v)
            difference = m - mean
            squares = squares + n * v + difference**2 * (count * n / (count + n))
            mean = mean + difference * (n / (count + n))
            count += n
    if count == 0:
        raise DataError(f"no site has {int(request.smallest_group)} rows to summarise: choose landmarks by hand")
    return mean, squares / count


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
    step = max(1, _BLOCK_ENTRIES // len(centres))
    for start in range(0, len(points), step):
        labels[start : start + step] = cdist(points[start : start + step], centres, "sqeuclidean").argmin(axis=1)
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
    return _dense(_csr(rows, start, stop)[chosen])


def _mean_and_variance(rows: Rows, start: int, stop: int) -> tuple[FloatArray, FloatArray]:
    step = max(1, _BLOCK_ENTRIES // rows.shape[1])
    blocks = [slice(first, min(first + step, stop)) for first in range(start, stop, step)]
    mean = sum(_dense(_block(rows, run)).sum(axis=0) for run in blocks) / (stop - start)
    variance = sum(((_dense(_block(rows, run)) - mean) ** 2).sum(axis=0) for run in blocks) / (stop - start)
    return np.asarray(mean), np.asarray(variance)


def _bin_of(distances: FloatArray) -> IntArray:
    octaves = np.log2(np.maximum(distances, 2.0 ** -(_OCTAVES + 1)))
    bins = np.floor((octaves + _OCTAVES) * _BINS_PER_OCTAVE) + 1
    clipped: IntArray = np.clip(bins, 0, 2 * _OCTAVES * _BINS_PER_OCTAVE + 1).astype(np.int64)
    return clipped


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
