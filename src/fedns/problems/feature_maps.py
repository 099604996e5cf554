"""Feature maps phi: functions of a row that every site applies alike.

A map is a value: kind, size, seed and width. Kernel methods are then linear methods: phi(x) . phi(y) stands in for a kernel
k(x, y), `gaussian` exp(-|x - y|_2^2 / (2 width^2)) or `laplace` exp(-|x - y|_1 / width).

What a map needs to know of the data, `landmarks.py` asks the sites for.
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
from scipy.spatial.distance import cdist
from scipy.special import ndtri

from fedns.core.checked import Checked
from fedns.core.errors import ConfigError
from fedns.core.shards import Shards, as_rows
from fedns.numerics import parallel
from fedns.numerics.linalg import single_threaded_blas
from fedns.numerics.rng import generator
from fedns.numerics.rows import DenseRows, Rows, SparseRows

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Block = Any  # (rows, columns) in float64: an ndarray, or a csr_matrix where the rows are compressed

KERNELS = ("gaussian", "laplace")
BLOCK_ENTRIES = 1 << 18  # 2 MiB of float64: what a thread needs beyond the result is a few times this
_MOST_MONOMIALS = 100_000  # already 40 GB of packed Hessian
_SMALLEST_EIGENVALUE = 1e-12  # as in scikit-learn


class FeatureMap(Checked, ABC):
    """A function of one row. Its results are dense float64, (rows, num_features)."""

    example: ClassVar[str] = "fedns.RandomFourier(200)"
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
        segments = parallel.cut(starts, stops, max(1, BLOCK_ENTRIES // longest))
        # Untouched pages of zeros take no memory: rows that are nobody's cost nothing.
        out = np.zeros((rows.shape[0], features))

        def part(low: int, high: int) -> None:
            for segment in range(low, high):
                run = slice(int(segments.first[segment]), int(segments.last[segment]))
                out[run] = phi(row_block(rows, run))

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
        return as_dense

    def apply(self, shards: Shards) -> Shards:
        return shards


@dataclass(frozen=True)
class RandomFourier(FeatureMap):
    """phi(x) = sqrt(2 / size) (cos(omega_i . x), sin(omega_i . x)) for size / 2 random frequencies omega_i.

    omega is drawn from the Fourier transform of the kernel: normal for gaussian, independent Cauchy for laplace. Pairs
    rather than sqrt(2 / size) cos(omega . x + b): the variance of phi(x) . phi(y) is smaller by
    (k(x, y)^2 - k(2x, 2y) / 2) / size, positive for both kernels (Sutherland and Schneider 2015), and |phi(x)| = 1 exactly.

    - size: features, an even number.
    - width: width of the kernel, above 0.
    - kernel: gaussian or laplace.
    - seed: of the frequencies, the same at every site.
    """

    size: int
    width: float = 1.0
    kernel: str = "gaussian"
    seed: int = 0
    name: ClassVar[str] = "fourier"

    def __post_init__(self) -> None:
        _check_pairs(type(self).__name__, self.size)
        check_kernel(type(self).__name__, self.kernel, self.width)

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

    - size: features, an even number.
    - width: width of the kernel, above 0.
    - seed: of the frequencies, the same at every site.
    """

    size: int
    width: float = 1.0
    seed: int = 0
    name: ClassVar[str] = "orthogonal"

    def __post_init__(self) -> None:
        _check_pairs(type(self).__name__, self.size)
        check_kernel(type(self).__name__, "gaussian", self.width)

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

    - landmarks: rows that all others are compared with: (landmarks, columns).
    - width: width of the kernel, above 0.
    - kernel: gaussian or laplace.
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
        check_kernel(type(self).__name__, self.kernel, self.width)

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

    - degree: largest degree of a product of columns, at least 1.
    - interaction_only: leave out powers of a column.
    - bias: add a constant feature.
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


FEATURE_MAPS: dict[str, type[FeatureMap]] = {
    kind.name: kind for kind in (Identity, RandomFourier, OrthogonalRandom, Nystroem, Polynomial)
}


def kernel_matrix(kernel: str, x: Block, landmarks: FloatArray, width: float) -> FloatArray:
    """k(x_i, l_j): (rows, landmarks)."""
    result: FloatArray
    if kernel == "laplace":
        result = np.exp(cdist(as_dense(x), landmarks, "cityblock") / -width)
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


def row_block(rows: Rows, run: slice) -> Block:
    if isinstance(rows, DenseRows):
        return rows.values[run].astype(np.float64, copy=False)
    return as_csr(rows, run.start, run.stop)


def as_csr(rows: SparseRows, start: int, stop: int) -> Any:
    first, last = int(rows.indptr[start]), int(rows.indptr[stop])
    data = rows.data[first:last].astype(np.float64, copy=False)
    pointers = rows.indptr[start : stop + 1] - first
    return scipy.sparse.csr_matrix((data, rows.indices[first:last], pointers), shape=(stop - start, rows.num_columns))


def as_dense(block: Block) -> FloatArray:
    dense: FloatArray = block.toarray() if scipy.sparse.issparse(block) else block
    return dense


def _check_pairs(name: str, size: int) -> None:
    if size < 2 or size % 2:
        raise ConfigError(f"{name} needs an even size >= 2, since features come in pairs of cos and sin, got {size}")


def check_kernel(name: str, kernel: str, width: float) -> None:
    if kernel not in KERNELS:
        raise ConfigError(f"{name} knows no kernel {kernel!r}: use {' or '.join(KERNELS)}")
    if not (np.isfinite(width) and width > 0):
        raise ConfigError(f"{name} needs a kernel width > 0, got {width}")
