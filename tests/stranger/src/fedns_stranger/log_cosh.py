"""A penalty that is a square near 0 and a straight line far from it, in one class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import fedns


@dataclass(frozen=True)
class LogCosh(fedns.Penalty):
    """log(cosh(w_c)) of every coefficient."""

    name: ClassVar[str] = "logcosh"

    def value(self, w: Any) -> Any:
        return np.logaddexp(w, -w) - np.log(2.0)

    def slope(self, w: Any) -> Any:
        return np.tanh(w)

    def curvature(self, w: Any) -> Any:
        return 1.0 - np.tanh(w) ** 2
