"""The passes over rows on a GPU: one kernel for narrow rows, batched matrix products for the rest.

Every sum has a fixed order and no two threads add to the same number, so that a run gives the same bits again. They are not
those of the processor: coefficients agree to about 1e-12.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import cupy as cp
import numpy as np
from cupyx import empty_pinned

from fedns.numerics.backend import (
    COLUMNS,
    ROW_SAMPLING,
    SJLT,
    SRHT,
    Batch,
    FloatArray,
    IntArray,
    Keys,
    LocalSteps,
    SketchPlan,
)
from fedns.numerics.errors import BackendError
from fedns.numerics.formulas import Formulas
from fedns.numerics.gpu import kernels
from fedns.numerics.gpu.kernels import GAUSSIAN, NO_SKETCH, RADEMACHER, Fused, Layout
from fedns.numerics.gpu.resident import Padded, Pieces, ResidentRows, constant, resident
from fedns.numerics.linalg import packed_size

_FUSED_ROWS = 512, 384  # of a piece of rows of at most 32 features, and of wider ones
_WORKING_BYTES = 2**31
_NEARBY_BYTES = 48 * 1024  # shared memory that every kernel gets
_COLUMN_KINDS = {"gaussian": GAUSSIAN, "rademacher": RADEMACHER}


@dataclass(frozen=True)
class GpuBackend:
    """Kernels compiled by NVRTC and products of cuBLAS, on the current device; rows stay there between passes."""

    def derivatives(self, loss: Formulas, targets: FloatArray, margins: FloatArray) -> tuple[FloatArray, FloatArray]:
        slope, curvature = kernels.pointwise(loss)[1](cp.asarray(targets), cp.asarray(margins))
        return slope.get(), curvature.get()

    def losses_along(
        self, loss: Formulas, batch: Batch, w: FloatArray, direction: FloatArray, steps: FloatArray
    ) -> FloatArray:
        padded, weights = _padded(batch, w)
        z, dz = _margins(padded, w), _margins(padded, direction)
        value = kernels.pointwise(loss)[0]
        sums = [(weights * value(padded.targets, z + float(step) * dz)).sum(axis=1) for step in steps]
        return _host(_merged(cp.stack(sums, axis=1), padded.pieces))

    def gradient(self, loss: Formulas, batch: Batch, w: FloatArray) -> FloatArray:
        return self._first_order(loss, batch, w, value=False)[1]

    def value_and_gradient(self, loss: Formulas, batch: Batch, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self._first_order(loss, batch, w, value=True)

    def _first_order(self, loss: Formulas, batch: Batch, w: FloatArray, value: bool) -> tuple[FloatArray, FloatArray]:
        features, rows = w.shape[-1], resident(batch)
        layout = Layout(str(rows.flat.dtype), rows.columns, features, NO_SKETCH, 0, rows.weights is not None, value)
        kernel = kernels.fused(loss, layout)
        if kernel is not None:
            sums = _host(_run_fused(kernel, rows, batch, cp.asarray(np.atleast_2d(w)), None, 0))
            return sums[-batch.starts.size :], sums[: -batch.starts.size].reshape(-1, features)
        padded, weights = _padded(batch, w)
        z = _margins(padded, w)
        slope, _ = kernels.pointwise(loss)[1](padded.targets, z)
        gradient = cp.matmul((weights * slope)[:, None, :], padded.rows)[:, 0]
        values = (weights * kernels.pointwise(loss)[0](padded.targets, z)).sum(axis=1)
        return _host(_merged(values[:, None], padded.pieces))[:, 0], _host(_merged(gradient, padded.pieces))

    def value_gradient_and_curvatures(
        self, loss: Formulas, batch: Batch, w: FloatArray, norms: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        sums = self.curvatures_along(loss, batch, w, np.zeros_like(w), np.zeros(1), norms)[:, 0]
        return *self.value_and_gradient(loss, batch, w), sums

    def curvatures_along(
        self, loss: Formulas, batch: Batch, w: FloatArray, direction: FloatArray, steps: FloatArray, norms: FloatArray
    ) -> FloatArray:
        padded, weights = _padded(batch, w)
        z, dz = _margins(padded, w), _margins(padded, direction)
        lengths = cp.asarray(norms)[padded.index] + float(w.shape[-1] > batch.rows.shape[1])
        sums, largest = [], []
        for step in steps:
            curvature = weights * kernels.pointwise(loss)[1](padded.targets, z + float(step) * dz)[1]
            own = curvature * lengths
            sums.append(cp.stack([curvature.sum(axis=1), (curvature * curvature).sum(axis=1), own.sum(axis=1)], axis=1))
            largest.append(own.max(axis=1))
        merged = _host(_merged(cp.stack(sums, axis=1), padded.pieces))  # (clients, steps, 3)
        starts = padded.pieces.host_bounds[:-1]
        most = np.maximum.reduceat(_host(cp.stack(largest, axis=1)), starts, axis=0)
        return np.concatenate([merged, most[..., None]], axis=2)

    def gradient_and_hessian(self, loss: Formulas, batch: Batch, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        gradient, hessian = self.gradient_and_hessian_there(loss, batch, w)
        return _host(gradient), _host(hessian)

    def gradient_and_hessian_there(self, loss: Formulas, batch: Batch, w: FloatArray) -> tuple[Any, Any]:
        """The same, left on the device."""
        features = w.shape[-1]
        padded, weights = _padded(batch, w)
        slope, curvature = kernels.pointwise(loss)[1](padded.targets, _margins(padded, w))
        gradient = _merged(cp.matmul((weights * slope)[:, None, :], padded.rows)[:, 0], padded.pieces)
        root = cp.sqrt(weights * curvature)
        packed = cp.empty((batch.starts.size, packed_size(features)))
        bounds, triangle = padded.pieces.host_bounds, _triangle(features)
        together = max(1, _WORKING_BYTES // (8 * features * features * int(np.diff(bounds).max())))
        for low in range(0, batch.starts.size, together):
            high = min(low + together, batch.starts.size)
            part = slice(int(bounds[low]), int(bounds[high]))
            scaled = padded.rows[part] * root[part, :, None]
            full = cp.matmul(scaled.transpose(0, 2, 1), scaled).reshape(-1, features * features)
            sums = _sums(full, padded.pieces.bounds[low : high + 1] - int(bounds[low]))
            cp.take(sums, triangle, axis=1, out=packed[low:high])
        return gradient, packed

    def hessian_times(self, loss: Formulas, batch: Batch, w: FloatArray, vectors: FloatArray) -> FloatArray:
        padded, weights = _padded(batch, w)
        _, curvature = kernels.pointwise(loss)[1](padded.targets, _margins(padded, w))
        own = cp.asarray(vectors)[padded.client if vectors.shape[0] > 1 else padded.client * 0]  # (pieces, V, M)
        along = cp.matmul(own, padded.rows.transpose(0, 2, 1)) * (weights * curvature)[:, None, :]
        return _host(_merged(cp.matmul(along, padded.rows), padded.pieces))

    def gradient_and_sketch(
        self, loss: Formulas, batch: Batch, w: FloatArray, plan: SketchPlan, keys: Keys
    ) -> tuple[FloatArray, FloatArray]:
        return _split(_host(self.gradient_and_sketch_there(loss, batch, w, plan, keys)), w.shape[-1], plan.sizes)

    def gradient_and_sketch_there(self, loss: Formulas, batch: Batch, w: FloatArray, plan: SketchPlan, keys: Keys) -> Any:
        """The same, left on the device: all sketches, padded to one size, then all gradients, one after the other."""
        if plan.kind == ROW_SAMPLING:
            return self._sampled(loss, batch, w, plan, keys)
        features, rows, size = w.shape[-1], resident(batch), int(plan.sizes.max())
        kind = _kind(plan)
        layout = Layout(str(rows.flat.dtype), rows.columns, features, kind, size, rows.weights is not None, False)
        kernel = kernels.fused(loss, layout) if kind != SJLT or plan.nonzeros == 1 else None
        points, there = _sent(w, keys)
        sketch = _Sketch.of(kind, batch, plan, there)
        if kernel is not None:
            return _run_fused(kernel, rows, batch, points, sketch, size)
        padded, weights = _padded(batch, w)
        slope, curvature = kernels.pointwise(loss)[1](padded.targets, _margins(padded, w))
        return _sketch_padded(padded, weights * slope, cp.sqrt(weights * curvature), sketch, plan.nonzeros, size)

    def _sampled(self, loss: Formulas, batch: Batch, w: FloatArray, plan: SketchPlan, keys: Keys) -> Any:
        features, size = w.shape[-1], int(plan.sizes.max())
        gradient = cp.asarray(self.gradient(loss, batch, w))
        populations = batch.stops - batch.starts
        chosen = _chosen(cp.asarray(keys), populations, plan.sizes, size)
        present = cp.arange(size) < constant(plan.sizes)[:, None]
        index = cp.where(present, chosen + cp.asarray(batch.starts)[:, None], 0)
        rows = resident(batch)
        x = cp.ones((*index.shape, features))
        x[..., : rows.columns] = rows.flat.reshape(-1, rows.columns)[index]
        points = cp.asarray(np.broadcast_to(np.atleast_2d(w), (batch.starts.size, features)))
        z = cp.matmul(x, points[:, :, None])[..., 0]
        _, curvature = kernels.pointwise(loss)[1](rows.targets[index], z)
        share = cp.asarray(populations / plan.sizes / batch.total_weights)[:, None]
        weights = share if rows.weights is None else share * rows.weights[index]
        sketch = x * cp.where(present, cp.sqrt(curvature * weights), 0.0)[..., None]
        return cp.concatenate([sketch.reshape(-1), gradient.reshape(-1)])

    def sketched_rows(self, batch: Batch, plan: SketchPlan, keys: Keys) -> FloatArray:
        if plan.kind == ROW_SAMPLING:
            raise BackendError("a device does not sample rows of a matrix by themselves: use device='cpu'")
        size = int(plan.sizes.max())
        padded = resident(batch).padded(batch, intercept=False)
        ones = cp.ones(padded.targets.shape)
        sketch = _Sketch.of(_kind(plan), batch, plan, cp.asarray(keys))
        sums = _sketch_padded(padded, 0.0 * ones, ones, sketch, plan.nonzeros, size)
        return _split(_host(sums), batch.rows.shape[1], plan.sizes)[1]

    def local_steps(self, loss: Formulas, batch: Batch, w: FloatArray, local: LocalSteps, keys: Keys) -> FloatArray:
        features, clients, rows = w.shape[-1], batch.starts.size, resident(batch)
        x = cp.ones((rows.flat.size // rows.columns, features))
        x[:, : rows.columns] = rows.flat.reshape(-1, rows.columns)
        points = cp.asarray(np.atleast_2d(w))
        sizes = batch.stops - batch.starts
        order_starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        orders = cp.empty(int(sizes.sum()), dtype=cp.int64)
        batch_size = min(local.batch_size, int(sizes.max()))
        slopes, out = cp.empty((clients, batch_size)), cp.empty((clients, features))
        kernels.local_steps(loss)(
            (clients,), (256,),
            (x, rows.targets, rows.weights if rows.weights is not None else 0, constant(batch.total_weights),
             cp.asarray(batch.starts), cp.asarray(batch.stops), np.int32(features), points,
             np.int32(features if points.shape[0] > 1 else 0), cp.asarray(local.diagonal), float(local.proximal),
             float(local.rate), cp.asarray(local.steps), np.int64(batch_size), cp.asarray(keys), cp.asarray(order_starts),
             orders, slopes, out),
        )  # fmt: skip
        return _host(out)


@dataclass(frozen=True)
class _Sketch:
    """What the kernels need of a sketch, on the device."""

    kind: int
    keys: Any  # (clients, 2)
    chosen: Any  # (clients, size), rows of the Hadamard matrix
    sizes: Any  # (clients,)

    @classmethod
    def of(cls, kind: int, batch: Batch, plan: SketchPlan, there: Any) -> _Sketch:
        sizes = constant(plan.sizes)
        if kind != SRHT:
            return cls(kind, there, sizes, sizes)
        populations = 1 << np.ceil(np.log2(batch.stops - batch.starts)).astype(np.int64)
        return cls(kind, there, _chosen(there, populations, plan.sizes, int(plan.sizes.max())), sizes)


def _kind(plan: SketchPlan) -> int:
    if plan.kind != COLUMNS:
        return plan.kind
    name = getattr(plan.columns, "name", "")
    if name not in _COLUMN_KINDS:
        raise BackendError(f"sketch {name!r} has no counterpart on a device: use srht, sjlt, gaussian, rademacher or rows")
    return _COLUMN_KINDS[name]


def _chosen(keys: Any, populations: IntArray, sizes: IntArray, most: int) -> Any:
    """For every client so many distinct numbers below its population: (clients, most), with anything beyond its size."""
    clients = len(sizes)
    chosen = cp.empty((clients, most), dtype=cp.int64)
    sample = kernels.kernel("sample_without_replacement")
    threads = max(1, min(32, _NEARBY_BYTES // (8 * most)))
    arguments = (keys, constant(populations), constant(sizes), np.int32(clients), np.int32(most), chosen)
    sample((-(-clients // threads),), (threads,), arguments, shared_mem=8 * most * threads)
    return chosen


def _sent(w: FloatArray, keys: Keys) -> tuple[Any, Any]:
    """Coefficients (m or 1, M) and keys (m, 2) on the device, sent together: a copy costs it some microseconds."""
    both = cp.asarray(np.concatenate([w.reshape(-1).view(np.uint64), keys.reshape(-1)]))
    return both[: w.size].view(cp.float64).reshape(-1, w.shape[-1]), both[w.size :].reshape(-1, 2)


def _run_fused(kernel: Fused, rows: ResidentRows, batch: Batch, points: Any, sketch: _Sketch | None, size: int) -> Any:
    """The sums of clients: all sketches, all gradients, all values."""
    features = points.shape[-1]
    pieces = rows.pieces(batch, _FUSED_ROWS[features > 32])
    out = cp.empty((len(pieces.host), 1 + (size + 1) * features))
    drawn = (0, 0, 0) if sketch is None else (sketch.keys, sketch.chosen, sketch.sizes)
    kernel.kernel(
        (len(pieces.host),), (kernel.threads,),
        (rows.flat, rows.targets, rows.weights if rows.weights is not None else 0, constant(batch.total_weights),
         pieces.table, points, np.int32(features if len(points) > 1 else 0), *drawn, out),
        shared_mem=kernel.shared,
    )  # fmt: skip
    clients = batch.starts.size
    merged = cp.empty(clients * out.shape[1])
    merge = kernels.kernel("merge_sums")
    arguments = (out, pieces.bounds, np.int32(clients), np.int32(features), np.int32(size), merged)
    merge((-(-merged.size // 256),), (256,), arguments)
    return merged


def _padded(batch: Batch, w: FloatArray) -> tuple[Padded, Any]:
    """The rows in pieces of one length, and their weights divided by the client's total: (pieces, length)."""
    rows = resident(batch)
    padded = rows.padded(batch, intercept=w.shape[-1] > rows.columns)
    return padded, padded.weights / cp.asarray(batch.total_weights[padded.client])[:, None]


def _margins(padded: Padded, w: FloatArray) -> Any:
    points = np.atleast_2d(w)
    if len(points) == 1:
        return padded.rows @ cp.asarray(points[0])
    return cp.matmul(padded.rows, cp.asarray(points[padded.client])[:, :, None])[..., 0]


def _sketch_padded(padded: Padded, slope: Any, root: Any, sketch: _Sketch, nonzeros: int, size: int) -> Any:
    pieces, length = padded.targets.shape
    table = cp.empty((pieces, length, 1 + size))
    kernels.kernel("coefficients")(
        (pieces,), (128,),
        (np.int32(sketch.kind), np.int32(nonzeros), slope, root, padded.pieces.table, sketch.keys, sketch.chosen,
         sketch.sizes, np.int32(size), np.int32(length), table),
    )  # fmt: skip
    sums = _merged(cp.matmul(table.transpose(0, 2, 1), padded.rows), padded.pieces)
    return cp.concatenate([sums[:, 1:].reshape(-1), sums[:, 0].reshape(-1)])


def _merged(partial: Any, pieces: Pieces) -> Any:
    """The sums of each client's pieces, in order: (pieces, ...) to (clients, ...)."""
    clients = len(pieces.bounds) - 1
    if len(partial) == clients:
        return partial
    return _sums(partial.reshape(len(partial), -1), pieces.bounds).reshape(clients, *partial.shape[1:])


def _sums(partial: Any, bounds: Any) -> Any:
    clients, width = len(bounds) - 1, partial.shape[1]
    if len(partial) == clients:
        return partial
    out = cp.empty((clients, width))
    merge = kernels.kernel("merge_pieces")
    merge((-(-clients * width // 256),), (256,), (partial, bounds, np.int32(clients), np.int64(width), out))
    return out


def _split(sums: FloatArray, features: int, sizes: IntArray) -> tuple[FloatArray, FloatArray]:
    """Gradients, and sketches back to back without their padding."""
    clients, size = sizes.size, int(sizes.max())
    sketches, rest = np.split(sums, [clients * size * features])
    table = sketches.reshape(clients, size, features)
    if sizes.min() < size:
        table = table[np.arange(size) < sizes[:, None]]
    return rest[: clients * features].reshape(clients, features), table.reshape(-1, features)


@cache
def _triangle(features: int) -> Any:
    rows, columns = np.triu_indices(features)
    return cp.asarray(rows * features + columns)


def _host(array: Any) -> FloatArray:
    """A copy in memory that the device can write to directly, several times faster; it returns to a pool."""
    out: FloatArray = empty_pinned(array.shape)
    array.get(out=out)
    return out
