"""Penalties on the coefficients. A new one is a class here and its name in `_OWN`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedns.core.checked import Positive
from fedns.core.problem import Penalty
from fedns.core.registry import Registry
from fedns.core.types import FloatArray


@dataclass(frozen=True)
class Ridge(Penalty):
    """(strength / 2) |w|^2. The paper prints strength |w|^2: its lambda is half of this one.

    - strength: at least 0.
    - factors: one for each coefficient but the intercept, which its strength is multiplied by; all 1 unless given.
    """

    name: ClassVar[str] = "ridge"
    quadratic: ClassVar[bool] = True

    def value(self, w: FloatArray) -> FloatArray:
        return 0.5 * w * w

    def slope(self, w: FloatArray) -> FloatArray:
        return w

    def curvature(self, w: FloatArray) -> FloatArray:
        return np.ones_like(w)


@dataclass(frozen=True)
class PseudoHuber(Penalty):
    """strength sum_c delta^2 (sqrt(1 + (w_c / delta)^2) - 1): as Ridge near 0, and linear far from it.

    Large coefficients are shrunk less than by Ridge. It is strongly convex on every bounded set.

    - strength: at least 0.
    - factors: one for each coefficient but the intercept, which its strength is multiplied by; all 1 unless given.
    - delta: where it turns from a square into a straight line, above 0, in units of the coefficients.
    """

    name: ClassVar[str] = "pseudo_huber"
    example: ClassVar[str] = "fedns.PseudoHuber(1e-3)"
    delta: Positive = 1.0

    def value(self, w: FloatArray) -> FloatArray:
        return np.asarray(w * w / (1.0 + self._root(w)))  # delta^2 (root - 1) without the digits that cancel at 0

    def slope(self, w: FloatArray) -> FloatArray:
        return np.asarray(w / self._root(w))

    def curvature(self, w: FloatArray) -> FloatArray:
        return np.asarray(self._root(w) ** -3)

    def _root(self, w: FloatArray) -> FloatArray:
        return np.sqrt(1.0 + (w / self.delta) ** 2)


_OWN: tuple[type[Penalty], ...] = (Ridge, PseudoHuber)
PENALTIES: Registry[type[Penalty]] = Registry("penalty", "fedns.penalties", Penalty, _OWN)
