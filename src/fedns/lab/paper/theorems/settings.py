"""The problems that theorems 1 and 2 are measured on, with all that a theorem speaks of worked out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse

from fedns.core.shards import Shards
from fedns.core.types import FloatArray
from fedns.lab.data.catalogue import archives
from fedns.lab.data.datasets import load
from fedns.lab.data.partition import split
from fedns.lab.paper import STRENGTH
from fedns.methods.exchanges.effective_dimension import effective_dimension
from fedns.models.losses import Squared
from fedns.models.penalties import Ridge
from fedns.models.problem import Problem
from fedns.models.reference import Optimum, pooled_optimum
from fedns.numerics.rng import generator
from fedns.sketches.srht import next_power_of_two

ROUNDING = 1e-12  # of the first distance: nearer to the optimum than that, factors measure rounding
RIDGE_STRENGTH = 1e-2
_LARGEST_THIRD_DERIVATIVE = 1 / (6 * np.sqrt(3))  # of log(1 + exp(-z))


@dataclass(frozen=True, eq=False)
class Setting:
    """A problem over clients, its optimum and its curvature there."""

    name: str
    problem: Problem
    shards: Shards
    optimum: Optimum
    largest_row: float  # the norm of the longest row

    @property
    def label(self) -> str:
        return f"{self.name}, m = {self.clients}"

    @property
    def clients(self) -> int:
        return self.shards.num_clients

    @property
    def features(self) -> int:
        return int(self.optimum.coefficients.size)

    @property
    def rows_padded(self) -> int:
        """The smallest client's rows, padded as SRHT does: a sketch of that size is exact."""
        return next_power_of_two(int(self.shards.sizes.min()))

    @property
    def quadratic(self) -> bool:
        return isinstance(self.problem.loss, Squared)

    @property
    def local(self) -> float:
        """The part of the first distance below which a round's factor is the sketch's error, and not Newton's own."""
        return 0.1 if self.quadratic else 0.01

    @cached_property
    def hessian(self) -> FloatArray:
        """At the optimum, with the penalty's."""
        data = self.problem.hessian(self.optimum.coefficients, self.shards.pooled())[0]
        return np.asarray(data + np.diag(self.problem.penalty_curvature(self.optimum.coefficients)))

    @cached_property
    def dimension(self) -> float:
        """d_lambda as the paper defines it, the supremum over all coefficients."""
        return effective_dimension(self.problem, self.shards)

    @cached_property
    def local_dimension(self) -> float:
        """d_lambda at the optimum, which is what the last rounds meet."""
        return effective_dimension(self.problem, self.shards, self.optimum.coefficients)

    @cached_property
    def curvatures(self) -> FloatArray:
        """The eigenvalues of the Hessian at the optimum, increasing: gamma is the first, beta the last."""
        return np.asarray(np.linalg.eigvalsh(self.hessian), dtype=np.float64)

    @property
    def rounding_gradient(self) -> float:
        """A gradient this small means a distance below rounding, since |g| >= sqrt(gamma) |w - w*|_H."""
        w = self.optimum.coefficients
        return float(ROUNDING * np.sqrt(self.curvatures[0] * (w @ self.hessian @ w)))

    @property
    def condition(self) -> float:
        """beta / gamma."""
        return float(self.curvatures[-1] / self.curvatures[0])

    @cached_property
    def safe_radius(self) -> float:
        """gamma / (8 G): how near Theorem 1 wants the start at the least, with G bounded by the largest row."""
        if self.quadratic:
            return float("inf")
        at_zero = np.linalg.eigvalsh(self.problem.hessian(np.zeros(self.features), self.shards.pooled())[0])
        # The curvature at 0 is a quarter of the rows' second moment.
        lipschitz = _LARGEST_THIRD_DERIVATIVE * self.largest_row * 4 * at_zero[-1]
        return float(self.curvatures[0] / (8 * lipschitz))


def has_phishing() -> bool:
    return "phishing" in archives()


def logistic_setting(clients: int, seed: int = 0) -> Setting:
    """Phishing with the paper's penalty, or the embedded digits where phishing is not at hand."""
    name = "phishing" if has_phishing() else "digits"
    features, targets = load(name)
    dense = features.toarray() if scipy.sparse.issparse(features) else features
    if name == "digits":
        dense = dense / np.abs(dense).max()
    problem = Problem(penalty=Ridge(STRENGTH))
    return _setting(f"{name}, logistic", problem, split(dense, targets, clients, "iid", seed), dense)


def ridge_setting(clients: int, rows: int = 8192, columns: int = 64, seed: int = 0) -> Setting:
    """Ridge regression whose Hessian has the eigenvalues i^-2 to rounding, so that d_lambda is known beforehand."""
    draw = generator(seed, "ridge with a known spectrum")
    orthonormal, _ = np.linalg.qr(draw.standard_normal((rows, columns)))
    dense = orthonormal * np.sqrt(rows * np.arange(1.0, columns + 1) ** -2.0)
    targets = dense @ draw.standard_normal(columns) + draw.standard_normal(rows)
    problem = Problem(loss=Squared(), penalty=Ridge(RIDGE_STRENGTH))
    return _setting("known spectrum, ridge", problem, split(dense, targets, clients, "contiguous"), dense)


def _setting(name: str, problem: Problem, shards: Shards, dense: FloatArray) -> Setting:
    largest = float(np.linalg.norm(dense, axis=1).max())
    return Setting(name, problem, shards, pooled_optimum(problem, shards), largest)
