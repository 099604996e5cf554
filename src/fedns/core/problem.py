"""A problem as a run sees it, whatever its model and its loss are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fedns.core.penalty import Penalty


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
