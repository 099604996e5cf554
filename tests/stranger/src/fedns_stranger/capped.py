"""A loss that forgives outliers, written for one row at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import fedns


@dataclass(frozen=True)
class Capped(fedns.Loss):
    """(z - y)^2 / 2 up to |z - y| = delta, and a straight line from there."""

    delta: float = 1.5

    name: ClassVar[str] = "capped"
    curvature_bound: ClassVar[float] = 1.0

    def value(self, y: Any, z: Any) -> Any:
        r = abs(z - y)
        return 0.5 * r * r if r <= self.delta else self.delta * (r - 0.5 * self.delta)

    def derivatives(self, y: Any, z: Any) -> tuple[Any, Any]:
        r = z - y
        if abs(r) <= self.delta:
            return r, 1.0
        return (self.delta, 0.0) if r > 0.0 else (-self.delta, 0.0)

    def check_targets(self, shards: fedns.Shards) -> None:
        """Any number will do."""
