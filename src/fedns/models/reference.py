"""The pooled optimum that every gap subtracts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedns.core.checked import checked
from fedns.core.errors import DataError
from fedns.core.shards import Shards
from fedns.core.types import FloatArray
from fedns.models.problem import Problem
from fedns.numerics.linalg import symmetric_of

_ROUNDS = 200
_SMALL_STEP = 1e-6
_ROUNDING = 1e-12  # of the largest curvature
_HALVINGS = 2.0 ** -np.arange(30.0)
_WIDE = 4096  # columns beyond which no Hessian is written out: it would take 134 MB, and grow with the square
_MOST_PRODUCTS, _LEAST_LEFT = 2000, 1e-8  # of conjugate gradients, in a step


@dataclass(frozen=True)
class Optimum:
    """The minimiser on the union of the data.

    - coefficients: (features,).
    - value: F*.
    - relative_gradient: norm of the gradient in units of the root curvature at 0.
    - rounds: Newton steps that it took.
    """

    coefficients: FloatArray
    value: float
    relative_gradient: float  # norm of the gradient in units of the root curvature at 0: free of the columns' scales
    rounds: int


@checked
def pooled_optimum(problem: Problem, shards: Shards, tolerance: float = 1e-12) -> Optimum:
    """Newton's method with a line search on all rows, until the gradient is below the tolerance and stops shrinking.

    - problem: the objective.
    - shards: the rows of all clients.
    - tolerance: of the relative gradient.
    """
    problem.loss.check(shards)
    problem, shards = problem.linearised(shards)
    pooled = shards.pooled()
    w = np.zeros(problem.num_features(shards.num_columns))
    scale: FloatArray | None = None
    best: tuple[float, FloatArray, float] | None = None
    rounds = 0
    while rounds < _ROUNDS:
        diagonal = problem.penalty_curvature(w)
        if w.size <= _WIDE:
            data_gradient, packed = problem.gradient_and_hessian(w, pooled)
            hessian = symmetric_of(packed[0], w.size)
            curvatures = np.diag(hessian) + diagonal
            gradient = data_gradient[0] + problem.penalty_gradient(w)
            step, slope = problem.newton_step(w, data_gradient[0], hessian)
        else:
            gradient = problem.gradient(w, pooled)[0] + problem.penalty_gradient(w)
            curvatures = _mean_squares(problem, pooled) + diagonal
            scale = _units(curvatures) if scale is None else scale
            step, slope = _step_without_hessian(problem, pooled, w, gradient, scale)
        length = float(np.linalg.norm(gradient) * np.linalg.norm(step))
        if not (slope <= _ROUNDING * length and (curvatures >= -_ROUNDING * np.abs(curvatures).max()).all()):
            raise DataError(
                f"the {problem.loss.name} loss is not convex on these rows: after {rounds} Newton steps its Hessian has a "
                "direction of negative curvature, or is no number; there is no pooled optimum to measure gaps from"
            )
        # The unit of coordinate c is the root of its curvature at the start: it does not depend on the column's scale.
        scale = _units(np.maximum(curvatures, 0.0)) if scale is None else scale
        relative = float(np.linalg.norm(gradient / scale))
        improved = best is None or relative < 0.5 * best[0]
        if best is None or relative < best[0]:
            best = (relative, w, float(np.linalg.norm(scale * step) / (1.0 + np.linalg.norm(scale * w))))
        if not improved and best[0] <= tolerance * _unit(problem, pooled, best[1]):
            break
        w = w + _line_search(problem, pooled, w, step, slope) * step
        rounds += 1
    assert best is not None
    relative, w, step_left = best
    # Where classes can be separated the gradient fades too, but the steps do not: the optimum is at infinity.
    if not (relative <= tolerance * _unit(problem, pooled, w) and step_left <= _SMALL_STEP):  # nan is no optimum
        raise DataError(
            f"there is no pooled optimum within {_ROUNDS} Newton rounds (relative gradient {relative:.1e}): "
            "the classes may be separable without a penalty, use strength > 0"
        )
    return Optimum(w, _value(problem, pooled, w), relative, rounds)


def _units(curvatures: FloatArray) -> FloatArray:
    return np.where(curvatures > 0, np.sqrt(curvatures), 1.0)


def _mean_squares(problem: Problem, pooled: Shards) -> FloatArray:
    """The mean square of every column, which its curvature at 0 is a multiple of: as good a unit."""
    squares = pooled.mean_squares()[0]
    squares = np.concatenate([squares[:-1] if problem.offset else squares, [1.0] if problem.intercept else []])
    return np.tile(squares, problem.loss.outputs)


def _step_without_hessian(
    problem: Problem, pooled: Shards, w: FloatArray, gradient: FloatArray, scale: FloatArray
) -> tuple[FloatArray, float]:
    """The Newton step by conjugate gradients in units of the columns, from products with the Hessian, and its slope."""
    diagonal = problem.penalty_curvature(w)
    step, left = np.zeros_like(w), -gradient / scale
    direction, squared = left, float(left @ left)
    enough = squared * _LEAST_LEFT**2
    for _ in range(_MOST_PRODUCTS):
        if squared <= enough:
            break
        move = direction / scale
        product = (problem.hessian_times(w, move[None, None], pooled)[0, 0] + diagonal * move) / scale
        curvature = float(direction @ product)
        if curvature <= 0.0:  # rounding: nothing is left that could be told
            break
        length = squared / curvature
        step, left = step + length * move, left - length * product
        before, squared = squared, float(left @ left)
        direction = left + squared / before * direction
    return step, float(gradient @ step)


def _value(problem: Problem, pooled: Shards, w: FloatArray) -> float:
    return float(problem.value(w, pooled)[0]) + problem.penalty_value(w)


def _unit(problem: Problem, pooled: Shards, w: FloatArray) -> float:
    """What a gradient is measured in where the objective is large: rounding errors of residuals grow with its root.

    The gap that a gradient leaves is about half its square: it is a fraction tolerance^2 of the objective, not of 1.
    """
    return float(np.sqrt(max(1.0, 2.0 * abs(_value(problem, pooled, w)))))


def _line_search(problem: Problem, pooled: Shards, w: FloatArray, step: FloatArray, slope: float) -> float:
    """The largest halving of the step that decreases the objective enough; rounding is forgiven near the optimum."""
    steps = np.concatenate([[0.0], _HALVINGS])
    values = problem.losses_along(w, step, steps, pooled)[0]
    values += problem.penalty_along(w, step, steps)
    allowed = values[0] + 1e-4 * steps[1:] * slope + 1e-14 * max(1.0, abs(values[0]))
    passing = np.flatnonzero(values[1:] <= allowed)
    return float(_HALVINGS[passing[0]]) if passing.size else 0.0
