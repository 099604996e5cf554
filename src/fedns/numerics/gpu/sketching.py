"""What the kernels need to know of a sketch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cupy as cp
import numpy as np

from fedns.numerics.backend import COLUMNS, SRHT, Batch, IntArray, SketchPlan
from fedns.numerics.errors import BackendError
from fedns.numerics.gpu import kernels
from fedns.numerics.gpu.kernels import GAUSSIAN, RADEMACHER
from fedns.numerics.gpu.resident import constant

_NEARBY_BYTES = 48 * 1024  # shared memory that every kernel gets
_COLUMN_KINDS = {"gaussian": GAUSSIAN, "rademacher": RADEMACHER}


@dataclass(frozen=True)
class DeviceSketch:
    """A sketch of every client, on the device."""

    kind: int
    keys: Any  # (clients, 2)
    chosen: Any  # (clients, size), rows of the Hadamard matrix
    sizes: Any  # (clients,)

    @classmethod
    def of(cls, batch: Batch, plan: SketchPlan, keys: Any) -> DeviceSketch:
        """keys: (clients, 2) on the device."""
        kind, sizes = source_kind(plan), constant(plan.sizes)
        if kind != SRHT:
            return cls(kind, keys, sizes, sizes)
        populations = 1 << np.ceil(np.log2(batch.stops - batch.starts)).astype(np.int64)
        return cls(kind, keys, sampled(keys, populations, plan.sizes), sizes)


def source_kind(plan: SketchPlan) -> int:
    """KIND of the source."""
    if plan.kind != COLUMNS:
        return plan.kind
    name = getattr(plan.columns, "name", "")
    if name not in _COLUMN_KINDS:
        raise BackendError(f"sketch {name!r} has no counterpart on a device: use srht, sjlt, gaussian, rademacher or rows")
    return _COLUMN_KINDS[name]


def sampled(keys: Any, populations: IntArray, sizes: IntArray) -> Any:
    """For every client so many distinct numbers below its population: (clients, largest size), anything beyond its own."""
    clients, most = len(sizes), int(sizes.max())
    chosen = cp.empty((clients, most), dtype=cp.int64)
    sample = kernels.kernel("sample_without_replacement")
    threads = max(1, min(32, _NEARBY_BYTES // (8 * most)))
    arguments = (keys, constant(populations), constant(sizes), np.int32(clients), np.int32(most), chosen)
    sample((-(-clients // threads),), (threads,), arguments, shared_mem=8 * most * threads)
    return chosen
