"""Minus log-likelihoods whose link is not the canonical one: the second derivative depends on the target.

All are convex, so that every method can take the observed second derivative. Classes named Expected have the expected one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from fedns.core.checked import Positive
from fedns.core.errors import DataError
from fedns.core.shards import Shards
from fedns.models.loss import CountLoss, LabelLoss, Loss
from fedns.numerics.formulas import (
    exp,
    exp_of_nonpositive,
    expm1,
    log,
    log1p_of_unit,
    normal_log_cdf,
    normal_ratio,
    where_positive,
)

_LARGEST_Z = 6.5  # exp(z) is 665 there: the probability of an event has been 1 for long


@dataclass(frozen=True)
class Probit(LabelLoss):
    """-log Phi(y z), y in {-1, +1}, with Phi the distribution function of the normal distribution."""

    name: ClassVar[str] = "probit"
    curvature_bound: ClassVar[float] = 1.0
    nonnegative: ClassVar[bool] = True

    def value(self, y: Any, z: Any) -> Any:
        return -normal_log_cdf(y * z)

    def derivatives(self, y: Any, z: Any) -> tuple[Any, Any]:
        margin = y * z
        ratio = normal_ratio(margin)
        return -y * ratio, ratio * (margin + ratio)

    @property
    def expected(self) -> Loss:
        return ExpectedProbit()


@dataclass(frozen=True)
class ExpectedProbit(Probit):
    """The same with the expected second derivative, phi(z)^2 / (Phi(z) Phi(-z))."""

    def derivatives(self, y: Any, z: Any) -> tuple[Any, Any]:
        return -y * normal_ratio(y * z), normal_ratio(z) * normal_ratio(-z)


@dataclass(frozen=True)
class ComplementaryLogLog(LabelLoss):
    """-log(1 - exp(-t)) for y = +1 and t for y = -1, with t = exp(z)."""

    name: ClassVar[str] = "cloglog"

    def value(self, y: Any, z: Any) -> Any:
        t = exp(where_positive(z - _LARGEST_Z, _LARGEST_Z, z))
        # Far below, 1 - exp(-t) is t: its logarithm is z, also where t has no digits left.
        event = where_positive(z + 40.0, -log(-expm1(-t)), -z)
        return where_positive(y, event, exp(z))

    def derivatives(self, y: Any, z: Any) -> tuple[Any, Any]:
        t = exp(where_positive(z - _LARGEST_Z, _LARGEST_Z, z))
        h = t / expm1(t)
        # t + h - 1, by its series where the difference would leave few digits.
        series = t * (0.5 + t * (1.0 / 12.0 - t * t * (1.0 / 720.0 - t * t * (1.0 / 30240.0))))
        above = where_positive(t - 0.05, t + h - 1.0, series)
        mean = exp(z)
        return where_positive(y, -h, mean), where_positive(y, h * above, mean)

    @property
    def expected(self) -> Loss:
        return ExpectedComplementaryLogLog()


@dataclass(frozen=True)
class ExpectedComplementaryLogLog(ComplementaryLogLog):
    """The same with the expected second derivative, t^2 / (exp(t) - 1)."""

    def derivatives(self, y: Any, z: Any) -> tuple[Any, Any]:
        t = exp(where_positive(z - _LARGEST_Z, _LARGEST_Z, z))
        h = t / expm1(t)
        return where_positive(y, -h, exp(z)), t * h


@dataclass(frozen=True)
class NegativeBinomial(CountLoss):
    """(y + 1/a) log(1 + a exp(z)) - y z, y >= 0: counts with mean m = exp(z) and variance m + a m^2, a being known.

    - dispersion: a, above 0.
    """

    name: ClassVar[str] = "negative_binomial"
    curvature_change: ClassVar[float] = 1.0
    dispersion: Positive = 1.0

    def value(self, y: Any, z: Any) -> Any:
        u = z + math.log(self.dispersion)
        softplus = log1p_of_unit(exp_of_nonpositive(-abs(u))) + where_positive(u, u, 0.0)
        return (y + 1.0 / self.dispersion) * softplus - y * z

    def derivatives(self, y: Any, z: Any) -> tuple[Any, Any]:
        u = z + math.log(self.dispersion)
        e = exp_of_nonpositive(-abs(u))
        larger = 1.0 / (e + 1.0)
        p, q = where_positive(u, larger, e * larger), where_positive(u, e * larger, larger)
        return p / self.dispersion - y * q, (y + 1.0 / self.dispersion) * (p * q)

    @property
    def expected(self) -> Loss:
        return ExpectedNegativeBinomial(self.dispersion)


@dataclass(frozen=True)
class ExpectedNegativeBinomial(NegativeBinomial):
    """The same with the expected second derivative, m / (1 + a m)."""

    def derivatives(self, y: Any, z: Any) -> tuple[Any, Any]:
        u = z + math.log(self.dispersion)
        e = exp_of_nonpositive(-abs(u))
        larger = 1.0 / (e + 1.0)
        p, q = where_positive(u, larger, e * larger), where_positive(u, e * larger, larger)
        return p / self.dispersion - y * q, p / self.dispersion


@dataclass(frozen=True)
class Gamma(Loss):
    """y exp(-z) + z, y > 0: numbers with mean exp(z) whose standard deviation is in proportion to it."""

    name: ClassVar[str] = "gamma"
    curvature_change: ClassVar[float] = 1.0

    def value(self, y: Any, z: Any) -> Any:
        return y * exp(-z) + z

    def derivatives(self, y: Any, z: Any) -> tuple[Any, Any]:
        ratio = y * exp(-z)
        return 1.0 - ratio, ratio

    def check_targets(self, shards: Shards) -> None:
        if not (shards.targets > 0.0).all():
            raise DataError(
                f"gamma loss needs targets > 0, found {shards.targets.min():g}: choose another loss, or fix them"
            )

    @property
    def expected(self) -> Loss:
        return ExpectedGamma()


@dataclass(frozen=True)
class ExpectedGamma(Gamma):
    """The same with the expected second derivative, 1."""

    curvature_change: ClassVar[float] = 0.0

    def derivatives(self, y: Any, z: Any) -> tuple[Any, Any]:
        return 1.0 - y * exp(-z), 1.0
