"""What every sketch must keep, whoever wrote it. A new sketch is covered by being registered."""

import numpy as np
import pytest
from tests.conftest import dense_features, make_shards

import fedns
from fedns.numerics.rng import stream_keys
from fedns.sketches import SKETCHES

DRAWS, ROWS = 1500, 12


@pytest.fixture(params=list(SKETCHES))
def kind(request):
    return SKETCHES[request.param]


def keys_of(clients, purpose="sketch"):
    return stream_keys(3, purpose, 1, np.arange(clients))


@pytest.mark.parametrize("layout", [{}, {"sparse": True}, {"columns": 70}], ids=str)
@pytest.mark.parametrize("size", [1, 6, 33])
def test_sketched_rows_are_the_matrix_times_the_rows(kind, size, layout):
    shards, sketch = make_shards(**layout), kind(size)
    keys, x = keys_of(5), dense_features(shards)
    sketched = sketch.apply(shards, keys)
    for client, (a, b) in enumerate(zip(shards.starts, shards.stops, strict=True)):
        matrix = sketch.matrix(int(b - a), keys[client])
        assert matrix.shape[0] <= size and matrix.shape[1] == b - a
        np.testing.assert_allclose(sketched.part(client), matrix @ x[a:b], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("columns", [13, 70])
def test_the_sketched_root_is_the_matrix_times_the_root(kind, columns):
    shards, sketch = make_shards(columns=columns), kind(6)
    problem, keys = fedns.Problem(), keys_of(5)
    w = np.random.default_rng(0).normal(size=columns) / columns
    x = dense_features(shards)
    curvature = problem.loss.curvature(shards.targets, x @ w)
    _, rows, offsets = problem.gradient_and_sketch(w, shards, sketch.plan(shards.sizes), keys)
    for client, (a, b) in enumerate(zip(shards.starts, shards.stops, strict=True)):
        root = np.sqrt(curvature[a:b] / (b - a))[:, None] * x[a:b]
        expected = sketch.matrix(int(b - a), keys[client]) @ root
        np.testing.assert_allclose(rows[offsets[client] : offsets[client + 1]], expected, rtol=1e-8, atol=1e-10)


def test_the_mean_of_s_transposed_s_is_the_identity(kind):
    """Each entry against its own standard error: |z| < 5.5 for 144 entries fails by chance once in 100,000 runs."""
    matrices = [kind(5).matrix(ROWS, key) for key in keys_of(DRAWS)]
    errors = np.stack([s.T @ s - np.eye(ROWS) for s in matrices])
    mean, deviation = errors.mean(axis=0), errors.std(axis=0)
    assert (np.abs(mean) <= 5.5 * deviation / np.sqrt(DRAWS) + 1e-12).all()


def test_the_key_decides_the_matrix_and_nothing_else_does(kind):
    one, same, other = keys_of(1)[0], keys_of(1)[0], keys_of(1, "another purpose")[0]
    assert (kind(5).matrix(40, one) == kind(5).matrix(40, same)).all()
    assert (kind(5).matrix(40, one) != kind(5).matrix(40, other)).any()


def test_fedns_reaches_the_optimum_with_it(kind):
    method = fedns.FedNS(kind(16), line_search=fedns.ArmijoSearch())
    history = fedns.simulate(method, fedns.Problem(penalty=fedns.Ridge(0.1)), make_shards(), rounds=80, gradient_tol=1e-7)
    assert history.converged, history.stop_reason
