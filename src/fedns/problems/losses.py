"""Pointwise losses of a margin z = x . w and a target y."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedns.core.errors import DataError
from fedns.core.registry import Registry
from fedns.core.shards import Shards
from fedns.numerics.backend import cpu
from fedns.numerics.formulas import Formulas, exp, exp_of_nonpositive, log1p_of_unit, where_positive

FloatArray = NDArray[np.float64]


class Loss(Formulas, ABC):
    """A convex function of the margin with two derivatives.

    The two formulas are written for one row and compiled into every pass over rows. They may use `fedns.numerics.formulas`,
    which makes eight rows of them at a time; with the functions of `math` and with `if` they are for one row at a time.
    """

    example: ClassVar[str] = "fedns.Logistic()"
    name: ClassVar[str]
    curvature_bound: ClassVar[float] = math.inf  # the second derivative is nowhere larger
    curvature_is_constant: ClassVar[bool] = False  # the second derivative is the same everywhere
    nonnegative: ClassVar[bool] = False  # no row has a loss below 0

    @abstractmethod
    def value(self, y: Any, z: Any) -> Any:
        """The loss of a row with target y and margin z."""

    @abstractmethod
    def derivatives(self, y: Any, z: Any) -> tuple[Any, Any]:
        """The first and second derivative in z."""

    @abstractmethod
    def check_targets(self, shards: Shards) -> None:
        """Refuse targets that this loss is not defined for."""

    def slope(self, y: ArrayLike, z: ArrayLike) -> FloatArray:
        """The first derivatives of many rows."""
        return cpu().derivatives(self, *_pair(y, z))[0]

    def curvature(self, y: ArrayLike, z: ArrayLike) -> FloatArray:
        """The second derivatives of many rows."""
        return cpu().derivatives(self, *_pair(y, z))[1]


@dataclass(frozen=True)
class Logistic(Loss):
    """log(1 + exp(-y z)), y in {-1, +1}."""

    name: ClassVar[str] = "logistic"
    curvature_bound: ClassVar[float] = 0.25
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

    def check_targets(self, shards: Shards) -> None:
        if not (np.abs(shards.targets) == 1.0).all():
            found = np.unique(shards.targets)
            shown = ", ".join(f"{v:g}" for v in found[:5]) + (", ..." if found.size > 5 else "")
            raise DataError(
                f"logistic loss needs labels -1 and +1, found {shown}: map them with fedns.as_binary(y), or choose "
                "the positive one with positive=..."
            )


@dataclass(frozen=True)
class Squared(Loss):
    """(z - y)^2 / 2."""

    name: ClassVar[str] = "squared"
    curvature_bound: ClassVar[float] = 1.0
    curvature_is_constant: ClassVar[bool] = True
    nonnegative: ClassVar[bool] = True

    def value(self, y: Any, z: Any) -> Any:
        r = z - y
        return 0.5 * r * r

    def derivatives(self, y: Any, z: Any) -> tuple[Any, Any]:
        return z - y, 1.0

    def check_targets(self, shards: Shards) -> None:
        """Any number will do."""


@dataclass(frozen=True)
class Poisson(Loss):
    """exp(z) - y z, y >= 0: counts whose logarithm is expected to be z."""

    name: ClassVar[str] = "poisson"

    def value(self, y: Any, z: Any) -> Any:
        return exp(z) - y * z

    def derivatives(self, y: Any, z: Any) -> tuple[Any, Any]:
        mean = exp(z)
        return mean - y, mean

    def check_targets(self, shards: Shards) -> None:
        if not (shards.targets >= 0.0).all():
            raise DataError(
                f"poisson loss needs targets >= 0, found {shards.targets.min():g}: choose another loss, or fix them"
            )


_OWN: tuple[type[Loss], ...] = (Logistic, Squared, Poisson)
LOSSES: Registry[type[Loss]] = Registry("loss", "fedns.losses", Loss, _OWN)


def _pair(y: ArrayLike, z: ArrayLike) -> tuple[FloatArray, FloatArray]:
    return np.ascontiguousarray(y, dtype=np.float64).ravel(), np.ascontiguousarray(z, dtype=np.float64).ravel()
