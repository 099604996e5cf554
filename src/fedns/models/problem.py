"""The objective F(w) = sum_j p_j f_j(w) + alpha(w), where f_j is the mean loss of client j and alpha the penalty."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedns.core.checked import Checked
from fedns.core.errors import ConfigError
from fedns.core.problem import Evaluation, Penalty
from fedns.core.shards import Shards
from fedns.core.types import FloatArray, Keys
from fedns.models.loss import Loss
from fedns.models.losses import Logistic
from fedns.models.maps.feature_map import FeatureMap, Identity
from fedns.models.penalties import Ridge
from fedns.numerics.backend import Backend, LocalSteps, SketchPlan
from fedns.numerics.backends.devices import default
from fedns.numerics.backends.guarded import within
from fedns.numerics.backends.offset import OffsetBackend
from fedns.numerics.linalg import LowRank, solve_from_triangle, solve_shifted, symmetric_of


class NewtonStep(NamedTuple):
    """A Newton step and its slope; the decrement is the square root of minus the slope."""

    step: FloatArray  # (features,)
    directional_derivative: float  # gradient . step, <= 0

    @property
    def newton_decrement(self) -> float:
        return float(np.sqrt(max(0.0, -self.directional_derivative)))


class DesignBlock(NamedTuple):
    """Some rows of one client as the coefficients see them: an intercept's 1 included, an offset only in the margins."""

    features: FloatArray  # (rows, features)
    margins: FloatArray  # (rows,), of a loss with several outputs (rows, outputs)
    targets: FloatArray  # (rows,)
    weights: FloatArray  # (rows,)


@dataclass(frozen=True)
class Problem(Checked):
    """Loss, penalty and model. With an intercept, the last coefficient belongs to a constant 1 and is not penalised.

    Methods that take shards return the data term of each client, with a leading client axis; the penalty is the server's.
    Their coefficients are one vector for all clients, (features,), or one for each, (clients, features).

    - loss: fedns.Logistic() by default, fedns.Squared(), or another fedns.Loss.
    - penalty: fedns.Ridge(1e-3) by default, fedns.PseudoHuber(1e-3), or another fedns.Penalty.
    - intercept: add a coefficient for a constant 1.
    - feature_map: what is done to rows before the linear model: fedns.Identity() by default, RandomFourier, Nystroem, ...
    - backend: what passes over the rows; the processor's by default.
    - offset: the last column of the rows is added to every margin and has no coefficient.
    """

    example: ClassVar[str] = "fedns.Problem()"
    loss: Loss = field(default_factory=Logistic)
    penalty: Penalty = field(default_factory=Ridge)
    intercept: bool = False
    feature_map: FeatureMap = field(default_factory=Identity)
    backend: Backend = field(default_factory=default, repr=False, compare=False)  # what the passes over rows run on
    offset: bool = False  # the last column of the rows is added to every margin and has no coefficient

    def __post_init__(self) -> None:
        if self.offset and self.loss.outputs > 1:
            raise ConfigError(f"an offset is added to one margin, and the {self.loss.name} loss has {self.loss.outputs}")
        if self.intercept and not self.loss.takes_intercept:
            raise ConfigError(f"the {self.loss.name} loss does not change with a constant: leave the intercept out")

    @cached_property
    def passes(self) -> Backend:
        """The passes over the rows for this loss."""
        return within(self.backend, self._passes_of)

    def _passes_of(self, backend: Backend) -> Backend:
        passes = self.loss.passes(backend)
        return OffsetBackend(passes) if self.offset else passes

    def num_features(self, num_columns: int) -> int:
        """How many coefficients there are, those of several outputs one after the other."""
        each = self.feature_map.num_features(num_columns) - int(self.offset) + int(self.intercept)
        return each * self.loss.outputs

    def root_sizes(self, shards: Shards) -> NDArray[np.int64]:
        """How many rows the root of each client's Hessian has; no Hessian has a larger rank."""
        return shards.sizes if self.loss.root_rows == 1 else shards.sizes * self.loss.root_rows

    def wide(self, shards: Shards) -> NDArray[np.bool_]:
        """Which clients' Hessians are better held as roots, which have fewer rows than there are coefficients."""
        fewer = self.root_sizes(shards) < self.num_features(shards.num_columns)
        return fewer & self.loss.has_root

    def linearised(self, shards: Shards) -> tuple[Problem, Shards]:
        """The same problem over mapped rows: the map is applied once, and all that follows sees a linear model."""
        return replace(self, feature_map=Identity()), self.feature_map.apply(shards)

    def losses_along(self, w: FloatArray, direction: FloatArray, steps: FloatArray, shards: Shards) -> FloatArray:
        """f_j(w + t direction) for each t in steps: (clients, steps), reading the rows once."""
        return self.passes.losses_along(self.loss, shards, w, direction, steps)

    def value(self, w: FloatArray, shards: Shards) -> FloatArray:
        """f_j(w): (clients,)."""
        return self.losses_along(w, np.zeros_like(w), np.zeros(1), shards)[:, 0]

    def gradient(self, w: FloatArray, shards: Shards) -> FloatArray:
        """grad f_j(w): (clients, features)."""
        return self.passes.gradient(self.loss, shards, w)

    def value_and_gradient(self, w: FloatArray, shards: Shards) -> tuple[FloatArray, FloatArray]:
        """f_j(w) and grad f_j(w): (clients,), (clients, features), reading the rows once."""
        return self.passes.value_and_gradient(self.loss, shards, w)

    def gradient_and_hessian(self, w: FloatArray, shards: Shards) -> tuple[FloatArray, FloatArray]:
        """grad f_j(w) and the packed upper triangle of its Hessian: (clients, features), (clients, entries)."""
        return self.passes.gradient_and_hessian(self.loss, shards, w)

    def hessian_times(self, w: FloatArray, vectors: FloatArray, shards: Shards) -> FloatArray:
        """The Hessian of f_j at w times each of V vectors (clients or 1, V, features): (clients, V, features)."""
        return self.passes.hessian_times(self.loss, shards, w, vectors)

    def gradient_and_sketch(
        self, w: FloatArray, shards: Shards, plan: SketchPlan, keys: Keys
    ) -> tuple[FloatArray, FloatArray, NDArray[np.int64]]:
        """grad f_j(w), and S_j A_j(w) for the root A_j' A_j of its Hessian, back to back, with the clients' offsets.

        Client j's sketch has plan.sizes[j] rows; the rows are read once for both.
        """
        gradient, sketched = self.passes.gradient_and_sketch(self.loss, shards, w, plan, keys)
        return gradient, sketched, plan.offsets

    def local_steps(self, w: FloatArray, shards: Shards, local: LocalSteps, keys: Keys) -> FloatArray:
        """Where mini-batch steps lead that each client takes by itself: (clients, features)."""
        return self.passes.local_steps(self.loss, shards, w, local, keys)

    def design_blocks(self, w: FloatArray, shards: Shards) -> Iterator[DesignBlock]:
        """The rows of the first client, some thousand at a time, with their margins at w; for what no pass adds up."""
        last = shards.num_columns - 1
        at_once = 4096 if self.loss.has_root else max(1, shards.num_samples)  # without a root a row is nothing by itself
        for start, stop, values in self.passes.blocks(self.loss, shards, w, at_once):
            offsets = values[:, last] if self.offset else 0.0
            columns = [values[:, :last] if self.offset else values, *([np.ones((len(values), 1))] if self.intercept else [])]
            features = np.hstack(columns)
            weights = np.ones(len(values)) if shards.sample_weights is None else shards.sample_weights[start:stop]
            margins = features @ (w if self.loss.outputs == 1 else w.reshape(self.loss.outputs, -1).T) + offsets
            yield DesignBlock(features, margins, shards.targets[start:stop], weights)

    def row_scores(self, w: FloatArray, shards: Shards) -> Iterator[tuple[FloatArray, FloatArray]]:
        """What rows of the first client add to its gradient, (rows, features), and their weights, some rows at a time."""
        for block in self.design_blocks(w, shards):
            yield self.loss.row_scores(*block), block.weights

    def before_rows_are_read(self) -> None:
        """Say that rows are read next by other means than a pass of this class; a site's watch may refuse."""
        self.backend.before_rows_are_read()

    def before_counts_leave(self, counts: NDArray[np.int64]) -> None:
        """Say how many rows are in every cell of tables that leave, (tables, ...); a site's watch may refuse."""
        self.backend.before_counts_leave(counts)

    def _penalty_weights(self, num_features: int) -> FloatArray:
        """The strength of the penalty on each coefficient; 0 for the intercept of every output."""
        weights = np.full(num_features // self.loss.outputs, self.penalty.strength)
        if self.penalty.factors:
            weights[: len(self.penalty.factors)] *= self.penalty.factors
        if self.intercept:
            weights[-1] = 0.0
        return weights if self.loss.outputs == 1 else np.tile(weights, self.loss.outputs)

    def penalty_value(self, w: FloatArray) -> float:
        """alpha(w)."""
        return float(self._penalty_weights(w.size) @ self.penalty.value(w))

    def penalty_along(self, w: FloatArray, direction: FloatArray, steps: FloatArray) -> FloatArray:
        """alpha(w + t direction) for each t in steps: (steps,), or (clients, steps) for one w for each client."""
        if w.ndim == 1:
            return np.array([self.penalty_value(w + t * direction) for t in steps])
        weights = self._penalty_weights(w.shape[-1])
        return np.stack([np.sum(weights * self.penalty.value(w + t * direction), axis=1) for t in steps], axis=1)

    def penalty_gradient(self, w: FloatArray) -> FloatArray:
        """grad alpha(w), of the shape of w."""
        return np.asarray(self._penalty_weights(w.shape[-1]) * self.penalty.slope(w))

    def penalty_curvature(self, w: FloatArray) -> FloatArray:
        """The diagonal of the Hessian of alpha at w, which has no other entries; of the shape of w."""
        return np.asarray(self._penalty_weights(w.shape[-1]) * self.penalty.curvature(w))

    def newton_step(self, w: FloatArray, gradient: FloatArray, hessian: FloatArray | LowRank) -> NewtonStep:
        """The step -(hessian + penalty)^-1 (gradient + penalty) from the data's gradient and its whole or packed Hessian."""
        diagonal, full_gradient = self.penalty_curvature(w), gradient + self.penalty_gradient(w)
        if isinstance(hessian, np.ndarray) and hessian.ndim == 1:
            step = -solve_from_triangle(hessian, diagonal, full_gradient)
        else:
            step = -solve_shifted(hessian, diagonal, full_gradient)
        return NewtonStep(step, float(full_gradient @ step))

    def evaluate(self, w: FloatArray, shards: Shards) -> Evaluation:
        """The pooled objective and gradient norm."""
        weights = shards.total_weights / shards.total_weights.sum()
        return self.combine(weights, *self.value_and_gradient(w, shards), w)

    def combine(self, weights: FloatArray, values: FloatArray, gradients: FloatArray, w: FloatArray) -> Evaluation:
        """The objective and gradient norm from the data terms of clients with these weights."""
        gradient = weights @ gradients + self.penalty_gradient(w)
        return Evaluation(float(weights @ values) + self.penalty_value(w), float(np.linalg.norm(gradient)))

    def hessian(self, w: FloatArray, shards: Shards) -> FloatArray:
        """The Hessian of each client's mean loss: (clients, features, features)."""
        return symmetric_of(self.gradient_and_hessian(w, shards)[1], w.shape[-1])
