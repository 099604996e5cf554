"""Pointwise losses of a margin z = x . w and a target y."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedns.core.errors import DataError
from fedns.core.registry import Registry
from fedns.core.shards import Shards
from fedns.numerics.cpu import pointwise

FloatArray = NDArray[np.float64]


class Loss(ABC):
    """A convex function of the margin with two derivatives; the formulas themselves are in `numerics.pointwise`."""

    name: ClassVar[str]
    family: ClassVar[int]

    @abstractmethod
    def check_targets(self, shards: Shards) -> None:
        """Refuse targets that this loss is not defined for."""

    def value(self, y: ArrayLike, z: ArrayLike) -> FloatArray:
        targets, margins = _pair(y, z)
        out = np.empty_like(margins)
        pointwise.values(self.family, targets, 0, margins.size, margins, out)
        return out

    def slope(self, y: ArrayLike, z: ArrayLike) -> FloatArray:
        return self._derivatives(y, z)[0]

    def curvature(self, y: ArrayLike, z: ArrayLike) -> FloatArray:
        return self._derivatives(y, z)[1]

    def _derivatives(self, y: ArrayLike, z: ArrayLike) -> tuple[FloatArray, FloatArray]:
        targets, margins = _pair(y, z)
        slope, curvature = np.empty_like(margins), np.empty_like(margins)
        pointwise.derivatives(self.family, targets, 0, margins.size, margins, slope, curvature)
        return slope, curvature


@dataclass(frozen=True)
class Logistic(Loss):
    """log(1 + exp(-y z)), y in {-1, +1}."""

    name: ClassVar[str] = "logistic"
    family: ClassVar[int] = pointwise.LOGISTIC

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
    family: ClassVar[int] = pointwise.SQUARED

    def check_targets(self, shards: Shards) -> None:
        """Any number will do."""


_OWN: tuple[type[Loss], ...] = (Logistic, Squared)
LOSSES: Registry[type[Loss]] = Registry("loss", "fedns.losses", Loss, _OWN)


def _pair(y: ArrayLike, z: ArrayLike) -> tuple[FloatArray, FloatArray]:
    return np.ascontiguousarray(y, dtype=np.float64).ravel(), np.ascontiguousarray(z, dtype=np.float64).ravel()
