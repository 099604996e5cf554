"""Feature maps of kernels: kernel methods are then linear methods.

A map is a value: kind, size, seed and width. phi(x) . phi(y) stands in for a kernel k(x, y), `gaussian`
exp(-|x - y|_2^2 / (2 width^2)) or `laplace` exp(-|x - y|_1 / width).

What a map needs to know of the data, `landmarks.py` asks the sites for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import scipy  # whose distances are loaded when a map has landmarks
import scipy.sparse
from scipy.special import ndtri

from fedns.core.checked import Limit, Positive
from fedns.core.errors import ConfigError
from fedns.core.types import FloatArray
from fedns.models.maps.feature_map import Block, FeatureMap, as_dense
from fedns.numerics.rng import generator

Kernel = Literal["gaussian", "laplace"]
KERNELS: tuple[Kernel, ...] = ("gaussian", "laplace")
Pairs = Annotated[
    int, Limit("that is even and >= 2, since features come in pairs of cos and sin", lambda size: size > 1 and size % 2 == 0)
]
_SMALLEST_EIGENVALUE = 1e-12  # as in scikit-learn


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

    size: Pairs
    width: Positive = 1.0
    kernel: Kernel = "gaussian"
    seed: int = 0

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

    size: Pairs
    width: Positive = 1.0
    seed: int = 0

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
    width: Positive = 1.0
    kernel: Kernel = "gaussian"

    def __post_init__(self) -> None:
        landmarks = np.array(self.landmarks, dtype=np.float64, order="C")
        if landmarks.ndim != 2 or landmarks.size == 0 or not np.isfinite(landmarks).all():
            raise ConfigError(
                f"Nystroem needs a finite table of at least one landmark, got an array of shape {landmarks.shape}"
            )
        landmarks.flags.writeable = False
        object.__setattr__(self, "landmarks", landmarks)

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
            return np.asarray(kernel_matrix(self.kernel, block, self.landmarks, self.width) @ whitening)

        return phi


def kernel_matrix(kernel: str, x: Block, landmarks: FloatArray, width: float) -> FloatArray:
    """k(x_i, l_j): (rows, landmarks)."""
    if kernel == "laplace":
        return np.asarray(np.exp(scipy.spatial.distance.cdist(as_dense(x), landmarks, "cityblock") / -width))
    if not scipy.sparse.issparse(x):
        # |x|^2 - 2 x.l + |l|^2 loses digits far from the origin; compressed rows have their origin among them.
        middle = landmarks.mean(axis=0)
        x, landmarks = x - middle, landmarks - middle
    norms = x.multiply(x).sum(axis=1) if scipy.sparse.issparse(x) else np.einsum("ij,ij->i", x, x)
    squares = x @ (-2.0 * landmarks.T)
    squares += np.asarray(norms).reshape(-1, 1)
    squares += np.einsum("ij,ij->i", landmarks, landmarks)
    return np.asarray(np.exp(np.maximum(squares, 0.0, out=squares) / (-2.0 * width * width)))


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
