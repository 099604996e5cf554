"""The kernels that take rows eight or sixteen at a time, against the formulas written out."""

from dataclasses import replace

import numpy as np
import pytest

import fedns
from fedns.core.shards import Shards
from fedns.numerics import parallel
from fedns.numerics.cpu import backend
from fedns.numerics.rng import stream_keys
from fedns.numerics.rows import DenseRows

SIZES = np.array([1, 7, 8, 16, 33, 300])  # shorter than a group, whole groups, groups and a rest


def shards(columns, dtype, weighted):
    random = np.random.default_rng(columns)
    rows = int(SIZES.sum())
    features = random.standard_normal((rows, columns)).astype(dtype)
    targets = np.where(random.random(rows) < 0.5, -1.0, 1.0)
    return Shards.from_arrays(features, targets, SIZES, sample_weights=random.random(rows) + 0.1 if weighted else None)


def written_out(problem, data, client, w):
    """The client's gradient and the root of its Hessian."""
    own = slice(data.starts[client], data.stops[client])
    x = data.rows.values[own].astype(np.float64)
    if problem.intercept:
        x = np.hstack([x, np.ones((len(x), 1))])
    weights = np.ones(len(x)) if data.sample_weights is None else data.sample_weights[own]
    weights = weights / weights.sum()
    slope, curvature = problem.loss.slope(data.targets[own], x @ w), problem.loss.curvature(data.targets[own], x @ w)
    return x.T @ (weights * slope), x * np.sqrt(weights * curvature)[:, None]


@pytest.mark.parametrize("columns", [1, 7, 8, 15, 18, 25, 33, 41, 54, 63, 64, 65])
@pytest.mark.parametrize(("dtype", "intercept", "weighted"), [("f8", False, False), ("f4", True, True), ("f8", True, False)])
@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_gradient_and_sketch_of_rows_of_every_width(columns, dtype, intercept, weighted, loss):
    data = shards(columns, dtype, weighted)
    problem = fedns.Problem(loss=fedns.Logistic() if loss == "logistic" else fedns.Squared(), intercept=intercept)
    w = np.random.default_rng(0).standard_normal(problem.num_features(columns)) * 0.3
    keys = stream_keys(0, "test", 0, np.arange(SIZES.size))
    for sketch in (fedns.SJLT(7), fedns.SJLT(7, nonzeros=2), fedns.SRHT(10), fedns.SRHT(40)):
        gradient, table, offsets = problem.gradient_and_sketch(w, data, sketch.plan(data.sizes), keys)
        for client in range(SIZES.size):
            expected, root = written_out(problem, data, client, w)
            np.testing.assert_allclose(gradient[client], expected, atol=1e-12)
            sketched = sketch.matrix(int(SIZES[client]), keys[client]) @ root
            np.testing.assert_allclose(table[offsets[client] : offsets[client + 1]], sketched, atol=1e-12)


@pytest.mark.parametrize("sketch", [fedns.SJLT(20), fedns.SRHT(20)])
def test_threads_and_batches_do_not_change_a_bit(sketch):
    random = np.random.default_rng(3)
    sizes = np.array([70_001, 5, 3000])
    data = Shards.from_arrays(random.standard_normal((sizes.sum(), 18)), np.ones(sizes.sum()), sizes)
    problem, w = fedns.Problem(), random.standard_normal(18)
    keys = stream_keys(0, "test", 0, np.arange(3))
    with parallel.threads(2):
        gradient, table, offsets = problem.gradient_and_sketch(w, data, sketch.plan(data.sizes), keys)
    for client in range(3):
        alone = data.select([client])
        with parallel.threads(1):
            own_gradient, own_table, _ = problem.gradient_and_sketch(w, alone, sketch.plan(alone.sizes), keys[[client]])
        assert np.array_equal(own_gradient[0], gradient[client])
        assert np.array_equal(own_table, table[offsets[client] : offsets[client + 1]])


@pytest.mark.parametrize("columns", [1, 4, 8, 18, 54, 64])
@pytest.mark.parametrize(("dtype", "intercept", "weighted"), [("f8", False, False), ("i2", True, True)])
def test_blocks_of_narrow_rows_have_the_bits_of_other_blocks(columns, dtype, intercept, weighted, monkeypatch):
    data = shards(columns, dtype, weighted)
    problem = fedns.Problem(intercept=intercept)
    w = np.random.default_rng(0).standard_normal(problem.num_features(columns)) * 0.3
    keys, plan = stream_keys(0, "test", 0, np.arange(SIZES.size)), fedns.SRHT(20).plan(data.sizes)
    narrow = problem.gradient_and_sketch(w, data, plan, keys)
    asked = []
    monkeypatch.setattr(backend, "blocks_address", lambda *arguments: asked.append(arguments) or 0)
    for own, other in zip(narrow, problem.gradient_and_sketch(w, data, plan, keys), strict=True):
        np.testing.assert_array_equal(own, other)
    assert asked


@pytest.mark.parametrize("columns", [7, 18, 54])
@pytest.mark.parametrize("sketch", [fedns.SJLT(7), fedns.SRHT(10)])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_group_that_reaches_into_the_next_client_adds_nothing_of_it(columns, sketch, weighted):
    data, problem = shards(columns, "f8", weighted), fedns.Problem()
    rows = data.rows.values.copy()
    rows[data.starts[1::2]] = np.inf  # which nobody may see, not even times zero
    data = replace(data, rows=DenseRows.of(rows))
    keys, w = stream_keys(0, "test", 0, np.arange(SIZES.size)), np.random.default_rng(0).standard_normal(columns) * 0.3
    gradient, table, offsets = problem.gradient_and_sketch(w, data, sketch.plan(data.sizes), keys)
    for client in range(0, SIZES.size, 2):
        alone = data.extract(client, client + 1)  # a view of its rows alone
        own = problem.gradient_and_sketch(w, alone, sketch.plan(alone.sizes), keys[[client]])
        assert np.isfinite(own[0]).all() and np.array_equal(own[0][0], gradient[client])
        assert np.array_equal(own[1], table[offsets[client] : offsets[client + 1]])
