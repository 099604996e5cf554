"""The passes over rows that everything else is built of, as a contract: processors and accelerators implement it.

Shapes, for a batch of m clients and M features (columns, and one more where there is an intercept: the constant 1 that
belongs to it is never stored). Where it says (m or 1, M), coefficients are one row for all clients or one for each.

A margin is one number per row. A loss with K outputs (softmax) has its own passes, margins (rows, K), slopes (rows, K) and
curvatures (rows, K, K); the coefficients of all outputs stand one after the other in a vector of K M, so that gradients are
(m, K M), packed Hessians (m, K M (K M + 1) / 2) and vectors (.., K M), and a row of the data is several rows of the root of
the Hessian: only the passes have to know.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedns.numerics.errors import BackendError
from fedns.numerics.formulas import Formulas
from fedns.numerics.parallel import Segments, offsets_of
from fedns.numerics.rows import Rows

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Keys = NDArray[np.uint64]
T = TypeVar("T")

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
    def small_targets(self) -> NDArray[np.int8]: ...  # (rows,) the same in a byte each, () where one is no small integer
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
    def kept(self, name: Hashable, key: Hashable, make: Callable[[], T]) -> T: ...  # make(), unless it was the last key


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
    number of threads, nor on which clients are in a batch.
    """

    def derivatives(self, loss: Formulas, targets: FloatArray, margins: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Slope and curvature of rows whose margins are known: all (rows,)."""

    def losses_along(
        self, loss: Formulas, batch: Batch, w: FloatArray, direction: FloatArray, steps: FloatArray
    ) -> FloatArray:
        """f_j(w + t direction) for each t in steps: w and direction (m or 1, M), result (m, steps)."""

    def gradient(self, loss: Formulas, batch: Batch, w: FloatArray) -> FloatArray:
        """grad f_j(w): w (m or 1, M), result (m, M)."""

    def value_and_gradient(self, loss: Formulas, batch: Batch, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        """f_j(w) and grad f_j(w): w (m or 1, M), results (m,) and (m, M)."""

    def value_gradient_and_curvatures(
        self, loss: Formulas, batch: Batch, w: FloatArray, norms: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The same, and (sum d, sum d^2, sum d |x|^2, largest d |x|^2) of the rows' curvatures d: (m, 4).

        norms (rows,) are the rows' |x|^2 without the intercept's 1.
        """

    def curvatures_along(
        self, loss: Formulas, batch: Batch, w: FloatArray, direction: FloatArray, steps: FloatArray, norms: FloatArray
    ) -> FloatArray:
        """The same four numbers at w + t direction for each t in steps: (m, steps, 4)."""

    def gradient_and_hessian(self, loss: Formulas, batch: Batch, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        """grad f_j(w), and its Hessian's upper triangle by rows: w (m or 1, M), results (m, M), (m, M (M + 1) / 2)."""

    def hessian_times(self, loss: Formulas, batch: Batch, w: FloatArray, vectors: FloatArray) -> FloatArray:
        """H_j(w) v for each of V vectors, no H_j being formed: w (m or 1, M), vectors (m or 1, V, M), result (m, V, M)."""

    def gradient_and_sketch(
        self, loss: Formulas, batch: Batch, w: FloatArray, plan: SketchPlan, keys: Keys
    ) -> tuple[FloatArray, FloatArray]:
        """grad f_j(w), and S_j A_j(w) for the root A_j' A_j of its Hessian, back to back.

        w (m or 1, M), keys (m, 2), results (m, M) and (sum of plan.sizes, M).
        """

    def sketched_rows(self, batch: Batch, plan: SketchPlan, keys: Keys) -> FloatArray:
        """S_j X_j for every client's rows X_j, back to back: keys (m, 2), result (sum of plan.sizes, columns)."""

    def local_steps(self, loss: Formulas, batch: Batch, w: FloatArray, local: LocalSteps, keys: Keys) -> FloatArray:
        """Where mini-batch steps of each client by itself lead: w (m or 1, M), keys (m, 2), result (m, M).

        g_B is the mini-batch's estimate of grad f_j; batches walk through a permutation of the client's rows, a fresh one
        each epoch, the last batch of which may be shorter.
        """


DEVICES = ("cpu", "cuda")


def cpu() -> Backend:
    """The passes on this machine's processors."""
    _require_numba()
    from fedns.numerics.cpu.backend import CpuBackend

    return CpuBackend()


def gpu() -> Backend:
    """The passes on this machine's GPU, which must be one for CUDA."""
    try:
        from fedns.numerics.gpu.backend import GpuBackend, device_name
    except ImportError:
        raise BackendError("device 'cuda' needs CuPy: pip install 'fedns[gpu]', or use device 'cpu'") from None
    device_name()
    return GpuBackend()


def on_device(name: str) -> Backend:
    """The passes on a device: cpu or cuda."""
    if name not in DEVICES:
        raise BackendError(f"device must be {' or '.join(DEVICES)}, got {name!r}")
    return gpu() if name == "cuda" else cpu()


def default() -> Backend:
    """The processor's passes, or the GPU's on a machine without numba."""
    return cpu() if find_spec("numba") else gpu()


def cpu_softmax(classes: int, reference: bool) -> Backend:
    """The passes for the softmax of several margins per row on this machine's processors."""
    _require_numba()
    from fedns.numerics.cpu.softmax.backend import SoftmaxBackend

    return SoftmaxBackend(classes, reference)


def _require_numba() -> None:
    if find_spec("numba") is None:
        raise BackendError("passes over rows on the processor need numba: pip install numba")
