"""A sketch with independent entries of which two thirds are zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import fedns


@dataclass(frozen=True)
class SparseSigns(fedns.Sketch):
    """Entries sqrt(3 / size) times +1, -1 (one in six each) or 0 (Achlioptas, 2003)."""

    name: ClassVar[str] = "sparsesigns"

    def column(self, key0: Any, key1: Any, position: Any, entries: Any) -> None:
        scale = np.sqrt(3.0 / len(entries))
        for row in range(len(entries)):
            face = fedns.random_bits(key0, key1, position * len(entries) + row) % np.uint64(6)
            entries[row] = scale if face == 0 else -scale if face == 1 else 0.0
