"""Where mini-batch steps lead at a site: every one of them is a gradient of its own, over some of the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedns.core.shards import Shards
from fedns.models.problem import Problem
from fedns.numerics.backend import Batch, Keys, LocalSteps
from fedns.numerics.rng import GOLDEN, uniforms
from fedns.numerics.rows import DenseRows, PlainRows, SparseRows, written_once

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


def steps_of(
    problem: Problem,
    w: FloatArray,
    batch: Batch,
    local: LocalSteps,
    keys: Keys,
    norms: FloatArray,
    before_epoch: Callable[[int], None],
) -> Iterator[tuple[FloatArray, FloatArray]]:
    """The point of every step, and the four sums of curvatures over its batch, as `Concentration.of` takes them.

    The compiled passes tell only where the steps end, and write down the same walk: points agree up to rounding.

    - norms: |x|^2 of every row that is stored.
    - before_epoch: called with the bytes that an epoch takes.
    """
    take = _taking(batch)
    for client, (first, last) in enumerate(zip(batch.starts.tolist(), batch.stops.tolist(), strict=True)):
        rows = last - first
        start = w if w.ndim == 1 else w[client]
        point, epoch = np.array(start, dtype=np.float64), 0
        batches: list[IntArray] = []
        for _ in range(int(local.steps[client])):
            if not batches:
                before_epoch(16 * rows)
                order = first + permutation(keys[client : client + 1], epoch, rows)
                batches = [order[begin : begin + local.batch_size] for begin in range(0, rows, local.batch_size)][::-1]
                epoch += 1
            chosen = batches.pop()
            taken = take(chosen)
            _, gradients, sums = problem.passes.value_gradient_and_curvatures(problem.loss, taken, point, norms[chosen])
            yield point, sums[0]
            share = rows * taken.total_weights[0] / (chosen.size * batch.total_weights[client])
            change = share * gradients[0] + local.diagonal * point + local.proximal * (point - start)
            point = point - local.rate * change


def permutation(keys: Keys, epoch: int, count: int) -> IntArray:
    """The order of rows in an epoch, by Fisher and Yates, as the compiled passes draw it."""
    begin = np.array([epoch * count, 0], dtype=np.uint64) * GOLDEN  # epochs follow one another in the same stream
    draws = uniforms(keys + begin, count)[0]
    places = (draws * np.arange(1, count + 1)).astype(np.int64).tolist()
    order = list(range(count))
    for i in range(count - 1, 0, -1):
        j = places[i]
        order[i], order[j] = order[j], order[i]
    return np.array(order, dtype=np.int64)


def _taking(shards: Batch) -> Callable[[IntArray], Shards]:
    """Return what makes some of the stored rows a client of their own."""
    rows = written_once(shards.rows)
    matrix: Any = rows.block(0, rows.shape[0]) if isinstance(rows, SparseRows) else None

    def take(chosen: IntArray) -> Shards:
        if isinstance(rows, SparseRows):
            part = matrix[chosen]
            taken: PlainRows = SparseRows(part.data, part.indices, part.indptr.astype(np.int64), rows.num_columns)
        else:
            taken = DenseRows.of(rows.values[chosen])
        weights = None if shards.sample_weights is None else shards.sample_weights[chosen]
        return Shards(taken, shards.targets[chosen], np.array([0]), np.array([chosen.size]), weights)

    return take
