"""Families: what distribution an outcome has, and how its mean depends on the margin z.

A family adds to its loss what statistics need beyond a minimum: the likelihood, the deviance and the dispersion. They are
made of sums that a server has anyway, or that a site gives as a few numbers; for rows with targets y, weights s, margins z:

    losses = sum_i s_i loss(y_i, z_i)      constants = sum_i s_i (constant(y_i), smallest(y_i))      weight = sum_i s_i
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, gammaln, logit, xlogy

from fedns.core.checked import Checked
from fedns.core.errors import ConfigError, unknown
from fedns.core.registry import Registry
from fedns.problems.losses import Logistic, Loss, Poisson, Squared

FloatArray = NDArray[np.float64]


class Outcomes(Enum):
    """What an outcome is, and how it is written as a target."""

    NUMBER = "any number"
    COUNT = "a count: a whole number of at least 0"
    EVENT = "an event or none: targets +1 and -1"


@dataclass(frozen=True)
class Family(Checked, ABC):
    """A distribution and a link; further fields, with a default or without, are what must be known before a fit.

    - link: what is applied to the mean to get the margin; one of the family's, the first unless given.
    """

    name: ClassVar[str]
    example: ClassVar[str] = "fedns.FAMILIES['binomial']()"
    outcomes: ClassVar[Outcomes]
    links: ClassVar[Mapping[str, type[Loss]]]  # the loss of each
    ratios: ClassVar[Mapping[str, str]] = {}  # by link: what exp(coefficient) is called
    dispersion_is_known: ClassVar[bool] = True  # it is 1; else it is estimated from the rows
    has_likelihood: ClassVar[bool] = True

    link: str = ""

    def __post_init__(self) -> None:
        if not self.link:
            object.__setattr__(self, "link", next(iter(self.links)))
        if self.link not in self.links:
            raise ConfigError(unknown(f"link of family {self.name}", self.link, tuple(self.links)))

    @property
    def loss(self) -> Loss:
        """What is minimised: minus the log-likelihood at dispersion 1, without terms that the margin is not in."""
        return self.links[self.link]()

    @property
    def ratio(self) -> str:
        """What exp(coefficient) is called; empty where it means nothing."""
        return self.ratios.get(self.link, "")

    @abstractmethod
    def mean(self, z: FloatArray) -> FloatArray:
        """The expected outcome at these margins; of an event, its probability."""

    @abstractmethod
    def margin(self, mean: float) -> float:
        """The margin at which this is the mean: the intercept of a model without anything else."""

    @abstractmethod
    def variance(self, mean: FloatArray) -> FloatArray:
        """The variance of an outcome with this mean, in units of the dispersion."""

    def outcome(self, y: FloatArray) -> FloatArray:
        """Targets as numbers whose mean `mean` gives."""
        return y

    def constant(self, y: FloatArray) -> FloatArray:
        """What the log-likelihood has beside minus the loss, row by row."""
        return np.zeros_like(y)

    def smallest(self, y: FloatArray) -> FloatArray:
        """The smallest loss that a row can have, whatever its margin: that of a perfect fit."""
        return np.zeros_like(y)

    def pearson(self, y: FloatArray, z: FloatArray) -> FloatArray:
        """Squared residuals in units of the variance, row by row; their sum estimates the dispersion."""
        mean = self.mean(z)
        variance = self.variance(mean)
        # A probability that is 0 or 1 to working precision has none: what it is then is the smallest that it could be.
        return np.asarray((self.outcome(y) - mean) ** 2 / np.where(variance == 0.0, np.finfo(np.float64).eps, variance))

    def constants(self, y: FloatArray, weights: FloatArray | None = None) -> FloatArray:
        """The two sums over rows that likelihood and deviance need beside the losses: (2,)."""
        share = np.ones_like(y) if weights is None else weights
        return np.array([share @ self.constant(y), share @ self.smallest(y)])

    def dispersion(self, pearson: float, weight: float, num_coefficients: float) -> float:
        """1 where it is known, else the Pearson statistic per degree of freedom, as statsmodels and R have it."""
        return 1.0 if self.dispersion_is_known else pearson / (weight - num_coefficients)

    def deviance(self, losses: float, constants: FloatArray) -> float:
        """Twice what the losses are above those of a perfect fit."""
        return 2.0 * (losses - float(constants[1]))

    def log_likelihood(self, losses: float, constants: FloatArray, weight: float, dispersion: float = 1.0) -> float:
        """The logarithm of the likelihood."""
        return float(constants[0]) - losses


@dataclass(frozen=True)
class Gaussian(Family):
    """Numbers that scatter with the same variance around z.

    - link: identity.
    """

    name: ClassVar[str] = "gaussian"
    outcomes: ClassVar[Outcomes] = Outcomes.NUMBER
    links: ClassVar[Mapping[str, type[Loss]]] = {"identity": Squared}
    dispersion_is_known: ClassVar[bool] = False

    def mean(self, z: FloatArray) -> FloatArray:
        return z

    def margin(self, mean: float) -> float:
        return mean

    def variance(self, mean: FloatArray) -> FloatArray:
        return np.ones_like(mean)

    def log_likelihood(self, losses: float, constants: FloatArray, weight: float, dispersion: float = 1.0) -> float:
        """At the variance that makes it largest, 2 losses / weight, which is what statsmodels and R report."""
        return -0.5 * weight * (math.log(2.0 * math.pi * 2.0 * losses / weight) + 1.0)


@dataclass(frozen=True)
class Binomial(Family):
    """An event that happens or not.

    - link: logit.
    """

    name: ClassVar[str] = "binomial"
    outcomes: ClassVar[Outcomes] = Outcomes.EVENT
    links: ClassVar[Mapping[str, type[Loss]]] = {"logit": Logistic}
    ratios: ClassVar[Mapping[str, str]] = {"logit": "odds ratio"}

    def mean(self, z: FloatArray) -> FloatArray:
        return np.asarray(expit(z))

    def margin(self, mean: float) -> float:
        return float(logit(mean))

    def variance(self, mean: FloatArray) -> FloatArray:
        return mean * (1.0 - mean)

    def outcome(self, y: FloatArray) -> FloatArray:
        return 0.5 * (y + 1.0)


@dataclass(frozen=True)
class PoissonCounts(Family):
    """Counts whose variance is their mean, exp(z).

    - link: log.
    """

    name: ClassVar[str] = "poisson"
    outcomes: ClassVar[Outcomes] = Outcomes.COUNT
    links: ClassVar[Mapping[str, type[Loss]]] = {"log": Poisson}
    ratios: ClassVar[Mapping[str, str]] = {"log": "rate ratio"}

    def mean(self, z: FloatArray) -> FloatArray:
        return np.exp(z)

    def margin(self, mean: float) -> float:
        return math.log(mean)

    def variance(self, mean: FloatArray) -> FloatArray:
        return mean

    def constant(self, y: FloatArray) -> FloatArray:
        return np.asarray(-gammaln(y + 1.0))

    def smallest(self, y: FloatArray) -> FloatArray:
        return np.asarray(y - xlogy(y, y))


_OWN: tuple[type[Family], ...] = (Gaussian, Binomial, PoissonCounts)
FAMILIES: Registry[type[Family]] = Registry("family", "fedns.families", Family, _OWN)
