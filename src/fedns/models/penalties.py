"""Penalties on the coefficients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedns.core.checked import Checked, NotNegative


@dataclass(frozen=True)
class Ridge(Checked):
    """(strength / 2) |w|^2. The paper prints strength |w|^2: its lambda is half of this one.

    - strength: at least 0.
    - factors: one for each coefficient but the intercept, which its strength is multiplied by; all 1 unless given.
    """

    example: ClassVar[str] = "fedns.Ridge(1e-3)"
    strength: NotNegative = 1e-3
    factors: tuple[NotNegative, ...] = ()
