"""Gradients and Hessians of every client in plain numpy, for oracles."""

import numpy as np
from tests.conftest import dense_features

from fedns.problems.losses import Logistic


class Plain:
    """Clients of a small problem, written out."""

    def __init__(self, problem, shards):
        X = dense_features(shards)
        self.X = np.hstack([X, np.ones((len(X), 1))]) if problem.intercept else X
        self.y, self.logistic = shards.targets, isinstance(problem.loss, Logistic)
        self.s = np.ones(len(X)) if shards.sample_weights is None else shards.sample_weights
        self.parts = [slice(a, b) for a, b in zip(shards.starts, shards.stops, strict=True)]
        self.n = np.array([self.s[part].sum() for part in self.parts])
        self.p = self.n / self.n.sum()
        self.M = self.X.shape[1]
        self.penalty = np.full(self.M, problem.penalty.strength)
        if problem.intercept:
            self.penalty[-1] = 0.0

    def gradients(self, w):
        """Of each client's mean loss, without the penalty: (clients, M)."""
        z = self.X @ w
        slope = -self.y / (1 + np.exp(self.y * z)) if self.logistic else z - self.y
        return np.array([(self.s * slope)[j] @ self.X[j] / n for j, n in zip(self.parts, self.n, strict=True)])

    def hessians(self, w):
        """Of each client's mean loss, without the penalty: (clients, M, M)."""
        sigma = 1 / (1 + np.exp(-self.X @ w))
        weight = self.s * (sigma * (1 - sigma) if self.logistic else np.ones(len(sigma)))
        return np.array([(self.X[j].T * weight[j]) @ self.X[j] / n for j, n in zip(self.parts, self.n, strict=True)])

    def mean(self, values):
        return np.tensordot(self.p, values, axes=1)

    def objective(self, w):
        z = self.X @ w
        losses = np.logaddexp(0, -self.y * z) if self.logistic else (z - self.y) ** 2 / 2
        means = np.array([(self.s * losses)[j].sum() / n for j, n in zip(self.parts, self.n, strict=True)])
        return float(self.p @ means + self.penalty @ w**2 / 2)

    def search(self, w, d, slope):
        """The largest of 1, 1/2, ... with enough decrease."""
        F = self.objective(w)
        steps = 0.5 ** np.arange(12.0)
        passing = [self.objective(w + t * d) <= F + 0.1 * t * slope + 1e-14 * max(1, abs(F)) for t in steps]
        return steps[int(np.argmax(passing))] if any(passing) else steps[-1]
