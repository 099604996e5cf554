"""An offset: a last column of the rows that is added to every margin and has no coefficient of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedns.numerics.backend import DIRECTIONS, POINTS, TRIANGLES, VECTORS, Batch, FloatArray, Keys, LocalSteps, Vectors
from fedns.numerics.backends.around import AroundBackend, Pass
from fedns.numerics.formulas import Formulas

_PUT_IN = {POINTS: 1.0, DIRECTIONS: 0.0}


@dataclass(frozen=True)
class OffsetBackend(AroundBackend):
    """The passes of another backend, whose coefficient of the last stored column is always 1 and told to nobody."""

    def around(self, one: Pass) -> Any:
        if "batch" not in one.arguments:
            return one.made_by(self.inside)
        place = one.arguments["batch"].rows.shape[1] - 1
        changed = {
            name: np.ascontiguousarray(np.insert(value, place, number, axis=-1))
            for shape, number in _PUT_IN.items()
            for name, value in one.arguments_of(shape).items()
        }

        def without(shape: str, values: Any) -> Any:
            if shape == VECTORS:
                return np.ascontiguousarray(np.delete(values, place, axis=-1))
            if shape == TRIANGLES:
                return _smaller(values, changed["w"].shape[-1], place)
            return values

        return one.with_results(one.made_by(self.inside, **changed), without)

    def local_steps(self, loss: Formulas, batch: Batch, w: FloatArray, local: LocalSteps, keys: Keys) -> Vectors:
        raise NotImplementedError("mini-batch steps would move the coefficient of the offset")


def _smaller(triangles: FloatArray, size: int, place: int) -> FloatArray:
    """Triangles of matrices of this size without the row and the column at a place."""
    rows, columns = np.triu_indices(size)
    return np.ascontiguousarray(triangles[:, (rows != place) & (columns != place)])
