"""What a family is: the distribution of an outcome, and how its mean depends on the margin z.

A family adds to its loss what statistics need beyond a minimum: the likelihood, the deviance and the dispersion. They are
made of sums that a server has anyway, or that a site gives as a few numbers; for rows with targets y, weights s, margins z:

    losses = sum_i s_i loss(y_i, z_i)      constants = sum_i s_i (constant(y_i), smallest(y_i))      weight = sum_i s_i
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import ClassVar, NamedTuple, Self

import numpy as np

from fedns.core.checked import Checked
from fedns.core.errors import ConfigError, unknown
from fedns.core.shards import Shards
from fedns.core.types import FloatArray
from fedns.models.loss import Loss
from fedns.numerics.backends.devices import default


class Outcomes(Enum):
    """What an outcome is, and how it is written as a target."""

    NUMBER = "any number"
    POSITIVE = "a number above 0"
    COUNT = "a count: a whole number of at least 0"
    EVENT = "an event or none: targets +1 and -1"
    TIME = "the time until an event; until when there was none, with a minus"
    CLASS = "one of several classes: targets 0, 1, ..., the reference first"

    @property
    def can_be_separated(self) -> bool:
        """Whether rows of one kind may lie on one side of others, so that no coefficients are the likeliest."""
        return self in (Outcomes.EVENT, Outcomes.COUNT, Outcomes.TIME, Outcomes.CLASS)


class Flat(NamedTuple):
    """The sums of all rows where they have the same margins, but for offsets; one entry for each output."""

    loss: Loss
    margins: FloatArray
    slopes: FloatArray  # means of the loss's first derivatives there
    curvatures: FloatArray  # and of the second ones
    offset: bool  # whether rows have offsets beside these margins


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
    has_residuals: ClassVar[bool] = True  # a row has one residual, which is its own
    needs: ClassVar[tuple[str, ...]] = ()  # parameters that have no usual value: a study and an estimator must give them
    starts_anywhere: ClassVar[bool] = True  # the loss has curvature wherever a fit may begin, so that a study can be fitted

    link: str = ""

    def __post_init__(self) -> None:
        if not self.link:
            object.__setattr__(self, "link", next(iter(self.links)))
        if self.link not in self.links:
            raise ConfigError(unknown(f"link of family {self.name}", self.link, tuple(self.links)))
        assert self.loss.name  # it is made here, so that parameters which it cannot have are refused

    @classmethod
    def parameters(cls) -> tuple[str, ...]:
        """Name what must be known before a fit, beside the link."""
        return tuple(f.name for f in fields(cls) if f.name != "link")

    @classmethod
    def made_of(cls, link: str, given: Mapping[str, float]) -> Self:
        """The family with this link and these parameters; none is guessed that has no usual value."""
        for name in given:
            if name not in cls.parameters():
                raise ConfigError(f"family {cls.name} has no {name}: leave it out")
        for name in cls.needs:
            if name not in given:
                raise ConfigError(f"family {cls.name} needs its {name}: give {name} = a number, which is not estimated")
        return cls(link=link, **given)

    @property
    def loss(self) -> Loss:
        """What is minimised: minus the log-likelihood at dispersion 1, without terms that the margin is not in."""
        return self.links[self.link](**{f.name: getattr(self, f.name) for f in fields(self) if f.name != "link"})

    def loss_of(self, classes: int) -> Loss:
        """The same where the outcome has so many classes; 0 where it has none."""
        return self.loss

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

    def null_margins(self, flat: Flat) -> FloatArray:
        """The margins, beside offsets, of a model without columns, where fits start; `flat.margins` where none are told.

        The slope of a likelihood is a line in the outcome: from two points of it the mean slope tells the mean outcome. With
        offsets every row has a line of its own.
        """
        if flat.offset:
            return flat.margins
        targets = np.array([-1.0, 1.0] if self.outcomes is Outcomes.EVENT else [1.0, 2.0])
        first, second = flat.loss.slope(targets, np.repeat(flat.margins, 2))
        target = targets[0] + (flat.slopes - first) / (second - first) * (targets[1] - targets[0])
        return np.array([self.margin(float(self.outcome(target)[0]))])

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

    def weight_constant(self, weights: FloatArray) -> FloatArray:
        """Return what the log-likelihood has beside, row by row, where weights are precisions."""
        return np.zeros_like(weights)

    def estimated_dispersion(self, pearson: float, weight: float, num_coefficients: float) -> float:
        """1 where it is known, else the Pearson statistic per degree of freedom, as statsmodels and R have it.

        NaN where there are as many coefficients as rows.
        """
        if self.dispersion_is_known:
            return 1.0
        return pearson / (weight - num_coefficients) if weight > num_coefficients else math.nan

    def deviance_at(self, y: FloatArray, z: FloatArray, weights: FloatArray | None = None) -> float:
        """The deviance of rows with these margins."""
        rows = Shards.from_arrays(z[:, None], y, [y.size], sample_weights=weights)
        losses = default().losses_along(self.loss, rows, np.ones(1), np.zeros(1), np.zeros(1))[0, 0] * rows.total_weights[0]
        return self.deviance(float(losses), self.constants(y, weights))

    def deviance(self, losses: float, constants: FloatArray) -> float:
        """Twice what the losses are above those of a perfect fit."""
        return 2.0 * (losses - float(constants[1]))

    def log_likelihood(self, losses: float, constants: FloatArray, weight: float, dispersion: float = 1.0) -> float:
        """The logarithm of the likelihood; nan where the loss is not one's."""
        return float(constants[0]) - losses if self.has_likelihood else math.nan
