"""What a loss is: a convex function of a margin z = x . w and a target y."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fedns.core.checked import Checked
from fedns.core.errors import DataError
from fedns.core.shards import Shards
from fedns.core.types import FloatArray
from fedns.numerics.backend import Backend
from fedns.numerics.backends.devices import default
from fedns.numerics.formulas import Formulas

_LOOKED_AT, _MARGINS = 9, (-4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0)  # targets and margins where a loss must be convex
_ROUNDING = 1e-9


class Loss(Checked, Formulas, ABC):
    """A convex function of the margin with two derivatives.

    The two formulas are written for one row and compiled into every pass over rows. They may use `fedns.numerics.formulas`,
    which makes eight rows of them at a time; with the functions of `math` and with `if` they are for one row at a time.
    """

    example: ClassVar[str] = "fedns.Logistic()"
    name: ClassVar[str]
    curvature_bound: ClassVar[float] = math.inf  # the second derivative is nowhere larger
    # Where no margin changes by more than h, no second derivative changes by more than a factor exp(curvature_change h).
    curvature_change: ClassVar[float] = math.inf
    has_root: ClassVar[bool] = True  # whether rows have a share each in a root A of the Hessian A' A
    takes_intercept: ClassVar[bool] = True
    curvature_is_constant: ClassVar[bool] = False  # the second derivative is the same everywhere
    nonnegative: ClassVar[bool] = False  # no row has a loss below 0
    on_devices: ClassVar[bool] = True  # False: its passes over rows are the processor's alone

    @abstractmethod
    def value(self, y: Any, z: Any) -> Any:
        """The loss of a row with target y and margin z."""

    @abstractmethod
    def derivatives(self, y: Any, z: Any) -> tuple[Any, Any]:
        """The first and second derivative in z."""

    @abstractmethod
    def check_targets(self, shards: Shards) -> None:
        """Refuse targets that this loss is not defined for."""

    def groups(self, targets: FloatArray) -> FloatArray | None:
        """Return what tells the groups that an outcome divides rows into; none where targets are quantities."""
        return None

    def check(self, shards: Shards) -> None:
        """Refuse targets that this loss is not defined for, and a loss that is not convex where it was looked at."""
        self.check_targets(shards)
        if self.root_rows != 1 or not self.has_root:  # several margins, or none of a row's own: ours, and convex
            return
        for y in np.unique(np.quantile(shards.targets, np.linspace(0.0, 1.0, _LOOKED_AT), method="nearest")).tolist():
            for z in _MARGINS:
                with np.errstate(all="ignore"):
                    slope, curvature = map(float, self.derivatives(y, z))
                if curvature < -_ROUNDING * max(1.0, abs(slope)):
                    raise DataError(
                        f"the {self.name} loss is not convex: its second derivative is {curvature:.3g} at the target {y:g} "
                        f"and the margin {z:g}; every method here needs one that is nowhere below 0"
                    )

    @property
    def outputs(self) -> int:
        """How many margins a row has."""
        return 1

    @property
    def root_rows(self) -> int:
        """How many rows of the root of the Hessian belong to one row of the data."""
        return 1

    def row_scores(self, x: FloatArray, z: FloatArray, y: FloatArray, weights: FloatArray) -> FloatArray:
        """What each row, counted once, adds to the gradient: (rows, outputs times columns of x)."""
        slopes = self.slope(y, z).reshape(len(y), -1, 1)
        return np.asarray((slopes * x[:, None, :]).reshape(len(y), -1))

    def passes(self, backend: Backend) -> Backend:
        """What passes over the rows for this loss, where the backend is what does for losses of one margin."""
        return backend

    @property
    def expected(self) -> Loss:
        """The same loss with its expected second derivative in place of the observed one.

        They are one and the same where the link is canonical. Every method takes the observed one, which of all the losses
        here is nowhere negative; standard errors of generalised linear models are made of the expected one.
        """
        return self

    def slope(self, y: ArrayLike, z: ArrayLike) -> FloatArray:
        """The first derivatives of many rows."""
        return self.derivatives_of_rows(y, z)[0]

    def curvature(self, y: ArrayLike, z: ArrayLike) -> FloatArray:
        """The second derivatives of many rows."""
        return self.derivatives_of_rows(y, z)[1]

    def derivatives_of_rows(self, y: ArrayLike, z: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Both; of a loss of several margins, or of none of a row's own, `derivatives` are these."""
        if self.root_rows != 1 or not self.has_root:
            return self.derivatives(y, z)
        targets, margins = (np.ascontiguousarray(values, dtype=np.float64).ravel() for values in (y, z))
        return default().derivatives(self, targets, margins)


class NumberLoss(Loss):
    """A loss whose targets may be any numbers."""

    def check_targets(self, shards: Shards) -> None:
        """Any number will do."""


class LabelLoss(Loss):
    """A loss whose targets are the labels -1 and +1."""

    def groups(self, targets: FloatArray) -> FloatArray:
        return targets

    def check_targets(self, shards: Shards) -> None:
        if not (np.abs(shards.targets) == 1.0).all():
            found = np.unique(shards.targets)
            shown = ", ".join(f"{v:g}" for v in found[:5]) + (", ..." if found.size > 5 else "")
            raise DataError(
                f"{self.name} loss needs labels -1 and +1, found {shown}: map them with fedns.as_binary(y), or choose "
                "the positive one with positive=..."
            )


class CountLoss(Loss):
    """A loss whose targets are counts, or something like them."""

    def check_targets(self, shards: Shards) -> None:
        if not (shards.targets >= 0.0).all():
            raise DataError(
                f"{self.name} loss needs targets >= 0, found {shards.targets.min():g}: choose another loss, or fix them"
            )
