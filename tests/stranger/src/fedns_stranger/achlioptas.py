"""A sketch two thirds of whose entries are zero, given by a formula for its columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import fedns
from fedns.numerics.rng import random_bits


@dataclass(frozen=True)
class Achlioptas(fedns.Sketch):
    """Independent entries: +-sqrt(3 / size) with probability 1/6 each, else 0."""

    name: ClassVar[str] = "achlioptas"

    def column(self, key0: Any, key1: Any, position: Any, entries: Any) -> None:
        scale = np.sqrt(3.0 / entries.size)
        for r in range(entries.size):
            die = random_bits(key0, key1, position * entries.size + r) % np.uint64(6)
            entries[r] = scale if die == 0 else -scale if die == 1 else 0.0
