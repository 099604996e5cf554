"""Kernel ridge regression in which the source condition r and the capacity gamma are known by construction.

On [0, 1] with uniform x the functions psi_i(x) = sqrt(2) cos(pi i x) are orthonormal, so that the kernel
sum_i s_i psi_i(x) psi_i(y) has covariance diag(s) exactly. With s_i = i^(-1 / gamma) the effective dimension grows like
lambda^(-gamma). The target has coefficients theta_i = s_i^r a_i with sum a_i^2 finite, but barely: |L^-r f| is bounded, and
|L^-q f| hardly is for a q > r. The excess risk of w is then sum_i (sqrt(s_i) w_i - theta_i)^2, without any sampling.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedns.core.shards import Shards
from fedns.core.types import FloatArray
from fedns.models.losses import Squared
from fedns.models.maps.feature_map import Block, FeatureMap, as_dense
from fedns.models.penalties import Ridge
from fedns.models.problem import Problem
from fedns.models.reference import Optimum
from fedns.numerics.rng import generator

FEATURES = 256
NOISE = 0.5
SUMMABLE = 0.55  # a_i = i^-0.55


@dataclass(frozen=True)
class Cosines(FeatureMap):
    """sqrt(s_i) psi_i(x), i = 1, ..., size, with s_i = i^-decay."""

    size: int
    decay: float

    def num_features(self, num_columns: int) -> int:
        return self.size

    def prepare(self, num_columns: int) -> Callable[[Block], FloatArray]:
        orders = np.arange(1.0, self.size + 1)
        heights = np.sqrt(2.0 * orders**-self.decay)

        def phi(block: Block) -> FloatArray:
            return np.asarray(np.cos(np.pi * as_dense(block) * orders) * heights)

        return phi


@dataclass(frozen=True)
class KnownKernel:
    """A kernel and a target with this r and gamma."""

    r: float
    gamma: float

    @property
    def label(self) -> str:
        return f"r = {self.r:.3g}, γ = {self.gamma:.3g}"

    @property
    def spectrum(self) -> FloatArray:
        return np.asarray(np.arange(1.0, FEATURES + 1) ** (-1.0 / self.gamma))

    @property
    def target(self) -> FloatArray:
        """theta; its signs are random, or the target would have a peak at 0."""
        signs = generator(0, "known kernel").choice([-1.0, 1.0], FEATURES)
        return np.asarray(signs * self.spectrum**self.r * np.arange(1.0, FEATURES + 1) ** -SUMMABLE)

    @property
    def rate(self) -> float:
        """The claimed exponent of N in the excess risk."""
        return -2 * self.r / (2 * self.r + self.gamma)

    def strength(self, samples: int) -> float:
        return float(samples ** (-1.0 / (2 * self.r + self.gamma)))

    def dimension_power(self, samples: int) -> float:
        """N^(gamma / (2 r + gamma)), the claimed sketch size."""
        return float(samples ** (self.gamma / (2 * self.r + self.gamma)))

    def rounds(self, samples: int) -> int:
        return int(np.ceil(-self.rate * np.log(samples)))

    def excess_risk(self, coefficients: FloatArray) -> float:
        return float(((np.sqrt(self.spectrum) * coefficients - self.target) ** 2).sum())

    def expected_risk(self, samples: int) -> float:
        """Bias and variance of ridge regression to first order, as if the sampled covariance were the true one."""
        kept = self.spectrum / (self.spectrum + self.strength(samples))
        return float((((1 - kept) * self.target) ** 2).sum() + NOISE**2 / samples * (kept**2).sum())

    def draw(self, samples: int, clients: int, seed: int) -> tuple[Problem, Shards]:
        """The problem and its data over mapped rows."""
        draw = generator(seed, "known kernel data", client=samples)
        x = draw.random((samples, 1))
        feature_map = Cosines(FEATURES, 1.0 / self.gamma)
        clean = feature_map.transform(x) @ (self.target / np.sqrt(self.spectrum))
        targets = clean + NOISE * draw.standard_normal(samples)
        sizes = np.diff(np.linspace(0, samples, clients + 1).astype(np.int64))
        problem = Problem(loss=Squared(), penalty=Ridge(self.strength(samples)), feature_map=feature_map)
        return problem.linearised(Shards.from_arrays(x, targets, sizes))


def exact_solution(problem: Problem, shards: Shards) -> tuple[Optimum, float]:
    """Kernel ridge regression on the pooled data in one solve, and its effective dimension."""
    pooled = shards.pooled()
    gradient, hessian = problem.gradient(np.zeros(FEATURES), pooled)[0], problem.hessian(np.zeros(FEATURES), pooled)[0]
    coefficients = problem.newton_step(np.zeros(FEATURES), gradient, hessian).step
    value = problem.evaluate(coefficients, pooled)
    curvatures = np.linalg.eigvalsh(hessian)
    dimension = float((curvatures / (curvatures + problem.penalty.strength)).sum())
    return Optimum(coefficients, value.objective, value.gradient_norm, 1), dimension
