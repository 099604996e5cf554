"""Random sketches: a distribution over size x n matrices S with E[S'S] = I, as a value."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedns.core.checked import Checked, Count
from fedns.core.messages import Ragged
from fedns.core.shards import Shards
from fedns.core.types import FloatArray, Keys
from fedns.numerics.backend import COLUMNS, SketchPlan
from fedns.numerics.backends.devices import cpu
from fedns.numerics.formulas import Formulas

# Where none is said. Sixteen rows, of ten clients, are too few for unit steps on the 64 columns of digits; with these FedNS
# converges on every data set that comes with scikit-learn, whether rows are dealt out or sorted.
DEFAULT_SIZE = 32


@dataclass(frozen=True)
class Sketch(Checked, Formulas, ABC):
    """Kind and size. The matrix S is drawn from a key and never formed: passes over rows apply it while they read them.

    A sketch gives a formula for its columns, which is compiled; or a plan for which there is a faster way.

    - size: rows of the sketch, at least 1.
    """

    size: Count
    name: ClassVar[str]
    example: ClassVar[str] = "fedns.SRHT(16)"

    def column(self, key0: Any, key1: Any, position: Any, entries: Any) -> None:
        """Fill entries (size,) with the column of S for row `position` of the client whose stream has this key."""
        raise NotImplementedError(f"{type(self).__name__} has neither a formula for its columns nor a plan of its own")

    def plan(self, row_counts: NDArray[np.int64]) -> SketchPlan:
        """What a pass needs, for clients with these numbers of rows."""
        return SketchPlan(COLUMNS, same_size(self.size, row_counts), columns=self)

    def matrix(self, rows: int, key: Keys) -> FloatArray:
        """S written out, for tests and docs: (size, rows)."""
        identity = Shards.from_arrays(np.eye(rows), np.zeros(rows), [rows])
        return self.apply(identity, key[None]).values

    def apply(self, shards: Shards, keys: Keys) -> Ragged:
        """S_j X_j for every client's rows X_j."""
        plan = self.plan(shards.sizes)
        return Ragged(cpu().sketched_rows(shards, plan, keys), plan.offsets)


def same_size(size: int, row_counts: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.full(row_counts.size, size, dtype=np.int64)
