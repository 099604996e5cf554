"""The subsampled randomised Hadamard transform."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedns.core.types import FloatArray, Keys
from fedns.numerics import backend
from fedns.numerics.backend import SketchPlan
from fedns.numerics.rng import random_bits, sample_without_replacement
from fedns.sketches.sketch import Sketch


@dataclass(frozen=True)
class SRHT(Sketch):
    """sqrt(1/size) R H diag(signs): rows padded to a power of two P, `size` distinct rows of H; O(n M log size).

    The size is capped at P, where the sketch is exact: S'S = I.

    - size: rows of the sketch, at least 1.
    """

    name: ClassVar[str] = "srht"

    def plan(self, row_counts: NDArray[np.int64]) -> SketchPlan:
        # The power of two above row_counts - 1, or 1: an exponent is exact where a rounded logarithm may not be.
        padded = 1 << np.frexp(row_counts - 1)[1].astype(np.int64)
        sizes = np.minimum(self.size, padded)
        # Any length gives the same entries. A row's share of the work is log B for the transform and k / B for the outputs;
        # sixteen rows is the least, which the kernel does in registers.
        return SketchPlan(backend.SRHT, sizes, block_length=max(16, next_power_of_two(int(sizes.max())) // 2))

    def matrix(self, rows: int, key: Keys) -> FloatArray:
        padded = next_power_of_two(rows)
        size = min(self.size, padded)
        chosen = sample_without_replacement(key[0], ~key[1], padded, size)
        words = [int(random_bits(key[0], key[1], word)) for word in range((rows + 63) // 64)]
        signs = np.array([1.0 - 2.0 * (words[i >> 6] >> (i & 63) & 1) for i in range(rows)])
        return np.asarray(hadamard_entries(chosen, np.arange(rows)) * signs / np.sqrt(size))


def next_power_of_two(n: int) -> int:
    """The smallest power of two at or above n."""
    return 1 << max(0, int(n) - 1).bit_length()


def hadamard_entries(rows: NDArray[np.int64], columns: NDArray[np.int64]) -> FloatArray:
    """The entries (-1)^popcount(r & i) for these rows and columns, written out: for tests and docs."""
    both = (rows[:, None] & columns[None, :]).astype(np.uint64)
    ones = np.zeros(both.shape, dtype=np.uint64)
    while both.any():
        ones ^= both & np.uint64(1)
        both >>= np.uint64(1)
    return 1.0 - 2.0 * ones.astype(np.float64)
