"""Penalties on the coefficients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedns.core.checked import Checked
from fedns.core.errors import ConfigError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Ridge(Checked):
    """(strength / 2) |w|^2. The paper prints strength |w|^2: its lambda is half of this one.

    - strength: at least 0.
    - factors: one for each coefficient but the intercept, which its strength is multiplied by; all 1 unless given.
    """

    example: ClassVar[str] = "fedns.Ridge(1e-3)"
    strength: float = 1e-3
    factors: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not all(factor >= 0 for factor in self.factors):
            raise ConfigError("the factors of the ridge strength must be numbers >= 0")
        if self.strength < 0:
            raise ConfigError(f"the ridge strength must be a number >= 0, got {self.strength}")
