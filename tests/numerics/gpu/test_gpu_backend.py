"""The passes on a GPU against the formulas written out in numpy. Skipped where there is no device."""

import numpy as np
import pytest
from tests.conftest import dense_features, make_shards
from tests.numerics.gpu.device import SIZES, coefficients, needs_device, on, shards

import fedns
from fedns.core.shards import Shards
from fedns.models.losses import LOSSES
from fedns.numerics.backend import LocalSteps
from fedns.numerics.errors import BackendError
from fedns.numerics.rng import random_bits, stream_keys

pytestmark = needs_device
ON_DEVICES = [name for name, loss in LOSSES.items() if loss.on_devices]
WIDTHS = [("logistic", columns) for columns in (1, 8, 18, 54, 64, 65, 130)]
SKETCHES = (
    *(fedns.SJLT(7), fedns.SJLT(7, nonzeros=2), fedns.SRHT(10), fedns.SRHT(40)),
    *(fedns.Gaussian(9), fedns.Rademacher(70), fedns.RowSampling(5)),
)


def written_out(problem, data, client, w):
    """A client's loss, gradient, and the root of its Hessian."""
    own = slice(data.starts[client], data.stops[client])
    x = dense_features(data)[own]
    if problem.intercept:
        x = np.hstack([x, np.ones((len(x), 1))])
    weights = np.ones(len(x)) if data.sample_weights is None else data.sample_weights[own]
    weights = weights / weights.sum()
    y, z = data.targets[own], x @ w
    slope, curvature = problem.loss.derivatives(y, z)
    return weights @ problem.loss.value(y, z), x.T @ (weights * slope), x * np.sqrt(weights * curvature)[:, None]


@pytest.mark.parametrize(("loss", "columns"), [*WIDTHS, *((name, columns) for name in ON_DEVICES for columns in (17, 131))])
@pytest.mark.parametrize(("dtype", "intercept", "weighted"), [("f8", False, False), ("i2", True, True), ("f4", True, False)])
def test_every_pass_against_numpy(loss, columns, dtype, intercept, weighted):
    data, problem = shards(columns, dtype, weighted), on(LOSSES[loss](), intercept)
    try:
        problem.loss.check_targets(data)
    except fedns.DataError:
        data = Shards(data.rows, np.abs(data.targets), data.starts, data.stops, data.sample_weights)
    w = coefficients(problem, data)
    value, gradient = problem.value_and_gradient(w, data)
    second, hessians = problem.gradient_and_hessian(w, data)[0], problem.hessian(w, data)
    along = problem.losses_along(w, -w, np.array([0.0, 1.0]), data)
    vectors = np.random.default_rng(1).standard_normal((1, 3, w.size))
    products = problem.hessian_times(w, vectors, data)
    norms = (dense_features(data) ** 2).sum(axis=1)
    sums = problem.backend.curvatures_along(problem.loss, data, w, -w, np.array([0.0, 1.0]), norms)
    for client in range(SIZES.size):
        expected, slope, root = written_out(problem, data, client, w)
        at_zero = written_out(problem, data, client, 0.0 * w)[0]
        np.testing.assert_allclose(value[client], expected, rtol=1e-12)
        np.testing.assert_allclose(along[client], [expected, at_zero], rtol=1e-12)
        close(gradient[client], slope)
        close(second[client], slope)
        close(hessians[client], root.T @ root)
        close(products[client], vectors[0] @ (root.T @ root))
        lengths = norms[data.starts[client] : data.stops[client]] + intercept
        d = (root**2).sum(axis=1) / lengths
        close(sums[client, 0], np.array([d.sum(), (d**2).sum(), (d * lengths).sum(), (d * lengths).max()]))


@pytest.mark.parametrize("columns", [3, 18, 54, 130])
@pytest.mark.parametrize(("dtype", "intercept", "weighted"), [("f8", False, False), ("i2", True, True)])
@pytest.mark.parametrize("sketch", SKETCHES, ids=lambda sketch: f"{sketch.name}{sketch.size}")
def test_the_sketch_matrices_are_those_of_the_processor(columns, dtype, intercept, weighted, sketch):
    data, problem = shards(columns, dtype, weighted), on(fedns.Logistic(), intercept)
    w = coefficients(problem, data)
    keys = stream_keys(0, "test", 0, np.arange(SIZES.size))
    gradient, table, offsets = problem.gradient_and_sketch(w, data, sketch.plan(data.sizes), keys)
    for client in range(SIZES.size - 1):
        _, slope, root = written_out(problem, data, client, w)
        close(gradient[client], slope)
        close(table[offsets[client] : offsets[client + 1]], sketch.matrix(int(SIZES[client]), keys[client]) @ root)


def test_compressed_rows_are_the_same_rows():
    dense, problem = make_shards(columns=20, sparse=True), on(fedns.Logistic(), intercept=True)
    plain = Shards.from_arrays(dense_features(dense), dense.targets, dense.sizes)
    w = coefficients(problem, plain)
    np.testing.assert_array_equal(problem.gradient(w, dense), problem.gradient(w, plain))


def test_local_steps_against_a_loop():
    data, problem = make_shards(weighted=True), on(fedns.Logistic(), intercept=True)
    w, diagonal = coefficients(problem, data), problem.penalty_curvature(np.zeros(14))
    keys = stream_keys(0, "test", 0, np.arange(data.num_clients))
    steps = -(-2 * data.sizes // 8)
    moved = problem.local_steps(w, data, LocalSteps(steps, 8, 0.3, diagonal, 0.1), keys)
    x = np.hstack([dense_features(data), np.ones((300, 1))])
    for client, (start, stop) in enumerate(zip(data.starts, data.stops, strict=True)):
        u, position, epoch, total = w.copy(), stop - start, 0, data.total_weights[client]
        for _ in range(steps[client]):
            if position == stop - start:
                order, position, epoch = permutation(keys[client], epoch, int(stop - start)), 0, epoch + 1
            rows = start + order[position : position + 8]
            slope = problem.loss.derivatives(data.targets[rows], x[rows] @ u)[0] * data.sample_weights[rows]
            estimate = (stop - start) / len(rows) / total * slope @ x[rows]
            u, position = u - 0.3 * (estimate + diagonal * u + 0.1 * (u - w)), position + len(rows)
        close(moved[client], u)


def permutation(key, epoch, count):
    order = np.arange(count)
    for i in range(count - 1, 0, -1):
        j = int(float(int(random_bits(key[0], key[1], epoch * count + i)) >> 11) * 2.0**-53 * (i + 1))
        order[i], order[j] = order[j], order[i]
    return order


@pytest.mark.parametrize("sketch", [fedns.SJLT(10), fedns.SRHT(10)])
def test_two_runs_give_the_same_bits(sketch):
    data = shards(18)
    runs = [fedns.simulate(fedns.FedNS(sketch), fedns.Problem(), data, rounds=4, device="cuda") for _ in range(2)]
    np.testing.assert_array_equal(runs[0].coefficients, runs[1].coefficients)


def test_a_loss_that_branches_is_refused():
    class Branching(fedns.Logistic):
        def value(self, y, z):
            return z if z > 0 else y

    data = shards(3)
    with pytest.raises(BackendError, match=r"Branching\.value cannot run on a device"):
        on(Branching()).value_and_gradient(np.zeros(3), data)


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12 * (1e-30 + np.abs(b).max()))
