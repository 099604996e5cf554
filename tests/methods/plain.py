"""Gradients and Hessians of every client in plain numpy, for oracles."""

import numpy as np
from tests.conftest import dense_features

from fedns.methods.searches import LocalSearch
from fedns.models.losses import Logistic


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

    def roots(self, w):
        """Matrices A_j, a row for every row of the client, whose A_j' A_j are the Hessians."""
        sigma = 1 / (1 + np.exp(-self.X @ w))
        weight = self.s * (sigma * (1 - sigma) if self.logistic else np.ones(len(sigma)))
        return [np.sqrt(weight[j] / n)[:, None] * self.X[j] for j, n in zip(self.parts, self.n, strict=True)]

    def newton(self, w, hessian):
        """The step -(hessian + penalty)^-1 g and g' step, for the exact gradient g of the objective."""
        g = self.mean(self.gradients(w)) + self.penalty * w
        d = -np.linalg.solve(hessian + np.diag(self.penalty), g)
        return d, g @ d

    def mean(self, values):
        return np.tensordot(self.p, values, axes=1)

    def objective(self, w):
        return float(self.p @ self.objectives(w))

    def objectives(self, w):
        """Of every client by itself, penalty included: (clients,)."""
        z = self.X @ w
        losses = np.logaddexp(0, -self.y * z) if self.logistic else (z - self.y) ** 2 / 2
        means = np.array([(self.s * losses)[j].sum() / n for j, n in zip(self.parts, self.n, strict=True)])
        return means + self.penalty @ w**2 / 2

    def search(self, w, d, slope):
        """The largest of 1, 1/2, ... with enough decrease."""
        F = self.objective(w)
        steps = 0.5 ** np.arange(12.0)
        passing = [self.objective(w + t * d) <= F + 0.1 * t * slope + 1e-14 * max(1, abs(F)) for t in steps]
        return steps[int(np.argmax(passing))] if any(passing) else 0.0

    def local_search(self, w, d, slope):
        """The smallest of the steps that clients find by themselves."""
        steps = 0.5 ** np.arange(41.0)
        passing = np.array([self.objectives(w + t * d) <= self.objectives(w) + 0.1 * t * slope for t in steps])
        return min(steps[int(np.argmax(column))] if column.any() else 0.0 for column in passing.T)

    def step_of(self, search, w, d, slope):
        """What this search should find."""
        return (self.local_search if isinstance(search, LocalSearch) else self.search)(w, d, slope)
