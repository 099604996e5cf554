"""Runs watched from the optimum: how far away, how fast nearer, and fits to that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedns.core.algorithm import Algorithm
from fedns.core.history import Observer, Record
from fedns.core.types import FloatArray
from fedns.lab.paper.theorems.settings import ROUNDING, Setting
from fedns.simulation.simulator import simulate


@dataclass(frozen=True, eq=False)
class Path:
    """One run, round by round from the start."""

    distances: FloatArray  # |w_t - w*|
    hessian_distances: FloatArray  # |w_t - w*|_H, with H the Hessian at the optimum
    steps: FloatArray  # the step lengths taken, one fewer

    @property
    def factors(self) -> FloatArray:
        """|w_t - w*|_H / |w_(t-1) - w*|_H for t = 1, 2, ..."""
        return self.hessian_distances[1:] / self.hessian_distances[:-1]

    def usable(self, below: float) -> NDArray[np.bool_]:
        """Rounds that begin nearer than `below` and end above rounding, both in units of the first distance, as a mask."""
        relative = self.hessian_distances / self.hessian_distances[0]
        return np.asarray((relative[:-1] <= below) & (relative[1:] > ROUNDING))

    def rounds_to(self, distance: float) -> float:
        """Rounds until |w - w*| has fallen to this, interpolated on the logarithm; infinite where it never does."""
        reached = np.flatnonzero(self.distances <= distance)
        if not reached.size:
            return float("inf")
        t = int(reached[0])
        if t == 0:
            return 0.0
        before, after = np.log(self.distances[t - 1]), np.log(max(self.distances[t], 1e-300))
        return float(t - 1 + (before - np.log(distance)) / (before - after))


class StepsObserver(Observer):
    """Keeps the coefficients and the step length of every round."""

    def __init__(self) -> None:
        self.coefficients: list[FloatArray] = []
        self.steps: list[float] = []

    def on_round(self, record: Record, state: Any) -> None:
        self.coefficients.append(np.array(state.coefficients))
        self.steps.append(record.diagnostics.get("step_size", 1.0))


def follow(setting: Setting, algorithm: Algorithm, rounds: int, seed: int, start: FloatArray | None = None) -> Path:
    """Run a method and keep how far from the optimum it was after every round."""
    watcher = StepsObserver()
    # Rounds are of a few milliseconds: a second thread would wait for longer than it works.
    simulate(
        algorithm,
        setting.problem,
        setting.shards,
        rounds=rounds,
        seed=seed,
        optimum=setting.optimum,
        start=start,
        gradient_tol=setting.rounding_gradient,
        threads=1,
        observers=[watcher],
    )
    errors = np.array(watcher.coefficients) - setting.optimum.coefficients
    in_hessian = np.sqrt(np.einsum("ti,ij,tj->t", errors, setting.hessian, errors))
    return Path(np.linalg.norm(errors, axis=1), in_hessian, np.array(watcher.steps[1:]))


def follow_seeds(setting: Setting, algorithm: Algorithm, rounds: int, seeds: int) -> list[Path]:
    """A run for every seed."""
    return [follow(setting, algorithm, rounds, seed) for seed in range(seeds)]


@dataclass(frozen=True)
class PowerLaw:
    """y = constant x^exponent."""

    exponent: float
    constant: float
    error: float  # the exponent's standard error

    def __call__(self, x: ArrayLike) -> FloatArray:
        return np.asarray(self.constant * np.asarray(x, dtype=np.float64) ** self.exponent)


def fit_power(x: Sequence[float] | FloatArray, y: Sequence[float] | FloatArray) -> PowerLaw:
    """Least squares on logarithms."""
    horizontal, vertical = np.log(np.asarray(x, dtype=np.float64)), np.log(np.asarray(y, dtype=np.float64))
    centred = horizontal - horizontal.mean()
    spread = float(centred @ centred)
    exponent = float(centred @ vertical) / spread
    # By hand: scipy's error is that of a correlation, 2e-8 where there is none.
    residuals = vertical - vertical.mean() - exponent * centred
    error = float(np.sqrt(residuals @ residuals / max(1, len(residuals) - 2) / spread))
    return PowerLaw(exponent, float(np.exp(vertical.mean() - exponent * horizontal.mean())), error)


def geometric_mean(values: Sequence[float] | FloatArray) -> float:
    """The exponential of the mean logarithm."""
    return float(np.exp(np.log(np.asarray(values)).mean()))
