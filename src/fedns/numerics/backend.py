"""The passes over rows that everything else is built of, as a contract: processors and accelerators implement it.

Shapes, for a batch of m clients and M features (columns, and one more where there is an intercept: the constant 1 that
belongs to it is never stored). Where it says (m or 1, M), coefficients are one row for all clients or one for each.

A margin is one number per row. A loss with K outputs (softmax) has its own passes, margins (rows, K), slopes (rows, K) and
curvatures (rows, K, K); the coefficients of all outputs stand one after the other in a vector of K M, so that gradients are
(m, K M), triangles of Hessians (m, K M (K M + 1) / 2) and vectors (.., K M), and a row of the data is several rows of the
root of the Hessian: only the passes have to know.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedns.numerics.formulas import Formulas
from fedns.numerics.parallel import Segments, offsets_of
from fedns.numerics.rows import Rows

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Keys = NDArray[np.uint64]
T = TypeVar("T")

# The shapes of what a pass takes and gives: what stands around a backend goes by them.
POINTS, DIRECTIONS, VECTORS, TRIANGLES = "points", "directions", "vectors", "triangles"
Points = Annotated[FloatArray, POINTS]  # (m or 1, M) coefficients
Directions = Annotated[FloatArray, DIRECTIONS]  # (m or 1, M) or (m or 1, V, M) differences of coefficients
Vectors = Annotated[FloatArray, VECTORS]  # (.., M)
Triangles = Annotated[FloatArray, TRIANGLES]  # (m, M (M + 1) / 2) upper triangles by rows


def triangle_size(features: int) -> int:
    """Numbers in the upper triangle of a symmetric matrix."""
    return features * (features + 1) // 2


SRHT, SJLT, ROW_SAMPLING, COLUMNS = range(4)


@dataclass(frozen=True, eq=False)
class SketchPlan:
    """What a pass needs to know of a sketch: one of the three kinds it has a fast way for, or a formula for its columns."""

    kind: int
    sizes: IntArray  # (m,) rows of each client's sketch
    nonzeros: int = 1  # per column, for SJLT
    block_length: int = 1  # of the blocks SRHT transforms, a power of two
    columns: Formulas | None = None  # with a method column(key0, key1, position, entries), for COLUMNS

    @cached_property
    def offsets(self) -> IntArray:
        """Where each client's sketch begins among all, and where the last one ends: (m + 1,)."""
        return offsets_of(self.sizes)


class Batch(Protocol):
    """The rows of a batch of clients; client j owns rows starts[j] : stops[j]."""

    @property
    def rows(self) -> Rows: ...
    @property
    def targets(self) -> FloatArray: ...  # (rows,)
    @property
    def starts(self) -> IntArray: ...  # (m,)
    @property
    def stops(self) -> IntArray: ...  # (m,)
    @property
    def sample_weights(self) -> FloatArray | None: ...  # (rows,), None means all ones
    @property
    def total_weights(self) -> FloatArray: ...  # (m,)
    @property
    def segments(self) -> Segments: ...  # the rows cut into work, clients in order
    def cached(self, name: Hashable, key: Hashable, make: Callable[[], T]) -> T: ...  # make(), unless it was the last key


class LocalSteps(NamedTuple):
    """Mini-batch steps u <- u - rate (g_B(u) + diagonal u + proximal (u - start))."""

    steps: IntArray  # (m,) how many each client takes
    batch_size: int
    rate: float
    diagonal: FloatArray  # (M,) of the penalty
    proximal: float = 0.0


class Backend(Protocol):
    """Each pass reads the rows once and gives the data terms f_j of clients: sums with sample weights over their total.

    A loss has methods value(y, z) and derivatives(y, z), which gives slope and curvature. Results do not depend on the
    number of threads, nor on which clients are in a batch. A backend inherits from this class, which makes some passes of
    others; one that stands around another, as a site's watch does, has every pass that is declared here.
    """

    def derivatives(self, loss: Formulas, targets: FloatArray, margins: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return slope and curvature of rows whose margins are known: all (rows,)."""

    def losses_along(self, loss: Formulas, batch: Batch, w: Points, direction: Directions, steps: FloatArray) -> FloatArray:
        """Return f_j(w + t direction) for each t in steps: (m, steps)."""

    def gradient(self, loss: Formulas, batch: Batch, w: Points) -> Vectors:
        """Return grad f_j(w): (m, M)."""
        return self.value_and_gradient(loss, batch, w)[1]

    def value_and_gradient(self, loss: Formulas, batch: Batch, w: Points) -> tuple[FloatArray, Vectors]:
        """Return f_j(w) and grad f_j(w): (m,) and (m, M)."""

    def value_gradient_and_curvatures(
        self, loss: Formulas, batch: Batch, w: Points, norms: FloatArray
    ) -> tuple[FloatArray, Vectors, FloatArray]:
        """Return the same, and (sum d, sum d^2, sum d |x|^2, largest d |x|^2) of the rows' curvatures d: (m, 4).

        norms (rows,) are the rows' |x|^2 without the intercept's 1.
        """
        sums = self.curvatures_along(loss, batch, w, np.zeros_like(w), np.zeros(1), norms)[:, 0]
        return (*self.value_and_gradient(loss, batch, w), sums)

    def curvatures_along(
        self, loss: Formulas, batch: Batch, w: Points, direction: Directions, steps: FloatArray, norms: FloatArray
    ) -> FloatArray:
        """Return the same four numbers at w + t direction for each t in steps: (m, steps, 4)."""

    def gradient_and_hessian(self, loss: Formulas, batch: Batch, w: Points) -> tuple[Vectors, Triangles]:
        """Return grad f_j(w) and its Hessian: (m, M) and (m, M (M + 1) / 2)."""

    def hessian_times(self, loss: Formulas, batch: Batch, w: Points, vectors: Directions) -> Vectors:
        """Return H_j(w) v for each of V vectors (m or 1, V, M), no H_j being formed: (m, V, M)."""

    def gradient_and_sketch(
        self, loss: Formulas, batch: Batch, w: Points, plan: SketchPlan, keys: Keys
    ) -> tuple[Vectors, Vectors]:
        """Return grad f_j(w), and S_j A_j(w) for the root A_j' A_j of its Hessian, back to back.

        keys (m, 2), results (m, M) and (sum of plan.sizes, M).
        """

    def sketched_rows(self, batch: Batch, plan: SketchPlan, keys: Keys) -> Vectors:
        """Return S_j X_j for every client's rows X_j, back to back: keys (m, 2), result (sum of plan.sizes, columns)."""

    def local_steps(self, loss: Formulas, batch: Batch, w: Points, local: LocalSteps, keys: Keys) -> Vectors:
        """Return where mini-batch steps of each client by itself lead: keys (m, 2), result (m, M).

        g_B is the mini-batch's estimate of grad f_j; batches walk through a permutation of the client's rows, a fresh one
        each epoch, the last batch of which may be shorter.
        """

    def blocks(
        self, loss: Formulas, batch: Batch, w: Points, at_once: int
    ) -> Iterator[tuple[int, int, NDArray[np.float64]]]:
        """Yield the stored rows of the first client, some at a time, for what no pass adds up at w.

        First, last + 1, and (rows, columns).
        """
        first, last = int(batch.starts[0]), int(batch.stops[0])
        for start in range(first, last, at_once):
            stop = min(start + at_once, last)
            yield start, stop, batch.rows.dense(start, stop)

    def before_rows_are_read(self) -> None:
        """Hear that rows are read next by other means than a pass; a site's watch may refuse."""
        return

    def before_counts_leave(self, counts: IntArray) -> None:
        """Hear of the rows in every cell of tables that leave, (tables, ...); a site's watch may refuse."""
        return
