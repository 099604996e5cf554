"""The rows that studies were over: of two sets that differ by a few rows, the sums of both together would show those few."""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedns.core.files import alone_in
from fedns.federation.rules.refusal import small_group
from fedns.federation.site.budget import BUDGET_FOLDER


class RowSets:
    """Which rows of one table studies have been over, on disk; which those are, a study's coordinator chooses.

    A row is left out where it misses a value, and the study says which numbers stand for a missing one.
    """

    def __init__(self, state: Path, mark: str) -> None:
        self._path = state / BUDGET_FOLDER / f"{mark}.rows.jsonl"

    def admit(self, used: NDArray[np.bool_], smallest_difference: int) -> None:
        """R2: refuse rows that differ from an earlier study's by fewer than this, or write them down before any is used."""
        with alone_in(self._path.parent):
            earlier = self._earlier(used.size)
            if any(np.array_equal(rows, used) for rows in earlier):
                return
            if any(np.count_nonzero(rows != used) < smallest_difference for rows in earlier):
                raise small_group(f"its rows differ from an earlier study's by fewer than {smallest_difference}")
            with self._path.open("ab") as file:
                packed = zlib.compress(np.packbits(used).tobytes()).hex()
                file.write(f"\n{json.dumps(packed)}\n".encode())  # a line of its own even after one that was torn
                file.flush()
                os.fsync(file.fileno())

    def _earlier(self, size: int) -> list[NDArray[np.bool_]]:
        found = []
        for line in self._path.read_bytes().split() if self._path.exists() else ():
            with contextlib.suppress(ValueError, TypeError, zlib.error):  # torn by a crash, before anything had left
                packed = np.frombuffer(zlib.decompress(bytes.fromhex(json.loads(line))), dtype=np.uint8)
                found.append(np.unpackbits(packed, count=size).astype(np.bool_))
        return found
