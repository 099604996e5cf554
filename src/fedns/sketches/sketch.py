"""Random sketches: a distribution over size x n matrices S with E[S'S] = I, as a value."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedns.core.checked import Checked
from fedns.core.errors import ConfigError
from fedns.core.messages import Ragged
from fedns.core.shards import Shards
from fedns.numerics.cpu import kernels, parallel, sketching
from fedns.numerics.cpu.pointwise import SQUARED

FloatArray = NDArray[np.float64]
Keys = NDArray[np.uint64]


@dataclass(frozen=True)
class Sketch(Checked, ABC):
    """Kind and size. The matrix S is drawn from a key and never formed: kernels apply it while they read the rows."""

    size: int
    name: ClassVar[str]
    example: ClassVar[str] = "fedns.SRHT(16)"

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ConfigError(f"{type(self).__name__} needs size >= 1, got {self.size}")

    @abstractmethod
    def plan(self, row_counts: NDArray[np.int64]) -> sketching.SketchPlan:
        """What the kernel needs, for clients with these numbers of rows."""

    @abstractmethod
    def matrix(self, rows: int, key: Keys) -> FloatArray:
        """S written out, entry by entry, for tests and docs: (size, rows)."""

    def apply(self, shards: Shards, keys: Keys) -> Ragged:
        """S_j X_j for every client's rows X_j."""
        plan = self.plan(shards.sizes)
        segments = parallel.cut(shards.starts, shards.stops, int(shards.sizes.max()))
        offsets = np.concatenate([[0], np.cumsum(plan.sizes)])
        columns = shards.num_columns
        table, unused = np.zeros((int(offsets[-1]), columns)), np.zeros((segments.number, columns))
        # A squared loss with weight 1 has the rows themselves as the root of its Hessian.
        kernels.gradient_and_sketch(
            shards.rows, shards.targets, np.empty(0), np.ones(shards.num_clients), segments, 0, segments.number,
            np.zeros((1, columns)), False, SQUARED, np.empty(0), unused,
            plan.kind, plan.nonzeros, plan.block_length, keys, table, offsets,
        )  # fmt: skip
        return Ragged(table, offsets)


def same_size(size: int, row_counts: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.full(row_counts.size, size, dtype=np.int64)
