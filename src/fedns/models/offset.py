"""An offset: a last column of the rows that is added to every margin and has no coefficient of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedns.core.types import FloatArray, Keys
from fedns.numerics.backend import Backend, Batch, LocalSteps, SketchPlan
from fedns.numerics.formulas import Formulas
from fedns.numerics.linalg import packed_size


@dataclass(frozen=True)
class OffsetBackend:
    """The passes of another backend, whose coefficient of the last stored column is always 1 and told to nobody."""

    passes: Backend

    def derivatives(self, loss: Formulas, targets: FloatArray, margins: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self.passes.derivatives(loss, targets, margins)

    def losses_along(
        self, loss: Formulas, batch: Batch, w: FloatArray, direction: FloatArray, steps: FloatArray
    ) -> FloatArray:
        along = inserted(direction, batch.rows.shape[1] - 1, 0.0)
        return self.passes.losses_along(loss, batch, self._full(batch, w), along, steps)

    def gradient(self, loss: Formulas, batch: Batch, w: FloatArray) -> FloatArray:
        return self._free(batch, self.passes.gradient(loss, batch, self._full(batch, w)))

    def value_and_gradient(self, loss: Formulas, batch: Batch, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        value, gradient = self.passes.value_and_gradient(loss, batch, self._full(batch, w))
        return value, self._free(batch, gradient)

    def value_gradient_and_curvatures(
        self, loss: Formulas, batch: Batch, w: FloatArray, norms: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        value, gradient, sums = self.passes.value_gradient_and_curvatures(loss, batch, self._full(batch, w), norms)
        return value, self._free(batch, gradient), sums

    def curvatures_along(
        self, loss: Formulas, batch: Batch, w: FloatArray, direction: FloatArray, steps: FloatArray, norms: FloatArray
    ) -> FloatArray:
        along = inserted(direction, batch.rows.shape[1] - 1, 0.0)
        return self.passes.curvatures_along(loss, batch, self._full(batch, w), along, steps, norms)

    def gradient_and_hessian(self, loss: Formulas, batch: Batch, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        full = self._full(batch, w)
        gradient, packed = self.passes.gradient_and_hessian(loss, batch, full)
        rows, columns = np.triu_indices(full.shape[-1])
        place = batch.rows.shape[1] - 1
        kept = (rows != place) & (columns != place)
        assert kept.sum() == packed_size(w.shape[-1])
        return self._free(batch, gradient), np.ascontiguousarray(packed[:, kept])

    def hessian_times(self, loss: Formulas, batch: Batch, w: FloatArray, vectors: FloatArray) -> FloatArray:
        wide = inserted(vectors, batch.rows.shape[1] - 1, 0.0)
        return self._free(batch, self.passes.hessian_times(loss, batch, self._full(batch, w), wide))

    def gradient_and_sketch(
        self, loss: Formulas, batch: Batch, w: FloatArray, plan: SketchPlan, keys: Keys
    ) -> tuple[FloatArray, FloatArray]:
        gradient, sketched = self.passes.gradient_and_sketch(loss, batch, self._full(batch, w), plan, keys)
        return self._free(batch, gradient), self._free(batch, sketched)

    def sketched_rows(self, batch: Batch, plan: SketchPlan, keys: Keys) -> FloatArray:
        return np.ascontiguousarray(self.passes.sketched_rows(batch, plan, keys)[:, :-1])

    def local_steps(self, loss: Formulas, batch: Batch, w: FloatArray, local: LocalSteps, keys: Keys) -> FloatArray:
        raise NotImplementedError("mini-batch steps would move the coefficient of the offset")

    def _full(self, batch: Batch, w: FloatArray) -> FloatArray:
        return inserted(w, batch.rows.shape[1] - 1, 1.0)

    def _free(self, batch: Batch, values: FloatArray) -> FloatArray:
        return np.ascontiguousarray(np.delete(values, batch.rows.shape[1] - 1, axis=-1))


def inserted(values: FloatArray, place: int, number: float) -> FloatArray:
    """The same with a number put in at this place of the last axis."""
    return np.ascontiguousarray(np.insert(values, place, number, axis=-1))
