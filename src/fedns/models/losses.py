"""Losses that are functions of one margin, and all losses by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from fedns.core.checked import Positive
from fedns.core.registry import Registry
from fedns.models.cox import Cox
from fedns.models.link_losses import ComplementaryLogLog, Gamma, NegativeBinomial, Probit
from fedns.models.loss import CountLoss, LabelLoss, Loss, NumberLoss
from fedns.numerics.formulas import exp, exp_of_nonpositive, log1p_of_unit, where_positive


@dataclass(frozen=True)
class Logistic(LabelLoss):
    """log(1 + exp(-y z)), y in {-1, +1}."""

    name: ClassVar[str] = "logistic"
    curvature_bound: ClassVar[float] = 0.25
    curvature_change: ClassVar[float] = 1.0
    nonnegative: ClassVar[bool] = True

    def value(self, y: Any, z: Any) -> Any:
        margin = y * z
        return log1p_of_unit(exp_of_nonpositive(-abs(margin))) + where_positive(margin, 0.0, -margin)

    def derivatives(self, y: Any, z: Any) -> tuple[Any, Any]:
        margin = y * z
        e = exp_of_nonpositive(-abs(margin))
        p = 1.0 / (e + 1.0)  # the larger of the two class probabilities
        q = e * p
        return where_positive(margin, q, p) * -y, p * q


@dataclass(frozen=True)
class Squared(NumberLoss):
    """(z - y)^2 / 2."""

    name: ClassVar[str] = "squared"
    curvature_bound: ClassVar[float] = 1.0
    curvature_change: ClassVar[float] = 0.0
    curvature_is_constant: ClassVar[bool] = True
    nonnegative: ClassVar[bool] = True

    def value(self, y: Any, z: Any) -> Any:
        r = z - y
        return 0.5 * r * r

    def derivatives(self, y: Any, z: Any) -> tuple[Any, Any]:
        return z - y, 1.0


@dataclass(frozen=True)
class Poisson(CountLoss):
    """exp(z) - y z, y >= 0: counts whose logarithm is expected to be z."""

    name: ClassVar[str] = "poisson"
    curvature_change: ClassVar[float] = 1.0

    def value(self, y: Any, z: Any) -> Any:
        return exp(z) - y * z

    def derivatives(self, y: Any, z: Any) -> tuple[Any, Any]:
        mean = exp(z)
        return mean - y, mean


@dataclass(frozen=True)
class Huber(NumberLoss):
    """r^2 / 2 for |r| <= c and c (|r| - c / 2) beyond, with r = z - y.

    Rows beyond have no curvature: where there are many of them, Newton steps need a line search.

    - threshold: c, above 0, in units of the targets.
    """

    name: ClassVar[str] = "huber"
    curvature_bound: ClassVar[float] = 1.0
    nonnegative: ClassVar[bool] = True
    threshold: Positive = 1.345

    def value(self, y: Any, z: Any) -> Any:
        r = z - y
        inside = self.threshold - abs(r)
        return where_positive(inside, 0.5 * r * r, self.threshold * (abs(r) - 0.5 * self.threshold))

    def derivatives(self, y: Any, z: Any) -> tuple[Any, Any]:
        r = z - y
        inside = self.threshold - abs(r)
        beyond = where_positive(r, self.threshold, -self.threshold)
        return where_positive(inside, r, beyond), where_positive(inside, 1.0, 0.0)


@dataclass(frozen=True)
class SquaredHinge(LabelLoss):
    """max(0, 1 - y z)^2 / 2, y in {-1, +1}."""

    name: ClassVar[str] = "squared_hinge"
    curvature_bound: ClassVar[float] = 1.0
    nonnegative: ClassVar[bool] = True

    def value(self, y: Any, z: Any) -> Any:
        short = 1.0 - y * z
        return where_positive(short, 0.5 * short * short, 0.0)

    def derivatives(self, y: Any, z: Any) -> tuple[Any, Any]:
        short = 1.0 - y * z
        return where_positive(short, -y * short, 0.0), where_positive(short, 1.0, 0.0)


_OWN: tuple[type[Loss], ...] = (
    Logistic,
    Squared,
    Poisson,
    Probit,
    ComplementaryLogLog,
    NegativeBinomial,
    Gamma,
    Huber,
    SquaredHinge,
    Cox,
)
LOSSES: Registry[type[Loss]] = Registry("loss", "fedns.losses", Loss, _OWN)
