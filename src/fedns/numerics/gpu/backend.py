"""The passes over rows on a GPU: one kernel for narrow rows, batched matrix products for the rest.

Every sum has a fixed order and no two threads add to the same number, so that a run gives the same bits again, whether the
rows stay on the device or come by in turn. They are not those of the processor: coefficients agree to about 1e-12.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cupy as cp
import numpy as np
from cupyx import empty_pinned

from fedns.numerics.backend import ROW_SAMPLING, SJLT, Backend, Batch, FloatArray, IntArray, Keys, LocalSteps, SketchPlan
from fedns.numerics.errors import BackendError
from fedns.numerics.formulas import Formulas
from fedns.numerics.gpu import kernels
from fedns.numerics.gpu.kernels import NO_SKETCH, Fused, Layout
from fedns.numerics.gpu.resident import constant, device_rows
from fedns.numerics.gpu.sketching import DeviceSketch, sampled, source_kind
from fedns.numerics.gpu.sums import Sums, triangle
from fedns.numerics.gpu.windows import DeviceRows, Padded

_FUSED_ROWS = 512, 384  # of a piece of rows of at most 32 features, and of wider ones
_WORKING_BYTES = 1 << 30  # of square matrices, or of rows that mini-batches are drawn from


@dataclass(frozen=True)
class GpuBackend(Backend):
    """Kernels compiled by NVRTC and products of cuBLAS, on the current device; rows stay there between passes."""

    def derivatives(self, loss: Formulas, targets: FloatArray, margins: FloatArray) -> tuple[FloatArray, FloatArray]:
        slope, curvature = kernels.pointwise(loss)[1](cp.asarray(targets), cp.asarray(margins))
        return slope.get(), curvature.get()

    def losses_along(
        self, loss: Formulas, batch: Batch, w: FloatArray, direction: FloatArray, steps: FloatArray
    ) -> FloatArray:
        sums, value = Sums(batch.starts.size), kernels.pointwise(loss)[0]
        for block, weights in _blocks(batch, w):
            z, dz = _margins(block, w), _margins(block, direction)
            losses = [(weights * value(block.targets, z + float(step) * dz)).sum(axis=1) for step in steps]
            sums.add(block, cp.stack(losses, axis=1))
        return _host(sums.total)

    def gradient(self, loss: Formulas, batch: Batch, w: FloatArray) -> FloatArray:
        return self._first_order(loss, batch, w, value=False)[1]

    def value_and_gradient(self, loss: Formulas, batch: Batch, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self._first_order(loss, batch, w, value=True)

    def _first_order(self, loss: Formulas, batch: Batch, w: FloatArray, value: bool) -> tuple[FloatArray, FloatArray]:
        features, clients, rows = w.shape[-1], batch.starts.size, device_rows(batch)
        layout = Layout(str(rows.dtype), rows.columns, features, NO_SKETCH, 0, rows.weighted, value)
        kernel = kernels.fused_kernel(loss, layout)
        if kernel is not None:
            found = _host(_run_fused(kernel, rows, batch, cp.asarray(np.atleast_2d(w)), None, 0))
            return found[-clients:], found[:-clients].reshape(-1, features)
        sums = Sums(clients)
        for block, weights in _blocks(batch, w):
            z = _margins(block, w)
            slope, _ = kernels.pointwise(loss)[1](block.targets, z)
            values = (weights * kernels.pointwise(loss)[0](block.targets, z)).sum(axis=1)
            gradient = cp.matmul((weights * slope)[:, None, :], block.rows)[:, 0]
            sums.add(block, cp.concatenate([gradient, values[:, None]], axis=1))
        found = _host(sums.total)
        return np.ascontiguousarray(found[:, -1]), np.ascontiguousarray(found[:, :-1])

    def curvatures_along(
        self, loss: Formulas, batch: Batch, w: FloatArray, direction: FloatArray, steps: FloatArray, norms: FloatArray
    ) -> FloatArray:
        sums, largest, rows = Sums(batch.starts.size), [], device_rows(batch)
        for block, weights in _blocks(batch, w):
            z, dz = _margins(block, w), _margins(block, direction)
            lengths = rows.own(block.window, norms)[block.index] + float(w.shape[-1] > rows.columns)
            parts, most = [], []
            for step in steps:
                curvature = weights * kernels.pointwise(loss)[1](block.targets, z + float(step) * dz)[1]
                own = curvature * lengths
                parts.append(cp.stack([part.sum(axis=1) for part in (curvature, curvature * curvature, own)], axis=1))
                most.append(own.max(axis=1))
            sums.add(block, cp.stack(parts, axis=1))  # (pieces, steps, 3)
            largest.append(cp.stack(most, axis=1))
        bounds = block.pieces.host_bounds  # every batch has a block
        most_of_clients = np.maximum.reduceat(_host(cp.concatenate(largest)), bounds[:-1], axis=0)
        return np.concatenate([_host(sums.total), most_of_clients[..., None]], axis=2)

    def gradient_and_hessian(self, loss: Formulas, batch: Batch, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        gradient, hessian = self.gradient_and_hessian_there(loss, batch, w)
        return _host(gradient), _host(hessian)

    def gradient_and_hessian_there(self, loss: Formulas, batch: Batch, w: FloatArray) -> tuple[Any, Any]:
        """The same, left on the device."""
        features = w.shape[-1]
        gradients, hessians = Sums(batch.starts.size), Sums(batch.starts.size, triangle(features))
        together = max(1, _WORKING_BYTES // (8 * features * features))
        for block, weights in _blocks(batch, w):
            slope, curvature = kernels.pointwise(loss)[1](block.targets, _margins(block, w))
            gradients.add(block, cp.matmul((weights * slope)[:, None, :], block.rows)[:, 0])
            root = cp.sqrt(weights * curvature)
            for low in range(0, len(root), together):
                scaled = block.rows[low : low + together] * root[low : low + together, :, None]
                hessians.add(block, cp.matmul(scaled.transpose(0, 2, 1), scaled), block.window.low + low)
        return gradients.total, hessians.total

    def hessian_times(self, loss: Formulas, batch: Batch, w: FloatArray, vectors: FloatArray) -> FloatArray:
        sums, there = Sums(batch.starts.size), cp.asarray(vectors)
        for block, weights in _blocks(batch, w):
            _, curvature = kernels.pointwise(loss)[1](block.targets, _margins(block, w))
            own = there[block.client if len(there) > 1 else block.client * 0]  # (pieces, V, M)
            along = cp.matmul(own, block.rows.transpose(0, 2, 1)) * (weights * curvature)[:, None, :]
            sums.add(block, cp.matmul(along, block.rows))
        return _host(sums.total)

    def gradient_and_sketch(
        self, loss: Formulas, batch: Batch, w: FloatArray, plan: SketchPlan, keys: Keys
    ) -> tuple[FloatArray, FloatArray]:
        return _split(_host(self.gradient_and_sketch_there(loss, batch, w, plan, keys)), w.shape[-1], plan.sizes)

    def gradient_and_sketch_there(self, loss: Formulas, batch: Batch, w: FloatArray, plan: SketchPlan, keys: Keys) -> Any:
        """The same, left on the device: all sketches, padded to one size, then all gradients, one after the other."""
        if plan.kind == ROW_SAMPLING:
            return self._sampled(loss, batch, w, plan, keys)
        features, rows, size = w.shape[-1], device_rows(batch), int(plan.sizes.max())
        layout = Layout(str(rows.dtype), rows.columns, features, source_kind(plan), size, rows.weighted, False)
        kernel = kernels.fused_kernel(loss, layout) if plan.kind != SJLT or plan.nonzeros == 1 else None
        points, there = _sent(w, keys)
        sketch = DeviceSketch.of(batch, plan, there)
        if kernel is not None:
            return _run_fused(kernel, rows, batch, points, sketch, size)
        sums = Sums(batch.starts.size)
        for block, weights in _blocks(batch, w):
            slope, curvature = kernels.pointwise(loss)[1](block.targets, _margins(block, w))
            root = cp.sqrt(weights * curvature)
            sums.add(block, _sketch_block(block, weights * slope, root, sketch, plan.nonzeros, size))
        return cp.concatenate([sums.total[:, 1:].reshape(-1), sums.total[:, 0].reshape(-1)])

    def _sampled(self, loss: Formulas, batch: Batch, w: FloatArray, plan: SketchPlan, keys: Keys) -> Any:
        features, size = w.shape[-1], int(plan.sizes.max())
        gradient = cp.asarray(self.gradient(loss, batch, w))
        populations = batch.stops - batch.starts
        chosen = sampled(cp.asarray(keys), populations, plan.sizes)
        present = cp.arange(size) < constant(plan.sizes)[:, None]
        index = cp.where(present, chosen + cp.asarray(batch.starts)[:, None], 0)
        values, targets, sample_weights = device_rows(batch).chosen(batch, index)
        x = cp.ones((*index.shape, features))
        x[..., : batch.rows.shape[1]] = values
        points = cp.asarray(np.broadcast_to(np.atleast_2d(w), (batch.starts.size, features)))
        z = cp.matmul(x, points[:, :, None])[..., 0]
        _, curvature = kernels.pointwise(loss)[1](targets, z)
        share = cp.asarray(populations / plan.sizes / batch.total_weights)[:, None]
        weights = share if sample_weights is None else share * sample_weights
        sketch = x * cp.where(present, cp.sqrt(curvature * weights), 0.0)[..., None]
        return cp.concatenate([sketch.reshape(-1), gradient.reshape(-1)])

    def sketched_rows(self, batch: Batch, plan: SketchPlan, keys: Keys) -> FloatArray:
        if plan.kind == ROW_SAMPLING:
            raise BackendError("a device does not sample rows of a matrix by themselves: use device='cpu'")
        sums, sketch = Sums(batch.starts.size), DeviceSketch.of(batch, plan, cp.asarray(keys))
        for block in device_rows(batch).blocks(batch, batch.rows.shape[1]):
            ones = cp.ones(block.targets.shape)
            sums.add(block, _sketch_block(block, 0.0 * ones, ones, sketch, plan.nonzeros, int(plan.sizes.max())))
        return _split(_host(sums.total[:, 1:]).reshape(-1), batch.rows.shape[1], plan.sizes)[1]

    def local_steps(self, loss: Formulas, batch: Batch, w: FloatArray, local: LocalSteps, keys: Keys) -> FloatArray:
        features, clients, rows = w.shape[-1], batch.starts.size, device_rows(batch)
        points, there = _sent(w, keys)
        diagonal, steps, totals = (cp.asarray(array) for array in (local.diagonal, local.steps, batch.total_weights))
        largest = int((batch.stops - batch.starts).max())
        pieces = rows.pieces(batch, largest, _WORKING_BYTES // (8 * features))  # whole clients
        batch_size, out = min(local.batch_size, largest), cp.empty((clients, features))
        for window in rows.alone(batch, pieces):
            own = slice(window.low, window.high)
            x = cp.ones((window.targets.size, features))
            x[:, : rows.columns] = window.flat.reshape(-1, rows.columns)
            starts, stops = (cp.ascontiguousarray(window.table[:, place]) for place in (1, 2))
            orders, slopes = cp.empty(len(x), dtype=cp.int64), cp.empty((len(starts), batch_size))
            kernels.local_steps(loss)(
                (len(starts),), (256,),
                (x, window.targets, 0 if window.weights is None else window.weights, totals[own], starts, stops,
                 np.int32(features), points[own] if len(points) > 1 else points,
                 np.int32(features if len(points) > 1 else 0), diagonal, float(local.proximal), float(local.rate),
                 steps[own], np.int64(batch_size), there[own], starts, orders, slopes, out[own]),
            )  # fmt: skip
        return _host(out)


def device_name() -> str:
    """The device that passes run on; a sentence where there is none."""
    try:
        return str(cp.cuda.runtime.getDeviceProperties(cp.cuda.Device().id)["name"].decode())
    except cp.cuda.runtime.CUDARuntimeError as error:
        raise BackendError(f"device 'cuda' finds no GPU to compute on ({error}): use device 'cpu'") from None


def _sent(w: FloatArray, keys: Keys) -> tuple[Any, Any]:
    """Coefficients (m or 1, M) and keys (m, 2) on the device, sent together: a copy costs it some microseconds."""
    both = cp.asarray(np.concatenate([w.reshape(-1).view(np.uint64), keys.reshape(-1)]))
    return both[: w.size].view(cp.float64).reshape(-1, w.shape[-1]), both[w.size :].reshape(-1, 2)


def _run_fused(kernel: Fused, rows: DeviceRows, batch: Batch, points: Any, sketch: DeviceSketch | None, size: int) -> Any:
    """The sums of clients: all sketches, all gradients, all values."""
    features, clients = points.shape[-1], batch.starts.size
    pieces = rows.pieces(batch, _FUSED_ROWS[features > 32], rows.window_rows)
    drawn = (0, 0, 0) if sketch is None else (sketch.keys, sketch.chosen, sketch.sizes)
    totals, width = constant(batch.total_weights), 1 + (size + 1) * features
    sums, merge = cp.empty(clients * width), kernels.kernel("merge_sums")
    for window in rows.windows(batch, pieces):
        partial = cp.empty((window.high - window.low, width))
        kernel.kernel(
            (len(partial),), (kernel.threads,),
            (window.flat, window.targets, 0 if window.weights is None else window.weights, totals, window.table, points,
             np.int32(features if len(points) > 1 else 0), *drawn, partial),
            shared_mem=kernel.shared,
        )  # fmt: skip
        first, last = pieces.clients(window.low, window.high)
        numbers = window.low, window.high, first, last - first, clients
        arguments = (partial, pieces.bounds, *map(np.int64, numbers), np.int32(features), np.int32(size), sums)
        merge((-(-(last - first) * width // 256),), (256,), arguments)
    return sums


def _blocks(batch: Batch, w: FloatArray) -> Iterator[tuple[Padded, Any]]:
    """The rows in pieces of one length, and their weights divided by the client's total: (pieces, length)."""
    totals = batch.total_weights
    for block in device_rows(batch).blocks(batch, w.shape[-1]):
        yield block, block.weights / cp.asarray(totals[block.client])[:, None]


def _margins(block: Padded, w: FloatArray) -> Any:
    points = np.atleast_2d(w)
    if len(points) == 1:
        return block.rows @ cp.asarray(points[0])
    return cp.matmul(block.rows, cp.asarray(points[block.client])[:, :, None])[..., 0]


def _sketch_block(block: Padded, slope: Any, root: Any, sketch: DeviceSketch, nonzeros: int, size: int) -> Any:
    """Of every piece its part of the gradient, then of the sketch: (pieces, 1 + size, features)."""
    pieces, length = block.targets.shape
    table = cp.empty((pieces, length, 1 + size))
    kernels.kernel("coefficients")(
        (pieces,), (128,),
        (np.int32(sketch.kind), np.int32(nonzeros), slope, root, block.window.table, sketch.keys, sketch.chosen,
         sketch.sizes, np.int32(size), np.int32(length), table),
    )  # fmt: skip
    return cp.matmul(table.transpose(0, 2, 1), block.rows)


def _split(sums: FloatArray, features: int, sizes: IntArray) -> tuple[FloatArray, FloatArray]:
    """Gradients, and sketches back to back without their padding."""
    clients, size = sizes.size, int(sizes.max())
    sketches, rest = np.split(sums, [clients * size * features])
    table = sketches.reshape(clients, size, features)
    if sizes.min() < size:
        table = table[np.arange(size) < sizes[:, None]]
    return rest[: clients * features].reshape(-1, features), table.reshape(-1, features)


def _host(array: Any) -> FloatArray:
    """A copy in memory that the device can write to directly, several times faster; it returns to a pool."""
    out: FloatArray = empty_pinned(array.shape)
    cp.ascontiguousarray(array).get(out=out)
    return out
