"""The effective dimension d_lambda = sup_w Tr(H(w) (H(w) + lambda I)^-1), with H(w) the Hessian of the mean loss.

The trace grows with H, and the curvature of a loss is largest at margin 0 (logistic: 1/4) or constant (squared: 1), so that
H(w) <= H(0) and w = 0 attains the supremum; that of the Poisson loss has no bound, and w must be given. The paper prints the
penalty as lambda |w|^2; here lambda is the strength of (strength / 2) |w|^2, whose Hessian is strength I.

An intercept is not penalised: with P the Hessian of the penalty, d = Tr(H (H + P)^-1) counts it as one whole dimension, plus
the effective dimension of the other columns after the intercept has been projected out of them. With a penalty that is not
quadratic P is that at w.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from fedns.core.checked import Count, checked
from fedns.core.clients import Clients, on_client
from fedns.core.cohort import Cohort
from fedns.core.errors import ConfigError
from fedns.core.messages import Message, Payload, Ragged, wire
from fedns.core.shards import Shards
from fedns.core.types import FloatArray
from fedns.models.problem import Problem
from fedns.numerics.backend import COLUMNS, SketchPlan
from fedns.numerics.linalg import single_threaded_blas, symmetric_of
from fedns.numerics.rng import stream_keys
from fedns.sketches import Gaussian

_CLIENTS_AT_ONCE = 16  # packed Hessians in memory


@dataclass(frozen=True)
class DimensionEstimate:
    """An estimate of d_lambda and what it took."""

    value: float
    sketch_rows: int  # vectors of M numbers that all clients together sent
    exchanges: int


class CurvatureProbe(Message):
    """Where to take the curvature, and how many random combinations of its root's rows to send per unit of weight."""

    coefficients: Payload = wire("features")
    rows_per_weight: Payload = wire(dtype="float64")
    seed: Payload = wire(dtype="int64")
    attempt: Payload = wire(dtype="int64")


class CurvatureSample(Message):
    """S A for the root A of a client's Hessian and a Gaussian S: each row a random combination of all the client's rows."""

    sketched_root: Payload = wire("rows", "features", ragged=True, discloses="sketch")


@checked
def effective_dimension(problem: Problem, shards: Shards, w: FloatArray | None = None) -> float:
    """Tr(H (H + P)^-1) from the Hessian of all rows, at w = 0, where it is largest, unless another w is given.

    Exact up to about M epsilon |H| / lambda: columns of very different units cost digits. Without a penalty it is the rank.

    - problem: loss, penalty and feature map.
    - shards: the rows of all clients.
    - w: coefficients at which the Hessian is taken.
    """
    problem, shards = problem.linearised(shards)
    features = problem.num_features(shards.num_columns)
    point = _point(w, features)
    weights = shards.total_weights / shards.total_weights.sum()
    total = np.zeros(features * (features + 1) // 2)
    for first in range(0, shards.num_clients, _CLIENTS_AT_ONCE):
        chosen = np.arange(first, min(first + _CLIENTS_AT_ONCE, shards.num_clients))
        total += weights[chosen] @ problem.gradient_and_hessian(point, shards.select(chosen))[1]
    return _dimension(symmetric_of(total, features), problem.penalty_curvature(point))


def _point(w: FloatArray | None, features: int) -> FloatArray:
    point = np.zeros(features) if w is None else np.asarray(w, dtype=np.float64)
    if point.shape != (features,) or not np.isfinite(point).all():
        raise ConfigError(f"w must be {features} finite numbers, got an array of shape {point.shape}")
    return point


@on_client(CurvatureProbe, CurvatureSample)
def curvature_sample(problem: Problem, clients: Clients, request: CurvatureProbe) -> CurvatureSample:
    shards = clients.shards
    sizes = np.ceil(shards.total_weights * float(request.rows_per_weight)).astype(np.int64)
    plan = SketchPlan(COLUMNS, np.maximum(1, sizes), columns=Gaussian(1))  # a formula, whatever the rows
    keys = stream_keys(int(request.seed), "effective dimension", int(request.attempt), clients.ids)
    _, rows, offsets = problem.gradient_and_sketch(request.coefficients, shards, plan, keys)
    return CurvatureSample(sketched_root=Ragged(rows, offsets))


@checked
def estimate_effective_dimension(
    problem: Problem,
    cohort: Cohort,
    w: FloatArray | None = None,
    *,
    rows: Count = 64,
    rows_per_dimension: float = 3.0,
    seed: int = 0,
) -> DimensionEstimate:
    """d_lambda from about 3 to 6 d_lambda sketched rows of all clients together, instead of their M^2 / 2 numbers each.

    Client j sends max(1, p_j rows) Gaussian combinations of the rows of its root A_j. If the estimate is more than a third
    (1 / rows_per_dimension) of the rows that came, as many rows again are asked for. Nothing is assumed of the number of
    samples: a client with a single one sends random multiples of it.

    - problem: loss, penalty and feature map.
    - cohort: the clients, for example fedns.simulated_cohort(problem, shards).
    - w: coefficients at which the Hessian is taken; zeros unless given.
    - rows: sketched rows of all clients together in the first exchange, at least 1.
    - rows_per_dimension: rows wanted for each unit of the estimate.
    - seed: of the random combinations.
    """
    if not rows_per_dimension >= 1.5:
        raise ConfigError(f"rows_per_dimension must be >= 1.5 for the correction to be stable, got {rows_per_dimension}")
    point = _point(w, cohort.num_features)
    penalty = problem.penalty_curvature(point)
    samples = np.empty((0, cohort.num_features))
    owners = np.empty(0, dtype=np.int64)
    attempt = 0
    with single_threaded_blas():
        while True:
            asked = max(rows, len(samples)) / cohort.total_weights.sum()
            probe = CurvatureProbe(point, np.float64(asked), np.int64(seed), np.int64(attempt))
            attempt += 1
            more, theirs = _collect(cohort, probe)
            samples, owners = np.concatenate([samples, more]), np.concatenate([owners, theirs])
            value = _corrected(penalty, samples, owners, cohort.weights, rows_per_dimension)
            if value is not None:
                return DimensionEstimate(value, len(samples), attempt)


def _collect(cohort: Cohort, probe: CurvatureProbe) -> tuple[FloatArray, NDArray[np.int64]]:
    """Rows with covariance H_j, not H_j / k_j, so that those of several exchanges can be put together; and their clients."""
    parts, owners = [], []
    for positions, batch in cohort.ask(curvature_sample, probe):
        counts = batch.sketched_root.counts
        parts.append(batch.sketched_root.values * np.sqrt(np.repeat(counts, counts))[:, None])
        owners.append(np.repeat(np.arange(positions.start, positions.stop), counts))
    return np.concatenate(parts), np.concatenate(owners)


def _corrected(
    penalty: FloatArray, samples: FloatArray, owners: NDArray[np.int64], weights: FloatArray, rows_per_dimension: float
) -> float | None:
    """The d for which sketches of a Hessian with this d look like these; None where there are too few rows to tell.

    For s Gaussian rows z of covariance H, let H_c = c sum z z' / s. Its resolvent R = (H_c + P)^-1 is on average that of
    c H / (1 + c Tr(H R) / s) (Marchenko and Pastur 1967; for sketches LeJeune et al. 2022): with c = 1 sketches look too
    flat. With c = 1 / (1 - d / s) it is that of H, so that d solves d = Tr(H_c R). For client j's rows, of weight p_j / k_j
    each, d p_j / k_j stands for d / s, as if its Hessian were that of all.
    """
    shares = (weights / np.bincount(owners, minlength=weights.size))[owners]  # p_j / k_j, (rows,)
    highest = 1.0 / (rows_per_dimension * shares.max())

    def excess(d: float) -> float:
        scaled = samples * np.sqrt(shares / (1.0 - d * shares))[:, None]
        return _dimension(scaled.T @ scaled, penalty) - d

    if excess(highest) > 0:
        return None
    return float(brentq(excess, 0.0, highest, xtol=1e-8))


def _dimension(hessian: FloatArray, penalty: FloatArray) -> float:
    """Tr(H (H + P)^-1) for P = diag(penalty), with the columns F that are not penalised projected out of the others.

    It is rank(H_FF) + sum_i s_i / (s_i + 1) over the eigenvalues of P^-1/2 (H_PP - H_PF H_FF^-1 H_FP) P^-1/2.
    """
    free, held = np.flatnonzero(penalty == 0), np.flatnonzero(penalty)
    rounding = max(free.size, 1) * np.finfo(np.float64).eps
    alone, cross = hessian[np.ix_(free, free)], hessian[np.ix_(free, held)]
    values = np.linalg.eigvalsh(alone)
    rank = float((values > values.max(initial=0.0) * rounding).sum())
    rest = hessian[np.ix_(held, held)] - cross.T @ np.linalg.pinv(alone, rounding, hermitian=True) @ cross
    values = np.maximum(np.linalg.eigvalsh(rest / np.sqrt(np.outer(penalty[held], penalty[held]))), 0.0)
    return rank + float((values / (values + 1.0)).sum())
