"""Five-line versions of what clients do by themselves, in plain numpy on dense rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import expit
from tests.conftest import dense_features, make_shards

import fedns
from fedns.core.cohort import Session
from fedns.core.messages.encoding import Envelope, decode, encode
from fedns.core.shards import Shards
from fedns.simulation.simulator import SimulatedCohort

# (sparse, intercept, weighted): clients of 1, 90, 7, 150 and 52 rows in each
VARIANTS = [(False, False, False), (True, False, True), (False, True, True), (True, True, False)]


class Client(NamedTuple):
    """A client's mean logistic loss plus the penalty, written out."""

    x: np.ndarray
    y: np.ndarray
    s: np.ndarray  # sample weights, summing to 1
    penalty: np.ndarray  # diagonal

    def value(self, w):
        return self.s @ np.logaddexp(0, -self.y * (self.x @ w)) + 0.5 * self.penalty @ w**2

    def gradient(self, w):
        return self.x.T @ (self.s * -self.y * expit(-self.y * (self.x @ w))) + self.penalty * w

    def hessian(self, w):
        z = self.x @ w
        return self.x.T @ ((self.s * expit(z) * expit(-z))[:, None] * self.x) + np.diag(self.penalty)

    def newton(self, w):
        return -np.linalg.solve(self.hessian(w), self.gradient(w))


def problem_and_clients(variant, strength=1e-2):
    """The same data as shards, and as oracle clients with their weights p_j."""
    sparse, intercept, weighted = variant
    problem = fedns.Problem(penalty=fedns.Ridge(strength), intercept=intercept)
    shards = make_shards(sparse=sparse, weighted=weighted)
    return problem, shards, *oracle_clients(problem, shards)


def oracle_clients(problem: fedns.Problem, shards: Shards):
    x = dense_features(shards)
    if problem.intercept:
        x = np.hstack([x, np.ones((len(x), 1))])
    weights = np.ones(len(x)) if shards.sample_weights is None else shards.sample_weights
    penalty = np.full(x.shape[1], problem.penalty.strength)
    penalty[x.shape[1] - int(problem.intercept) :] = 0.0
    parts = [slice(a, b) for a, b in zip(shards.starts, shards.stops, strict=True)]
    clients = [Client(x[p], shards.targets[p], weights[p] / weights[p].sum(), penalty) for p in parts]
    shares = np.array([weights[p].sum() for p in parts])
    return clients, shares / shares.sum()


def armijo(value, w, d, slope):
    """The largest of 1, 1/2, ..., 2^-11 that decreases enough."""
    steps = 0.5 ** np.arange(12.0)
    passing = [t for t in steps if value(w + t * d) <= value(w) + 0.1 * t * slope + 1e-14 * max(1.0, abs(value(w)))]
    return passing[0] if passing else steps[-1]


def after(method, problem, shards, rounds, **settings):
    """The coefficients after so many rounds from zero."""
    return fedns.simulate(method, problem, shards, rounds=rounds, **settings).coefficients


def assert_checkpoint_continues(method, problem, shards, rounds=3):
    """A state written to bytes and read back goes on to the same bits."""
    results = []
    for through_bytes in (False, True):
        cohort = SimulatedCohort(shards, Session(problem, 3))
        state = method.init(problem, cohort)
        for number in range(1, rounds + 1):
            cohort.session.round = number
            if through_bytes:
                state, _ = decode(type(state), encode(state, Envelope(0), np.dtype("<f8")))
            state = method.round(problem, state, cohort).state
        results.append(encode(state, Envelope(0), np.dtype("<f8")))
    assert results[0] == results[1]
