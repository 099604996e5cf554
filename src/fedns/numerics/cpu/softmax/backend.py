"""The passes over rows for a loss with several margins per row, on processors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import softmax

from fedns.numerics import parallel
from fedns.numerics.backend import Backend, Batch, FloatArray, Keys, LocalSteps, SketchPlan, triangle_size
from fedns.numerics.cpu import kernels
from fedns.numerics.cpu.backend import (
    NO_CURVATURES,
    NO_LOSSES,
    NO_NORMS,
    CpuBackend,
    as_table,
    data_of,
    for_each_part,
    merged_curvatures,
    rows_as_root,
    whole_clients,
)
from fedns.numerics.cpu.pointwise import loss_code
from fedns.numerics.cpu.sketching import sketch_code
from fedns.numerics.cpu.softmax import kernels as passes
from fedns.numerics.formulas import Formulas
from fedns.numerics.parallel import Segments
from fedns.numerics.rows import DenseRows, written_once
from fedns.numerics.streaming import Run, in_memory


@dataclass(frozen=True)
class SoftmaxBackend(Backend):
    """Passes for classes 0, 1, ...; the first has no coefficients where it is the reference."""

    classes: int
    reference: bool

    @property
    def outputs(self) -> int:
        return self.classes - int(self.reference)

    def derivatives(self, loss: Formulas, targets: FloatArray, margins: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Margins and slopes (rows, outputs), curvatures (rows, outputs, outputs)."""
        full = np.pad(margins, ((0, 0), (int(self.reference), 0)))
        p = softmax(full, axis=1)[:, int(self.reference) :]
        classes = np.arange(int(self.reference), self.classes)
        curvature = p[:, :, None] * (np.eye(self.outputs) - p[:, None, :])
        return p - (targets[:, None] == classes), curvature

    def losses_along(
        self, loss: Formulas, batch: Batch, w: FloatArray, direction: FloatArray, steps: FloatArray
    ) -> FloatArray:
        segments = batch.segments
        out = np.zeros((segments.number, steps.size))
        before = (as_table(w), as_table(direction), steps)
        self._launch(passes.along, batch, segments, w.shape[-1], before, (NO_NORMS, out, NO_CURVATURES))
        return parallel.merge(out, segments, batch.starts.size)

    def value_and_gradient(self, loss: Formulas, batch: Batch, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        segments = batch.segments
        value, gradient = np.zeros(segments.number), np.zeros((segments.number, w.shape[-1]))
        self._launch(passes.value_and_gradient, batch, segments, w.shape[-1], (as_table(w),), (value, gradient))
        clients = batch.starts.size
        return parallel.merge(value, segments, clients), parallel.merge(gradient, segments, clients)

    def curvatures_along(
        self, loss: Formulas, batch: Batch, w: FloatArray, direction: FloatArray, steps: FloatArray, norms: FloatArray
    ) -> FloatArray:
        segments = batch.segments
        sums = np.zeros((segments.number, steps.size, 4))
        before = (as_table(w), as_table(direction), steps)
        self._launch(passes.along, batch, segments, w.shape[-1], before, (norms, NO_LOSSES, sums), norms)
        return merged_curvatures(sums, segments, batch.starts.size)

    def gradient_and_hessian(self, loss: Formulas, batch: Batch, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        segments = batch.segments
        triangle = np.zeros((segments.number, triangle_size(w.shape[-1])))
        self._launch(passes.hessian, batch, segments, w.shape[-1] ** 2, (as_table(w),), (triangle,))
        return self.gradient(loss, batch, w), parallel.merge(triangle, segments, batch.starts.size)

    def hessian_times(self, loss: Formulas, batch: Batch, w: FloatArray, vectors: FloatArray) -> FloatArray:
        segments = batch.segments
        out = np.zeros((segments.number, *vectors.shape[1:]))
        cost = w.shape[-1] * (1 + vectors.shape[1])
        self._launch(passes.hessian_times, batch, segments, cost, (as_table(w),), (vectors, out))
        return parallel.merge(out, segments, batch.starts.size)

    def gradient_and_sketch(
        self, loss: Formulas, batch: Batch, w: FloatArray, plan: SketchPlan, keys: Keys
    ) -> tuple[FloatArray, FloatArray]:
        points, offsets = as_table(w), plan.offsets
        out = np.zeros((int(offsets[-1]), w.shape[-1]))

        for run in in_memory(written_once(batch.rows), whole_clients(batch)):

            def sketch(place: int, run: Run = run) -> None:
                client = run.low + place
                own = points[client if len(points) > 1 else 0]
                self._add_sketch(batch, run, client, own, plan, keys, out[offsets[client] : offsets[client + 1]])

            parallel.map_clients(sketch, run.high - run.low)
        return self.gradient(loss, batch, w), out

    def _add_sketch(
        self, batch: Batch, run: Run, client: int, w: FloatArray, plan: SketchPlan, keys: Keys, out: FloatArray
    ) -> None:
        """The sketch of a client's root, of which so many rows at a time are written out."""
        rows, y, s, totals = data_of(batch, run)
        begin, count = int(run.segments.begin[client]), int(run.segments.size[client]) * self.classes
        chunk = max(parallel.SEGMENT_ROWS // self.outputs, plan.block_length)
        chunk = 1 << (chunk - 1).bit_length()  # blocks that a sketch transforms must not be cut
        fill, add = _plain(passes.fill_root), _plain(kernels.gradient_and_sketch)
        one = replace(plan, sizes=plan.sizes[client : client + 1])
        for low in range(0, count, chunk):
            high = min(low + chunk, count)
            root, table = np.empty((high - low, w.size)), np.zeros_like(out)
            fill(rows, y, s, 1.0 / totals[client], begin, low, high, w, int(self.reference), self.outputs, root)
            place = [np.array([value], dtype=np.int64) for value in (0, 0, high - low, -low, count)]
            dense = DenseRows.of(root)
            add(
                dense, np.zeros(len(root)), np.empty(0), np.ones(1), Segments(*place), 0, 1,
                np.zeros((1, w.size)), loss_code(rows_as_root), np.zeros((1, w.size)), sketch_code(one, dense),
                keys[client : client + 1], table, np.array([0, len(out)]),
            )  # fmt: skip
            out += table

    def sketched_rows(self, batch: Batch, plan: SketchPlan, keys: Keys) -> FloatArray:
        return CpuBackend().sketched_rows(batch, plan, keys)

    def local_steps(self, loss: Formulas, batch: Batch, w: FloatArray, local: LocalSteps, keys: Keys) -> FloatArray:
        segments = whole_clients(batch)
        out = np.empty((segments.number, w.shape[-1]))
        after = (local.diagonal, local.proximal, local.rate, local.steps, local.batch_size, keys, out)
        self._launch(passes.minibatch_steps, batch, segments, w.shape[-1], (as_table(w),), after)
        return out

    def _launch(
        self,
        kernel: Any,
        batch: Batch,
        segments: Segments,
        row_cost: int,
        before: tuple[Any, ...],
        after: tuple[Any, ...],
        norms: FloatArray = NO_NORMS,
    ) -> None:
        """Run a kernel over parts of the segments, on Python's threads; `norms` has an entry for every row."""

        def part(run: Run, low: int, high: int) -> None:
            own = (array[run.first : run.last] if array is norms else array for array in after)
            kernel(*data_of(batch, run), run.segments, low, high, *before, int(self.reference), self.outputs, *own)

        for_each_part(written_once(batch.rows), segments, part, row_cost)


def _plain(kernel: Any) -> Callable[..., None]:
    """A compiled function as one that a type checker can call."""
    called: Callable[..., None] = kernel
    return called
