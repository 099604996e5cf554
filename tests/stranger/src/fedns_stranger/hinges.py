"""A transform that bends: a line for low values, and a change of slope at every quantile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from fedns.studies.tables.transforms import Learned, SiteFacts, Transform, joint_quantiles


@dataclass(frozen=True)
class Hinges(Transform):
    """x, and max(0, x - knot) for knots at equally spaced quantiles over all sites."""

    name: ClassVar[str] = "hinges"
    options: ClassVar[tuple[str, ...]] = ("knots",)
    numbered: ClassVar[bool] = True
    standardised: ClassVar[bool] = False
    knots: int = 1

    @classmethod
    def read(cls, column: str, options: Mapping[str, list[float]]) -> Self:
        return cls(int(options.get("knots", [1.0])[0]))

    def text(self, column: str) -> str:
        return f"hinges({column}, {self.knots})"

    @property
    def size(self) -> int:
        return self.knots + 1

    @property
    def asks_quantiles(self) -> bool:
        return True

    def learn(self, column: str, bounds: Sequence[float], known: Learned, facts: Sequence[SiteFacts]) -> Learned:
        return replace(known, knots=joint_quantiles(facts, self.knots))

    def columns(self, column: str, values: Any, known: Learned) -> Any:
        return np.column_stack([values, *(np.maximum(0.0, values - knot) for knot in known.knots)])
