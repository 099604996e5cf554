"""A problem as a run sees it, whatever its model and its loss are; and the penalty that the server adds to the mean loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol

from fedns.core.checked import Checked, NotNegative
from fedns.core.types import FloatArray


@dataclass(frozen=True)
class Penalty(Checked, ABC):
    """alpha(w) = strength sum_c factor_c a(w_c), with a convex function a that is 0 at 0, nowhere negative and smooth.

    A sum over coefficients: the Hessian of alpha is a diagonal. An intercept is not penalised, its factor is 0. The three
    formulas are of a alone, coefficient by coefficient, for arrays of any shape.

    - strength: at least 0.
    - factors: one for each coefficient but the intercept, which its strength is multiplied by; all 1 unless given.
    """

    example: ClassVar[str] = "fedns.Ridge(1e-3)"
    name: ClassVar[str]
    quadratic: ClassVar[bool] = False  # True where a(w) is a multiple of w^2: its curvature is the same everywhere
    curvature_bound: ClassVar[float] = 1.0  # no a''(w) is above it
    strength: NotNegative = 1e-3
    factors: tuple[NotNegative, ...] = ()

    @abstractmethod
    def value(self, w: FloatArray) -> FloatArray:
        """a(w_c)."""

    @abstractmethod
    def slope(self, w: FloatArray) -> FloatArray:
        """a'(w_c)."""

    @abstractmethod
    def curvature(self, w: FloatArray) -> FloatArray:
        """a''(w_c), at least 0."""

    @property
    def smoothness(self) -> float:
        """A bound on the second derivatives of alpha."""
        return self.strength * self.curvature_bound * max(self.factors, default=1.0)


class Objective(Protocol):
    """What a run needs to know of `fedns.Problem`; methods and their handlers know it whole."""

    @property
    def penalty(self) -> Penalty: ...

    def num_features(self, num_columns: int) -> int: ...


@dataclass(frozen=True)
class Evaluation:
    """The objective and the norm of its gradient at some coefficients."""

    objective: float
    gradient_norm: float
