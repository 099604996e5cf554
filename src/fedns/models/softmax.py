"""The softmax loss: outcomes with more than two classes, a margin for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import logsumexp

from fedns.core.errors import ConfigError, DataError
from fedns.core.shards import Shards
from fedns.core.types import FloatArray
from fedns.models.loss import Loss
from fedns.numerics.backend import Backend
from fedns.numerics.backends.devices import cpu_softmax, default


@dataclass(frozen=True)
class Softmax(Loss):
    """log(sum_c exp(z_c)) - z_y, y in {0, 1, ..., classes - 1}: minus the logarithm of the probability of class y.

    A row has a margin for each class, and the coefficients of all classes stand one after the other, (classes, features) in
    one vector. Only differences of margins matter: without a penalty one class must be the reference.

    - classes: how many there are, at least 2.
    - reference: class 0 has margin 0 and no coefficients.
    """

    name: ClassVar[str] = "softmax"
    nonnegative: ClassVar[bool] = True
    on_devices: ClassVar[bool] = False
    classes: int = 3
    reference: bool = False

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise ConfigError(f"softmax needs at least 2 classes, got {self.classes}")

    def groups(self, targets: FloatArray) -> FloatArray:
        return targets

    @property
    def outputs(self) -> int:
        return self.classes - int(self.reference)

    @property
    def root_rows(self) -> int:
        """Rows sqrt(p_c) (e_c - p), one for each class c: the curvature diag(p) - p p' is the sum of their squares."""
        return self.classes

    def passes(self, backend: Backend) -> Backend:
        if backend != default():
            raise ConfigError("the softmax loss has passes over rows on the processor alone: leave backend and device out")
        return cpu_softmax(self.classes, self.reference)

    def value(self, y: Any, z: Any) -> FloatArray:
        """The losses of rows with margins z (rows, outputs)."""
        full = np.pad(np.asarray(z, dtype=np.float64), ((0, 0), (int(self.reference), 0)))
        return np.asarray(logsumexp(full, axis=1) - full[np.arange(len(full)), np.asarray(y, dtype=np.int64)])

    def derivatives(self, y: Any, z: Any) -> tuple[FloatArray, FloatArray]:
        """Slopes (rows, outputs) and curvatures (rows, outputs, outputs)."""
        passes = cpu_softmax(self.classes, self.reference)
        return passes.derivatives(self, np.asarray(y, dtype=np.float64), np.asarray(z, dtype=np.float64))

    def check_targets(self, shards: Shards) -> None:
        known = np.isin(shards.targets, np.arange(self.classes))
        if not known.all():
            raise DataError(
                f"softmax loss needs targets 0, 1, ..., {self.classes - 1}, found {shards.targets[~known][0]:g}: number the "
                "classes from 0, or set classes"
            )
