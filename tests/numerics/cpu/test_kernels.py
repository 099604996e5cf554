"""Sums of a pass are made in the order that is written down, to the last bit: the compiler has no say in it."""

import numpy as np
import pytest
import scipy.sparse
from tests.conftest import make_shards

import fedns
from fedns.core.shards import Shards
from fedns.numerics.cpu.kernels import block_rows

ROWS, COLUMNS = 1500, 13
BLOCK = block_rows(COLUMNS + 1, 1)
W = np.random.default_rng(1).normal(size=COLUMNS + 1)


def in_lanes(values):
    """Eight sums of every eighth value, added up by halving, and then the values that are left."""
    whole = len(values) // 8 * 8
    lanes = np.zeros(8)
    for start in range(0, whole, 8):
        lanes = lanes + values[start : start + 8]
    while lanes.size > 1:
        lanes = lanes[: lanes.size // 2] + lanes[lanes.size // 2 :]
    total = lanes[0]
    for value in values[whole:]:
        total += value
    return total


def single_rows(shards):
    """Every row by itself: nothing is added."""
    return Shards.from_arrays(shards.rows.values, shards.targets, (1,) * ROWS)


@pytest.fixture(params=[False, True], ids=["all alike", "weighted"])
def shards(request):
    assert BLOCK < ROWS  # two blocks, neither of which is a multiple of eight rows
    return make_shards(ROWS, COLUMNS, (ROWS,), weighted=request.param)


def weights_of(shards):
    return np.ones(ROWS) if shards.sample_weights is None else shards.sample_weights


def test_losses_are_added_in_lanes_block_by_block(shards):
    problem, steps = fedns.Problem(fedns.Logistic(), intercept=True), np.linspace(0.0, 2.0, 20)
    losses = weights_of(shards) * problem.losses_along(W, W[::-1].copy(), steps, single_rows(shards)).T
    scale = 1.0 / weights_of(shards).sum()
    expected = [scale * in_lanes(row[:BLOCK]) + scale * in_lanes(row[BLOCK:]) for row in losses]
    assert problem.losses_along(W, W[::-1].copy(), steps, shards)[0].tolist() == expected
    assert problem.value_and_gradient(W, shards)[0].tolist() == expected[:1]


def test_slopes_of_an_intercept_are_added_in_lanes_block_by_block(shards):
    problem = fedns.Problem(fedns.Logistic(), intercept=True)
    slopes = problem.gradient(W, single_rows(shards))[:, -1] * (weights_of(shards) * (1.0 / weights_of(shards).sum()))
    expected = in_lanes(slopes[:BLOCK]) + in_lanes(slopes[BLOCK:])
    assert problem.value_and_gradient(W, shards)[1][0, -1] == expected
    assert problem.gradient(W, shards)[0, -1] == expected


def test_margins_of_compressed_rows_are_added_entry_by_entry():
    random = np.random.default_rng(0)
    powers = 2.0 ** random.integers(-3, 4, size=(ROWS, 40))  # whose products are exact, fused or not
    powers[random.random(powers.shape) < 0.7] = 0.0
    w = random.normal(size=41)
    compressed = Shards.from_arrays(scipy.sparse.csr_matrix(powers), np.zeros(ROWS), (1,) * ROWS)
    expected = np.zeros(ROWS)
    for column in range(40):
        expected = expected + powers[:, column] * w[column]
    margins = fedns.Problem(fedns.Squared(), intercept=True).gradient(w, compressed)[:, -1]  # less targets that are 0
    assert np.array_equal(margins, expected + w[40])
