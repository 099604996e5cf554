"""The passes over rows on processors: clients are cut into segments, kernels run over them, their sums are merged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fedns.numerics import parallel
from fedns.numerics.backend import (
    SJLT,
    SRHT,
    Backend,
    Batch,
    FloatArray,
    IntArray,
    Keys,
    LocalSteps,
    SketchPlan,
    triangle_size,
)
from fedns.numerics.cpu import kernels, pointwise
from fedns.numerics.cpu.local_steps import minibatch_steps
from fedns.numerics.cpu.narrow.sjlt import groups_address
from fedns.numerics.cpu.narrow.srht import blocks_address
from fedns.numerics.cpu.onehot.groups import onehot_groups_address
from fedns.numerics.cpu.onehot.srht import onehot_srht_address
from fedns.numerics.cpu.parts import launch
from fedns.numerics.cpu.pointwise import loss_code
from fedns.numerics.cpu.sketching import sketch_code
from fedns.numerics.formulas import Formulas
from fedns.numerics.onehot import OneHotRows
from fedns.numerics.parallel import Segments, offsets_of
from fedns.numerics.rows import Rows
from fedns.numerics.streaming import Run, in_memory

_NO_WEIGHTS = np.empty(0)
NO_NORMS = np.empty(0)
NO_LOSSES, NO_CURVATURES = np.empty((0, 0)), np.empty((0, 1, 4))


class _Rows(Formulas):
    """A loss whose Hessian has the rows themselves as its root."""

    def value(self, y: Any, z: Any) -> Any:
        return 0.0

    def derivatives(self, y: Any, z: Any) -> tuple[Any, Any]:
        return 0.0, 1.0


rows_as_root = _Rows()


@dataclass(frozen=True)
class CpuBackend(Backend):
    """Kernels compiled by numba, on every thread that is allowed."""

    def derivatives(self, loss: Formulas, targets: FloatArray, margins: FloatArray) -> tuple[FloatArray, FloatArray]:
        slope, curvature = np.empty_like(margins), np.empty_like(margins)
        pointwise.derivatives(loss_code(loss), targets, 0, margins.size, margins, slope, curvature)
        return slope, curvature

    def losses_along(
        self, loss: Formulas, batch: Batch, w: FloatArray, direction: FloatArray, steps: FloatArray
    ) -> FloatArray:
        segments = batch.segments
        out = np.zeros((segments.number, steps.size))
        after = (as_table(w), as_table(direction), steps, loss_code(loss), NO_NORMS, out, NO_CURVATURES)
        _launch(kernels.along_in_parts, batch, segments, w.shape[-1], *after)
        return parallel.merge(out, segments, batch.starts.size)

    def gradient(self, loss: Formulas, batch: Batch, w: FloatArray) -> FloatArray:
        segments = batch.segments
        return self._value_and_gradient(loss, batch, w, segments, np.zeros(0), NO_NORMS, NO_CURVATURES)

    def value_and_gradient(self, loss: Formulas, batch: Batch, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        segments = batch.segments
        value = np.zeros(segments.number)
        gradient = self._value_and_gradient(loss, batch, w, segments, value, NO_NORMS, NO_CURVATURES)
        return parallel.merge(value, segments, batch.starts.size), gradient

    def value_gradient_and_curvatures(
        self, loss: Formulas, batch: Batch, w: FloatArray, norms: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        segments = batch.segments
        value, sums = np.zeros(segments.number), np.zeros((segments.number, 1, 4))
        gradient = self._value_and_gradient(loss, batch, w, segments, value, norms, sums)
        clients = batch.starts.size
        return parallel.merge(value, segments, clients), gradient, merged_curvatures(sums, segments, clients)[:, 0]

    def curvatures_along(
        self, loss: Formulas, batch: Batch, w: FloatArray, direction: FloatArray, steps: FloatArray, norms: FloatArray
    ) -> FloatArray:
        segments = batch.segments
        sums = np.zeros((segments.number, steps.size, 4))
        after = (as_table(w), as_table(direction), steps, loss_code(loss), norms, NO_LOSSES, sums)
        _launch(kernels.along_in_parts, batch, segments, w.shape[-1], *after, norms=norms)
        return merged_curvatures(sums, segments, batch.starts.size)

    def _value_and_gradient(
        self,
        loss: Formulas,
        batch: Batch,
        w: FloatArray,
        segments: Segments,
        value: FloatArray,
        norms: FloatArray,
        sums: FloatArray,
    ) -> FloatArray:
        gradient = np.empty((segments.number, w.shape[-1]))
        after = (as_table(w), loss_code(loss), value, gradient, norms, sums)
        _launch(kernels.value_and_gradient_in_parts, batch, segments, w.shape[-1], *after, norms=norms)
        return parallel.merge(gradient, segments, batch.starts.size)

    def gradient_and_hessian(self, loss: Formulas, batch: Batch, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        segments = batch.segments
        gradient = np.empty((segments.number, w.shape[-1]))
        triangle = np.empty((segments.number, triangle_size(w.shape[-1])))
        after = (as_table(w), loss_code(loss), gradient, triangle)
        _launch(kernels.gradient_and_hessian_in_parts, batch, segments, w.shape[-1] ** 2, *after)
        clients = batch.starts.size
        return parallel.merge(gradient, segments, clients), parallel.merge(triangle, segments, clients)

    def hessian_times(self, loss: Formulas, batch: Batch, w: FloatArray, vectors: FloatArray) -> FloatArray:
        segments = batch.segments
        out = np.empty((segments.number, *vectors.shape[1:]))
        after = (as_table(w), loss_code(loss), vectors, out)
        _launch(kernels.hessian_times_in_parts, batch, segments, w.shape[-1] * (1 + vectors.shape[1]), *after)
        return parallel.merge(out, segments, batch.starts.size)

    def gradient_and_sketch(
        self, loss: Formulas, batch: Batch, w: FloatArray, plan: SketchPlan, keys: Keys
    ) -> tuple[FloatArray, FloatArray]:
        segments, starts = batch.segments, plan.offsets
        if plan.block_length > parallel.SEGMENT_ROWS:  # blocks must not be cut
            segments = parallel.cut(batch.starts, batch.stops, plan.block_length)
        if segments.number != plan.sizes.size:
            starts = offsets_of(plan.sizes[segments.client])
        gradient = np.empty((segments.number, w.shape[-1]))
        table = np.empty((int(starts[-1]), w.shape[-1]))
        code = loss_code(loss)
        if plan.kind == SJLT and plan.nonzeros == 1:
            code = code._replace(groups=groups_address(loss, batch.rows, w.shape[-1]))
            if isinstance(batch.rows, OneHotRows):
                code = code._replace(onehot_groups=onehot_groups_address(loss, batch.rows, w.shape[-1]))
        if plan.kind == SRHT and isinstance(batch.rows, OneHotRows):
            size = int(plan.sizes.max())
            code = code._replace(onehot_srht=onehot_srht_address(loss, batch.rows, w.shape[-1], plan.block_length, size))
        elif plan.kind == SRHT:
            code = code._replace(blocks=blocks_address(loss, batch.rows, w.shape[-1], plan.block_length))
        sketch = sketch_code(plan, batch.rows, in_a_loop=code.blocks != 0)
        after = (as_table(w), code, gradient, sketch, keys, table, starts)
        _launch(kernels.gradient_and_sketch_in_parts, batch, segments, w.shape[-1], *after)
        return parallel.merge(gradient, segments, batch.starts.size), _merged_sketches(table, starts, segments, plan)

    def sketched_rows(self, batch: Batch, plan: SketchPlan, keys: Keys) -> FloatArray:
        segments, columns = whole_clients(batch), batch.rows.shape[1]
        starts = plan.offsets
        table, unused = np.zeros((int(starts[-1]), columns)), np.zeros((segments.number, columns))
        for run in in_memory(batch.rows, segments):
            kernels.gradient_and_sketch(
                run.rows, batch.targets[run.first : run.last], _NO_WEIGHTS, np.ones(segments.number),
                run.segments, run.low, run.high, np.zeros((1, columns)), loss_code(rows_as_root), unused,
                sketch_code(plan, run.rows), keys, table, starts,
            )  # fmt: skip
        return table

    def local_steps(self, loss: Formulas, batch: Batch, w: FloatArray, local: LocalSteps, keys: Keys) -> FloatArray:
        segments, points, code = whole_clients(batch), as_table(w), loss_code(loss)
        out = np.empty((segments.number, w.shape[-1]))
        steps: Any = minibatch_steps
        after = (local.diagonal, local.proximal, local.rate, local.steps, local.batch_size, keys, out)

        def part(run: Run, low: int, high: int) -> None:
            steps(*data_of(batch, run), run.segments, low, high, points, code, *after)

        for_each_part(batch.rows, segments, part, w.shape[-1])
        return out


def _launch(
    kernel: Any,
    batch: Batch,
    segments: Segments,
    row_cost: int,
    *after: Any,
    norms: FloatArray = NO_NORMS,
) -> None:
    """Run a kernel over parts of the segments; `row_cost` is about the number of entries of a row.

    norms: that of `after` which has an entry for every row.
    """
    own = after
    for run in in_memory(batch.rows, segments):
        if run.own is batch.segments:
            cuts = batch.cached(("parts", row_cost), parallel.thread_count(), partial(parallel.part_cuts, run.own, row_cost))
        else:
            cuts = parallel.part_cuts(run.own, row_cost) + run.low
        data = data_of(batch, run)
        if norms is not NO_NORMS:
            own = tuple(array[run.first : run.last] if array is norms else array for array in after)
        # Tuples without names: numba asks Python what a named one is, which takes several times as long. Rows keep theirs.
        others = (*data[1:], run.segments, *own)
        launch(kernel, cuts, data[0], *[tuple(each) if isinstance(each, tuple) else each for each in others])


def for_each_part(rows: Rows, segments: Segments, work: Callable[[Run, int, int], None], row_cost: int) -> None:
    """Call work(run, low, high) over ranges of segments whose rows are in memory, on Python's threads."""
    for run in in_memory(rows, segments):

        def work_on(low: int, high: int, run: Run = run) -> None:
            work(run, run.low + low, run.low + high)

        parallel.for_each_part(run.own, work_on, row_cost)


def data_of(batch: Batch, run: Run) -> tuple[Any, ...]:
    """The first arguments of every kernel."""
    weights = _NO_WEIGHTS if batch.sample_weights is None else batch.sample_weights[run.first : run.last]
    return run.rows, batch.targets[run.first : run.last], weights, batch.total_weights


def as_table(w: FloatArray) -> FloatArray:
    """Coefficients of all clients as the only row of a table; those of each are rows already."""
    return w if w.ndim == 2 else w[np.newaxis]


def whole_clients(batch: Batch) -> Segments:
    """For work that cannot be cut inside a client."""
    return parallel.cut(batch.starts, batch.stops, int((batch.stops - batch.starts).max()))


def merged_curvatures(sums: FloatArray, segments: Segments, clients: int) -> FloatArray:
    """Three sums and a largest value, client by client."""
    merged = np.zeros((clients, *sums.shape[1:]))
    for segment, client in enumerate(segments.client):
        merged[client, :, :3] += sums[segment, :, :3]
        merged[client, :, 3] = np.maximum(merged[client, :, 3], sums[segment, :, 3])
    return merged


def _merged_sketches(table: FloatArray, starts: IntArray, segments: Segments, plan: SketchPlan) -> FloatArray:
    """The sums of the segments' sketches, client by client."""
    offsets = plan.offsets
    if starts is offsets:
        return table
    summed = np.zeros((int(offsets[-1]), table.shape[1]))
    for segment, client in enumerate(segments.client):
        summed[offsets[client] : offsets[client + 1]] += table[starts[segment] : starts[segment + 1]]
    return summed
