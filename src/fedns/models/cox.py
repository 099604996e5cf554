"""Cox regression: the time until an event, compared among the rows of one client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedns.core.errors import ConfigError, DataError
from fedns.core.shards import Shards
from fedns.core.types import FloatArray
from fedns.models.loss import Loss
from fedns.numerics.backend import Backend
from fedns.numerics.backends.cox import CoxBackend, row_scores
from fedns.numerics.backends.devices import default


@dataclass(frozen=True)
class Cox(Loss):
    """Minus the logarithm of the partial likelihood, ties by Efron's rule; every client is a stratum of its own.

    A target is the time of the event, or minus the time until which there was none. A constant changes nothing: there is no
    intercept. The Hessian is no sum over rows and has no root to sketch; `derivatives` gives its diagonal part.
    """

    name: ClassVar[str] = "cox"
    curvature_change: ClassVar[float] = 2.0  # a row's share of those at risk: one factor from the row, one from the others
    has_root: ClassVar[bool] = False
    takes_intercept: ClassVar[bool] = False
    on_devices: ClassVar[bool] = False

    def passes(self, backend: Backend) -> Backend:
        if backend != default():
            raise ConfigError("the cox loss has passes over rows on the processor alone: leave backend and device out")
        return CoxBackend()

    def value(self, y: Any, z: Any) -> float:
        """The loss of rows that are one client's, as a sum."""
        rows = Shards.from_arrays(np.asarray(z, dtype=np.float64)[:, None], y, [len(y)])
        along = CoxBackend().losses_along(self, rows, np.ones(1), np.zeros(1), np.zeros(1))
        return float(along[0, 0]) * len(y)

    def derivatives(self, y: Any, z: Any) -> tuple[FloatArray, FloatArray]:
        """Slopes, and the diagonal part of the curvature, of rows that are one client's."""
        return CoxBackend().derivatives(self, np.asarray(y, dtype=np.float64), np.asarray(z, dtype=np.float64))

    def row_scores(self, x: FloatArray, z: FloatArray, y: FloatArray, weights: FloatArray) -> FloatArray:
        """Of rows that are one client's: a row counts at its own event, and in every risk set that it is in."""
        return row_scores(x, z, y, weights)

    def groups(self, targets: FloatArray) -> FloatArray:
        """Rows with an event, and those without."""
        return np.sign(targets)

    def check_targets(self, shards: Shards) -> None:
        if (shards.targets == 0.0).any():
            raise DataError(
                "cox loss needs times above 0, with a minus where there was no event: add to times of 0, or drop"
            )
        for client, (start, stop) in enumerate(zip(shards.starts, shards.stops, strict=True)):
            if not (shards.targets[start:stop] > 0.0).any():
                name = f"'{shards.names[client]}'" if shards.names else str(client)
                raise DataError(f"client {name} has no event, so that Cox regression learns nothing there: leave it out")
